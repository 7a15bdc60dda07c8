//! Asking the person at the terminal before something is overwritten.

use std::io::{BufRead, IsTerminal};

use crate::exit::{Code, Failure};
use crate::output;

/// Says what is about to happen, and goes on only if the person agrees. Fails where nobody can be
/// asked: a script has to say `--yes`.
pub fn confirm(what: &str) -> Result<(), Failure> {
    let hint = "Add --yes if that is what you want.";
    let (input, errors) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !errors.is_terminal() {
        let message = format!("{what} Nobody is at a terminal to agree to that");
        return Err(Failure::usage(message, hint));
    }
    output::note(what);
    output::note("Go on? Type yes:");
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    match read.is_ok() && is_yes(&answer) {
        true => Ok(()),
        false => Err(Failure::new(Code::Failed, "nothing was changed", hint)),
    }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for answer in ["yes\n", "y\n", " YES \n"] {
            assert!(is_yes(answer), "{answer:?}");
        }
        for answer in ["", "\n", "no\n", "ye\n", "yes please\n"] {
            assert!(!is_yes(answer), "{answer:?}");
        }
    }
}

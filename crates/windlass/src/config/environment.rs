//! Checks names in the environment that begin with WINDLASS_: Windlass must know each of them, and
//! an option must take the value.
//!
//! Windlass refuses a name that no option has, like an unknown option: a person who wrote
//! WINDLASS_MAX_RAT believes that a limit holds. Names for other commands are fine, since one
//! environment often serves several commands.

use clap::{Arg, Command};

use super::values;
use crate::exit::Failure;
use crate::nearest;

const PREFIX: &str = "WINDLASS_";
/// Names that are not options: where the lab keeps its state, and what `open` tells its program.
const OTHERS: [&str; 3] = [
    "WINDLASS_STATE_DIR",
    "WINDLASS_DATABASE",
    "WINDLASS_OPEN_DIR",
];
/// Prefixes of the variables that tests set, and of those that hooks get: a hook may run Windlass
/// itself.
const PREFIXES: [&str; 2] = ["WINDLASS_TEST_", "WINDLASS_HOOK_"];

/// Refuses the first name that is unknown.
pub fn check() -> Result<(), Failure> {
    // To make every option costs a short command more than all else.
    if !std::env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
    {
        return Ok(());
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let command = super::cli();
    let known = known(&command);
    match unknown(names, &known) {
        None => check_values(&command),
        Some(name) => Err(Failure::usage(
            format!("no option is called {name} in the environment"),
            hint(&command, &known, &name),
        )),
    }
}

/// Refuses a value that no option of this name takes, whatever command runs. So nobody finds it
/// only in the night when the command that takes it is needed.
fn check_values(command: &Command) -> Result<(), Failure> {
    let options = options(command, "");
    for (name, value) in std::env::vars_os() {
        let takers = options.iter().filter(|it| it.1.get_env() == Some(&name));
        // Bytes that are no text can only be part of a path.
        let Some(value) = value.to_str() else {
            continue;
        };
        let mut refused = None;
        for (table, option) in takers {
            let long = option.get_long().unwrap_or_default();
            refused = values::parse(option, (table, long), value).err();
            if refused.is_none() {
                break;
            }
        }
        if let Some(failure) = refused {
            let what = format!("{} in the environment: ", name.to_string_lossy());
            let hint = failure.hint().unwrap_or(values::CORRECT);
            return Err(Failure::usage(what + failure.message(), hint));
        }
    }
    Ok(())
}

/// What to do about a variable that is unknown. An option whose name it has may have another one.
fn hint(command: &Command, known: &[String], name: &str) -> String {
    let meant = name.trim_start_matches(PREFIX).to_lowercase();
    let meant = meant.replace('_', "-");
    let mut options = options(command, "");
    options.retain(|it| it.1.get_long() == Some(meant.as_str()));
    let variables = options.iter().filter_map(|it| it.1.get_env());
    let mut variables: Vec<_> = variables.map(|name| name.to_string_lossy()).collect();
    variables.sort();
    variables.dedup();
    match (options.is_empty(), variables.is_empty()) {
        (true, _) => {
            let rest = "`windlass COMMAND --help` names the variable of each option; unset this \
                        one if it is not for Windlass.";
            nearest::hint(name, known.iter().map(String::as_str), rest)
        }
        (false, true) => format!(
            "--{meant} has no variable in the environment: type it on the command line, and unset \
             this one."
        ),
        (false, false) => format!(
            "The variable of --{meant} is {}: set that, and unset this one.",
            variables.join(" or ")
        ),
    }
}

/// All options, each with the words of its command.
fn options<'a>(command: &'a Command, words: &str) -> Vec<(String, &'a Arg)> {
    let own = command.get_arguments().map(|it| (words.to_owned(), it));
    let mut all: Vec<_> = own.collect();
    for sub in command.get_subcommands() {
        let words = format!("{words} {}", sub.get_name());
        all.extend(options(sub, words.trim()));
    }
    all
}

fn unknown(names: impl Iterator<Item = String>, known: &[String]) -> Option<String> {
    let mut unknown: Vec<_> = names
        .filter(|name| name.starts_with(PREFIX))
        .filter(|name| !PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|name| !known.contains(name))
        .collect();
    unknown.sort();
    unknown.into_iter().next()
}

/// The names of all options of all commands.
fn known(command: &clap::Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_env);
    let mut names: Vec<_> = own
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.extend(command.get_subcommands().flat_map(known));
    names.extend(OTHERS.map(str::to_owned));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_option_has_is_found() {
        let known = known(&super::super::cli());
        let unknown = |names: &[&str]| unknown(names.iter().map(|it| (*it).to_owned()), &known);
        let fine = [
            "PATH",
            "WINDLASS_TO",
            "WINDLASS_CONFIG",
            "WINDLASS_MOUNT_THREADS",
            "WINDLASS_STATE_DIR",
            "WINDLASS_TEST_ANYTHING",
            "WINDLASS_HOOK_EXIT_CODE",
        ];
        assert_eq!(unknown(&fine), None);
        // Without such a name in the environment there is nothing to check.
        assert_eq!(known.iter().find(|name| !name.starts_with(PREFIX)), None);
        let wrong = [&fine[..], &["WINDLASS_OVERWRIT"]].concat();
        assert_eq!(unknown(&wrong).as_deref(), Some("WINDLASS_OVERWRIT"));
    }

    #[test]
    fn a_name_like_an_option_whose_variable_has_another_name_is_told_that_name() {
        let command = super::super::cli();
        let known = known(&command);
        for (name, says) in [
            ("WINDLASS_LIBRARY", "--library is WINDLASS_SNAPSHOT_LIBRARY"),
            ("WINDLASS_MAX_AGE", "--max-age is WINDLASS_SNAPSHOT_MAX_AGE"),
            ("WINDLASS_LATEST", "--latest has no variable"),
            ("WINDLASS_MAX_RAT", "Did you mean WINDLASS_MAX_RATE?"),
        ] {
            let hint = hint(&command, &known, name);
            assert!(hint.contains(says), "{name}: {hint}");
        }
    }
}

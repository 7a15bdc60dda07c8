//! What clap says about a command line that it does not understand, without what misleads.

use clap::error::{ContextKind, ContextValue};

/// The most letters in which a mistyped word differs from the word that was meant.
const LETTERS_MAX: usize = 2;

/// The error without a tip that names quite another word, and without an option in its usage line
/// that only the environment sets.
pub fn plain(mut error: clap::Error, mut command: clap::Command, words: &[String]) -> clap::Error {
    for (said, tip) in [
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    ] {
        let said = error.get(said).map(texts).unwrap_or_default();
        let tips = error.get(tip).map(texts).unwrap_or_default();
        if !tips.is_empty()
            && !tips
                .iter()
                .any(|tip| said.iter().any(|it| is_near(it, tip)))
        {
            error.remove(tip);
        }
    }
    let value = error.get(ContextKind::InvalidValue).map(texts);
    let option = error.get(ContextKind::InvalidArg).map(texts);
    if let (Some([value]), Some([option])) = (value.as_deref(), option.as_deref())
        && let Some(name) = variable(&command, option, value)
    {
        let name = ContextValue::String(format!("{name} in the environment"));
        error.insert(ContextKind::InvalidArg, name);
    }
    let usage = error.get(ContextKind::Usage);
    if usage.is_some_and(|usage| usage.to_string().contains("--config <FILE>")) {
        command.build();
        let mut inner = &mut command;
        for word in words {
            if inner.find_subcommand(word).is_none() {
                break;
            }
            inner = inner.find_subcommand_mut(word).expect("it was just found");
        }
        let usage = ContextValue::StyledStr(inner.render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    error
}

/// The variable of the environment that gives this option this value, unless the option was typed.
fn variable(command: &clap::Command, option: &str, value: &str) -> Option<String> {
    let long = option.split([' ', '=']).next()?.strip_prefix("--")?;
    let typed = std::env::args().any(|word| {
        let word = word.split('=').next().unwrap_or_default();
        word.strip_prefix("--") == Some(long)
    });
    let of = |argument: &clap::Arg| {
        let name = argument
            .get_env()
            .filter(|_| argument.get_long() == Some(long))?;
        let is_it = std::env::var(name).is_ok_and(|found| found == value);
        is_it.then(|| name.to_string_lossy().into_owned())
    };
    let mut own = command.get_arguments().filter_map(of);
    let mut subs = command.get_subcommands();
    let found = own.next();
    let found = found.or_else(|| subs.find_map(|sub| variable(sub, option, value)));
    found.filter(|_| !typed)
}

fn texts(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        _ => Vec::new(),
    }
}

fn is_near(said: &str, tip: &str) -> bool {
    let (said, tip) = (said.trim_start_matches('-'), tip.trim_start_matches('-'));
    let is_start = !said.is_empty() && tip.starts_with(said);
    is_start || strsim::osa_distance(said, tip) <= LETTERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_may_have_been_meant_is_offered() {
        for (said, tip) in [
            ("restor", "restore"),
            ("--compres", "--compress"),
            ("bakcup", "backup"),
        ] {
            assert!(is_near(said, tip), "{said}");
        }
        for (said, tip) in [
            ("version", "verify"),
            ("stop", "restore"),
            ("--stanza", "--stats"),
        ] {
            assert!(!is_near(said, tip), "{said}");
        }
    }
}

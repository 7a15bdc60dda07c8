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

//! Warnings of a backup. Each has a name that never changes. The user can accept a warning by its
//! name (`--accept`): then it no longer changes the exit code, and only `--details` and `--json`
//! show it.
//!
//! Only a warning about how the source is set up can be accepted. A warning about something that
//! happened, or about damage of the source, cannot: a new damage would stay unseen.

use serde::Serialize;

use crate::cli::acceptable;
use crate::exit::Code;
use crate::{log, output};

/// One warning.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    pub name: &'static str,
    pub text: String,
    pub accepted: bool,
}

/// All warnings of a backup.
#[derive(Debug, Default)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// These warnings, of which the user has accepted some.
    pub fn new(found: impl IntoIterator<Item = (&'static str, String)>, accept: &[String]) -> Self {
        let judged = found.into_iter().map(|(name, text)| Warning {
            name,
            text,
            accepted: is_accepted(name, accept),
        });
        Self(judged.collect())
    }

    /// The exit code of a backup that succeeded with these warnings.
    pub fn code(&self) -> Code {
        match self.0.iter().all(|warning| warning.accepted) {
            true => Code::Done,
            false => Code::Warnings,
        }
    }

    /// Prints them on standard error: those that are accepted with `details` only.
    pub fn print(&self, details: bool) {
        for Warning {
            name,
            text,
            accepted,
        } in &self.0
        {
            match (accepted, details) {
                (false, _) => output::note(&format!("warning: {text} ({name})")),
                (true, true) => output::note(&format!("accepted: {text} ({name})")),
                (true, false) => log::info(&format!("accepted: {text} ({name})")),
            }
        }
        let open = self.0.iter().filter(|warning| !warning.accepted);
        let mut names: Vec<_> = open.map(|warning| warning.name).collect();
        names.retain(|name| acceptable().contains(name));
        names.dedup();
        if !names.is_empty() {
            let names = names.join(",");
            // A hint in the log would have the level of an error.
            output::unlogged(&format!(
                "hint: If it is meant to be so, add --accept {names} (in the configuration: accept \
                 = \"{names}\"). Then it does not change the exit code."
            ));
        }
    }

    /// The warnings as JSON.
    pub fn document(&self) -> serde_json::Value {
        serde_json::json!(self.0)
    }
}

/// Whether the user has accepted the warnings of this name.
pub fn is_accepted(name: &str, accept: &[String]) -> bool {
    accept.iter().any(|accepted| accepted == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::SQLITE_VERSION;

    #[test]
    fn an_accepted_warning_does_not_change_the_exit_code_and_another_does() {
        let found = || [("link-followed", "a link".to_owned())];
        assert_eq!(Warnings::new(found(), &[]).code(), Code::Warnings);
        let accept = ["link-followed".to_owned()];
        let accepted = Warnings::new(found(), &accept);
        assert_eq!(accepted.code(), Code::Done);
        assert_eq!(accepted.document()[0]["accepted"], true);
        let both = found()
            .into_iter()
            .chain([("special-file", "x".to_owned())]);
        assert_eq!(Warnings::new(both, &accept).code(), Code::Warnings);
    }

    #[test]
    fn the_manual_lists_every_warning() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/manual/exit-codes.md"
        );
        let manual = std::fs::read_to_string(path).unwrap();
        let postgres = windlass_postgres::Warning::NAMES.iter();
        let sqlite = windlass_sqlite::Warning::NAMES.iter();
        let all = postgres.chain(sqlite).copied().chain([SQLITE_VERSION]);
        for name in all.clone() {
            assert!(manual.contains(&format!("| `{name}` |")), "{name}");
        }
        assert!(
            acceptable()
                .iter()
                .all(|name| all.clone().any(|it| it == *name))
        );
    }
}

//! Warnings of a backup. Each has a name that never changes. The user can accept a warning by its
//! name. Then it no longer changes how the backup ends.
//!
//! Only a warning about how the source is set up can be accepted. A warning about something that
//! happened, or about damage of the source, cannot: a new damage would stay unseen.

use serde::Serialize;

use crate::ending::Ending;

/// The name of the remark about the SQLite version that last wrote the database.
pub const SQLITE_VERSION: &str = "sqlite-version";

/// The names of the warnings that can be accepted.
pub fn acceptable() -> Vec<&'static str> {
    let postgres = windlass_postgres::Warning::LASTING.iter();
    let sqlite = windlass_sqlite::Warning::LASTING.iter();
    let mut names: Vec<_> = postgres.chain(sqlite).copied().collect();
    names.push(SQLITE_VERSION);
    names
}

/// One warning.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// Its name.
    pub name: &'static str,
    /// What is the matter.
    pub text: String,
    /// Whether the user accepted it.
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

    /// The ending of a backup that succeeded with these warnings.
    pub fn ending(&self) -> Ending {
        match self.0.iter().all(|warning| warning.accepted) {
            true => Ending::Done,
            false => Ending::Warnings,
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Warning> {
        self.0.iter()
    }

    /// The names of those that nobody accepted, and that can be accepted; each once.
    pub fn open_names(&self) -> Vec<&'static str> {
        let open = self.0.iter().filter(|warning| !warning.accepted);
        let mut names: Vec<_> = open.map(|warning| warning.name).collect();
        names.retain(|name| acceptable().contains(name));
        names.dedup();
        names
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

    #[test]
    fn an_accepted_warning_does_not_change_the_ending_and_another_does() {
        let found = || [("link-followed", "a link".to_owned())];
        assert_eq!(Warnings::new(found(), &[]).ending(), Ending::Warnings);
        let accept = ["link-followed".to_owned()];
        let accepted = Warnings::new(found(), &accept);
        assert_eq!(accepted.ending(), Ending::Done);
        assert_eq!(accepted.document()[0]["accepted"], true);
        let both = found()
            .into_iter()
            .chain([("special-file", "x".to_owned())]);
        assert_eq!(Warnings::new(both, &accept).ending(), Ending::Warnings);
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

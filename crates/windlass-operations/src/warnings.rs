//! Warnings of a backup. Each has a name that never changes. The user can accept a warning by its
//! name. Then it no longer changes how the backup ends.
//!
//! Only a warning about how the source is set up can be accepted. A warning about something that
//! happened, or about damage of the source, cannot: a new damage would stay unseen.

use serde::Serialize;
use windlass_engine::{PagesReport, counted};

use crate::ending::Ending;

/// The name of the remark about the SQLite version that last wrote the database.
pub const SQLITE_VERSION: &str = "sqlite-version";

/// The name of the warning about frames that the page codec got wrong.
pub const PAGE_CODEC: &str = "page-codec";

/// The name of the warning about log that is missing between the newest set and now.
pub const LOG_GAP: &str = "log-gap";

/// The name of the warning about log in a place without a set.
pub const LOG_WITHOUT_SET: &str = "log-without-set";

/// The name of the warning about a set that does not stand in the log of its place.
pub const NOT_IN_LOG: &str = "not-in-log";

/// The name of the warning about a full backup that was to build on an earlier set.
pub const FULL_INSTEAD: &str = "full-instead";

/// The name of the warning about a mirror that does not have the set.
pub const MIRROR_FAILED: &str = "mirror-failed";

/// The name of the warning about a mirror that lacks the set on which a set builds.
pub const MIRROR_LACKS_BASE: &str = "mirror-lacks-base";

/// The name of the warning about a database that was emptied since an earlier set or snapshot.
pub(crate) const DATABASE_EMPTIED: &str = "database-emptied";

/// The name of the warning about snapshots of a cluster that another one has replaced.
pub const OTHER_CLUSTER: &str = "other-cluster";

/// The name of the warning about a rolling snapshot by a dearer method than the last one.
pub const METHOD_CHANGED: &str = "method-changed";

/// The names of the warnings that can be accepted.
pub fn acceptable() -> Vec<&'static str> {
    let postgres = windlass_postgres::Warning::LASTING.iter();
    let sqlite = windlass_sqlite::Warning::LASTING.iter();
    let mut names: Vec<_> = postgres.chain(sqlite).copied().collect();
    names.extend([SQLITE_VERSION, LOG_WITHOUT_SET, NOT_IN_LOG]);
    names.extend([OTHER_CLUSTER, METHOD_CHANGED]);
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

    /// Adds a warning that nobody can accept.
    pub(crate) fn add(&mut self, name: &'static str, text: String) {
        self.0.push(Warning {
            name,
            text,
            accepted: false,
        });
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

    /// The names of all of them, each once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().map(|one| one.name.to_owned()).collect();
        names.dedup();
        names
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

/// The warning about a full backup that was to build on an earlier set, and why it is not.
pub(crate) fn of_instead(reason: Option<String>) -> Option<(&'static str, String)> {
    let text = format!("this is a full backup, because {}", reason?);
    Some((FULL_INSTEAD, text))
}

/// The warning about frames whose pages did not come back when that was tried.
pub(crate) fn of_pages(pages: Option<PagesReport>) -> Option<(&'static str, String)> {
    let frames = pages.filter(|pages| pages.wrong_frames > 0)?.wrong_frames;
    let are = if frames == 1 { "is" } else { "are" };
    let frames = counted(frames, "frame");
    let text = format!(
        "{frames} would not have come back from the page codec, and {are} stored without it: the \
         set is good, and this is a mistake in Windlass"
    );
    Some((PAGE_CODEC, text))
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
    fn frames_that_the_page_codec_got_wrong_are_told_and_nobody_can_accept_that() {
        let of = |wrong_frames| {
            of_pages(Some(PagesReport {
                wrong_frames,
                ..PagesReport::default()
            }))
        };
        assert_eq!(of_pages(None), None);
        assert_eq!(of(0), None);
        for (frames, words) in [(1, "1 frame would"), (3, "3 frames would")] {
            let (name, text) = of(frames).unwrap();
            assert_eq!(name, PAGE_CODEC);
            assert!(text.starts_with(words), "{text}");
            assert!(text.contains("the set is good"), "{text}");
            assert_eq!(text.contains("is stored"), frames == 1, "{text}");
        }
        let warnings = Warnings::new(of(1), &["link-followed".to_owned()]);
        assert_eq!(warnings.ending(), Ending::Warnings);
        assert_eq!(warnings.document()[0]["name"], PAGE_CODEC);
        assert_eq!(warnings.open_names(), Vec::<&str>::new());
        assert!(!acceptable().contains(&PAGE_CODEC));
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
        let all = postgres.chain(sqlite).copied();
        let all = all.chain([
            SQLITE_VERSION,
            PAGE_CODEC,
            LOG_GAP,
            LOG_WITHOUT_SET,
            NOT_IN_LOG,
            FULL_INSTEAD,
            OTHER_CLUSTER,
            METHOD_CHANGED,
        ]);
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

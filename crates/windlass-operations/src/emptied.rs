//! Notices that a SQLite database was emptied: a file of 0 bytes is an empty database to SQLite,
//! and a backup or a snapshot of it succeeds.

use std::path::PathBuf;

use windlass_engine::{SetEntry, SetState, show_size};
use windlass_snapshot::{Entry, Record};
use windlass_sqlite::{DatabaseFacts, DatabaseKey, KIND, Warning};

use crate::places::{list, short_id};

/// The warning if the database is empty, and one of these directories has a sealed set of it that
/// is not. A directory that cannot be listed has none: no backup fails for this.
pub fn warning(directories: &[PathBuf], now: &DatabaseFacts) -> Option<Warning> {
    if now.bytes > 0 {
        return None;
    }
    let list = list(directories).ok()?;
    let mut sets = list.sets.iter().rev();
    sets.find_map(|set| {
        let set_bytes = bytes_of(set, now).filter(|bytes| *bytes > 0)?;
        Some(Warning::DatabaseEmptied {
            path: PathBuf::from(&now.path),
            set: short_id(set),
            set_bytes,
        })
    })
}

/// The words of the warning if the database is empty in a snapshot, and an older snapshot in its
/// place is not. `all` lists the place, and is asked only if the database is empty.
pub(crate) fn of_snapshots<'a>(
    now: &Record,
    all: impl FnOnce() -> Option<&'a [Entry]>,
) -> Option<String> {
    if now.source.kind != KIND || bytes_in(now) != Some(0) {
        return None;
    }
    let (name, bytes) = all()?.iter().rev().find_map(|entry| match entry {
        Entry::Snapshot(snapshot) => {
            let bytes = bytes_in(snapshot.record()).filter(|bytes| *bytes > 0)?;
            Some((&snapshot.record().name, bytes))
        }
        _ => None,
    })?;
    Some(format!(
        "{} is empty, although snapshot {name} holds {} of it: if nobody emptied it on purpose, \
         take it from there",
        now.source.path.display(),
        show_size(bytes)
    ))
}

/// How large the database is in a snapshot.
fn bytes_in(record: &Record) -> Option<u64> {
    record.facts.database["bytes"].as_u64()
}

/// How large the database is in a sealed set, if the set is of this database.
fn bytes_of(set: &SetEntry, now: &DatabaseFacts) -> Option<u64> {
    let facts = &set.about.as_ref()?.database;
    let is_of_it = facts["kind"] == KIND && DatabaseKey::of_facts(facts) == now.key();
    let is_sealed = matches!(set.state, SetState::Sealed);
    facts["bytes"].as_u64().filter(|_| is_of_it && is_sealed)
}

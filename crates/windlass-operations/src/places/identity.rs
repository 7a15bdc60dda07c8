//! Which database a set belongs to, as far as the set says it: the keys of databases, and their
//! names.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_engine::{SetAbout, SetEntry};
use windlass_sqlite::DatabaseKey;

/// A database, as the sets of a place name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// What kind of database.
    kind: String,
    /// The key that no other database has: a cluster's system identifier, or a file's machine and
    /// path.
    key: String,
    /// Where a file is; nothing for a cluster.
    file: DatabaseKey,
    /// The name that people use. Two databases may have the same.
    name: String,
    version: String,
}

impl Identity {
    /// The database of a set, if the set says it.
    pub fn of(set: &SetEntry) -> Option<Self> {
        set.about.as_ref().map(Self::of_about)
    }

    fn of_about(about: &SetAbout) -> Self {
        Self::of_facts(&about.database)
    }

    /// The database that these facts of a set describe.
    pub fn of_facts(facts: &Value) -> Self {
        let word = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
        let kind = word("kind");
        let is_cluster = kind == windlass_postgres::KIND;
        let (file, key, version) = match is_cluster {
            true => (
                DatabaseKey::default(),
                word("system_identifier"),
                word("version"),
            ),
            false => {
                let file = DatabaseKey::of_facts(facts);
                let key = file.to_string();
                (file, key, String::new())
            }
        };
        // A cluster that was not asked for its name has the name of its directory.
        let directory = word("data_directory");
        let named = Some(word("name")).filter(|name| !name.is_empty());
        let name = named.or_else(|| directory.rsplit('/').next().map(str::to_owned));
        Self {
            kind,
            key,
            file,
            name: name.unwrap_or_default(),
            version,
        }
    }

    /// Whether both are the same database, even if its name was different at the time.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.kind, &self.key) == (&other.kind, &other.key)
    }

    /// Whether a user may mean this database by this word.
    pub fn is_called(&self, word: &str) -> bool {
        let stem = self.name.rsplit_once('.').map(|(stem, _)| stem);
        // Debian calls its clusters by version and name: 15/main.
        let last = self.name.rsplit_once('/').map(|(_, last)| last);
        let is_named = word == self.name || stem == Some(word) || last == Some(word);
        let is_at = !self.is_cluster() && word == self.file.path;
        is_named || is_at || word == self.key
    }

    /// Where the file of a SQLite database is.
    pub fn file(&self) -> &DatabaseKey {
        &self.file
    }

    /// Whether it is a PostgreSQL cluster.
    pub fn is_cluster(&self) -> bool {
        self.kind == windlass_postgres::KIND
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key, which differs between databases with the same name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `PostgreSQL 15.4`, `SQLite`.
    pub fn kind(&self) -> String {
        match self.kind.as_str() {
            windlass_postgres::KIND => {
                let version = self.version.split(' ').next().unwrap_or_default();
                format!("PostgreSQL {version}")
            }
            windlass_sqlite::KIND => "SQLite".to_owned(),
            other => other.to_owned(),
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.kind(), self.key)
    }
}

/// The databases of these sets, each with its newest set.
pub(super) fn databases<'a>(sets: &[&'a SetEntry]) -> Vec<(Identity, &'a SetEntry)> {
    let newest_first = sets.iter().rev().copied();
    let found = by_database(newest_first).into_iter();
    found.map(|(of, own)| (of, own[0])).collect()
}

/// The sets of each database, in the order in which they come, and the databases in that of their
/// first sets. A place may hold ten thousand sets of a hundred databases, so each set is looked at
/// once. Sets that do not say their database are left out.
pub(crate) fn by_database<'a>(
    sets: impl Iterator<Item = &'a SetEntry>,
) -> Vec<(Identity, Vec<&'a SetEntry>)> {
    let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found: Vec<(Identity, Vec<&SetEntry>)> = Vec::new();
    for set in sets {
        let Some(of) = Identity::of(set) else {
            continue;
        };
        let number = numbers.entry((of.kind.clone(), of.key.clone()));
        let number = *number.or_insert(found.len());
        match found.get_mut(number) {
            Some((_, own)) => own.push(set),
            None => found.push((of, vec![set])),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use windlass_engine::SetState;
    use windlass_engine::media::{BackupType, SetId};

    use super::*;

    fn entry(number: u8, database: Option<Value>) -> SetEntry {
        SetEntry {
            set_id: SetId([number; 16]),
            begun_nanos: i64::from(number),
            is_dated: true,
            stripe_count: 1,
            stripes: Vec::new(),
            about: database.map(|database| SetAbout {
                backup_type: BackupType::Full,
                base: None,
                started: String::new(),
                finished: String::new(),
                file_bytes: 0,
                read_bytes: None,
                database,
            }),
            state: SetState::Sealed,
            holds: Vec::new(),
            hidden: Vec::new(),
            parity: Default::default(),
            may_have_base: false,
        }
    }

    #[test]
    fn sets_of_one_key_are_together_in_their_order_whatever_their_database_was_called() {
        let cluster = |key: &str, name: &str| serde_json::json!({"kind": "postgresql", "system_identifier": key, "name": name});
        let file = |path: &str| serde_json::json!({"kind": "sqlite", "path": path});
        let sets = [
            entry(1, Some(cluster("7", "main"))),
            entry(2, Some(file("7"))),
            entry(3, None),
            entry(4, Some(cluster("8", "main"))),
            entry(5, Some(cluster("7", "old"))),
            entry(6, Some(file("7"))),
        ];
        let shown = |found: Vec<(Identity, Vec<&SetEntry>)>| -> Vec<(String, Vec<u8>)> {
            let numbers = |own: Vec<&SetEntry>| own.iter().map(|set| set.set_id.0[0]).collect();
            let one = |(of, own): (Identity, Vec<&SetEntry>)| (of.key().to_owned(), numbers(own));
            found.into_iter().map(one).collect()
        };
        let expected = [("7", vec![1, 5]), ("7", vec![2, 6]), ("8", vec![4])];
        let expected = expected.map(|(key, own)| (key.to_owned(), own));
        assert_eq!(shown(by_database(sets.iter())), expected);
        let all: Vec<_> = sets.iter().collect();
        let newest = databases(&all).into_iter();
        let newest: Vec<_> = newest.map(|(_, set)| set.set_id.0[0]).collect();
        assert_eq!(newest, [6, 5, 4]);
    }
}

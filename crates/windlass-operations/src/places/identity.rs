//! Which database a set belongs to, as far as the set says it: the keys of databases, and their
//! names.

use serde_json::Value;
use windlass_engine::{SetAbout, SetEntry};

/// A database, as the sets of a place name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What kind of database.
    kind: String,
    /// The key that no other database has: a cluster's system identifier, or a file's path.
    key: String,
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
        let (key, version) = match kind.as_str() {
            windlass_postgres::KIND => (word("system_identifier"), word("version")),
            _ => (word("path"), String::new()),
        };
        // A cluster that was not asked for its name has the name of its directory.
        let directory = word("data_directory");
        let named = Some(word("name")).filter(|name| !name.is_empty());
        let name = named.or_else(|| directory.rsplit('/').next().map(str::to_owned));
        Self {
            kind,
            key,
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
        word == self.name || word == self.key || stem == Some(word) || last == Some(word)
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
    let mut found: Vec<(Identity, &SetEntry)> = Vec::new();
    for set in sets.iter().rev() {
        let Some(of) = Identity::of(set) else {
            continue;
        };
        if !found.iter().any(|(other, _)| other.is_same(&of)) {
            found.push((of, *set));
        }
    }
    found
}

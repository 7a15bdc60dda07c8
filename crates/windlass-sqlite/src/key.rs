//! Which database a file is, among the sets and the log of many machines. A SQLite database has no
//! identity of its own, so its machine and its path stand for it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A database's file: the name of its machine, and its path there.
///
/// ```
/// use windlass_sqlite::DatabaseKey;
/// let key = DatabaseKey { host: "app1".into(), path: "/srv/shop.db".into() };
/// assert_eq!(key.to_string(), "app1:/srv/shop.db");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatabaseKey {
    /// The machine. It has no slash in it. Empty in sets and log that do not say it.
    #[serde(default)]
    pub host: String,
    /// The absolute path, without symbolic links.
    pub path: String,
}

impl DatabaseKey {
    /// The database that facts of a set describe.
    pub fn of_facts(facts: &serde_json::Value) -> Self {
        let word = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
        Self {
            host: word("host"),
            path: word("path"),
        }
    }
}

impl fmt::Display for DatabaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str() {
            "" => f.write_str(&self.path),
            host => write!(f, "{host}:{}", self.path),
        }
    }
}

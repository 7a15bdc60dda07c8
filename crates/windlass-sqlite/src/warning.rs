//! Warnings: what a successful backup must still tell the user. They are values, so that programs
//! can match on them.

use std::fmt;
use std::path::PathBuf;

use windlass_engine::show_size;

/// Something that the user should know about a backup that is nevertheless good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The path of the database is a symbolic link.
    SymbolicLink {
        /// The link.
        link: PathBuf,
        /// The file that was backed up.
        target: PathBuf,
    },
    /// The database file has several names.
    HardLinks {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        count: u64,
    },
    /// A transaction that a process left unfinished was rolled back.
    TransactionRolledBack,
    /// The database changed to WAL mode during the backup.
    BecameWal,
    /// The database is empty, and was not when an earlier backup was made.
    DatabaseEmptied {
        /// The database.
        path: PathBuf,
        /// The beginning of the id of that backup's set.
        set: String,
        /// How large the database is in that set.
        set_bytes: u64,
    },
}

impl Warning {
    /// The names of all warnings.
    pub const NAMES: &[&str] = &[
        "symbolic-link",
        "hard-links",
        "transaction-rolled-back",
        "became-wal",
        "database-emptied",
    ];
    /// The names of those that say how the database is set up. They come back with each backup.
    pub const LASTING: &[&str] = &["symbolic-link", "hard-links", "database-emptied"];

    /// The name of this kind of warning. It never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SymbolicLink { .. } => "symbolic-link",
            Self::HardLinks { .. } => "hard-links",
            Self::TransactionRolledBack => "transaction-rolled-back",
            Self::BecameWal => "became-wal",
            Self::DatabaseEmptied { .. } => "database-emptied",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolicLink { link, target } => write!(
                f,
                "{} is a symbolic link; the database is {}",
                link.display(),
                target.display()
            ),
            Self::HardLinks { path, count } => write!(
                f,
                "{} has {count} hard links: processes that use different names do not share a \
                 journal, which SQLite warns can corrupt the database",
                path.display()
            ),
            Self::TransactionRolledBack => f.write_str(
                "a transaction that had not ended when its process did was rolled back, as SQLite \
                 does on every opening",
            ),
            Self::BecameWal => f.write_str("the database changed to WAL mode during the backup"),
            Self::DatabaseEmptied {
                path,
                set,
                set_bytes,
            } => write!(
                f,
                "{} is empty, although set {set} holds {} of it: if nobody emptied it on purpose, \
                 restore that set",
                path.display(),
                show_size(*set_bytes)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot through a link was said to be a backup.
    #[test]
    fn the_warning_of_a_link_suits_backups_and_snapshots() {
        let warning = Warning::SymbolicLink {
            link: PathBuf::from("shop.db"),
            target: PathBuf::from("/srv/shop.db"),
        };
        let said = "shop.db is a symbolic link; the database is /srv/shop.db";
        assert_eq!(warning.to_string(), said);
    }
}

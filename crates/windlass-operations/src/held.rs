//! What a set holds: a cluster or a SQLite database, and whether it can be one.
//!
//! All checksums of a set can be right and its content wrong, because a CRC is not a signature. So
//! every command that needs the database asks here, and all of them give the same answer.

use windlass_engine::media::{Facts, FileTable, SetDescription};

use crate::error::OperationError;

/// The kind of database in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A PostgreSQL cluster.
    Postgres,
    /// A SQLite database.
    Sqlite,
}

impl Held {
    /// The kind that the set names. Fails for one that this version does not know.
    pub fn of(description: &SetDescription) -> Result<Self, OperationError> {
        Self::of_facts(&description.facts)
    }

    /// The kind that the facts name, wherever they come from.
    pub fn of_facts(facts: &Facts) -> Result<Self, OperationError> {
        let kind = facts.database["kind"].as_str();
        match kind.unwrap_or_default() {
            windlass_postgres::KIND => Ok(Self::Postgres),
            windlass_sqlite::KIND => Ok(Self::Sqlite),
            other => Err(OperationError::UnknownKind {
                kind: other.to_owned(),
            }),
        }
    }

    /// Refuses a set with a link that a restore would refuse. Whoever looks into a mount would
    /// follow it.
    pub fn check_links(files: &FileTable) -> Result<(), OperationError> {
        Ok(windlass_postgres::check_links(files)?)
    }

    /// Refuses a set whose facts and list of files a restore would refuse, wherever it restores to.
    pub fn check(description: &SetDescription) -> Result<(), OperationError> {
        let (facts, files) = (&description.facts, &description.files);
        match Self::of(description)? {
            Self::Postgres => Ok(windlass_postgres::check_set(facts, files)?),
            Self::Sqlite => Ok(windlass_sqlite::check_set(facts, files)?),
        }
    }

    /// Refuses an image whose facts and files are not those of one database.
    pub fn check_image(facts: &Facts, files: &FileTable) -> Result<(), OperationError> {
        match Self::of_facts(facts)? {
            Self::Postgres => Ok(windlass_postgres::check_image(facts, files)?),
            Self::Sqlite => Ok(windlass_sqlite::check_set(facts, files)?),
        }
    }
}

//! Why a relation cannot be extracted.

use thiserror::Error;

use crate::ending::Ending;

/// Why a relation cannot be extracted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtractError {
    /// The set is of a database that has no relations in files of their own.
    #[error("the set is of a database of kind {kind}, not of a PostgreSQL cluster")]
    NoRelations {
        /// What the set says.
        kind: String,
    },
    /// No file is of a relation with this name.
    #[error("the set has no files of a relation {pattern}")]
    NoRelation {
        /// The name.
        pattern: String,
    },
    /// Several databases have a relation with this name.
    #[error("{pattern} is in several databases: {}", databases.join(", "))]
    SeveralDatabases {
        /// The name.
        pattern: String,
        /// The databases.
        databases: Vec<String>,
    },
}

impl ExtractError {
    /// How an operation ends that fails like this.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::NoRelation { .. } => Ending::Failed,
            _ => Ending::Usage,
        }
    }
}

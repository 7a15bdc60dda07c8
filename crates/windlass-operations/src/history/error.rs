//! Why the history has no answer.

use thiserror::Error;
use windlass_repository::CatalogError;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// This user has no state directory.
    #[error("this user has no state directory, so there is no history")]
    NoDirectory,
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The history has no run of this database.
    #[error("the history has no run of {name}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// A database with a similar name.
        near: Option<String>,
    },
    /// Nothing says where sets are.
    #[error("the configuration names no place with sets")]
    NoPlaces,
}

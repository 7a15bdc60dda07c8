//! Errors of the crates below as errors of an operation. One of the engine stays one of the engine,
//! whichever crate returned it.

use windlass_engine::EngineError;
use windlass_image::ImageError;
use windlass_lab::LabError;
use windlass_model::ModelError;
use windlass_postgres::PostgresError;
use windlass_repository::RepositoryError;
use windlass_snapshot::SnapshotError;
use windlass_sqlite::SqliteError;

use super::OperationError;

impl From<EngineError> for OperationError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<ModelError> for OperationError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<ImageError> for OperationError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Engine(error) => error.into(),
            error => Self::Image(error),
        }
    }
}

impl From<LabError> for OperationError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Engine(error) => error.into(),
            LabError::Model(error) => error.into(),
            error => Self::Lab(error),
        }
    }
}

impl From<PostgresError> for OperationError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Engine(error) => error.into(),
            error => Self::Postgres(error),
        }
    }
}

impl From<RepositoryError> for OperationError {
    fn from(error: RepositoryError) -> Self {
        match error {
            RepositoryError::Postgres(error) => error.into(),
            error => Self::Repository(error),
        }
    }
}

impl From<SnapshotError> for OperationError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Engine(error) => error.into(),
            SnapshotError::Image(error) => error.into(),
            SnapshotError::Postgres(error) => error.into(),
            SnapshotError::Sqlite(error) => error.into(),
            error => Self::Snapshot(error),
        }
    }
}

impl From<SqliteError> for OperationError {
    fn from(error: SqliteError) -> Self {
        match error {
            SqliteError::Engine(error) => error.into(),
            error => Self::Sqlite(error),
        }
    }
}

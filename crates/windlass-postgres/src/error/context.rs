//! What was tried when something failed, for errors of others that become ours.

use windlass_engine::EngineError;

use super::PostgresError;

/// Turns an I/O error into ours. Adds what was tried, and on which file.
pub(crate) trait IoContext<T> {
    fn doing(
        self,
        doing: &'static str,
        path: impl AsRef<std::path::Path>,
    ) -> Result<T, PostgresError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(
        self,
        doing: &'static str,
        path: impl AsRef<std::path::Path>,
    ) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Io {
            doing,
            path: path.as_ref().into(),
            source,
        })
    }
}

/// Turns the error of a statement into ours. Adds what the statement was for.
pub(crate) trait SqlContext<T> {
    fn doing(self, doing: &'static str) -> Result<T, PostgresError>;
}

impl<T> SqlContext<T> for Result<T, postgres::Error> {
    fn doing(self, doing: &'static str) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Sql {
            doing,
            source: source.into(),
        })
    }
}

impl PostgresError {
    /// The same error, or its cause if that is the loss of the data directory.
    pub(crate) fn or_gone(self, data_directory: &std::path::Path) -> Self {
        let of_files = matches!(
            self,
            Self::WalMissing { .. }
                | Self::Vanished { .. }
                | Self::Incomplete { .. }
                | Self::Io { .. }
                | Self::Engine(EngineError::SourceIo { .. })
        );
        if !of_files || data_directory.exists() {
            return self;
        }
        Self::DataDirectoryGone {
            path: data_directory.into(),
        }
    }
}

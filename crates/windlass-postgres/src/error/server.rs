//! What the server said when it refused something, in its own words.
//!
//! The client crate calls every refusal `db error` and keeps the server's words behind it. People
//! look those words up, so Windlass shows them as the server wrote them: severity, message and
//! detail. The server's hint goes where all our hints go.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;

use postgres::error::SqlState;

use super::ended;

/// An error of the client crate. If the server said something, it is shown in the server's words.
pub struct ServerError(postgres::Error);

impl ServerError {
    /// The server's own hint, as a sentence.
    pub fn hint(&self) -> Option<&str> {
        self.0.as_db_error()?.hint()
    }
}

/// The client crate's words when the server asked for a password and there is none.
pub(super) const PASSWORD_MISSING: &str = "password missing";

impl ServerError {
    /// Words for a user in place of words for developers.
    fn plain(&self) -> Option<&'static str> {
        let cause = self.0.source()?;
        let io = cause.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return Some("the server closed the connection");
        }
        (cause.to_string() == PASSWORD_MISSING)
            .then_some("the server asks for a password, and none was given")
    }

    /// Whether an opened server says that files of its cluster are damaged or missing.
    pub(crate) fn is_damage(&self) -> bool {
        let always = [
            SqlState::DATA_CORRUPTED,
            SqlState::INDEX_CORRUPTED,
            SqlState::INTERNAL_ERROR,
        ];
        // The directory of a database is missing, or its PG_VERSION says nothing.
        let of_files = [
            SqlState::UNDEFINED_FILE,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INVALID_PARAMETER_VALUE,
        ];
        let is_one = |codes: &[SqlState]| self.0.code().is_some_and(|code| codes.contains(code));
        is_one(&always) || is_one(&of_files) && ended::names_cluster_file(&self.to_string())
    }

    /// What to do if the server says that files of its cluster are damaged, missing or unreadable.
    /// It is meant for the server that is backed up.
    pub(super) fn damage_hint(&self) -> Option<&'static str> {
        let always = [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED];
        // Servers also give these to other faults.
        let of_files = [
            SqlState::INTERNAL_ERROR,
            SqlState::IO_ERROR,
            SqlState::UNDEFINED_FILE,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INVALID_PARAMETER_VALUE,
        ];
        let code = self.0.code()?;
        let text = self.to_string();
        let names_file = ended::names_cluster_file(&text);
        if !(always.contains(code) || of_files.contains(code) && names_file) {
            return None;
        }
        let is_of_database = ["base/", "pg_tblspc/"]
            .iter()
            .any(|part| text.contains(part));
        Some(if is_of_database {
            ended::DATABASE_DAMAGED
        } else {
            ended::SERVER_DAMAGED
        })
    }

    /// Whether the session is over: the server was stopped, crashed, or ended the session.
    pub(crate) fn is_end(&self) -> bool {
        let ends = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
        let io = self
            .0
            .source()
            .is_some_and(<dyn Error>::is::<std::io::Error>);
        self.0.is_closed() || io || self.0.code().is_some_and(|code| ends.contains(code))
    }
}

impl From<postgres::Error> for ServerError {
    fn from(error: postgres::Error) -> Self {
        Self(error)
    }
}

impl Deref for ServerError {
    type Target = postgres::Error;

    fn deref(&self) -> &postgres::Error {
        &self.0
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(said) = self.0.as_db_error() else {
            return match self.plain() {
                Some(words) => f.write_str(words),
                None => self.0.fmt(f),
            };
        };
        write!(f, "{}: {}", said.severity(), said.message())?;
        match said.detail() {
            // Some details have several lines, but our errors have one line.
            Some(detail) => write!(f, " (DETAIL: {})", detail.trim_end().replace('\n', "; ")),
            None => Ok(()),
        }
    }
}

impl Error for ServerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.0.as_db_error() {
            // Display has already shown everything.
            Some(_) => None,
            None if self.plain().is_some() => None,
            None => self.0.source(),
        }
    }
}

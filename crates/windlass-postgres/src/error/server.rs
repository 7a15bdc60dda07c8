//! What the server said when it refused something, in its own words.
//!
//! The client crate calls every refusal `db error` and keeps the server's words behind it. People
//! look those words up, so Windlass shows them as the server wrote them: severity, message and
//! detail. The server's hint goes where all our hints go.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

use postgres::error::SqlState;

/// An error of the client crate. If the server said something, it is shown in the server's words.
pub struct ServerError(postgres::Error);

impl ServerError {
    /// The server's own hint, as a sentence.
    pub fn hint(&self) -> Option<&str> {
        self.0.as_db_error()?.hint()
    }
}

impl ServerError {
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
            return self.0.fmt(f);
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
            None => self.0.source(),
        }
    }
}

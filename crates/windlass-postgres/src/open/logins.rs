//! Which role connects to an opened server, to which database, and with which options.

use postgres::Client;

use super::OpenRequest;
use crate::control::Control;
use crate::error::{PostgresError, SqlContext};
use crate::relations::shared;

/// Databases that every cluster has unless someone has dropped them.
const DATABASES: [&str; 2] = ["postgres", "template1"];
const USUAL_ROLE: &str = "postgres";
/// Asks whether settings of roles or databases load libraries into a session. If this machine lacks
/// such a library, the session cannot start.
const PRELOADS: &str = "SELECT EXISTS (SELECT FROM pg_db_role_setting s, unnest(s.setconfig) c \
     WHERE split_part(c, '=', 1) IN ('session_preload_libraries', 'local_preload_libraries') \
     AND (s.setrole = 0 OR s.setrole = (SELECT oid FROM pg_roles WHERE rolname = $1))), \
     (SELECT rolsuper FROM pg_roles WHERE rolname = $1)";

/// The names to try, the most likely first.
pub(super) struct Logins {
    roles: Vec<String>,
    databases: Vec<String>,
    role_named: bool,
}

/// Which libraries of its role and database our session still loads.
#[derive(Clone, Copy)]
pub(super) enum Preloads {
    /// None.
    None,
    /// Those of session_preload_libraries, which only a superuser can leave out.
    Session,
}

impl Logins {
    /// The server must have recovered, so that its catalogs are in its files.
    pub(super) fn new(request: &OpenRequest, control: &Control) -> Self {
        let (data, major) = (&request.data, request.programs.major());
        let roles = match &request.role {
            Some(role) => vec![role.clone()],
            None => {
                let mut roles = shared::bootstrap_roles(data, control, major);
                roles.extend([USUAL_ROLE.to_owned(), request.owner.clone()]);
                roles
            }
        };
        let mut databases = DATABASES.map(str::to_owned).to_vec();
        databases.extend(shared::databases(data, control, major));
        Self {
            roles,
            databases,
            role_named: request.role.is_some(),
        }
    }

    /// Every role paired with every database.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let databases = self.databases.iter();
        let with = move |role| databases.clone().map(move |name| (role, name.as_str()));
        self.roles.iter().map(String::as_str).flat_map(with)
    }

    /// Whether the user named the role.
    pub(super) fn named(&self) -> bool {
        self.role_named
    }

    /// The roles, for a message.
    pub(super) fn roles(&self) -> String {
        let mut roles = self.roles.clone();
        roles.dedup();
        roles.join(", ")
    }
}

impl Preloads {
    /// The options that the client sends when the session begins; they win over roles and
    /// databases.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::None => {
                "-c statement_timeout=0 -c session_preload_libraries= -c local_preload_libraries="
            }
            Self::Session => "-c statement_timeout=0 -c local_preload_libraries=",
        }
    }
}

/// The options for the user's own sessions: empty, unless a role or database loads libraries.
pub(super) fn options_of_sessions(
    client: &mut Client,
    role: &str,
) -> Result<String, PostgresError> {
    const DOING: &str = "ask for the libraries that roles load";
    let row = client.query_one(PRELOADS, &[&role]).doing(DOING)?;
    let superuser: Option<bool> = row.try_get(1).doing(DOING)?;
    let options = match (row.try_get(0).doing(DOING)?, superuser.unwrap_or_default()) {
        (false, _) => "",
        (true, true) => "-c session_preload_libraries= -c local_preload_libraries=",
        (true, false) => "-c local_preload_libraries=",
    };
    Ok(options.to_owned())
}

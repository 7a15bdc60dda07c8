//! Who logs in to an opened server, where, and with which options.

use postgres::Client;

use super::OpenRequest;
use crate::control::Control;
use crate::error::{PostgresError, SqlContext};
use crate::relations::shared;

/// Databases that a cluster has unless someone has dropped them.
const DATABASES: [&str; 2] = ["postgres", "template1"];
const USUAL_ROLE: &str = "postgres";
/// Settings of roles and databases that load libraries into a session; ones that this machine does
/// not have keep it from coming about.
const PRELOADS: &str = "SELECT EXISTS (SELECT FROM pg_db_role_setting s, unnest(s.setconfig) c \
     WHERE split_part(c, '=', 1) IN ('session_preload_libraries', 'local_preload_libraries') \
     AND (s.setrole = 0 OR s.setrole = (SELECT oid FROM pg_roles WHERE rolname = $1))), \
     (SELECT rolsuper FROM pg_roles WHERE rolname = $1)";

/// The names to try, in the order in which they are likely.
pub(super) struct Logins {
    roles: Vec<String>,
    databases: Vec<String>,
    role_named: bool,
}

/// Which libraries of its role and database a session of ours still loads.
#[derive(Clone, Copy)]
pub(super) enum Preloads {
    /// None.
    None,
    /// Those that only a superuser can leave out.
    Session,
}

impl Logins {
    /// Of a server that has recovered, and so has written its catalogs to its files.
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

    /// Roles and databases, each with each.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let databases = self.databases.iter();
        let with = move |role| databases.clone().map(move |name| (role, name.as_str()));
        self.roles.iter().map(String::as_str).flat_map(with)
    }

    /// Whether the user named the role.
    pub(super) fn named(&self) -> bool {
        self.role_named
    }

    /// The roles, for people.
    pub(super) fn roles(&self) -> String {
        let mut roles = self.roles.clone();
        roles.dedup();
        roles.join(", ")
    }
}

impl Preloads {
    /// What the client says when the session begins, which wins over roles and databases.
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

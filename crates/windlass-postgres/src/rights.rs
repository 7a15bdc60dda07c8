//! The rights that a role needs for a backup, and the statement that gives each.

use crate::error::PostgresError;
use crate::session::Session;

/// A right that a backup's role needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// What the right lets the role do.
    pub what: &'static str,
    /// Whether the role has it.
    pub granted: bool,
    /// Whether a backup works without it.
    pub optional: bool,
    /// The statement that grants it. A superuser must type it in the database of [`Rights`].
    pub grant: String,
}

/// All rights of a role, in the database of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The role, quoted as SQL wants it.
    pub role: String,
    /// The database. A grant on a function is valid in one database only.
    pub database: String,
    /// The rights, one by one.
    pub rights: Vec<Right>,
}

/// The function that starts a backup, with its arguments, in a server of this version.
pub(crate) fn start_function(version_number: u32) -> &'static str {
    match version_number < 150_000 {
        true => "pg_start_backup(text, boolean, boolean)",
        false => "pg_backup_start(text, boolean)",
    }
}

pub(crate) fn stop_function(version_number: u32) -> &'static str {
    match version_number < 150_000 {
        true => "pg_stop_backup(boolean, boolean)",
        false => "pg_backup_stop(boolean)",
    }
}

pub(crate) const IDENTIFIER_FUNCTION: &str = "pg_control_system()";

/// The statement that makes a role a member of the one that may see all settings.
pub(crate) fn grant_settings(role: &str) -> String {
    format!("GRANT pg_read_all_settings TO {role};")
}

pub(crate) fn grant_function(function: &str, role: &str) -> String {
    format!("GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO {role};")
}

/// Asks the server for each right.
pub(crate) fn ask(session: &mut Session) -> Result<Rights, PostgresError> {
    const DOING: &str = "ask for the role's rights";
    let version = session.version_number();
    let (role, database) = (session.role().to_owned(), session.database().to_owned());
    let settings = "SELECT pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')";
    let mut rights = vec![Right {
        what: "see all settings",
        granted: session.value(DOING, settings)?,
        optional: false,
        grant: grant_settings(&role),
    }];
    for (what, function) in [
        ("ask for the system identifier", IDENTIFIER_FUNCTION),
        ("start a backup", start_function(version)),
        ("stop a backup", stop_function(version)),
    ] {
        let sql = format!(
            "SELECT has_function_privilege(current_user, 'pg_catalog.{function}', 'EXECUTE')"
        );
        rights.push(Right {
            what,
            granted: session.value(DOING, &sql)?,
            optional: false,
            grant: grant_function(function, &role),
        });
    }
    let replicates = "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user";
    rights.push(Right {
        what: "keep the log with a replication slot",
        granted: session.value(DOING, replicates)?,
        optional: true,
        grant: format!("ALTER ROLE {role} REPLICATION;"),
    });
    Ok(Rights {
        role,
        database,
        rights,
    })
}

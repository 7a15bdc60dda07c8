//! A data directory as a running server: private, short-lived, and harmless to everybody else.
//!
//!   data directory --tree: what leads out is taken away--> the server's own programs
//!   pg_control ----settings: what reaches out is off-----> socket, log, configuration in scratch
//!                                                      --> recovered, connected to: [`Server`]
//!
//! Whoever provides the directory (a mount with an overlay, a restored copy) provides one that may
//! be written and thrown away: recovery changes it, and so does a server that shows it read-only.
//! The server recovers from backup_label and the log in the directory, and ends its recovery,
//! instead of showing it as a hot standby: a standby must have settings at least as large as the
//! source's, stays closed after too many subtransactions, and cannot be written to.
//!
//! Invariants
//! - The server reaches nothing outside its directory and its scratch directory: no archive, no
//!   primary, no subscriptions, no links that lead out, no libraries but those that were named.
//! - It ends with this process, however that ends.

mod logins;
mod process;
mod programs;
mod settings;
mod tree;

use std::fs::File;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use windlass_engine::Cancel;

use crate::control::Control;
use crate::error::{IoContext, PostgresError, SqlContext};
use logins::{Logins, Preloads};
use process::{Launch, Process};
pub use programs::Programs;
pub use tree::server_view;

/// The port of a server that is reached by its socket alone.
const PORT_DEFAULT: u16 = 5432;
/// Longest path of a socket: sun_path has 108 bytes, one of them the end.
const SOCKET_BYTES_MAX: usize = 107;
const CONFIG_FILE: &str = "postgresql.conf";
const HBA_FILE: &str = "pg_hba.conf";
const IDENT_FILE: &str = "pg_ident.conf";
const LOG_FILE: &str = "server.log";

/// How a directory is opened.
#[derive(Debug)]
pub struct OpenRequest {
    /// The data directory; recovery and the server write to it.
    pub data: PathBuf,
    /// Where the source's data directory was: absolute paths in its configuration begin so.
    pub was: PathBuf,
    /// An existing directory for configuration, socket and log, which has none of them yet.
    pub scratch: PathBuf,
    /// The programs to run.
    pub programs: Programs,
    /// Transactions may write unless they say otherwise.
    pub writable: bool,
    /// A TCP port to listen on as well, and the number of the socket.
    pub port: Option<u16>,
    /// Addresses to listen on, as listen_addresses has them.
    pub listen: String,
    /// Libraries to preload, as shared_preload_libraries has them.
    pub preload: String,
    /// More settings; the last of a name wins.
    pub settings: Vec<(String, String)>,
    /// The role to connect as; unless given, the one that initdb made.
    pub role: Option<String>,
    /// The cluster's owner, whose name that role often has.
    pub owner: String,
    /// User and group to run the server as, when this process is root's.
    pub run_as: Option<(u32, u32)>,
    /// A locked file to be held by the server for as long as it lives.
    pub lock: Option<File>,
}

/// Where a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Directory of the socket.
    pub host: PathBuf,
    /// Number of the socket, and TCP port if there is one.
    pub port: u16,
    /// A superuser.
    pub user: String,
    /// A database that is there.
    pub database: String,
    /// Options that a session needs, as PGOPTIONS has them; empty as a rule.
    pub options: String,
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    connection: Connection,
    log: PathBuf,
    version: String,
}

impl Server {
    /// Starts a server and waits until it has recovered and answered a query.
    pub fn start(mut request: OpenRequest, cancel: &Cancel) -> Result<Self, PostgresError> {
        let control = Control::read(&request.data)?;
        let port = request.port.unwrap_or(PORT_DEFAULT);
        check_socket(&request.scratch, port)?;
        tree::check_log(&request.data, &control)?;
        let prepared = tree::prepare(&request.data, &request.was)?;
        configure(&request, &control, &prepared, port)?;
        let log = request.scratch.join(LOG_FILE);
        let mut process = Process::start(Launch {
            postgres: request.programs.postgres(),
            arguments: arguments(&request),
            data: &request.data,
            log: log.clone(),
            run_as: request.run_as,
            lock: request.lock.take(),
        })?;
        process.wait_ready(cancel)?;
        prepared.finish()?;
        let logins = Logins::new(&request, &control);
        let connection = connect(&request.scratch, port, &logins)?;
        Ok(Self {
            process,
            connection,
            log,
            version: request.programs.version().to_owned(),
        })
    }

    /// Its version as it shows it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it is reached.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// An error when it has ended by itself.
    pub fn check_alive(&mut self) -> Result<(), PostgresError> {
        match self.process.try_wait()? {
            Some(status) => Err(self.process.failure(status)),
            None => Ok(()),
        }
    }

    /// Ends it. What was written to its directory is as after a crash.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        self.process.stop()
    }
}

impl Connection {
    /// As libpq takes it.
    pub fn conninfo(&self) -> String {
        let host = quoted(&self.host.display().to_string());
        let (user, database) = (quoted(&self.user), quoted(&self.database));
        let mut text = format!(
            "host={host} port={} user={user} dbname={database}",
            self.port
        );
        if !self.options.is_empty() {
            text.push_str(&format!(" options={}", quoted(&self.options)));
        }
        text
    }

    /// The variables of libpq's that lead here, and those that would lead elsewhere (`None`).
    pub fn environment(&self) -> Vec<(String, Option<String>)> {
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let foreign = |name: &String| name.starts_with("PG") && !KEPT_VARIABLES.contains(&&**name);
        let mut variables: Vec<_> = inherited.filter(foreign).map(|name| (name, None)).collect();
        let ours = [
            ("PGHOST", self.host.display().to_string()),
            ("PGPORT", self.port.to_string()),
            ("PGUSER", self.user.clone()),
            ("PGDATABASE", self.database.clone()),
        ];
        variables.extend(ours.map(|(name, value)| (name.to_owned(), Some(value))));
        if !self.options.is_empty() {
            variables.push(("PGOPTIONS".to_owned(), Some(self.options.clone())));
        }
        variables
    }

    /// A session in a database, without the libraries that roles and databases have loaded.
    pub(crate) fn session(&self, database: &str) -> Result<Client, postgres::Error> {
        match self.session_with(database, Preloads::None) {
            // Only superusers may say that.
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                self.session_with(database, Preloads::Session)
            }
            other => other,
        }
    }

    fn session_with(&self, database: &str, preloads: Preloads) -> Result<Client, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(&self.host).port(self.port);
        config.user(&self.user).dbname(database);
        config.options(preloads.options());
        config.application_name("windlass").connect(NoTls)
    }
}

/// Variables that say nothing of where a server is.
const KEPT_VARIABLES: [&str; 6] = [
    "PGAPPNAME",
    "PGCLIENTENCODING",
    "PGDATESTYLE",
    "PGTZ",
    "PG_COLOR",
    "PG_COLORS",
];

/// A value as connection strings quote it.
fn quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

fn check_socket(scratch: &Path, port: u16) -> Result<(), PostgresError> {
    let socket = scratch.join(format!(".s.PGSQL.{port}"));
    if socket.as_os_str().len() > SOCKET_BYTES_MAX {
        return Err(PostgresError::SocketPath { path: socket });
    }
    Ok(())
}

fn configure(
    request: &OpenRequest,
    control: &Control,
    prepared: &tree::Prepared,
    port: u16,
) -> Result<(), PostgresError> {
    let major = request.programs.major();
    let text = settings::configuration(&settings::Wanted {
        major,
        control,
        socket_directory: &request.scratch.display().to_string(),
        port,
        listen: if request.port.is_some() {
            &request.listen
        } else {
            ""
        },
        writable: request.writable,
        preload: &request.preload,
        in_place_tablespaces: prepared.in_place_tablespaces,
        carried: &prepared.carried,
        extra: &request.settings,
    });
    for (name, text) in [
        (CONFIG_FILE, text.as_str()),
        (HBA_FILE, settings::authentication()),
        (IDENT_FILE, ""),
    ] {
        write(&request.scratch.join(name), text, request.run_as)?;
    }
    Ok(())
}

/// Writes a new file and gives it to the server's user. The directory may be that user's already:
/// a file or link that is there is nothing for root to write through.
fn write(path: &Path, text: &str, owner: Option<(u32, u32)>) -> Result<(), PostgresError> {
    use std::io::Write;
    let mut file = File::create_new(path).doing("create", path)?;
    file.write_all(text.as_bytes()).doing("write", path)?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid)).doing("change the owner of", path)?;
    }
    Ok(())
}

fn arguments(request: &OpenRequest) -> Vec<String> {
    let mut arguments = vec!["-D".to_owned(), request.data.display().to_string()];
    for (setting, file) in [
        ("config_file", CONFIG_FILE),
        ("hba_file", HBA_FILE),
        ("ident_file", IDENT_FILE),
    ] {
        let path = request.scratch.join(file);
        arguments.extend(["-c".to_owned(), format!("{setting}={}", path.display())]);
    }
    arguments
}

/// Finds a role and a database that are there, and answers a query there.
fn connect(host: &Path, port: u16, logins: &Logins) -> Result<Connection, PostgresError> {
    let mut failed = None;
    for (user, database) in logins.pairs() {
        let connection = Connection {
            host: host.into(),
            port,
            user: user.to_owned(),
            database: database.to_owned(),
            options: String::new(),
        };
        match connection.session(database) {
            Ok(mut client) => return settled(connection, &mut client, logins.named()),
            // The first reason but that a name is not there says most.
            Err(source) if is_absent(&source) => failed = failed.or(Some((true, source))),
            Err(source) => match failed {
                Some((false, _)) => {}
                _ => failed = Some((false, source)),
            },
        }
    }
    Err(match failed {
        Some((_, source)) => PostgresError::OpenedConnect {
            roles: logins.roles(),
            source: source.into(),
        },
        None => PostgresError::Set {
            what: "names no role to connect as".into(),
        },
    })
}

/// No such role, no such database.
fn is_absent(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        [
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            SqlState::INVALID_CATALOG_NAME,
        ]
        .contains(code)
    })
}

/// The connection as the role that initdb made, unless the user named one; with options if it
/// does not come about without.
fn settled(
    mut connection: Connection,
    client: &mut Client,
    role_named: bool,
) -> Result<Connection, PostgresError> {
    const DOING: &str = "ask for the superuser's name";
    let sql = "SELECT rolname::text FROM pg_roles WHERE oid = 10";
    let row = client.query_one(sql, &[]).doing(DOING)?;
    if !role_named {
        connection.user = row.try_get(0).doing(DOING)?;
    }
    connection.options = logins::options_of_sessions(client, &connection.user)?;
    Ok(connection)
}

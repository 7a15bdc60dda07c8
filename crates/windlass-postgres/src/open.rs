//! Opens a data directory as a running server: private, short-lived, and harmless to everybody
//! else.
//!
//!   data directory --tree: removes what leads out--------> the server's own programs
//!   pg_control ----settings: turn off what reaches out---> socket, log, configuration in scratch
//!                                                      --> recovered, connected to: [`Server`]
//!
//! The caller provides a directory that may be changed and thrown away: a mount with an overlay, or
//! a restored copy. Recovery changes it, and so does a server that allows only
//! read-only transactions.
//!
//! The server recovers from backup_label and the log in the directory, or up to a point in an
//! archived log, and it ends its recovery.
//! Windlass does not run it as a hot standby: a standby needs settings at least as large as the
//! source's, stays closed after too many subtransactions, and cannot be written to.
//!
//! Invariants
//! - The server reaches nothing outside its directory and its scratch directory: no archive that
//!   the caller did not name, no primary, no subscriptions, no links that lead out, and only the
//!   libraries that the caller named.
//! - The server ends with this process, however this process ends.

mod damage;
mod logins;
mod phases;
mod process;
mod programs;
mod settings;
mod tree;

use std::fs::File;
use std::io;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use windlass_engine::Cancel;

use crate::control::Control;
use crate::error::{IoContext, PostgresError, ServerError, SqlContext};
use crate::restore::{Recovery, SIGNAL};
use logins::{Logins, Preloads};
use phases::Watch;
pub use process::end_with_this_thread;
use process::{Launch, Process};
pub(crate) use process::{ending, reasons};
pub use programs::Programs;
pub use tree::{server_view, source_view};

/// The port of a server that can be reached only by its socket.
const PORT_DEFAULT: u16 = 5432;
/// Longest path of a socket: sun_path has 108 bytes, and the last one ends the string.
const SOCKET_BYTES_MAX: usize = 107;
const CONFIG_FILE: &str = "postgresql.conf";
const HBA_FILE: &str = "pg_hba.conf";
const IDENT_FILE: &str = "pg_ident.conf";
const LOG_FILE: &str = "server.log";

/// How to open a directory.
#[derive(Debug)]
pub struct OpenRequest {
    /// The data directory; recovery and the server write to it.
    pub data: PathBuf,
    /// Where the source's data directory was: absolute paths in its configuration begin with this.
    pub was: PathBuf,
    /// An existing directory for configuration, socket and log; none of these exist in it yet.
    pub scratch: PathBuf,
    /// The programs to run.
    pub programs: Programs,
    /// True if transactions may write by default.
    pub writable: bool,
    /// A TCP port to listen on as well. It is also the number of the socket.
    pub port: Option<u16>,
    /// Addresses to listen on, in the form of listen_addresses.
    pub listen: String,
    /// Libraries to preload, in the form of shared_preload_libraries.
    pub preload: String,
    /// More settings. If a name appears twice, the last one wins.
    pub settings: Vec<(String, String)>,
    /// The role to connect as. By default it is the role that initdb made.
    pub role: Option<String>,
    /// The cluster's owner; the role of initdb often has the same name.
    pub owner: String,
    /// Up to where the server recovers, and with which log; without it to the end of the log in the
    /// directory. The caller has made sure that this log creates no tablespace outside
    /// ([`check_log_inside`](crate::check_log_inside)).
    pub recovery: Option<Recovery>,
    /// User and group to run the server as, if this process runs as root.
    pub run_as: Option<(u32, u32)>,
    /// A locked file that the server holds open as long as it lives.
    pub lock: Option<File>,
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Directory of the socket.
    pub host: PathBuf,
    /// Number of the socket, and also the TCP port if there is one.
    pub port: u16,
    /// A superuser.
    pub user: String,
    /// A database that exists.
    pub database: String,
    /// Options that a session needs, in the form of PGOPTIONS; usually empty.
    pub options: String,
}

/// Runs work on a data directory. If this process itself serves the directory as a mount, the work
/// needs a thread with open files of its own.
pub type Apart<'a> = &'a dyn Fn(&mut (dyn FnMut() + Send)) -> io::Result<()>;

/// A database of an opened server in which no session can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableDatabase {
    /// Its name.
    pub database: String,
    /// What the server says.
    pub why: String,
}

/// A running server; dropping this ends the server.
#[derive(Debug)]
pub struct Server {
    process: Process,
    connection: Connection,
    unusable: Vec<UnusableDatabase>,
    log: PathBuf,
    version: String,
    phases: Vec<(&'static str, Duration)>,
}

impl Server {
    /// Starts a server and waits until it has recovered and answered a query.
    pub fn start(request: OpenRequest, cancel: &Cancel) -> Result<Self, PostgresError> {
        Self::start_apart(request, cancel, &|work| {
            work();
            Ok(())
        })
    }

    /// As [`Server::start`]; what reads and changes the data directory runs through `apart`.
    pub fn start_apart(
        mut request: OpenRequest,
        cancel: &Cancel,
        apart: Apart<'_>,
    ) -> Result<Self, PostgresError> {
        let port = request.port.unwrap_or(PORT_DEFAULT);
        let mut watch = Watch::new();
        check_socket(&request.scratch, port)?;
        let (control, prepared) = returned(apart, || {
            let major = request.programs.major();
            let control = damage::check_first_files(&request.data, major)?;
            let replayed = tree::check_log(&request.data, &control)?;
            let prepared = tree::prepare(&request.data, &request.was, replayed)?;
            configure(&request, &control, &prepared, port)?;
            if request.recovery.is_some() {
                write(&request.data.join(SIGNAL), "", request.run_as)?;
            }
            Ok((control, prepared))
        })?;
        watch.end("preparing the directory");
        let log = request.scratch.join(LOG_FILE);
        let mut process = Process::start(Launch {
            postgres: request.programs.postgres(),
            arguments: arguments(&request),
            data: &request.data,
            log: log.clone(),
            run_as: request.run_as,
            lock: request.lock.take(),
        })?;
        process.wait_ready(cancel, apart)?;
        watch.end_start(&phases::said(&log));
        let logins = returned(apart, || {
            prepared.finish()?;
            Ok(Logins::new(&request, &control))
        })?;
        let connected =
            connect(&request.scratch, port, &logins).and_then(|(connection, unusable)| {
                // The first session reads the catalogs without their indexes, all others with them.
                let again = connection.session(&connection.database);
                again.map_err(|source| not_connected(logins.roles(), source))?;
                Ok((connection, unusable))
            });
        let (connection, unusable) = connected.or_else(|failed| {
            let major = request.programs.major();
            let found = returned(apart, || damage::of_logins(&request.data, &control, major))?;
            Err(found.unwrap_or(failed))
        })?;
        watch.end("connecting");
        Ok(Self {
            process,
            connection,
            unusable,
            log,
            phases: watch.phases(),
            version: request.programs.version().to_owned(),
        })
    }

    /// The version, as the server shows it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How to reach the server.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The databases that would have been connected to first, and cannot be used.
    pub fn unusable(&self) -> &[UnusableDatabase] {
        &self.unusable
    }

    /// Where the time of its start went, in order.
    pub fn phases(&self) -> &[(&'static str, Duration)] {
        &self.phases
    }

    /// The path of the server log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails if the server has ended on its own.
    pub fn check_alive(&mut self) -> Result<(), PostgresError> {
        match self.process.try_wait()? {
            Some(status) => Err(self.process.failure(status)),
            None => Ok(()),
        }
    }

    /// Ends the server. Its directory is then as after a crash.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        self.process.stop()
    }

    /// Ends the server in order: afterwards, its files have everything that it had in memory.
    pub fn shut_down(mut self, cancel: &Cancel) -> Result<(), PostgresError> {
        self.process.shut_down(cancel)
    }
}

impl Connection {
    /// The connection string, as libpq takes it.
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

    /// The libpq variables that lead to this server, and those to remove because they lead
    /// elsewhere (`None`).
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

    /// Opens a session in a database. It does not load the libraries that roles and databases ask
    /// for.
    pub(crate) fn session(&self, database: &str) -> Result<Client, postgres::Error> {
        match self.session_with(database, Preloads::None) {
            // Only superusers may set these options.
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

/// Variables that do not say where a server is.
const KEPT_VARIABLES: [&str; 6] = [
    "PGAPPNAME",
    "PGCLIENTENCODING",
    "PGDATESTYLE",
    "PGTZ",
    "PG_COLOR",
    "PG_COLORS",
];

/// Quotes a value for a connection string.
fn quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Runs work and returns what it returns.
fn returned<T: Send>(
    apart: Apart<'_>,
    mut work: impl FnMut() -> Result<T, PostgresError> + Send,
) -> Result<T, PostgresError> {
    let mut done = None;
    let ran = apart(&mut || done = Some(work()));
    ran.doing("start a thread for", "the opened server")?;
    done.unwrap_or_else(|| unreachable!("whoever runs the work runs it"))
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
        recovery: request.recovery.as_ref(),
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

/// Writes a new file and gives it to the server's user. That user may already own the directory, so
/// root must not write through a file or link that is already there.
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

/// Finds a role and a database that exist, and runs a query there. Also returns the databases that
/// exist and cannot be used.
fn connect(
    host: &Path,
    port: u16,
    logins: &Logins,
) -> Result<(Connection, Vec<UnusableDatabase>), PostgresError> {
    let mut failed = None;
    let mut refused = Vec::new();
    for (user, database) in logins.pairs() {
        let connection = Connection {
            host: host.into(),
            port,
            user: user.to_owned(),
            database: database.to_owned(),
            options: String::new(),
        };
        match connection.session(database).map_err(ServerError::from) {
            Ok(mut client) => {
                // What another role may not use is not unusable.
                refused.retain(|(role, _)| role == user);
                let unusable = refused.into_iter().map(|(_, database)| database);
                let settled = settled(connection, &mut client, logins.named());
                let settled = settled.map_err(PostgresError::of_opened)?;
                return Ok((settled, unusable.collect()));
            }
            // Keep the first error that is not about a missing name: it says most.
            Err(source) if is_absent(&source) => failed = failed.or(Some((true, source))),
            Err(source) => {
                let why = source.to_string();
                let database = database.to_owned();
                refused.push((user.to_owned(), UnusableDatabase { database, why }));
                if !matches!(failed, Some((false, _))) {
                    failed = Some((false, source));
                }
            }
        }
    }
    Err(match failed {
        Some((_, source)) => not_connected(logins.roles(), source),
        None => PostgresError::Set {
            what: "it names no role to connect as".into(),
        },
    })
}

fn not_connected(roles: String, source: impl Into<ServerError>) -> PostgresError {
    PostgresError::OpenedConnect {
        roles,
        source: source.into(),
    }
}

/// True if the role or the database does not exist. The server says the same of a database whose
/// directory is missing.
fn is_absent(error: &ServerError) -> bool {
    !error.is_damage()
        && error.code().is_some_and(|code| {
            [
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                SqlState::INVALID_CATALOG_NAME,
            ]
            .contains(code)
        })
}

/// Completes the connection. If the user named no role, it uses the one that initdb made. If roles
/// or databases load libraries, it adds the options that prevent this.
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

//! Hints for a session that could not be opened, as sentences.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use postgres::error::SqlState;
use rustls::CertificateError;

use rustix::process::geteuid;

use super::server::PASSWORD_MISSING;
use crate::conninfo::SOCKET_DIRECTORIES;
use crate::users::user_shown;

/// The client crate's words when the server has no TLS, or none that fits. The crate gives no other
/// sign of this kind of error.
const HANDSHAKE_FAILED: &str = "error performing TLS handshake";

/// The attempt that failed.
pub(super) struct Tried<'a> {
    /// Host and port, or the socket's path.
    pub(super) at: &'a str,
    pub(super) role: &'a str,
    pub(super) database: &'a str,
    pub(super) encrypted: bool,
    pub(super) password_hint: &'a str,
}

impl Tried<'_> {
    /// What to do about this error.
    pub(super) fn hint(&self, error: &postgres::Error) -> String {
        if let Some(fault) = certificate_fault(error) {
            return certificate_hint(fault).to_owned();
        }
        if let Some(code) = error.code() {
            return self.refusal_hint(code, error);
        }
        let text = error.to_string();
        if text == HANDSHAKE_FAILED {
            return "Set ssl = on in the server, or use sslmode=prefer, or the server's Unix \
                    socket. Before PostgreSQL 17 it has to be sslnegotiation=postgres."
                .to_owned();
        }
        let cause = std::error::Error::source(error);
        if cause.is_some_and(|cause| cause.to_string() == PASSWORD_MISSING) {
            return self.password_hint.to_owned();
        }
        match io_fault(error) {
            Some(fault) => self.unreachable_hint(fault),
            None => "Give a connection string as for psql, or set PGHOST, PGPORT, PGUSER and \
                     PGPASSFILE."
                .to_owned(),
        }
    }

    /// The hint when a server answered and refused the session.
    fn refusal_hint(&self, code: &SqlState, error: &postgres::Error) -> String {
        let Self { role, database, .. } = self;
        // The name of a function of the server. No translation changes it.
        let routine = error.as_db_error().and_then(|said| said.routine());
        match *code {
            SqlState::INVALID_PASSWORD => self.password_hint.to_owned(),
            SqlState::INVALID_CATALOG_NAME => {
                "A session in any database of the server will do: write dbname=postgres, or \
                 another one that `psql -l` lists."
                    .to_owned()
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                if routine == Some("InitializeSessionUserId") =>
            {
                format!(
                    "Write user=NAME with a role that may log in, for example user=postgres. A \
                     superuser can make this one: CREATE ROLE {role} LOGIN REPLICATION;"
                )
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION if routine == Some("auth_failed") => {
                let user = user_shown(geteuid().as_raw());
                format!(
                    "pg_hba.conf lets only certain users of the system connect as role {role} \
                     here (method peer), and Windlass connects as {user}. Name the role of that \
                     user with user=, map the user to {role} in pg_ident.conf, or give {role} a \
                     password and connect with host=localhost."
                )
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION if !self.encrypted => {
                "If pg_hba.conf has a hostssl line for it, use sslmode=require or stronger; else \
                 add a line for this user, database and address."
                    .to_owned()
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                "Add a line for this user, database and address to pg_hba.conf.".to_owned()
            }
            SqlState::INSUFFICIENT_PRIVILEGE => {
                format!("As a superuser, type: GRANT CONNECT ON DATABASE {database} TO {role};")
            }
            SqlState::TOO_MANY_CONNECTIONS => {
                "Windlass needs two sessions. Close others, raise max_connections, or connect as \
                 a role that reserved_connections holds places for."
                    .to_owned()
            }
            SqlState::CANNOT_CONNECT_NOW => {
                "The server is starting or stopping. Try again when it accepts connections; a \
                 standby needs hot_standby = on."
                    .to_owned()
            }
            _ => "Check the connection string with psql.".to_owned(),
        }
    }

    /// The hint when no server answered.
    fn unreachable_hint(&self, fault: &io::Error) -> String {
        let is_socket = self.at.starts_with('/');
        if is_socket && fault.kind() == io::ErrorKind::PermissionDenied {
            return "This user may not use that socket: run as the server's own user or as root, \
                    or change unix_socket_permissions."
                .to_owned();
        }
        let asked = match is_socket {
            true => "Is the server running, and is this the directory of its socket?",
            false => "Is the server running, and does it listen there (listen_addresses, port)?",
        };
        let mut directories: Vec<PathBuf> = SOCKET_DIRECTORIES.map(PathBuf::from).into();
        if let Some(own) = Path::new(self.at).parent().filter(|_| is_socket) {
            directories.retain(|known| !is_same(known, own));
            directories.insert(0, own.to_owned());
        }
        format!("{asked} {}", listening(&directories))
    }
}

/// Whether two paths lead to one directory: /var/run is usually a link to /run.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Says which servers answer on sockets in these directories.
fn listening(directories: &[PathBuf]) -> String {
    let mut found = Vec::new();
    for directory in directories {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let Some(port) = name
                .to_str()
                .and_then(|name| name.strip_prefix(".s.PGSQL."))
            else {
                continue;
            };
            // Skip a socket on which nobody listens any more: a server left it behind.
            let is_port = port.bytes().all(|letter| letter.is_ascii_digit());
            if is_port && UnixStream::connect(entry.path()).is_ok() {
                found.push(format!("'host={} port={port}'", directory.display()));
            }
        }
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        let places: Vec<_> = directories
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        return format!(
            "No server answers on a socket in {}. Start it, or name its host and port as for psql \
             (PGHOST, PGPORT).",
            places.join(" or ")
        );
    }
    format!(
        "On this machine a server answers at {}.",
        found.join(" and at ")
    )
}

/// The system's error, somewhere in the chain of causes.
fn io_fault(error: &postgres::Error) -> Option<&io::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(fault) = inner.downcast_ref() {
            return Some(fault);
        }
        cause = inner.source();
    }
    None
}

/// Why the client refused the server's certificate, somewhere in the chain of causes.
fn certificate_fault(error: &postgres::Error) -> Option<&CertificateError> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<io::Error>();
        let tls = io.and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::InvalidCertificate(fault)) = tls {
            return Some(fault);
        }
        cause = inner.source();
    }
    None
}

fn certificate_hint(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::UnknownIssuer => {
            "Name the certificate of the authority that signed the server's with sslrootcert."
        }
        CertificateError::NotValidForName => {
            "Connect by a name that the server's certificate holds, with hostaddr beside it if \
             need be; sslmode=verify-ca does not look at the name."
        }
        CertificateError::Expired | CertificateError::NotValidYet => {
            "Give the server a certificate that is valid today, or set this machine's clock."
        }
        _ => {
            "Give the server a certificate of X.509 version 3, for a server, that is not withdrawn."
        }
    }
}

/// The hint for a file that the connection string names.
pub(super) fn tls_file_hint(keyword: &str) -> &'static str {
    match keyword {
        "sslkey" => {
            "Make it readable by its owner only (0600; 0640 if it is root's), unencrypted, in PEM \
             form."
        }
        "sslrootcert" => {
            "Name the authority's certificate, in PEM form, with sslrootcert, or use \
             sslrootcert=system for those that this machine trusts."
        }
        "sslcrldir" => {
            "Put the authorities' lists of withdrawn certificates there, each a file in PEM form."
        }
        _ => "Name a readable file in PEM form.",
    }
}

//! Hints for a session that could not be opened, as sentences.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use postgres::error::SqlState;
use rustls::CertificateError;

use rustix::process::geteuid;

use super::server::PASSWORD_MISSING;
use crate::conninfo::SOCKET_DIRECTORIES;
use crate::quoting::quoted;
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
                let role = quoted(role);
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
                let (database, role) = (quoted(database), quoted(role));
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
            _ => {
                "See the server log, and whether psql can connect with the same connection string."
                    .to_owned()
            }
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
        let (host, port) = self.host_and_port();
        if !is_socket && !is_this_machine(host) {
            return format!("{asked} If not, name its host and port as for psql (PGHOST, PGPORT).");
        }
        let mut directories: Vec<PathBuf> = SOCKET_DIRECTORIES.map(PathBuf::from).into();
        if let Some(own) = Path::new(self.at).parent().filter(|_| is_socket) {
            directories.retain(|known| !is_same(known, own));
            directories.insert(0, own.to_owned());
        }
        format!("{asked} {}", listening(&directories, port))
    }

    /// The host, or the path of the socket without its port, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        let end = self.at.rfind([':', '.']).unwrap_or(0);
        (&self.at[..end], self.at.get(end + 1..).unwrap_or_default())
    }
}

/// Whether a host is certainly this machine: its sockets are then worth a look.
fn is_this_machine(host: &str) -> bool {
    let number = host.parse::<IpAddr>();
    host == "localhost" || number.is_ok_and(|number| number.is_loopback())
}

/// Whether two paths lead to one directory: /var/run is usually a link to /run.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Says which servers answer on sockets in these directories: those with this port, or else that
/// there are only others.
fn listening(directories: &[PathBuf], port: &str) -> String {
    let (same, others): (Vec<_>, Vec<_>) = servers(directories)
        .into_iter()
        .partition(|(_, its)| its == port);
    let named = |servers: &[(PathBuf, String)]| {
        let named = servers.iter();
        let named = named.map(|(place, port)| format!("'host={} port={port}'", place.display()));
        named.collect::<Vec<_>>().join(" and at ")
    };
    if !same.is_empty() {
        return format!("A server with this port answers at {}.", named(&same));
    }
    let places: Vec<_> = directories
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    let places = places.join(" or ");
    let other = match others.is_empty() {
        true => String::new(),
        false => format!(" Other servers run here, at {}.", named(&others)),
    };
    format!(
        "No server with port {port} answers on a socket in {places}.{other} Start the server, or \
         name its host and port as for psql (PGHOST, PGPORT)."
    )
}

/// Directory and port of each socket on which a server answers.
fn servers(directories: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for directory in directories {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let Some(port) = name.strip_prefix(".s.PGSQL.") else {
                continue;
            };
            // Skip a socket on which nobody listens any more: a server left it behind.
            let is_port = port.bytes().all(|letter| letter.is_ascii_digit());
            if is_port && UnixStream::connect(entry.path()).is_ok() {
                found.push((directory.clone(), port.to_owned()));
            }
        }
    }
    found.sort();
    found.dedup();
    found
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn hint(at: &str) -> String {
        let tried = Tried {
            at,
            role: "",
            database: "",
            encrypted: false,
            password_hint: "",
        };
        tried.unreachable_hint(&io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn only_servers_with_the_port_that_was_asked_for_are_offered() {
        let place = tempfile::tempdir().unwrap();
        let directories = [place.path().to_owned()];
        let here = place.path().display();
        assert_eq!(
            listening(&directories, "5432"),
            format!(
                "No server with port 5432 answers on a socket in {here}. Start the server, or \
                 name its host and port as for psql (PGHOST, PGPORT)."
            )
        );
        let listen = |port: u16| {
            let name = format!(".s.PGSQL.{port}");
            UnixListener::bind(place.path().join(name)).unwrap()
        };
        let _other = listen(5433);
        // A server that was killed leaves its socket behind.
        drop(listen(5434));
        assert_eq!(
            listening(&directories, "5432"),
            format!(
                "No server with port 5432 answers on a socket in {here}. Other servers run here, \
                 at 'host={here} port=5433'. Start the server, or name its host and port as for \
                 psql (PGHOST, PGPORT)."
            )
        );
        let _same = listen(5432);
        assert_eq!(
            listening(&directories, "5432"),
            format!("A server with this port answers at 'host={here} port=5432'.")
        );
        assert!(hint(&format!("{here}/.s.PGSQL.5432")).ends_with("port=5432'."));
    }

    #[test]
    fn the_sockets_of_this_machine_say_nothing_about_another_one() {
        for at in ["db.example.com:5432", "192.0.2.1:5432", "2001:db8::1:5432"] {
            assert!(!hint(at).contains("on a socket"), "{at}");
            assert!(!hint(at).contains("answers at"), "{at}");
        }
        for at in ["localhost:1", "127.0.0.1:1", "::1:1"] {
            assert!(hint(at).contains("No server with port 1 answers"), "{at}");
        }
    }
}

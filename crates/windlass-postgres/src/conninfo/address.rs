//! Where a server may listen, and how a connection string names these places.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::settings::{Settings, fault};
use crate::error::PostgresError;

const DEFAULT_PORT: u16 = 5432;
/// Where the builds of Debian and of the PostgreSQL project put their sockets.
pub(crate) const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// One place where a server may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Socket `.s.PGSQL.<port>` in this directory.
    Socket { directory: PathBuf, port: u16 },
    /// A host name or number, and the number to connect to if that is given.
    Tcp {
        host: String,
        number: Option<IpAddr>,
        port: u16,
    },
}

impl Address {
    /// The address as an error message shows it.
    pub(crate) fn display(&self) -> String {
        match self {
            Self::Socket { directory, port } => socket_path(directory, *port).display().to_string(),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

/// The socket file of a server that listens in `directory`.
pub(crate) fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

/// Pairs hosts and ports: one port for all hosts, or one for each.
pub(super) fn addresses(settings: &Settings) -> Result<Vec<Address>, PostgresError> {
    let list = |keyword| {
        let text = settings.get(keyword).filter(|text| !text.is_empty());
        text.map(|text| text.split(',').map(str::trim).collect::<Vec<_>>())
    };
    let (names, numbers) = (list("host"), list("hostaddr"));
    if let (Some(names), Some(numbers)) = (&names, &numbers)
        && names.len() != numbers.len()
    {
        let (hosts, numbers) = (names.len(), numbers.len());
        return fault(format!("{hosts} hosts for {numbers} hostaddrs"));
    }
    // If only hostaddr is given, the number is also the host that a certificate must name.
    let hosts = names
        .or_else(|| numbers.clone())
        .unwrap_or_else(|| vec![""]);
    let ports = list("port").unwrap_or_else(|| vec![""]);
    if ports.len() != 1 && ports.len() != hosts.len() {
        return fault(format!("{} ports for {} hosts", ports.len(), hosts.len()));
    }
    let port_at = |index: usize| {
        ports
            .get(index)
            .or(ports.first())
            .copied()
            .unwrap_or_default()
    };
    let pairs = hosts.iter().enumerate().map(|(index, host)| {
        let number = numbers.as_ref().and_then(|numbers| numbers.get(index));
        address(host, number.copied().unwrap_or(""), port_at(index))
    });
    pairs.collect()
}

fn address(host: &str, number: &str, port: &str) -> Result<Address, PostgresError> {
    let port = match port {
        "" => DEFAULT_PORT,
        text => match text.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return fault(format!("port is {text:?}, not a number from 1 to 65535")),
        },
    };
    if !number.is_empty() {
        let Ok(parsed) = number.parse() else {
            return fault(format!("hostaddr is {number:?}, not an IP address"));
        };
        return Ok(Address::Tcp {
            host: if host.is_empty() { number } else { host }.into(),
            number: Some(parsed),
            port,
        });
    }
    if let Some((name, number)) = host.split_once(':')
        && !name.is_empty()
        && number.parse::<u16>().is_ok()
    {
        return fault(format!(
            "host is {host:?}, with a port in it: write host={name} port={number}"
        ));
    }
    if host.is_empty() {
        return Ok(Address::Socket {
            directory: default_directory(port),
            port,
        });
    }
    if host.starts_with('/') {
        return Ok(Address::Socket {
            directory: host.into(),
            port,
        });
    }
    Ok(Address::Tcp {
        host: host.into(),
        number: None,
        port,
    })
}

/// libpq knows one default directory, set when it was built. This program does not know which
/// directory the server on this machine uses, so it takes the one that has this port's socket.
fn default_directory(port: u16) -> PathBuf {
    let directories = SOCKET_DIRECTORIES.map(Path::new);
    let found = directories
        .iter()
        .find(|directory| socket_path(directory, port).exists());
    found.unwrap_or(&directories[0]).to_path_buf()
}

//! Connection strings as libpq takes them: keyword/value or URI. The service file, the PG*
//! environment and the password file complete them, in libpq's order.
//!
//!   string --> service file --> environment --> defaults --> password file --> `Target`
//!
//! The `postgres` crate parses strings too. But it does not know services, the environment or
//! .pgpass, and it refuses keywords that people use. libpq's documentation says what each keyword
//! means, in the section "Database Connection Control Functions".

mod files;
mod text;
mod tls;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::PostgresError;

pub(crate) use tls::{ClientFiles, Roots, TlsMode, TlsRequest};

const DEFAULT_PORT: u16 = 5432;
const APPLICATION_NAME: &str = "windlass";
/// Where the builds of Debian and of the PostgreSQL project put their sockets.
pub(crate) const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Keywords of libpq, each with the environment variable that can replace it ("" for none).
const KEYWORDS: [(&str, &str); 33] = [
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("dbname", "PGDATABASE"),
    ("service", "PGSERVICE"),
    ("servicefile", "PGSERVICEFILE"),
    ("options", "PGOPTIONS"),
    ("application_name", "PGAPPNAME"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslcertmode", "PGSSLCERTMODE"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("sslsni", "PGSSLSNI"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("gssencmode", "PGGSSENCMODE"),
    ("requirepeer", "PGREQUIREPEER"),
    ("require_auth", "PGREQUIREAUTH"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("keepalives", ""),
    ("keepalives_idle", ""),
    ("keepalives_interval", ""),
    ("keepalives_count", ""),
    ("fallback_application_name", ""),
];
/// Keywords that only tune things that this program does not use: Kerberos, failover, encodings.
const IGNORED: [&str; 7] = [
    "client_encoding",
    "gsslib",
    "krbsrvname",
    "load_balance_hosts",
    "sslcompression",
    "sslpassword",
    "tcp_user_timeout",
];

/// Keywords that demand something of the server that this program would not check, each with the
/// value that demands nothing. To ignore such a keyword would silently remove a safeguard.
const REFUSED: [(&str, &str); 3] = [
    ("requirepeer", ""),
    ("require_auth", ""),
    ("target_session_attrs", "any"),
];

pub(crate) type Settings = BTreeMap<String, String>;

/// Environment variables and the user's home, passed in so that tests need not change the real
/// ones.
pub(crate) struct Environment<'a> {
    /// Looks a variable up.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The user's name, libpq's default for `user`.
    pub(crate) user: Option<String>,
    /// The user's home directory.
    pub(crate) home: Option<PathBuf>,
}

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

/// A connection string with everything filled in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) addresses: Vec<Address>,
    /// What must be encrypted, and which certificates are trusted.
    pub(crate) tls: TlsRequest,
    settings: Settings,
}

impl Target {
    /// Parses and completes a connection string with this process's environment.
    pub(crate) fn resolve(conninfo: &str) -> Result<Self, PostgresError> {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten();
        let environment = Environment {
            variable: &|name| std::env::var(name).ok(),
            home: user.as_ref().map(|user| user.dir.clone()),
            user: user.map(|user| user.name),
        };
        Self::complete(conninfo, &environment)
    }

    /// Parses a connection string and fills in what it leaves out.
    pub(crate) fn complete(
        conninfo: &str,
        environment: &Environment<'_>,
    ) -> Result<Self, PostgresError> {
        let mut settings = text::parse(conninfo)?;
        check_keywords(&settings)?;
        files::apply_service(&mut settings, environment)?;
        apply_environment(&mut settings, environment);
        check_demands(&settings)?;
        default(&mut settings, "dbname", || Some("postgres".into()));
        default(&mut settings, "user", || environment.user.clone());
        let addresses = addresses(&settings)?;
        if !settings.contains_key("password")
            && let Some(password) = files::password(&settings, &addresses, environment)
        {
            settings.insert("password".into(), password);
        }
        Ok(Self {
            addresses,
            tls: TlsRequest::new(&settings, environment.home.as_deref())?,
            settings,
        })
    }

    /// The resolved value of a keyword.
    pub(crate) fn get(&self, keyword: &str) -> Option<&str> {
        self.settings.get(keyword).map(String::as_str)
    }

    /// The client crate's configuration for one of the addresses.
    pub(crate) fn config(&self, address: &Address) -> Result<postgres::Config, PostgresError> {
        let mut config = postgres::Config::new();
        match address {
            Address::Socket { directory, port } => {
                config.host_path(directory).port(*port);
            }
            Address::Tcp { host, number, port } => {
                config.host(host).port(*port);
                number.map(|number| config.hostaddr(number));
            }
        }
        let text = |keyword| self.get(keyword).filter(|value| !value.is_empty());
        text("user").map(|user| config.user(user));
        text("password").map(|password| config.password(password));
        text("dbname").map(|name| config.dbname(name));
        text("options").map(|options| config.options(options));
        config.application_name(text("application_name").unwrap_or(APPLICATION_NAME));
        self.set_timing(&mut config)?;
        Ok(config)
    }

    fn set_timing(&self, config: &mut postgres::Config) -> Result<(), PostgresError> {
        let number = |keyword| {
            self.get(keyword)
                .map(|text| number(keyword, text))
                .transpose()
        };
        if let Some(seconds) = number("connect_timeout")?.filter(|seconds| *seconds > 0) {
            config.connect_timeout(Duration::from_secs(seconds));
        }
        // A copy takes hours, and the session is silent meanwhile; routers must see that it is
        // alive.
        config.keepalives(number("keepalives")?.unwrap_or(1) != 0);
        config.keepalives_idle(Duration::from_secs(
            number("keepalives_idle")?.unwrap_or(30),
        ));
        if let Some(seconds) = number("keepalives_interval")? {
            config.keepalives_interval(Duration::from_secs(seconds));
        }
        if let Some(count) = number("keepalives_count")? {
            config.keepalives_retries(u32::try_from(count).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}

/// Leaves the settings out, because one of them is the password.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(Address::display).collect();
        write!(f, "Target({})", addresses.join(", "))
    }
}

/// The socket file of a server that listens in `directory`.
pub(crate) fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

fn fault<T>(what: String) -> Result<T, PostgresError> {
    Err(PostgresError::Conninfo { what })
}

fn default(settings: &mut Settings, keyword: &str, value: impl FnOnce() -> Option<String>) {
    if settings.get(keyword).is_none_or(String::is_empty)
        && let Some(value) = value()
    {
        settings.insert(keyword.into(), value);
    }
}

fn check_keywords(settings: &Settings) -> Result<(), PostgresError> {
    let known = |name: &str| {
        KEYWORDS.iter().any(|(keyword, _)| *keyword == name) || IGNORED.contains(&name)
    };
    match settings.keys().find(|name| !known(name)) {
        Some(name) => fault(format!("invalid keyword {name:?}")),
        None => Ok(()),
    }
}

fn check_demands(settings: &Settings) -> Result<(), PostgresError> {
    let is_made = |(keyword, nothing): &(&str, &str)| {
        let value = settings.get(*keyword);
        value.is_some_and(|value| !value.is_empty() && value != nothing)
    };
    match REFUSED.iter().find(|demand| is_made(demand)) {
        Some((keyword, _)) => fault(format!("{keyword} is not supported: leave it out")),
        None => Ok(()),
    }
}

fn apply_environment(settings: &mut Settings, environment: &Environment<'_>) {
    for (keyword, variable) in KEYWORDS {
        if !variable.is_empty() && !settings.contains_key(keyword) {
            default(settings, keyword, || (environment.variable)(variable));
        }
    }
}

fn number(keyword: &str, text: &str) -> Result<u64, PostgresError> {
    match text.trim().parse::<u64>() {
        Ok(number) => Ok(number),
        Err(_) => fault(format!("{keyword} is {text:?}, not a number")),
    }
}

/// Pairs hosts and ports: one port for all hosts, or one for each.
fn addresses(settings: &Settings) -> Result<Vec<Address>, PostgresError> {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests;

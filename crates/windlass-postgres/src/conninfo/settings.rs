//! The keywords of a connection string: which ones libpq knows, which this program refuses, and
//! which environment variables replace them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::PostgresError;

/// Keywords of libpq, each with the environment variable that can replace it ("" for none).
pub(super) const KEYWORDS: [(&str, &str); 33] = [
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
pub(super) const IGNORED: [&str; 7] = [
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

/// The value of each keyword.
pub(super) type Settings = BTreeMap<String, String>;

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

pub(super) fn fault<T>(what: String) -> Result<T, PostgresError> {
    Err(PostgresError::Conninfo { what })
}

pub(super) fn default(
    settings: &mut Settings,
    keyword: &str,
    value: impl FnOnce() -> Option<String>,
) {
    if settings.get(keyword).is_none_or(String::is_empty)
        && let Some(value) = value()
    {
        settings.insert(keyword.into(), value);
    }
}

pub(super) fn check_keywords(settings: &Settings) -> Result<(), PostgresError> {
    let known = |name: &str| {
        KEYWORDS.iter().any(|(keyword, _)| *keyword == name) || IGNORED.contains(&name)
    };
    match settings.keys().find(|name| !known(name)) {
        Some(name) => fault(format!("invalid keyword {name:?}")),
        None => Ok(()),
    }
}

pub(super) fn check_demands(settings: &Settings) -> Result<(), PostgresError> {
    let is_made = |(keyword, nothing): &(&str, &str)| {
        let value = settings.get(*keyword);
        value.is_some_and(|value| !value.is_empty() && value != nothing)
    };
    match REFUSED.iter().find(|demand| is_made(demand)) {
        Some((keyword, _)) => fault(format!("{keyword} is not supported: leave it out")),
        None => Ok(()),
    }
}

pub(super) fn apply_environment(settings: &mut Settings, environment: &Environment<'_>) {
    for (keyword, variable) in KEYWORDS {
        if !variable.is_empty() && !settings.contains_key(keyword) {
            default(settings, keyword, || (environment.variable)(variable));
        }
    }
}

//! What a connection string says about encryption: libpq's ssl keywords, their defaults, and the
//! files in the user's home that replace them.

use std::path::{Path, PathBuf};

use super::settings::{Settings, fault};
use crate::error::PostgresError;

/// libpq's sslmode, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsMode {
    /// Never encrypt.
    Disable,
    /// Encrypt only if the server insists.
    Allow,
    /// Encrypt if the server can.
    Prefer,
    /// Always encrypt. The server's identity is not checked, unless there is a root certificate.
    Require,
    /// Always encrypt, and only with a server whose certificate a trusted authority signed.
    VerifyCa,
    /// Like `VerifyCa`, and the certificate must also name the server.
    VerifyFull,
}

/// The authorities that may sign a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The authorities that this machine trusts.
    System,
    /// The authorities in a file.
    File(PathBuf),
}

/// A certificate of the client, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Everything that a string says about encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsRequest {
    pub(crate) mode: TlsMode,
    /// `None`: the string names no authority, and the user's home has no root.crt.
    pub(crate) roots: Option<Roots>,
    pub(crate) client: Option<ClientFiles>,
    /// Revoked certificates: a file of lists, and a directory of such files.
    pub(crate) revoked: Option<PathBuf>,
    pub(crate) revoked_directory: Option<PathBuf>,
    /// Whether the handshake names the server that it is meant for.
    pub(crate) names_server: bool,
    /// Whether to begin with the handshake, without first asking the server whether it can.
    pub(crate) direct: bool,
    pub(crate) allows_1_2: bool,
    pub(crate) allows_1_3: bool,
    pub(crate) binding: postgres::config::ChannelBinding,
}

impl TlsRequest {
    pub(super) fn new(settings: &Settings, home: Option<&Path>) -> Result<Self, PostgresError> {
        let get = |keyword| text(settings, keyword);
        refuse_gss(settings)?;
        let at_home = |name: &str| home.map(|home| home.join(".postgresql").join(name));
        let there = |name: &str| at_home(name).filter(|path| path.exists());
        let roots = match get("sslrootcert") {
            Some("system") => Some(Roots::System),
            Some(path) => Some(Roots::File(path.into())),
            None => there("root.crt").map(Roots::File),
        };
        let mode = mode(settings, roots.as_ref())?;
        let (allows_1_2, allows_1_3) = versions(settings)?;
        let named = get("sslcert").map(PathBuf::from);
        let certificate = named.or_else(|| there("postgresql.crt"));
        let key = get("sslkey").map(PathBuf::from);
        let key = key.or_else(|| at_home("postgresql.key"));
        let client = certificate.zip(key);
        let revoked = get("sslcrl").map(PathBuf::from);
        let directory = get("sslcrldir").map(PathBuf::from);
        let wanted = get("sslcertmode") != Some("disable");
        Ok(Self {
            mode,
            roots,
            client: client
                .filter(|_| wanted)
                .map(|(certificate, key)| ClientFiles { certificate, key }),
            revoked: revoked.or_else(|| there("root.crl").filter(|_| directory.is_none())),
            revoked_directory: directory,
            names_server: get("sslsni") != Some("0"),
            direct: direct(settings, mode)?,
            allows_1_2,
            allows_1_3,
            binding: binding(settings)?,
        })
    }
}

fn text<'a>(settings: &'a Settings, keyword: &str) -> Option<&'a str> {
    let found = settings.get(keyword).map(String::as_str);
    found.filter(|text| !text.is_empty())
}

fn mode(settings: &Settings, roots: Option<&Roots>) -> Result<TlsMode, PostgresError> {
    let system = roots == Some(&Roots::System);
    let mode = match text(settings, "sslmode") {
        None if system => TlsMode::VerifyFull,
        None | Some("prefer") => TlsMode::Prefer,
        Some("disable") => TlsMode::Disable,
        Some("allow") => TlsMode::Allow,
        Some("require") => TlsMode::Require,
        Some("verify-ca") => TlsMode::VerifyCa,
        Some("verify-full") => TlsMode::VerifyFull,
        Some(other) => return fault(format!("invalid sslmode {other:?}")),
    };
    if system && mode != TlsMode::VerifyFull {
        // Anybody can get a certificate of a public authority, for a name of their own.
        return fault("sslrootcert=system needs sslmode=verify-full".into());
    }
    Ok(mode)
}

fn direct(settings: &Settings, mode: TlsMode) -> Result<bool, PostgresError> {
    match text(settings, "sslnegotiation") {
        None | Some("postgres") => Ok(false),
        Some("direct") if mode >= TlsMode::Require => Ok(true),
        Some("direct") => fault("sslnegotiation=direct needs sslmode=require or stronger".into()),
        Some(other) => fault(format!("invalid sslnegotiation {other:?}")),
    }
}

/// Whether TLS 1.2 is allowed, and whether 1.3 is. Nothing older is allowed; this is libpq's
/// default too.
fn versions(settings: &Settings) -> Result<(bool, bool), PostgresError> {
    let bound = |keyword: &str, otherwise: u8| match text(settings, keyword) {
        None => Ok(otherwise),
        Some("TLSv1") => Ok(0),
        Some("TLSv1.1") => Ok(1),
        Some("TLSv1.2") => Ok(2),
        Some("TLSv1.3") => Ok(3),
        Some(other) => fault(format!("invalid {keyword} {other:?}")),
    };
    let oldest = bound("ssl_min_protocol_version", 2)?;
    let newest = bound("ssl_max_protocol_version", 3)?;
    let allowed = |version| (oldest..=newest).contains(&version);
    if !allowed(2) && !allowed(3) {
        return fault("ssl_min_protocol_version and _max_ leave neither TLS 1.2 nor 1.3".into());
    }
    Ok((allowed(2), allowed(3)))
}

fn binding(settings: &Settings) -> Result<postgres::config::ChannelBinding, PostgresError> {
    use postgres::config::ChannelBinding;
    match text(settings, "channel_binding") {
        None | Some("prefer") => Ok(ChannelBinding::Prefer),
        Some("disable") => Ok(ChannelBinding::Disable),
        Some("require") => Ok(ChannelBinding::Require),
        Some(other) => fault(format!("invalid channel_binding {other:?}")),
    }
}

/// This program does not have Kerberos' own encryption. If the string insists on it, the program
/// refuses instead of silently using another encryption.
fn refuse_gss(settings: &Settings) -> Result<(), PostgresError> {
    match text(settings, "gssencmode") {
        Some("require") => fault("gssencmode=require: GSSAPI is not supported".into()),
        _ => Ok(()),
    }
}

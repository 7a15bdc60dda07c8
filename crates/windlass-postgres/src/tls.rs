//! Opens sessions with the server, encrypted as the connection string demands.
//!
//!   `Conninfo` --> for each address, for each way its sslmode allows --> client
//!
//! The ways are libpq's: `prefer` tries first with TLS and then without, `allow` the other way
//! round. Every other mode has one way. A Unix socket is never encrypted, whatever the mode is.
//!
//! Invariants
//! - A mode of `require` and above never ends in a session without TLS.
//! - If there is a root certificate, the server's certificate is checked, and under `verify-full`
//!   its name too; see `tls/verifier.rs`.
//! - A key that others may read is never used.

mod files;
mod verifier;

use std::sync::Arc;

use postgres::config::{SslMode, SslNegotiation};
use postgres::error::SqlState;
use postgres::{CancelToken, Client, NoTls};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::conninfo::{Address, Conninfo, TlsMode, TlsRequest};
use crate::error::PostgresError;

/// The name of PostgreSQL's protocol within TLS, for servers of 17 and newer.
const ALPN: &[u8] = b"postgresql";

/// How to cancel a session's statement: over a connection of the same kind.
#[derive(Clone)]
pub(crate) struct Canceller {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
}

impl Canceller {
    /// Asks the server to end the running statement. Returns whether it could be asked.
    pub(crate) fn cancel(&self) -> bool {
        match self.tls.clone() {
            Some(tls) => self.token.cancel_query(tls).is_ok(),
            None => self.token.cancel_query(NoTls).is_ok(),
        }
    }
}

/// Opens a session with the first address that accepts one.
pub(crate) fn connect(conninfo: &Conninfo) -> Result<(Client, Canceller), PostgresError> {
    let mut last = None;
    for address in &conninfo.addresses {
        match connect_address(conninfo, address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = Some(error),
        }
    }
    // A connection string has at least one address.
    Err(last.unwrap_or_else(|| PostgresError::Conninfo {
        what: "no address".into(),
    }))
}

/// Tries the ways of the mode in turn. If all fail, returns the error of the first, preferred way.
fn connect_address(
    conninfo: &Conninfo,
    address: &Address,
) -> Result<(Client, Canceller), PostgresError> {
    let ways = ways(conninfo.tls.mode, address);
    let mut first = None;
    for way in ways {
        match connect_way(conninfo, address, *way) {
            Ok(connected) => return Ok(connected),
            Err(error) => {
                let another = is_worth_another_way(&error);
                first.get_or_insert(error);
                if !another {
                    break;
                }
            }
        }
    }
    Err(first.unwrap_or_else(|| PostgresError::Conninfo {
        what: "no way to connect".into(),
    }))
}

/// The client crate's `Prefer` means TLS if the server says that it can.
fn ways(mode: TlsMode, address: &Address) -> &'static [SslMode] {
    if matches!(address, Address::Socket { .. }) {
        return &[SslMode::Disable];
    }
    match mode {
        TlsMode::Disable => &[SslMode::Disable],
        TlsMode::Allow => &[SslMode::Disable, SslMode::Require],
        TlsMode::Prefer => &[SslMode::Prefer, SslMode::Disable],
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => &[SslMode::Require],
    }
}

/// As in libpq: true after a failed handshake, and if pg_hba.conf has no line for this way.
fn is_worth_another_way(error: &PostgresError) -> bool {
    match error {
        PostgresError::TlsFile { .. } => true,
        PostgresError::Connect { source, .. } => match source.code() {
            Some(code) => *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            None => true,
        },
        _ => false,
    }
}

fn connect_way(
    conninfo: &Conninfo,
    address: &Address,
    way: SslMode,
) -> Result<(Client, Canceller), PostgresError> {
    let mut config = conninfo.config(address)?;
    config.ssl_mode(way).channel_binding(conninfo.tls.binding);
    if conninfo.tls.direct && way == SslMode::Require {
        config.ssl_negotiation(SslNegotiation::Direct);
    }
    let tls = match way {
        SslMode::Disable => None,
        _ => Some(MakeRustlsConnect::new(client_config(&conninfo.tls)?)),
    };
    let connected = match tls.clone() {
        Some(tls) => config.connect(tls),
        None => config.connect(NoTls),
    };
    let client = connected.map_err(|source| PostgresError::Connect {
        at: address.display(),
        role: conninfo.get("user").unwrap_or_default().to_owned(),
        database: conninfo.get("dbname").unwrap_or_default().to_owned(),
        encrypted: tls.is_some(),
        password_hint: conninfo.password_hint(),
        source: source.into(),
    })?;
    let token = client.cancel_token();
    Ok((client, Canceller { token, tls }))
}

pub(crate) fn client_config(request: &TlsRequest) -> Result<ClientConfig, PostgresError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier::Verifier::new(request, &provider)?;
    let versions = versions(request);
    let fault = |error: rustls::Error| PostgresError::Conninfo {
        what: format!("TLS: {error}"),
    };
    let builder = ClientConfig::builder_with_provider(provider as Arc<CryptoProvider>)
        .with_protocol_versions(&versions)
        .map_err(fault)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &request.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = files::client(client)?;
            let made = builder.with_client_auth_cert(chain, key);
            made.map_err(|error| PostgresError::TlsFile {
                keyword: "sslcert",
                path: client.certificate.clone(),
                what: format!("it does not go with the key: {error}"),
            })?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = request.names_server;
    Ok(config)
}

fn versions(request: &TlsRequest) -> Vec<&'static rustls::SupportedProtocolVersion> {
    let mut versions = Vec::new();
    if request.allows_1_3 {
        versions.push(&rustls::version::TLS13);
    }
    if request.allows_1_2 {
        versions.push(&rustls::version::TLS12);
    }
    versions
}

//! Opens the connection of a replication: the ways of sslmode, then the server's question for a
//! password.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::ChannelBinding as Binding;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use windlass_media::fitted;

use super::message::{Message, take};
use super::wire::{Socket, Wire, broken};
use crate::conninfo::{Address, Conninfo, TlsMode, socket_path};
use crate::error::PostgresError;
use crate::tls;

const DOING: &str = "open a session for replication";
/// The number that asks for encryption, and version 3.0 of the protocol.
const TLS_REQUEST: u32 = 80_877_103;
const PROTOCOL: u32 = 196_608;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a session with the first address that accepts one.
pub(super) fn connect(conninfo: &Conninfo) -> Result<Wire, PostgresError> {
    let mut last = None;
    for address in &conninfo.addresses {
        for encrypted in ways(conninfo.tls.mode, address) {
            match connect_way(conninfo, address, *encrypted) {
                Ok(wire) => return Ok(wire),
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or_else(|| PostgresError::Conninfo {
        what: "no address".into(),
    }))
}

/// Whether to encrypt, in the order in which it is tried: as for every other session.
fn ways(mode: TlsMode, address: &Address) -> &'static [bool] {
    match (address, mode) {
        (Address::Socket { .. }, _) | (_, TlsMode::Disable) => &[false],
        (_, TlsMode::Allow) => &[false, true],
        (_, TlsMode::Prefer) => &[true, false],
        _ => &[true],
    }
}

fn connect_way(
    conninfo: &Conninfo,
    address: &Address,
    encrypted: bool,
) -> Result<Wire, PostgresError> {
    // So long the server may take for each answer.
    let patience = conninfo.connect_timeout()?.unwrap_or(CONNECT_TIMEOUT);
    let socket = match address {
        Address::Socket { directory, port } => {
            Socket::Unix(UnixStream::connect(socket_path(directory, *port)).map_err(fault)?)
        }
        Address::Tcp { host, number, port } => {
            let places = match number {
                Some(number) => vec![(*number, *port).into()],
                None => (host.as_str(), *port)
                    .to_socket_addrs()
                    .map_err(fault)?
                    .collect(),
            };
            let mut opened = Err(ErrorKind::AddrNotAvailable.into());
            for place in places {
                opened = TcpStream::connect_timeout(&place, patience);
                if opened.is_ok() {
                    break;
                }
            }
            let socket = opened.map_err(fault)?;
            socket.set_nodelay(true).map_err(fault)?;
            // The kernel of a machine that stands still accepts a connection, and nobody answers.
            socket.set_read_timeout(Some(patience)).map_err(fault)?;
            match encrypted {
                true => encrypt(conninfo, host, socket)?,
                false => Socket::Tcp(socket),
            }
        }
    };
    let mut wire = Wire::new(socket, patience);
    log_in(&mut wire, conninfo)?;
    wire.begin();
    Ok(wire)
}

fn fault(source: io::Error) -> PostgresError {
    broken(DOING, source)
}

/// Begins the encryption, if the server can.
fn encrypt(
    conninfo: &Conninfo,
    host: &str,
    mut socket: TcpStream,
) -> Result<Socket, PostgresError> {
    if !conninfo.tls.direct {
        let request = [8_u32.to_be_bytes(), TLS_REQUEST.to_be_bytes()].concat();
        socket.write_all(&request).map_err(fault)?;
        let mut answer = [0];
        socket.read_exact(&mut answer).map_err(fault)?;
        if answer != *b"S" {
            return Err(PostgresError::Refused {
                doing: DOING,
                message: "the server does not encrypt".into(),
                code: String::new(),
            });
        }
    }
    let config = tls::client_config(&conninfo.tls)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| PostgresError::Conninfo {
        what: format!("TLS: {host:?} is no name of a server"),
    })?;
    let session = ClientConnection::new(Arc::new(config), name);
    let session = session.map_err(|error| PostgresError::Conninfo {
        what: format!("TLS: {error}"),
    })?;
    let mut stream = StreamOwned::new(session, socket);
    stream.flush().map_err(fault)?;
    Ok(Socket::Tls(Box::new(stream)))
}

/// Says who we are, and answers what the server asks, until it is ready.
fn log_in(wire: &mut Wire, conninfo: &Conninfo) -> Result<(), PostgresError> {
    let user = conninfo.get("user").unwrap_or_default();
    let mut body = PROTOCOL.to_be_bytes().to_vec();
    for (name, value) in [
        ("user", user),
        ("replication", "true"),
        ("application_name", "windlass"),
    ] {
        body.extend_from_slice(&[name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    let length = fitted::<u32, _>(body.len() + 4);
    wire.send_raw(DOING, &[&length.to_be_bytes()[..], &body].concat())?;
    loop {
        match wire.receive(DOING, None)? {
            Some(message) if message.tag == b'R' => answer(wire, conninfo, &message.body)?,
            Some(Message { tag: b'Z', .. }) => return Ok(()),
            Some(Message { tag: 0, .. }) | None => {
                return Err(PostgresError::Stream {
                    doing: DOING,
                    source: ErrorKind::UnexpectedEof.into(),
                });
            }
            // The key to cancel with.
            Some(_) => {}
        }
    }
}

/// Answers a question for a password.
fn answer(wire: &mut Wire, conninfo: &Conninfo, body: &[u8]) -> Result<(), PostgresError> {
    let mut rest = body;
    let kind = take(&mut rest).map(u32::from_be_bytes);
    let refused = |message: &str| PostgresError::Refused {
        doing: DOING,
        message: message.to_owned(),
        code: String::new(),
    };
    if kind == Some(0) {
        return match conninfo.tls.binding {
            Binding::Require => Err(refused("channel_binding=require cannot be met here")),
            _ => Ok(()),
        };
    }
    let password = conninfo
        .get("password")
        .filter(|password| !password.is_empty());
    let password = password.ok_or_else(|| refused("the server asks for a password"))?;
    match kind {
        Some(3) => wire.send(DOING, b'p', &[password.as_bytes(), b"\0"].concat()),
        Some(5) => {
            let salt = take(&mut rest).ok_or_else(|| refused("a question without salt"))?;
            let user = conninfo.get("user").unwrap_or_default();
            let hash = md5_hash(user.as_bytes(), password.as_bytes(), salt);
            wire.send(DOING, b'p', &[hash.as_bytes(), b"\0"].concat())
        }
        Some(10) => scram(wire, password, rest),
        _ => Err(refused(
            "the server asks for a kind of login that is not supported",
        )),
    }
}

/// Proves that we know the password without sending it, and lets the server prove the same.
fn scram(wire: &mut Wire, password: &str, mechanisms: &[u8]) -> Result<(), PostgresError> {
    let refused = |message: &str| PostgresError::Refused {
        doing: DOING,
        message: message.to_owned(),
        code: String::new(),
    };
    let mut names = mechanisms.split(|byte| *byte == 0);
    if !names.any(|name| name == SCRAM_SHA_256.as_bytes()) {
        return Err(refused("the server has no SCRAM-SHA-256"));
    }
    let mut proof = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    let first = proof.message().to_vec();
    let length = fitted::<u32, _>(first.len());
    let name = SCRAM_SHA_256.as_bytes();
    let body = [name, b"\0", &length.to_be_bytes()[..], &first].concat();
    wire.send(DOING, b'p', &body)?;
    let challenge = question(wire, 11)?.ok_or_else(|| refused("no challenge came"))?;
    proof.update(&challenge).map_err(fault)?;
    wire.send(DOING, b'p', proof.message())?;
    let end = question(wire, 12)?.ok_or_else(|| refused("the server proved nothing"))?;
    proof.finish(&end).map_err(fault)
}

/// The content of the next question, if it is of this kind.
fn question(wire: &mut Wire, wanted: u32) -> Result<Option<Vec<u8>>, PostgresError> {
    let Some(message) = wire.receive(DOING, None)? else {
        return Ok(None);
    };
    let mut rest = &message.body[..];
    let kind = take(&mut rest).map(u32::from_be_bytes);
    Ok((message.tag == b'R' && kind == Some(wanted)).then(|| rest.to_vec()))
}

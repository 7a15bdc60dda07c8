//! The connection: messages over a socket, encrypted or not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::message::{BODY_BYTES_MAX, Message};
use crate::error::PostgresError;

/// How long an answer may take, and a message that has begun to come.
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK_BYTES: usize = 1 << 16;

/// A socket of either kind.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        // The library refuses a timeout of nothing.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(timeout),
            Self::Unix(socket) => socket.set_read_timeout(timeout),
            Self::Tls(socket) => socket.sock.set_read_timeout(timeout),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
            Self::Tls(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
            Self::Tls(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Unix(socket) => socket.flush(),
            Self::Tls(socket) => socket.flush(),
        }
    }
}

/// A connection that speaks PostgreSQL's protocol.
pub(super) struct Wire {
    socket: Socket,
    /// What was read and is no whole message yet.
    buffer: Vec<u8>,
    block: Vec<u8>,
    /// How long an answer may take.
    patience: Duration,
}

impl Wire {
    /// A connection whose server may take so long for each answer, until it has let us in.
    pub(super) fn new(socket: Socket, patience: Duration) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            block: vec![0; BLOCK_BYTES],
            patience,
        }
    }

    /// The server has let us in.
    pub(super) fn begin(&mut self) {
        self.patience = PATIENCE;
    }

    pub(super) fn send_raw(
        &mut self,
        doing: &'static str,
        bytes: &[u8],
    ) -> Result<(), PostgresError> {
        let sent = self
            .socket
            .write_all(bytes)
            .and_then(|()| self.socket.flush());
        sent.map_err(|source| broken(doing, source))
    }

    pub(super) fn send(
        &mut self,
        doing: &'static str,
        tag: u8,
        body: &[u8],
    ) -> Result<(), PostgresError> {
        let bytes = Message::encode(tag, body).ok_or_else(|| PostgresError::Stream {
            doing,
            source: ErrorKind::InvalidInput.into(),
        })?;
        self.send_raw(doing, &bytes)
    }

    /// The next message that is no notice. `None` if nothing came for so long; without a limit it
    /// waits. An error of the server is an error.
    pub(super) fn receive(
        &mut self,
        doing: &'static str,
        at_most: Option<Duration>,
    ) -> Result<Option<Message>, PostgresError> {
        let fault = |source| broken(doing, source);
        loop {
            match self.whole().map_err(fault)? {
                Some(Message {
                    tag: b'N' | b'S', ..
                }) => continue,
                Some(message) if message.tag == b'E' => return Err(refused(doing, &message)),
                Some(message) => return Ok(Some(message)),
                None => {}
            }
            let timeout = at_most
                .filter(|_| self.buffer.is_empty())
                .unwrap_or(self.patience);
            self.socket.set_timeout(timeout).map_err(fault)?;
            match self.socket.read(&mut self.block) {
                Ok(0) => return Ok(Some(Message::end())),
                Ok(count) => self.buffer.extend_from_slice(&self.block[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    if at_most.is_some() && self.buffer.is_empty() {
                        return Ok(None);
                    }
                }
                Err(error) if is_timeout(&error) && self.buffer.is_empty() && at_most.is_some() => {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(Some(Message::end()));
                }
                Err(error) => return Err(fault(error)),
            }
        }
    }

    /// Takes a whole message out of what was read.
    fn whole(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.buffer.get(..5) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let tag = head[0];
        if !(4..=BODY_BYTES_MAX).contains(&length) {
            let what = format!("a message of {length} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let end = 1 + length as usize;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let body = self.buffer[5..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some(Message { tag, body }))
    }

    /// Runs a command. Returns its rows.
    pub(super) fn query(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<Vec<Vec<Option<String>>>, PostgresError> {
        self.send(doing, b'Q', &[sql.as_bytes(), b"\0"].concat())?;
        self.answers(doing)
    }

    /// The rows up to the end of an answer.
    pub(super) fn answers(
        &mut self,
        doing: &'static str,
    ) -> Result<Vec<Vec<Option<String>>>, PostgresError> {
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            match self.receive(doing, None) {
                Ok(Some(message)) if message.tag == b'D' => rows.extend(message.row()),
                Ok(Some(Message { tag: b'Z' | 0, .. })) => {
                    return refused.map_or(Ok(rows), Err);
                }
                Ok(_) => {}
                // The server says that it is ready for the next command after that, too.
                Err(error @ PostgresError::Refused { .. }) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a command after which both sides copy.
    pub(super) fn start_streaming(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<(), PostgresError> {
        self.send(doing, b'Q', &[sql.as_bytes(), b"\0"].concat())?;
        match self.receive(doing, None) {
            Ok(Some(Message { tag: b'W', .. })) => Ok(()),
            Ok(other) => Err(PostgresError::Answer {
                doing,
                answer: format!("{:?}", other.map(|message| char::from(message.tag))),
            }),
            // The server is ready for another command then.
            Err(error @ PostgresError::Refused { .. }) => {
                self.answers(doing)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

/// The error of a socket. Linux says of one that it would block if its time is over.
pub(super) fn broken(doing: &'static str, source: io::Error) -> PostgresError {
    let source = match source.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => source,
    };
    PostgresError::Stream { doing, source }
}

/// The server's error.
pub(super) fn refused(doing: &'static str, message: &Message) -> PostgresError {
    PostgresError::Refused {
        doing,
        message: message.field(b'M').unwrap_or_default(),
        code: message.field(b'C').unwrap_or_default(),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

//! The logs of the system: syslog with its datagrams, the systemd journal with its native protocol.
//!
//! The protocols: RFC 3164, and <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use windlass_operations::moments;

use crate::cli::LogLevel;

const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// The size that every receiver accepts in one datagram.
const TEXT_BYTES_MAX: usize = 8000;
/// Syslog's number for system services.
const FACILITY_DAEMON: u8 = 3;

/// Why nothing can be sent, and what to do about it.
pub type Unreachable = (String, String);

pub struct Socket {
    socket: UnixDatagram,
    path: PathBuf,
    is_journal: bool,
}

impl Socket {
    pub fn journal(path: &str) -> Result<Self, Unreachable> {
        Self::open("journal", if path.is_empty() { JOURNAL } else { path })
    }

    pub fn syslog(path: &str) -> Result<Self, Unreachable> {
        Self::open("syslog", if path.is_empty() { SYSLOG } else { path })
    }

    fn open(name: &str, path: &str) -> Result<Self, Unreachable> {
        let path = Path::new(path);
        let fault = |error: io::Error| {
            let message = format!(
                "--log {name}: no one listens at {}: {error}",
                path.display()
            );
            let hint = format!(
                "Name the socket as in --log {name}:/path, or a file as in --log /var/log/windlass.log."
            );
            (message, hint)
        };
        let socket = UnixDatagram::unbound().map_err(fault)?;
        // This only tests whether a service listens. Each line is sent to the name of the socket,
        // so that a restarted service gets the next line.
        UnixDatagram::unbound()
            .and_then(|probe| probe.connect(path))
            .map_err(fault)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            is_journal: name == "journal",
        })
    }

    pub fn write(&mut self, level: LogLevel, text: &str) -> io::Result<()> {
        let text = shortened(text);
        let severity = level.severity();
        let datagram = match self.is_journal {
            true => format!(
                "MESSAGE={text}\nPRIORITY={severity}\nSYSLOG_IDENTIFIER=windlass\nSYSLOG_PID={}\n",
                std::process::id()
            ),
            false => {
                let now = jiff::Timestamp::now().to_zoned(moments::zone());
                let now = now.strftime("%b %e %H:%M:%S");
                let priority = FACILITY_DAEMON * 8 + severity;
                format!("<{priority}>{now} windlass[{}]: {text}", std::process::id())
            }
        };
        self.socket
            .send_to(datagram.as_bytes(), &self.path)
            .map(drop)
    }
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

//! Secrets as they come: from a file, a descriptor, a command.
//!
//! Invariant: what is read is overwritten when it is dropped, and a process that reads a secret
//! makes no core file from then on.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use windlass_engine::without_core_files;
use zeroize::Zeroizing;

use crate::age::{Identity, Passphrase, Recipient};
use crate::error::KeyError;

/// Longest secret, in bytes.
const BYTES_MAX: usize = 64 * 1024;
/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) type Bytes = Zeroizing<Vec<u8>>;

/// What a secret turned out to be.
#[derive(Debug)]
pub(crate) enum Secret {
    Identities(Vec<Identity>),
    Recipients(Vec<Recipient>),
    Passphrase(Passphrase),
}

impl Secret {
    /// What these bytes are: identities of age, recipients of age, or else a passphrase. `name` is
    /// for errors.
    pub(crate) fn of(bytes: Bytes, name: &str) -> Result<Self, KeyError> {
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let lines = text.lines().map(str::trim);
        let lines: Vec<_> = lines
            .filter(|it| !it.is_empty() && !it.starts_with('#'))
            .collect();
        if lines
            .iter()
            .any(|line| line.starts_with(crate::age::IDENTITY_START))
        {
            return Self::identities(&bytes, name);
        }
        if !lines.is_empty() && lines.iter().all(|line| line.starts_with("age1")) {
            let parsed = lines.iter().map(|line| Recipient::parse(line));
            return Ok(Self::Recipients(parsed.collect::<Result<_, _>>()?));
        }
        Self::passphrase(bytes, name)
    }

    /// The identities of a file as `age-keygen` writes it.
    pub(crate) fn identities(bytes: &Bytes, name: &str) -> Result<Self, KeyError> {
        let none = || KeyError::NoIdentity(name.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| none())?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parsed = lines.map(|line| Identity::parse(line).ok_or_else(none));
        let identities: Vec<_> = parsed.collect::<Result<_, _>>()?;
        match identities.is_empty() {
            true => Err(none()),
            false => Ok(Self::Identities(identities)),
        }
    }

    /// A passphrase: all bytes up to the end of the line that ends them.
    pub(crate) fn passphrase(mut bytes: Bytes, name: &str) -> Result<Self, KeyError> {
        for end in [b'\n', b'\r'] {
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        match bytes.is_empty() {
            true => Err(KeyError::Empty(name.to_owned())),
            false => Ok(Self::Passphrase(Passphrase::new(bytes))),
        }
    }
}

/// The content of a file that nobody else may read.
pub(crate) fn of_file(path: &Path) -> Result<Bytes, KeyError> {
    let fault = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    let file = windlass_engine::open_regular(path).map_err(fault)?;
    let metadata = file.metadata().map_err(fault)?;
    let mode = metadata.mode() & 0o777;
    // As libpq: the owner alone, or root and a group that may read.
    let forbidden = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if mode & forbidden != 0 {
        let path = path.to_owned();
        return Err(KeyError::Permissions { path, mode });
    }
    let name = path.display().to_string();
    bounded(file, &name)?.map_err(fault)
}

/// What is read from a descriptor that this process was given.
#[allow(unsafe_code, reason = "only a number says which descriptor is meant")]
pub(crate) fn of_descriptor(number: u32) -> Result<Bytes, KeyError> {
    let fault = |source| KeyError::Descriptor { number, source };
    let none = || fault(io::ErrorKind::InvalidInput.into());
    let raw = RawFd::try_from(number).map_err(|_| none())?;
    let open = Path::new("/proc/self/fd").join(number.to_string());
    if number <= 2 && number != 0 || open.symlink_metadata().is_err() {
        return Err(none());
    }
    // SAFETY: the caller of the program passed this descriptor for this purpose, it is open, and
    // the program itself uses none of its number: it is read here, once, and closed.
    let file = unsafe { File::from_raw_fd(raw) };
    bounded(file, &format!("descriptor {number}"))?.map_err(fault)
}

/// What a command prints. Its words are no shell's.
pub(crate) fn of_command(words: &[String]) -> Result<Bytes, KeyError> {
    let program = words.first().cloned().unwrap_or_default();
    let fault = |what: String| KeyError::Command {
        program: program.clone(),
        what,
    };
    let command = Command::new(&program)
        .args(words.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = command.map_err(|error| fault(format!("cannot be started: {error}")))?;
    let read = read_in_time(&mut child, &program);
    let read = match read {
        Some(read) => read,
        None => {
            child.kill().map_err(|error| fault(error.to_string()))?;
            child.wait().map_err(|error| fault(error.to_string()))?;
            return Err(fault("did not end within 60 seconds".to_owned()));
        }
    };
    let status = child.wait().map_err(|error| fault(error.to_string()))?;
    if !status.success() {
        return Err(fault(format!("failed: {status}")));
    }
    read?.map_err(|error| fault(error.to_string()))
}

/// Reads all that a child prints; none if that takes too long.
fn read_in_time(child: &mut Child, program: &str) -> Option<Result<io::Result<Bytes>, KeyError>> {
    let output = child.stdout.take()?;
    let (done, result) = channel();
    let name = format!("the output of {program}");
    std::thread::spawn(move || done.send(bounded(output, &name)).is_ok());
    result.recv_timeout(COMMAND_TIMEOUT).ok()
}

/// Reads a secret, which has a bound. The memory is never moved, so no copy of it stays behind.
fn bounded(from: impl Read, name: &str) -> Result<io::Result<Bytes>, KeyError> {
    without_core_files();
    let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES_MAX + 1));
    let mut limited = from.take(BYTES_MAX as u64 + 1);
    let mut part = Zeroizing::new([0; 4096]);
    loop {
        match limited.read(&mut *part) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    match bytes.len() > BYTES_MAX {
        true => Err(KeyError::TooLong(name.to_owned())),
        false => Ok(Ok(bytes)),
    }
}

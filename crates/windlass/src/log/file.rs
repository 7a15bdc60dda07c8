//! A log in a file, which is opened again by its name after it was moved away (logrotate).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::cli::LogLevel;
use crate::exit::{Code, Failure};

/// So much of a file's beginning tells whether it is a log.
const BEGINNING_BYTES: usize = 256;
/// In each line, behind the time.
const MARK: &str = "windlass[";

pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and inode of it.
    identity: (u64, u64),
}

impl LogFile {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match open(&path) {
            Ok((file, identity)) => Ok(Self {
                path,
                file,
                identity,
            }),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::usage(
                format!("--log {}: {error}", path.display()),
                "Windlass only appends to logs of its own. Name a new file, an empty one, syslog \
                 or journal.",
            )),
            Err(error) => Err(Failure::new(
                Code::Failed,
                format!("cannot open the log {}: {error}", path.display()),
                "Name a file in a directory that can be written to.",
            )),
        }
    }

    pub fn write(&mut self, level: LogLevel, text: &str) -> io::Result<()> {
        self.follow();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        let process = std::process::id();
        let line = format!("{now} {MARK}{process}] {}: {text}\n", level.name());
        self.file.write_all(line.as_bytes())
    }

    /// Opens the file anew if its name leads elsewhere. Where that fails (the directory is root's,
    /// and root became the database's owner) the old one has the rest of the run.
    fn follow(&mut self) {
        let named = std::fs::metadata(&self.path);
        if named.is_ok_and(|data| (data.dev(), data.ino()) == self.identity) {
            return;
        }
        if let Ok((file, identity)) = open(&self.path) {
            (self.file, self.identity) = (file, identity);
        }
    }
}

/// Opens a file that is a log, or can become one.
fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned()));
    if let Ok(data) = std::fs::metadata(path) {
        let kind = data.file_type();
        // Whoever throws the log away may.
        let is_null = kind.is_char_device() && path == Path::new("/dev/null");
        if !kind.is_file() && !is_null {
            return wrong("it is not a file");
        }
        if kind.is_file() && data.len() > 0 && !is_log(path)? {
            return wrong("it is not a log of Windlass");
        }
    }
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(0o640);
    let file = options.open(path)?;
    let data = file.metadata()?;
    Ok((file, (data.dev(), data.ino())))
}

/// Whether the first line is one of ours.
fn is_log(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BEGINNING_BYTES as u64)
        .read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.split_once(' ');
    Ok(line.is_some_and(|(time, rest)| {
        time.parse::<jiff::Timestamp>().is_ok() && rest.starts_with(MARK)
    }))
}

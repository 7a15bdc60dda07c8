//! A log in a file. If somebody moves the file away (logrotate), it is opened again by its name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::{EngineError, OutputKind};

use crate::cli::LogLevel;
use crate::outputs;

/// The bytes at a file's beginning that show whether it is a log.
const BEGINNING_BYTES: usize = 256;
/// The mark in each line, after the time.
const MARK: &str = "windlass[";

/// The log of runs. It is never replaced: new lines are added at its end.
const LOG: OutputKind = OutputKind {
    noun: "a log of Windlass",
    is_own: is_log,
    is_renamed: false,
};

pub struct LogFile {
    path: PathBuf,
    file: File,
    /// The device and the inode of the file.
    identity: (u64, u64),
    /// Whether this process created it.
    is_new: bool,
}

impl LogFile {
    /// Opens or creates the file.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let is_new = path.symlink_metadata().is_err();
        let (file, identity) = open(&path)?;
        Ok(Self {
            path,
            file,
            identity,
            is_new,
        })
    }

    /// Removes the file if this process created it. Returns whether it is gone.
    pub fn withdraw(&self) -> bool {
        self.is_new && std::fs::remove_file(&self.path).is_ok()
    }

    pub fn write(&mut self, level: LogLevel, text: &str) -> io::Result<()> {
        self.follow();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        let process = std::process::id();
        let line = format!("{now} {MARK}{process}] {}: {text}\n", level.name());
        self.file.write_all(line.as_bytes())
    }

    /// Opens the file again if its name leads to another file. If that fails (the directory is
    /// root's, and root became the database's owner), the rest of the run goes to the old file.
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

/// Opens a file that is a log or may become one.
fn open(path: &Path) -> Result<(File, (u64, u64)), EngineError> {
    outputs::outputs().check_kind(path, &LOG)?;
    let failed = |source| EngineError::OutputIo {
        operation: "open",
        path: path.to_owned(),
        source,
    };
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(0o640);
    // A pipe without a reader gives an error, and not a wait that no signal ends.
    let options = options.custom_flags(nix::libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed)?;
    let data = file.metadata().map_err(failed)?;
    Ok((file, (data.dev(), data.ino())))
}

/// Whether a file with this beginning is a log: its first line must be one of Windlass.
fn is_log(beginning: &[u8]) -> bool {
    let line = beginning.get(..BEGINNING_BYTES).unwrap_or(beginning);
    let text = String::from_utf8_lossy(line);
    text.split_once(' ').is_some_and(|(time, rest)| {
        time.parse::<jiff::Timestamp>().is_ok() && rest.starts_with(MARK)
    })
}

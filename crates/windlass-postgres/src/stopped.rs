//! A cluster whose server was stopped, held so that no server starts on it meanwhile.
//!
//! The hold is postmaster.pid with the number of this process. A server that finds a living process
//! there refuses to start. If this process is killed, the file is stale, and the next server
//! removes it, as after a crash of its own.
//!
//! Invariants
//! - Only a cluster that was shut down in order is held: its files have everything.
//! - The file goes with the value, and never takes the place of another one that counts.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::error::{IoContext, PostgresError};
use crate::lsn::{Lsn, Segment, Timeline};
use crate::restore::running_server;
use crate::wal::records::Records;
use crate::wal::source::SegmentFiles;
use crate::wal::timelines_before;

const HOLD: &str = "postmaster.pid";
const PRIVATE_MODE: u32 = 0o600;
/// Files with which a server would change the cluster when it starts, before it takes connections.
const CHANGES: [&str; 3] = ["backup_label", "standby.signal", "recovery.signal"];
/// Resource manager of the log itself, and its record that a server writes when it ends.
const MANAGER_LOG: u8 = 0;
const SHUT_DOWN: u8 = 0;

/// A cluster on which no server starts as long as this value lives.
#[derive(Debug)]
pub struct StoppedCluster {
    data: PathBuf,
    control: Control,
    end: Lsn,
    _hold: Hold,
}

impl StoppedCluster {
    /// Holds a cluster. Refuses one that runs, or that was not shut down in order.
    pub fn hold(data: &Path) -> Result<Self, PostgresError> {
        let data = data.canonicalize().doing("find", data)?;
        let hold = Hold::take(&data)?;
        let refused = |what| PostgresError::Target {
            path: data.clone(),
            what,
        };
        let control = Control::read(&data)?;
        if !control.is_shut_down() {
            return Err(refused("was not shut down in order"));
        }
        if CHANGES.iter().any(|name| data.join(name).exists()) {
            return Err(refused("would recover when its server starts"));
        }
        let end = end_of_log(&data, &control)?;
        Ok(Self {
            data,
            control,
            end,
            _hold: hold,
        })
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its pg_control.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The first position that its log does not have.
    pub fn log_end(&self) -> Lsn {
        self.end
    }

    /// The timelines before the one it is on, and where each was left.
    pub fn history(&self) -> Result<Vec<(Timeline, Lsn)>, PostgresError> {
        let timeline = self.control.checkpoint_timeline;
        let before = timelines_before(&self.data, timeline)?;
        let path = self.data.join("pg_wal").join(timeline.history_name());
        let missing = || std::io::Error::from(ErrorKind::NotFound);
        before.ok_or_else(missing).doing("read", &path)
    }
}

/// The file that keeps servers away. It goes with the value. One that stays is stale as soon as
/// this process has ended.
#[derive(Debug)]
struct Hold(PathBuf);

impl Hold {
    fn take(data: &Path) -> Result<Self, PostgresError> {
        let path = data.join(HOLD);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE_MODE);
        let mut file = match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if let Some(process) = running_server(data) {
                    let path = data.to_owned();
                    return Err(PostgresError::TargetRunning { path, process });
                }
                // Its process was killed, as a server takes it, too.
                std::fs::remove_file(&path).doing("remove", &path)?;
                options.open(&path).doing("create", &path)?
            }
            opened => opened.doing("create", &path)?,
        };
        // From here on, an error removes the file.
        let hold = Self(path);
        let text = format!("{}\n{}\n", std::process::id(), data.display());
        let written = file.write_all(text.as_bytes());
        written.doing("write", &hold.0)?;
        Ok(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap_or_default();
    }
}

/// Where the log ends: behind the record that the server wrote when it ended.
fn end_of_log(data: &Path, control: &Control) -> Result<Lsn, PostgresError> {
    let bytes = u64::from(control.wal_segment_bytes);
    let directory = data.join("pg_wal");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
        let entry = entry.doing("list", &directory)?;
        let segment = Segment::of_name(&entry.file_name().to_string_lossy(), bytes);
        let is_past = |one: &Segment| one.timeline <= control.checkpoint_timeline;
        if let Some(one) = segment.filter(is_past) {
            found.push((one.timeline, one.number, entry.path()));
        }
    }
    found.sort();
    let segments = found.into_iter().map(|(_, number, path)| (number, path));
    let mut source = SegmentFiles::new(segments);
    let at = control.checkpoint;
    let missing = |what| PostgresError::WalRecord { at, what };
    let mut records = Records::open(&mut source, bytes, at, &[])?;
    match records.read_next()? {
        Some(record) if (record.manager, record.info & 0xF0) == (MANAGER_LOG, SHUT_DOWN) => {
            Ok(record.end)
        }
        _ => Err(missing("it is not the one that a server writes at its end")),
    }
}

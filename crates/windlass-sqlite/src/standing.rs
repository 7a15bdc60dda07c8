//! Where a committed state of a database in WAL mode stands: at which commit of its log, and in
//! which database file. Two states that stand at the same place are the same.
//!
//! Why the same place means the same content:
//!
//! 1. A state is the database file and the frames of the log up to a commit. The salts, the number
//!    and the checksum of the last frame are those of one commit of one generation of the log.
//! 2. Every write to the file sets its change time, in steps of the file system's clock. So if the
//!    change time was older than any such step when it was noted, every later write shows in it.
//! 3. A store into a map of the file sets the change time only if the page was not dirty already.
//!    So the file is synced before its change time is noted: the kernel then notices the next
//!    store. Not every file system does that, so only those count that are known to.
//!
//! The times of a clock that was set back prove nothing. Nor does a mark prove what was read since
//! if the system was started again in between: SQLite makes the pages durable that it copies into
//! the file, and not its change time (`fdatasync`). So a power cut may take the time back and leave
//! the pages.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{IoContext, SqliteError};
use crate::fingerprint::TICK_MAX;
use crate::shm::WalIndex;

/// The file systems that set the change time of a file when a process stores into a map of it
/// (statfs(2)): ext4, XFS, Btrfs.
const KNOWN: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// The longest step of a file system whose change times are finer than a millisecond: Linux gives
/// them the time of its last tick, of which there are at least a hundred in a second.
const FINE_TICK_MAX: Duration = Duration::from_millis(20);

/// A commit of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    /// The salts of the log's generation.
    pub salts: [u8; 8],
    /// The last frame of the commit, from 1; 0 if the log is empty.
    pub frame: u32,
    /// The checksum of that frame; zeros if the log is empty.
    pub sums: [u32; 2],
}

/// A database file at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMark {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
    /// Whether a later write shows in `changed`.
    is_settled: bool,
    /// When it was looked at, in nanoseconds since 1970.
    seen_nanos: i64,
}

/// Where a state stands. In JSON it is one word of text, so that lists of sets have it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Standing {
    /// The commit.
    pub point: LogPoint,
    /// The file.
    pub file: FileMark,
}

impl LogPoint {
    /// The newest commit of a log.
    pub(crate) fn of(index: &WalIndex) -> Self {
        Self {
            salts: index.salts,
            frame: index.frame_count,
            sums: match index.frame_count {
                0 => [0; 2],
                _ => index.sums,
            },
        }
    }
}

impl FileMark {
    /// Looks at a file. It is synced if that makes the mark a proof.
    pub(crate) fn take(file: &File, path: &Path) -> Result<Self, SqliteError> {
        let look = || file.metadata().during("inspect", path);
        let mut found = look()?;
        let mut is_settled = is_known(file) && is_at_rest(&found);
        if is_settled {
            file.sync_data().during("sync", path)?;
            found = look()?;
            is_settled = is_at_rest(&found);
        }
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
            is_settled,
            seen_nanos: now_nanos(),
        })
    }

    /// Whether a mark that is taken now proves more than this one: a later write shows in the
    /// change time of the file by now, and does not show in this mark.
    pub(crate) fn proves_less_than(&self, file: &File, path: &Path) -> Result<bool, SqliteError> {
        let found = file.metadata().during("inspect", path)?;
        let is_that = self.is_settled && self.changed == (found.ctime(), found.ctime_nsec());
        Ok(!is_that && is_at_rest(&found) && is_known(file))
    }

    /// Whether it is the same file, whatever is in it.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether it looks as it did then. A change within one step of the clock does not show.
    fn looks_like(&self, other: &Self) -> bool {
        let seen = |mark: &Self| (mark.device, mark.inode, mark.bytes, mark.changed);
        seen(self) == seen(other)
    }

    /// Whether nobody wrote to the file since `before`. False when in doubt.
    pub(crate) fn proves_unchanged_since(&self, before: &Self) -> bool {
        before.is_settled && self.looks_like(before) && self.seen_nanos >= before.seen_nanos
    }
}

impl Standing {
    /// Whether this is the same state as `before`. False when in doubt.
    pub fn proves_unchanged_since(&self, before: &Self) -> bool {
        self.point == before.point && self.file.proves_unchanged_since(&before.file)
    }

    /// Whether the log is empty: the file alone is the state.
    pub fn has_empty_log(&self) -> bool {
        self.point.frame == 0
    }

    /// Whether both are a file with an empty log, and the file is proven to be the same. It does
    /// not matter which of them comes first.
    pub fn is_same_file_as(&self, other: &Self) -> bool {
        let is_proven =
            |after: &Self, before: &Self| after.file.proves_unchanged_since(&before.file);
        self.has_empty_log()
            && other.has_empty_log()
            && (is_proven(self, other) || is_proven(other, self))
    }

    /// Whether both are a file with an empty log that looks the same. That proves it only if no two
    /// changes fall into one step of the clock.
    pub fn looks_like(&self, other: &Self) -> bool {
        self.has_empty_log() && other.has_empty_log() && self.file.looks_like(&other.file)
    }

    /// When it was looked at, in nanoseconds since 1970.
    pub fn seen_nanos(&self) -> i64 {
        self.file.seen_nanos
    }

    /// Whether it was looked at since the system was started.
    pub(crate) fn is_since(&self, booted_nanos: i64) -> bool {
        self.file.seen_nanos >= booted_nanos
    }

    /// How long a step of the clock is at most that gives the file its change time.
    pub fn step_nanos(&self) -> i64 {
        let is_coarse = self.file.changed.1 % 1_000_000 == 0;
        windlass_media::fitted(if is_coarse { TICK_MAX } else { FINE_TICK_MAX }.as_nanos())
    }
}

impl From<Standing> for String {
    fn from(Standing { point, file }: Standing) -> Self {
        let salts = u64::from_be_bytes(point.salts);
        let [first, second] = point.sums;
        let FileMark {
            device,
            inode,
            bytes,
            changed: (seconds, nanos),
            is_settled,
            seen_nanos,
        } = file;
        format!(
            "{salts} {} {first} {second} {device} {inode} {bytes} {seconds} {nanos} {} {seen_nanos}",
            point.frame,
            u8::from(is_settled)
        )
    }
}

impl TryFrom<String> for Standing {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut words = text.split(' ');
        let parsed = Self::parse(&mut words).filter(|_| words.next().is_none());
        parsed.ok_or("it does not say where the state stands")
    }
}

/// The next word, as a number.
fn number<'a, N: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<N> {
    words.next()?.parse().ok()
}

impl Standing {
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let salts: u64 = number(words)?;
        Some(Self {
            point: LogPoint {
                salts: salts.to_be_bytes(),
                frame: number(words)?,
                sums: [number(words)?, number(words)?],
            },
            file: FileMark {
                device: number(words)?,
                inode: number(words)?,
                bytes: number(words)?,
                changed: (number(words)?, number(words)?),
                is_settled: number::<u8>(words)? == 1,
                seen_nanos: number(words)?,
            },
        })
    }
}

/// Whether its file system sets the change time when a process stores into a map of the file.
fn is_known(file: &File) -> bool {
    let kind = rustix::fs::fstatfs(file).map(|found| found.f_type);
    kind.is_ok_and(|kind| u64::try_from(kind).is_ok_and(|it| KNOWN.contains(&it)))
}

/// Whether the file was changed so long ago that a later change has another time.
fn is_at_rest(found: &Metadata) -> bool {
    let changed = Timestamp::new(found.ctime(), 0);
    let age = changed.map(|changed| Timestamp::now().duration_since(changed));
    age.is_ok_and(|age| Duration::try_from(age).is_ok_and(|age| age > TICK_MAX))
}

/// When the system was started, in nanoseconds since 1970, as its clock has it now.
pub fn booted_nanos() -> i64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = since.tv_sec.saturating_mul(1_000_000_000);
    now_nanos().saturating_sub(seconds.saturating_add(since.tv_nsec))
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now_nanos() -> i64 {
    windlass_media::fitted(Timestamp::now().as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing {
            point: LogPoint {
                salts: [1; 8],
                frame: 7,
                sums: [2, 3],
            },
            file: FileMark {
                device: 1,
                inode: 2,
                bytes: 4096,
                changed: (1000, 5),
                is_settled: true,
                seen_nanos: 2_000,
            },
        }
    }

    #[test]
    fn a_standing_reads_back_from_its_text() {
        let standing = standing();
        let text = String::from(standing);
        assert_eq!(text, "72340172838076673 7 2 3 1 2 4096 1000 5 1 2000");
        assert_eq!(Standing::try_from(text.clone()), Ok(standing));
        for bad in [
            "",
            "1",
            &text[..text.len() - 5],
            &format!("{text} 1"),
            &format!("-{text}"),
        ] {
            assert!(Standing::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_trace_of_a_change_is_noticed() {
        let before = standing();
        assert!(standing().proves_unchanged_since(&before));
        let change = |change: &dyn Fn(&mut Standing)| {
            let mut after = standing();
            change(&mut after);
            assert!(!after.proves_unchanged_since(&before), "{after:?}");
        };
        change(&|after| after.point.salts[7] = 2);
        change(&|after| after.point.frame = 8);
        change(&|after| after.point.sums[1] = 4);
        change(&|after| after.file.device = 9);
        change(&|after| after.file.inode = 9);
        change(&|after| after.file.bytes = 8192);
        change(&|after| after.file.changed = (1000, 6));
        // The clock was set back.
        change(&|after| after.file.seen_nanos = 1_999);
    }

    #[test]
    fn what_was_looked_at_since_the_system_was_started_is_known() {
        let booted = booted_nanos();
        assert!(booted > 0 && booted < now_nanos());
        let mut standing = standing();
        for (seen_nanos, is_since) in [(booted - 1, false), (booted, true)] {
            standing.file.seen_nanos = seen_nanos;
            assert_eq!(standing.is_since(booted), is_since);
        }
    }

    #[test]
    fn a_file_that_was_changed_a_moment_ago_proves_nothing() {
        let mut before = standing();
        before.file.is_settled = false;
        assert!(!standing().proves_unchanged_since(&before));
        let file = tempfile::NamedTempFile::new().unwrap();
        let mark = FileMark::take(file.as_file(), file.path()).unwrap();
        assert!(!mark.is_settled && !mark.proves_unchanged_since(&mark));
    }
}

//! When a file of a snapshot was changed last by somebody who takes part in the protocol. A file
//! that was changed later was changed by somebody else, while no server ran.
//!
//!   participant   what it changes, and when it began --> its call --> when the call ended
//!   judge         changed after the last end, and nobody was at it? --> somebody else wrote
//!
//! The change time of a file (ctime) moves with its content, its length, its names and its mode,
//! and no tool can set it. A participant that was killed in the middle of a call has left what it
//! was at; for some time after that its file is believed to be its own work.
//!
//! Invariants
//! - The last moment never moves back: of the two places for it, only the older one is written.
//! - What a participant is at is told before its call begins. Its end is told before that is
//!   cleared. So who looks at a file first, and then at these words, blames nobody who takes part.

use super::memory::{LAST_AT, Memory, OUTSIDE_UNTIL_AT};
use super::process::{Process, Waiter, at};
use super::snapshot::FileKey;
use crate::sync::PROCESSES;

const DOING: usize = 3;
const DEVICE: usize = 4;
/// Two words.
const INODE: usize = 5;
/// Two moments of two words each.
const MOMENTS: [usize; 2] = [7, 9];

const IDLE: u32 = 0;
const FILE: u32 = 1;
const NAMES: u32 = 2;
const ALL: u32 = 3;

/// How long a call of a process may take that is killed in it.
const CALL_SECONDS_MAX: u32 = 60;
/// How long a command of Windlass may take that is killed in it.
const COMMAND_SECONDS_MAX: u32 = 3600;
/// A process without a place tells whole seconds, some of them ahead.
const OUTSIDE_SECONDS: u32 = 2;

/// A moment, by the clock that file systems use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: u32,
    /// And nanoseconds.
    pub nanos: u32,
}

impl Moment {
    /// Later than every file.
    pub const NEVER: Self = Self {
        seconds: u32::MAX,
        nanos: u32::MAX,
    };

    /// A moment as the system tells it.
    pub fn new(seconds: i64, nanos: u32) -> Self {
        match u32::try_from(seconds) {
            Ok(seconds) => Self { seconds, nanos },
            Err(_) if seconds < 0 => Self::default(),
            Err(_) => Self::NEVER,
        }
    }

    const fn later(self, seconds: u32) -> Self {
        Self {
            seconds: self.seconds.saturating_add(seconds),
            nanos: self.nanos,
        }
    }
}

/// What a participant changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This file.
    File(FileKey),
    /// Names of any files, and not their content.
    Names,
    /// Any files.
    All,
}

/// What the system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTimes {
    /// Which file.
    pub key: FileKey,
    /// When it was changed in any way.
    pub changed: Moment,
    /// When its content was changed. Everybody can set this.
    pub modified: Moment,
}

impl Process {
    /// Tells what this process is about to change.
    pub fn note_change(&mut self, memory: Memory<'_>, change: Change, now: Moment) {
        let Some(place) = self.place() else {
            self.is_noted = true;
            return raise(memory, now.seconds.saturating_add(OUTSIDE_SECONDS));
        };
        let word = at(place);
        let known = match self.is_noted {
            true => told(memory, word),
            false => None,
        };
        let change = match known {
            Some(known) if known == change => return,
            // A call that is at two files.
            Some(_) if change != Change::All => Change::Names,
            _ => change,
        };
        // It is later than what somebody did who died in this place.
        write_moment(memory, word, now);
        memory.store(word + DOING, IDLE);
        let doing = match change {
            Change::File(key) => {
                let [a, b, c, d, rest @ ..] = key.inode.to_le_bytes();
                memory.store(word + DEVICE, key.device);
                memory.store(word + INODE, u32::from_le_bytes([a, b, c, d]));
                memory.store(word + INODE + 1, u32::from_le_bytes(rest));
                FILE
            }
            Change::Names => NAMES,
            Change::All => ALL,
        };
        memory.store(word + DOING, doing);
        self.is_noted = true;
    }

    /// Whether it has told that it changes something.
    #[inline]
    pub const fn is_at_change(&self) -> bool {
        self.is_noted
    }

    /// Tells that the change is done. In a call inside of another one this does nothing.
    pub fn note_done(&mut self, memory: Memory<'_>, now: Moment) {
        if !self.is_noted || self.is_nested() {
            return;
        }
        self.is_noted = false;
        let Some(place) = self.place() else {
            return raise(memory, now.seconds.saturating_add(OUTSIDE_SECONDS));
        };
        write_moment(memory, at(place), now);
        memory.store(at(place) + DOING, IDLE);
    }
}

fn raise(memory: Memory<'_>, seconds: u32) {
    loop {
        let known = memory.load(OUTSIDE_UNTIL_AT);
        if known >= seconds || memory.replace(OUTSIDE_UNTIL_AT, known, seconds) {
            return;
        }
    }
}

fn told(memory: Memory<'_>, word: usize) -> Option<Change> {
    match memory.load(word + DOING) {
        FILE => Some(Change::File(FileKey {
            device: memory.load(word + DEVICE),
            inode: u64::from(memory.load(word + INODE))
                | u64::from(memory.load(word + INODE + 1)) << 32,
        })),
        NAMES => Some(Change::Names),
        ALL => Some(Change::All),
        _ => None,
    }
}

fn moment_at(memory: Memory<'_>, word: usize) -> Moment {
    Moment {
        seconds: memory.load(word),
        nanos: memory.load(word + 1),
    }
}

/// A process may be killed between two words, so what is read is never too late.
fn set_moment(memory: Memory<'_>, word: usize, moment: Moment) {
    memory.store(word + 1, 0);
    memory.store(word, moment.seconds);
    memory.store(word + 1, moment.nanos);
}

fn moment_of(memory: Memory<'_>, word: usize) -> Moment {
    let [one, other] = MOMENTS.map(|moment| moment_at(memory, word + moment));
    one.max(other)
}

fn write_moment(memory: Memory<'_>, word: usize, now: Moment) {
    let [one, other] = MOMENTS.map(|moment| moment_at(memory, word + moment));
    if now <= one.max(other) {
        return;
    }
    let older = MOMENTS[usize::from(one > other)];
    set_moment(memory, word + older, now);
}

/// When somebody who takes part changed a file last.
pub fn last_change(memory: Memory<'_>) -> Moment {
    let outside = Moment {
        seconds: memory.load(OUTSIDE_UNTIL_AT),
        nanos: 0,
    };
    let known = moment_at(memory, LAST_AT).max(outside);
    let each = (0..PROCESSES).map(|place| moment_of(memory, at(place)));
    each.fold(known, Moment::max)
}

/// Whether a file was changed last by somebody who takes part. `last` is [`last_change`] of any
/// moment before.
pub fn is_own_change(memory: Memory<'_>, last: Moment, file: &FileTimes) -> bool {
    if file.changed <= last {
        return true;
    }
    // Who is done meanwhile has told the end before.
    let is_under_way = (0..PROCESSES).any(|place| is_at(memory, at(place), last, file));
    is_under_way || file.changed <= last_change(memory)
}

fn is_at(memory: Memory<'_>, word: usize, last: Moment, file: &FileTimes) -> bool {
    let Some(change) = told(memory, word) else {
        return false;
    };
    let (is_it, most) = match change {
        Change::File(key) => (key == file.key, CALL_SECONDS_MAX),
        Change::Names => (file.modified <= last, COMMAND_SECONDS_MAX),
        Change::All => (true, COMMAND_SECONDS_MAX),
    };
    is_it && file.changed <= moment_of(memory, word).later(most)
}

/// Begins anew: everything up to now counts as done by those who take part. Processes that were
/// killed are at nothing any more.
pub fn begin_changes(memory: Memory<'_>, now: Moment, waiter: &mut impl Waiter) {
    set_moment(memory, LAST_AT, now);
    for place in 0..PROCESSES {
        let word = at(place);
        if memory.load(word + DOING) == IDLE {
            continue;
        }
        let pid = memory.load(word);
        if pid == 0 || !waiter.is_alive(pid) {
            memory.store(word + DOING, IDLE);
        }
    }
}

/// Sets the last change in a memory that was made anew.
pub fn set_last_change(memory: Memory<'_>, moment: Moment) {
    set_moment(memory, LAST_AT, moment);
}

/// Whether the files of such a file system (the number that statfs tells) get their times from
/// another machine. Its clock cannot be compared with that of this one.
pub const fn has_other_clock(file_system: i64) -> bool {
    const NFS: i64 = 0x6969;
    const SMB: i64 = 0x517B;
    const CIFS: i64 = 0xFF53_4D42;
    const SMB2: i64 = 0xFE53_4D42;
    const NINE_P: i64 = 0x0102_1997;
    const FUSE: i64 = 0x6573_5546;
    const CEPH: i64 = 0x00C3_6400;
    const LUSTRE: i64 = 0x0BD0_0BD0;
    const GPFS: i64 = 0x4750_4653;
    const AFS: i64 = 0x5346_414F;
    matches!(
        file_system,
        NFS | SMB | CIFS | SMB2 | NINE_P | FUSE | CEPH | LUSTRE | GPFS | AFS
    )
}

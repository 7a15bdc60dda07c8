//! Who is inside a call: the processes of the server, and how the controller waits for them.
//!
//!   process    [pid][count][epoch][what it changes, and when: `times`] ...
//!              count: odd inside of a call, even outside
//!
//! The controller changes something and then waits until every process that was inside has left
//! once (`grace`). Whoever enters later sees the change. With `pause` set, whoever enters steps out
//! again and waits; so after a grace nobody is inside a call at all.
//!
//! A process without a place in the table is counted in one word, so that it is never invisible.

use super::memory::{BROKEN_AT, Memory, OUTSIDERS_AT, PAUSE_AT, PROCESS_WORDS, PROCESSES_AT};
use crate::sync::PROCESSES;

const PID: usize = 0;
const COUNT: usize = 1;
const EPOCH: usize = 2;

/// What waiting needs of the system.
pub trait Waiter {
    /// Whether a process exists.
    fn is_alive(&mut self, pid: u32) -> bool;
    /// Waits a moment. Returns false when it has waited as long as it may; `turn` counts from 0.
    fn wait(&mut self, turn: u32) -> bool;
}

/// This process at the table of those who write.
#[derive(Debug, Default)]
pub struct Process {
    place: Option<u32>,
    count: u32,
    depth: u32,
    /// Whether it has told what it changes.
    pub(super) is_noted: bool,
}

/// Somebody did not leave a call in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The process; 0 for one without a place.
    pub pid: u32,
}

impl Process {
    /// A process that has no place yet.
    pub const fn new() -> Self {
        Self {
            place: None,
            count: 0,
            depth: 0,
            is_noted: false,
        }
    }

    /// Takes a place. The child of a fork needs one of its own. If all are taken, the process is
    /// counted while it is inside.
    pub fn join(&mut self, memory: Memory<'_>, pid: u32, waiter: &mut impl Waiter) {
        *self = Self::new();
        let first = pid % PROCESSES;
        let places = || (0..PROCESSES).map(|step| (first + step) % PROCESSES);
        let taken = places().find(|place| memory.replace(at(*place), 0, pid));
        let taken = taken.or_else(|| {
            places().find(|place| {
                let owner = memory.load(at(*place));
                !waiter.is_alive(owner) && memory.replace(at(*place), owner, pid)
            })
        });
        let Some(place) = taken else { return };
        memory.add(at(place) + EPOCH);
        // Whoever died inside left an odd count.
        self.count = memory.load(at(place) + COUNT).wrapping_add(1) & !1;
        memory.store(at(place) + COUNT, self.count);
        self.place = Some(place);
    }

    /// Gives the place back.
    pub fn quit(&mut self, memory: Memory<'_>) {
        if let Some(place) = self.place.take() {
            memory.store(at(place), 0);
        }
    }

    /// Enters a call. Waits while the controller pauses the server, and no longer than the waiter
    /// allows: then it ends the pause for everybody, the pause counts as broken, and the controller
    /// throws its snapshot away.
    pub fn enter(&mut self, memory: Memory<'_>, waiter: &mut impl Waiter) {
        if self.depth > 0 {
            self.depth = self.depth.wrapping_add(1);
            return;
        }
        loop {
            self.depth = 1;
            self.step_in(memory);
            let paused = memory.load(PAUSE_AT);
            if paused == 0 {
                return;
            }
            self.step_out(memory);
            self.depth = 0;
            let mut turn = 0;
            while memory.load(PAUSE_AT) == paused {
                if !waiter.wait(turn) {
                    // The controller may be dead. Nobody else shall wait for it.
                    memory.store(BROKEN_AT, paused);
                    memory.replace(PAUSE_AT, paused, 0);
                }
                turn = turn.saturating_add(1);
            }
        }
    }

    /// Leaves a call.
    #[inline]
    pub fn leave(&mut self, memory: Memory<'_>) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            self.step_out(memory);
        }
    }

    pub(super) const fn place(&self) -> Option<u32> {
        self.place
    }

    /// Whether it is in a call inside of another one.
    pub(super) const fn is_nested(&self) -> bool {
        self.depth > 1
    }

    #[inline]
    fn step_in(&mut self, memory: Memory<'_>) {
        match self.place {
            Some(place) => {
                self.count = self.count.wrapping_add(1);
                memory.store(at(place) + COUNT, self.count);
            }
            None => {
                memory.add(OUTSIDERS_AT);
            }
        }
    }

    #[inline]
    fn step_out(&mut self, memory: Memory<'_>) {
        match self.place {
            Some(place) => {
                self.count = self.count.wrapping_add(1);
                memory.store(at(place) + COUNT, self.count);
            }
            None => memory.subtract(OUTSIDERS_AT),
        }
    }

    /// A number by which others can tell whether this process still holds a lock; never 0.
    pub(super) fn holder(&self, memory: Memory<'_>) -> u32 {
        match self.place {
            Some(place) => holder(place, memory.load(at(place) + EPOCH)),
            None => OUTSIDER,
        }
    }
}

const _: () = assert!(PROCESSES < 0xFFFF);

/// The holder of a lock that has no place. Nobody can tell whether it lives.
pub(super) const OUTSIDER: u32 = u32::MAX;

fn holder(place: u32, epoch: u32) -> u32 {
    (place + 1) | (epoch & 0x7FFF) << 16
}

/// Whether the holder of a lock has ended.
pub(super) fn is_gone(memory: Memory<'_>, word: u32, waiter: &mut impl Waiter) -> bool {
    if word == OUTSIDER {
        return false;
    }
    let place = (word & 0xFFFF).wrapping_sub(1);
    if place >= PROCESSES || holder(place, memory.load(at(place) + EPOCH)) != word {
        return true;
    }
    let pid = memory.load(at(place));
    pid == 0 || !waiter.is_alive(pid)
}

#[inline]
pub(super) fn at(place: u32) -> usize {
    PROCESSES_AT + place as usize * PROCESS_WORDS
}

/// Waits until every process that is inside a call has left it.
pub fn grace(memory: Memory<'_>, waiter: &mut impl Waiter) -> Result<(), Busy> {
    for place in 0..PROCESSES {
        let pid = memory.load(at(place) + PID);
        let count = memory.load(at(place) + COUNT);
        if pid == 0 || count.is_multiple_of(2) {
            continue;
        }
        let mut turn = 0;
        while memory.load(at(place) + COUNT) == count
            && memory.load(at(place)) == pid
            && waiter.is_alive(pid)
        {
            if !waiter.wait(turn) {
                return Err(Busy { pid });
            }
            turn = turn.saturating_add(1);
        }
    }
    let mut turn = 0;
    while memory.load(OUTSIDERS_AT) != 0 {
        if !waiter.wait(turn) {
            return Err(Busy { pid: 0 });
        }
        turn = turn.saturating_add(1);
    }
    Ok(())
}

/// Stops the server between its calls. `token` is not 0 and differs from that of the last pause.
/// After an error the pause is over.
pub fn pause(memory: Memory<'_>, token: u32, waiter: &mut impl Waiter) -> Result<(), Busy> {
    memory.store(PAUSE_AT, token);
    grace(memory, waiter).inspect_err(|_| memory.store(PAUSE_AT, 0))
}

/// Ends the pause. Returns false if somebody did not wait for it. Whatever must be one moment has
/// to be published before this call.
pub fn resume(memory: Memory<'_>, token: u32) -> bool {
    // Whoever did not wait has ended the pause. The other word may tell of an earlier pause by now:
    // a process that was stopped meanwhile says late that it was broken.
    memory.replace(PAUSE_AT, token, 0) && memory.load(BROKEN_AT) != token
}

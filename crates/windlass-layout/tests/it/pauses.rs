//! Whether a pause held.

use std::sync::atomic::AtomicU32;

use windlass_layout::hook::{AREA_BYTES_AT, Memory, Process, Waiter, pause, resume};

/// Has no patience, and does something first.
struct Then<F>(F);

impl<F: FnMut()> Waiter for Then<F> {
    fn is_alive(&mut self, _pid: u32) -> bool {
        true
    }

    fn wait(&mut self, _turn: u32) -> bool {
        (self.0)();
        false
    }
}

fn joined(memory: Memory<'_>, pid: u32) -> Process {
    let mut process = Process::new();
    process.join(memory, pid, &mut Then(|| ()));
    process
}

/// A process that was stopped says of an earlier pause that it was broken, after another process
/// has said it of this one.
#[test]
fn a_pause_that_somebody_ended_is_broken_whatever_is_said_of_earlier_ones() {
    let count = usize::try_from(AREA_BYTES_AT / 4).unwrap();
    let words: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
    let memory = Memory::new(&words).unwrap();
    let (mut late, mut quick) = (joined(memory, 70), joined(memory, 71));
    pause(memory, 1, &mut Then(|| ())).unwrap();
    late.enter(
        memory,
        &mut Then(|| {
            assert!(resume(memory, 1));
            pause(memory, 2, &mut Then(|| ())).unwrap();
            quick.enter(memory, &mut Then(|| ()));
        }),
    );
    assert!(!resume(memory, 2));
    for mut process in [late, quick] {
        process.leave(memory);
    }
    pause(memory, 3, &mut Then(|| ())).unwrap();
    assert!(resume(memory, 3));
}

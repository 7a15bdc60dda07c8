//! Whether the calling thread may block. A stage's thread may, if it is inside a wait: otherwise
//! nobody would count the time, and the verdict could not see it. Debug builds check it wherever
//! the engine blocks, and so all tests do.

use std::cell::Cell;

thread_local! {
    /// Whether this is a stage's thread, and how many waits it is inside.
    static INSIDE: Cell<(bool, u32)> = const { Cell::new((false, 0)) };
}

/// Until it is dropped, the thread is one of a stage, or inside a wait.
pub(super) struct Inside {
    before: (bool, u32),
}

impl Inside {
    pub(super) fn stage() -> Self {
        Self::change(|(_, waits)| (true, waits))
    }

    pub(super) fn wait() -> Self {
        Self::change(|(stage, waits)| (stage, waits + 1))
    }

    fn change(change: impl FnOnce((bool, u32)) -> (bool, u32)) -> Self {
        let before = INSIDE.get();
        INSIDE.set(change(before));
        Self { before }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Stands where the engine blocks.
#[track_caller]
pub(crate) fn may_block() {
    let (stage, waits) = INSIDE.get();
    debug_assert!(!stage || waits > 0, "a stage blocks outside of any wait");
}

/// Runs a call that may block. The caller counts how long it took.
pub(crate) fn counted_by_caller<T>(call: impl FnOnce() -> T) -> T {
    let _inside = Inside::wait();
    call()
}

#[cfg(test)]
mod tests {
    use crate::waits::{Cause, Stage, may_block};

    #[test]
    fn a_stage_blocks_only_inside_a_wait() {
        may_block();
        let stage = Stage::default();
        stage.thread(|| stage.wait(Cause::Jobs, may_block));
        stage.thread(|| stage.wait_off_core(Cause::Jobs, may_block));
        let outside = std::panic::catch_unwind(|| Stage::default().thread(may_block));
        assert!(outside.is_err());
        // The thread is no stage's any more, although the last one ended in a panic.
        may_block();
    }
}

//! When a snapshot ends, in bytes and moments.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use windlass_engine::free_bytes;
use windlass_engine::media::saturated;
use windlass_image::layout::hook::{Cause, Limits, Phase, Snapshot, end};

use super::control::Control;
use super::durable;
use super::error::{HookError, HookIo};

/// When a snapshot ends: it is lost then. The source and the older snapshots go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookLimits {
    /// More bytes than this were preserved since it was made.
    pub max_bytes: Option<u64>,
    /// The moment.
    pub until: Option<Timestamp>,
    /// Less than this is free on the disk of the store, in bytes.
    pub keep_free_bytes: Option<u64>,
}

const MIB: u64 = 1 << 20;

impl HookLimits {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// With an end so long from now.
    #[must_use]
    pub fn for_at_most(mut self, age: Option<Duration>) -> Self {
        let end = |age| Timestamp::now().checked_add(age).unwrap_or(Timestamp::MAX);
        self.until = age.map(end);
        self
    }

    /// In the words of the shared memory. Each is at least 1, because 0 means none.
    pub(crate) fn words(&self, page_bytes: u32) -> Limits {
        let word = |value: Option<u64>| value.map_or(0, |value| saturated::<u32, _>(value.max(1)));
        let seconds = self.until.map(|end| saturated::<u64, _>(end.as_second()));
        Limits {
            pages: word(self.max_bytes.map(|bytes| bytes / u64::from(page_bytes))),
            until: word(seconds),
            free_mib: word(self.keep_free_bytes.map(|bytes| bytes.div_ceil(MIB))),
        }
    }

    /// What the words of the shared memory say.
    pub(crate) fn of(words: &Limits, page_bytes: u32) -> Self {
        let some = |word: u32| (word != 0).then_some(u64::from(word));
        let moment = |seconds: u64| Timestamp::from_second(i64::try_from(seconds).ok()?).ok();
        Self {
            max_bytes: some(words.pages).map(|pages| pages.saturating_mul(u64::from(page_bytes))),
            until: some(words.until).and_then(moment),
            keep_free_bytes: some(words.free_mib).map(|mib| mib.saturating_mul(MIB)),
        }
    }

    /// Ends a snapshot that is too old. The hook does it only when the server writes. Nothing is
    /// done while a controller is at work: that may drop the snapshot and give its place to another
    /// one, which would end in its stead.
    pub(crate) fn end_by_age(control: &Control, number: u32) {
        let numbered = || Snapshot::numbered(control.memory(), number);
        let is_old = |snapshot: &Snapshot<'_>| {
            let until = i64::from(snapshot.limits().until);
            let is_over = until != 0 && Timestamp::now().as_second() >= until;
            is_over && snapshot.state() == Phase::Active
        };
        if !numbered().is_some_and(|snapshot| is_old(&snapshot)) {
            return;
        }
        let Some(_alone) = control.lock_if_free() else {
            return;
        };
        let Some(snapshot) = numbered().filter(is_old) else {
            return;
        };
        // One that a power cut would bring back does not end.
        let is_forgotten =
            !snapshot.is_durable() || durable::removed(control.data(), snapshot.index()).is_ok();
        if is_forgotten {
            end(&snapshot, Cause::Age, |index| {
                durable::forget(control.data(), index);
            });
        }
    }

    /// Fails if the disk of the store has too little free space already.
    pub(crate) fn check_free(&self, store: &Path) -> Result<(), HookError> {
        let Some(keep) = self.keep_free_bytes else {
            return Ok(());
        };
        let free = free_bytes(store).doing("ask for the free space of", store)?;
        match free < keep {
            true => Err(HookError::NoRoom {
                store: store.into(),
                free,
                keep,
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_a_limit_keeps_what_is_to_stay_free() {
        let limits = |keep| HookLimits {
            keep_free_bytes: Some(keep),
            ..HookLimits::default()
        };
        // It says that it has no blocks, and none free.
        let endless = Path::new("/proc");
        limits(1 << 50).check_free(endless).unwrap();
        let place = tempfile::tempdir().unwrap();
        let error = limits(u64::MAX).check_free(place.path()).unwrap_err();
        let is_full = matches!(error, HookError::NoRoom { keep: u64::MAX, .. });
        assert!(is_full, "{error}");
    }
}

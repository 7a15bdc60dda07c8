//! Things put aside after use for whoever needs one next.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// At most this many are kept. If more are in use at once, the others are made anew and dropped.
const KEPT_MAX: usize = 8;

/// A store of spare objects of one kind.
pub(crate) struct Spares<T>(Mutex<Vec<T>>);

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spares<T> {
    /// Takes the object that was put aside last: its content is most likely still in the
    /// processor's cache.
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().pop()
    }

    pub(crate) fn give(&self, spare: T) {
        let mut spares = self.lock();
        if spares.len() < KEPT_MAX {
            spares.push(spare);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_given_is_taken_first_and_no_more_are_kept_than_the_limit() {
        let spares = Spares::default();
        assert_eq!(spares.take(), None);
        for spare in 0..=KEPT_MAX {
            spares.give(spare);
        }
        let taken = std::iter::from_fn(|| spares.take()).collect::<Vec<_>>();
        assert_eq!(taken, (0..KEPT_MAX).rev().collect::<Vec<_>>());
    }
}

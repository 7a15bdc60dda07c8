//! Tells what is lost of a set that was opened, and what parity made up for until it is closed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::{FoundSet, Mends, Rebuilder};

use crate::notice::{Notice, Observer};

/// The sets that were opened, and whom to tell. At its end it tells what was rebuilt.
#[derive(Default)]
pub(super) struct Mending {
    observer: Option<Arc<dyn Observer>>,
    opened: Mutex<Vec<Arc<Rebuilder>>>,
}

impl fmt::Debug for Mending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mending").finish_non_exhaustive()
    }
}

impl Mending {
    /// Tells this observer.
    pub(super) fn of(observer: &Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(Arc::clone(observer)),
            opened: Mutex::default(),
        }
    }

    /// Tells what is lost of a set, if that was not told before.
    pub(super) fn watch(&self, set: &FoundSet) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for rebuilder in set.rebuilders() {
            if opened.iter().any(|known| Arc::ptr_eq(known, rebuilder)) {
                continue;
            }
            opened.push(Arc::clone(rebuilder));
            self.tell(&Mends {
                parts: Vec::new(),
                part_count: 0,
                ..rebuilder.mends()
            });
        }
    }

    fn tell(&self, mends: &Mends) {
        if let Some(observer) = self.observer.as_ref().filter(|_| !mends.is_empty()) {
            observer.notice(&Notice::Mended(mends));
        }
    }
}

impl Drop for Mending {
    fn drop(&mut self) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let mends: Vec<_> = opened.iter().map(|rebuilder| rebuilder.mends()).collect();
        drop(opened);
        for mends in mends {
            self.tell(&Mends {
                lost: Vec::new(),
                ..mends
            });
        }
    }
}

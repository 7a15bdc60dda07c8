//! Directories that programs are listing: the names that each one had when it was opened.
//!
//! A program may remove files while it lists them. If the positions of the other names changed, it
//! would miss some.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_engine::media::FileKind;
use windlass_image::{ImageError, Listed, NodeNo, View};

/// Open directories, by handle.
#[derive(Default)]
pub(crate) struct Listings {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Vec<Listed>>>>,
}

impl Listings {
    /// Lists a directory, with itself and its parent first, and returns a handle for the list.
    pub(crate) fn open(&self, view: &dyn View, node: NodeNo) -> Result<u64, ImageError> {
        let itself = |name: &[u8], node| {
            let (name, kind) = (name.to_vec(), FileKind::Directory);
            Listed { name, node, kind }
        };
        let mut listed = vec![itself(b".", node), itself(b"..", view.parent(node)?)];
        listed.extend(view.list(node)?);
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(handle, Arc::new(listed));
        Ok(handle)
    }

    /// The list that belongs to a handle.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Vec<Listed>>> {
        self.lock().get(&handle).cloned()
    }

    pub(crate) fn close(&self, handle: u64) {
        self.lock().remove(&handle);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Vec<Listed>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The hook: what happens to each piece between the file and the compressor.

use std::sync::{Arc, OnceLock};

use windlass_engine::{EngineError, PageHook};
use windlass_media::FileNo;

use crate::overlay::Overlay;
use crate::ranges::RangeHashes;

/// Lays the WAL's pages over each piece, then remembers its hash.
#[derive(Debug)]
pub(crate) struct SourceHook {
    overlay: OnceLock<Overlay>,
    /// Only where the copy is taken without a lock, and has to be settled later.
    hashes: Option<RangeHashes>,
}

impl SourceHook {
    /// A hook that only overlays.
    pub(crate) fn overlaying(overlay: Option<Overlay>) -> Arc<Self> {
        let hook = Self {
            overlay: OnceLock::new(),
            hashes: None,
        };
        if let Some(overlay) = overlay {
            hook.set_overlay(overlay);
        }
        Arc::new(hook)
    }

    /// A hook that remembers what went into the set, of a file that is `bytes` long as yet.
    pub(crate) fn hashing(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            overlay: OnceLock::new(),
            hashes: Some(RangeHashes::for_file(bytes)),
        })
    }

    /// Lays this over every piece from now on. Called at most once, while no piece is under way.
    pub(crate) fn set_overlay(&self, overlay: Overlay) {
        assert!(
            self.overlay.set(overlay).is_ok(),
            "a backup has one WAL view"
        );
    }

    pub(crate) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.get()
    }

    pub(crate) fn hashes(&self) -> Option<&RangeHashes> {
        self.hashes.as_ref()
    }
}

impl PageHook for SourceHook {
    fn piece(&self, _file: FileNo, offset: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        if let Some(overlay) = self.overlay.get() {
            overlay
                .apply(offset, bytes)
                .map_err(|error| EngineError::Source(Box::new(error)))?;
        }
        if let Some(hashes) = &self.hashes {
            hashes.record(offset, bytes);
        }
        Ok(())
    }
}

//! The hook: changes and hashes each piece on its way from the file to the compressor.

use std::sync::{Arc, OnceLock};

use windlass_engine::{EngineError, PageHook};
use windlass_media::FileNo;

use crate::overlay::Overlay;
use crate::ranges::RangeHashes;

/// Puts the WAL's pages over each piece, then remembers the hash of the piece.
#[derive(Debug)]
pub(crate) struct SourceHook {
    overlay: OnceLock<Overlay>,
    /// Present only if the copy is made without a lock and must be settled later.
    hashes: Option<RangeHashes>,
}

impl SourceHook {
    /// A hook that only puts the overlay over each piece.
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

    /// A hook that remembers what went into the set. `bytes` is the length of the file now.
    pub(crate) fn hashing(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            overlay: OnceLock::new(),
            hashes: Some(RangeHashes::for_file(bytes)),
        })
    }

    /// Puts `overlay` over every later piece. Call it at most once, while no piece is in the
    /// pipeline.
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

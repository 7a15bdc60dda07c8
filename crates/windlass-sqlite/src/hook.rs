//! The hook: changes and hashes each piece on its way from the file to the compressor.

use std::sync::{Arc, OnceLock};

use windlass_engine::{EngineError, PageHook, Pages};

use crate::log_pages::LogPages;
use crate::ranges::RangeHashes;

/// Puts the WAL's pages over each piece, then remembers the hash of the piece.
#[derive(Debug)]
pub(crate) struct SourceHook {
    log_pages: OnceLock<LogPages>,
    /// Present only if the copy is made without a lock and must be settled later.
    hashes: Option<RangeHashes>,
}

impl SourceHook {
    /// A hook that only puts the pages of the log over each piece.
    pub(crate) fn with_log_pages(log_pages: Option<LogPages>) -> Arc<Self> {
        let hook = Self {
            log_pages: OnceLock::new(),
            hashes: None,
        };
        if let Some(log_pages) = log_pages {
            hook.set_log_pages(log_pages);
        }
        Arc::new(hook)
    }

    /// A hook that remembers what went into the set. `bytes` is the length of the file now.
    pub(crate) fn hashing(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            log_pages: OnceLock::new(),
            hashes: Some(RangeHashes::for_file(bytes)),
        })
    }

    /// Puts `log_pages` over every later piece. Call it at most once, while no piece is in the
    /// pipeline.
    pub(crate) fn set_log_pages(&self, log_pages: LogPages) {
        assert!(
            self.log_pages.set(log_pages).is_ok(),
            "a backup has one WAL view"
        );
    }

    pub(crate) fn log_pages(&self) -> Option<&LogPages> {
        self.log_pages.get()
    }

    pub(crate) fn hashes(&self) -> Option<&RangeHashes> {
        self.hashes.as_ref()
    }
}

impl PageHook for SourceHook {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        let offset = pages.offset();
        if let Some(log_pages) = self.log_pages.get() {
            log_pages
                .apply(offset, pages.bytes_mut())
                .map_err(|error| EngineError::Source(Box::new(error)))?;
        }
        if let Some(hashes) = &self.hashes {
            hashes.record(offset, pages.bytes());
        }
        Ok(())
    }
}

//! The hook: changes and hashes each piece on its way from the file to the compressor, and says how
//! its pages are laid out. What the base of the set has is left out.

use std::sync::{Arc, OnceLock};

use windlass_engine::{EngineError, PageClass, PageHook, Pages};
use windlass_media::PageLayout;
use windlass_media::windlass_pages::{Layout, PageSize};

use crate::chain::ChainBase;
use crate::facts::DATABASE_FILE;
use crate::header::DatabaseHeader;
use crate::log_pages::LogPages;
use crate::page_hashes::{PageHashes, SetHashes};
use crate::ranges::RangeHashes;

/// Puts the WAL's pages over each piece, then remembers the hash of the piece and classifies it.
#[derive(Debug)]
pub(crate) struct SourceHook {
    log_pages: OnceLock<LogPages>,
    /// Present only if the copy is made without a lock and must be settled later.
    hashes: Option<RangeHashes>,
    work: PageWork,
}

/// What happens to each page.
#[derive(Debug)]
pub(crate) struct PageWork {
    /// Present only if the run takes pages apart.
    pub(crate) class: Option<Arc<PageClass>>,
    /// The hashes that the set will have, comparable with those of the base.
    pub(crate) hashes: Option<Arc<PageHashes>>,
    /// Present only if the set builds on another one; with the length of pages.
    pub(crate) base: Option<(ChainBase, usize)>,
}

impl SourceHook {
    /// A hook that only puts the pages of the log over each piece.
    pub(crate) fn with_log_pages(log_pages: Option<LogPages>, work: PageWork) -> Arc<Self> {
        let hook = Self {
            log_pages: OnceLock::new(),
            hashes: None,
            work,
        };
        if let Some(log_pages) = log_pages {
            hook.set_log_pages(log_pages);
        }
        Arc::new(hook)
    }

    /// A hook that remembers what went into the set. `bytes` is the length of the file now.
    pub(crate) fn hashing(bytes: u64, work: PageWork) -> Arc<Self> {
        Arc::new(Self {
            log_pages: OnceLock::new(),
            hashes: Some(RangeHashes::for_file(bytes)),
            work,
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

    /// Begins with the hashes of the base: those of the pages that nobody will read.
    pub(crate) fn inherit_hashes(&self) {
        if let (Some(hashes), Some((base, page_bytes))) = (&self.work.hashes, &self.work.base)
            && let Some(before) = base.hashes_of(*page_bytes)
        {
            hashes.inherit(before);
        }
    }

    /// The hashes of the pages that went into the set.
    pub(crate) fn page_hashes(&self) -> Option<SetHashes> {
        self.work.hashes.clone().map(SetHashes::Read)
    }
}

impl PageHook for SourceHook {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        // The hashes of the pages go through here, too.
        if pages.file() != DATABASE_FILE {
            return Ok(());
        }
        let offset = pages.offset();
        if let Some(log_pages) = self.log_pages.get() {
            log_pages
                .apply(offset, pages.bytes_mut())
                .map_err(|error| EngineError::Source(Box::new(error)))?;
        }
        if let Some(hashes) = &self.hashes {
            hashes.record(offset, pages.bytes());
        }
        let work = &self.work;
        let found = work.hashes.as_ref();
        let found = found.map(|hashes| hashes.record(offset, pages.bytes()));
        if let Some(class) = &work.class {
            pages.classify(class);
        }
        match &work.base {
            Some((base, page_bytes)) => base.leave_out(pages, *page_bytes, found.as_deref()),
            None => Ok(()),
        }
    }
}

/// How the pages of a database are laid out, as its header says. A header that is wrong by the time
/// when the pages are read costs room and nothing else: each frame is proven.
pub(crate) fn layout_of(header: &DatabaseHeader) -> Option<PageLayout> {
    let page_size = PageSize::new(header.page_bytes)?;
    Some(PageLayout::new(Layout::Sqlite {
        page_size,
        reserved_bytes: header.reserved_bytes,
    }))
}

/// How the pages of a file are laid out, as its first bytes say ([`crate::DATABASE_HEADER_BYTES`]
/// are enough); `None` if it is no database.
pub fn layout_of_file(first_bytes: &[u8]) -> Option<PageLayout> {
    layout_of(&DatabaseHeader::decode(first_bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use crate::header::{DATABASE_HEADER_BYTES, DATABASE_MAGIC};

    use super::*;

    #[test]
    fn the_header_says_how_long_pages_are_and_what_is_reserved() {
        let mut bytes = [0; DATABASE_HEADER_BYTES];
        bytes[..16].copy_from_slice(DATABASE_MAGIC);
        bytes[16..21].copy_from_slice(&[0, 1, 1, 1, 8]);
        let header = DatabaseHeader::decode(&bytes).unwrap();
        let expected = Layout::Sqlite {
            page_size: PageSize::new(65_536).unwrap(),
            reserved_bytes: 8,
        };
        assert_eq!(layout_of(&header).unwrap().layout(), &expected);
    }
}

//! Pages by their names, and which pages of a stopped cluster are damaged.

use std::fmt;
use std::fs::File;
use std::path::Path;

use windlass_engine::Cancel;
use windlass_media::fitted;

use crate::checksum::{is_whole, page_lsn};
use crate::control::Control;
use crate::error::{IoContext, PostgresError};
use crate::inspect::pages::{fill, list};
use crate::lsn::Lsn;
use crate::names::{Fork, RelationFile, is_relation_directory};

const READ_BYTES: usize = 1 << 20;

/// A page of a relation, named as the server does: `base/5/16384:17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageAt {
    /// The first file of the fork, below the data directory.
    pub relation: String,
    /// Its number in the whole fork.
    pub block: u32,
}

impl fmt::Display for PageAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.relation, self.block)
    }
}

impl PageAt {
    /// What a word means; `None` if it names no page. The number of a segment may follow the path,
    /// and says nothing more.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, block) = text.rsplit_once(':')?;
        let (directory, name) = path.rsplit_once('/')?;
        let file = RelationFile::parse(name.as_bytes()).filter(|file| !file.temporary)?;
        let relation = match file.segment {
            0 => path.to_owned(),
            _ => path.rsplit_once('.')?.0.to_owned(),
        };
        is_relation_directory(directory.as_bytes()).then_some(())?;
        let block = block.parse().ok()?;
        Some(Self { relation, block })
    }

    /// The file that has it, and where it begins there.
    pub fn file(&self, control: &Control) -> (String, u64) {
        let full = control.relation_segment_blocks.max(1);
        let path = match self.block / full {
            0 => self.relation.clone(),
            segment => format!("{}.{segment}", self.relation),
        };
        let offset = u64::from(self.block % full) * u64::from(control.block_bytes);
        (path, offset)
    }

    /// Whether it belongs to a free space map, whose changes are not in the log.
    pub fn is_of_free_space(&self) -> bool {
        self.fork() == Some(Fork::FreeSpace)
    }

    /// Whether its relation is not in the log.
    pub fn is_unlogged(&self, data: &Path) -> bool {
        let is_init = self.fork() == Some(Fork::Init);
        let Some((directory, name)) = self.relation.rsplit_once('/') else {
            return false;
        };
        let number = name.split('_').next().unwrap_or(name);
        let init = data.join(directory).join(format!("{number}_init"));
        !is_init && init.exists()
    }

    fn fork(&self) -> Option<Fork> {
        let name = self.relation.rsplit('/').next()?;
        Some(RelationFile::parse(name.as_bytes())?.fork)
    }
}

/// The LSN of a page.
pub fn lsn_of_page(page: &[u8]) -> Lsn {
    page_lsn(page)
}

/// Whether the checksum of a page is right, or the page is all zeros.
pub fn is_page_whole(page: &[u8], block: u32) -> bool {
    is_whole(page, block)
}

/// Every page of a stopped cluster with checksums that is not what the server wrote. `read` is told
/// how many bytes were read.
pub fn damaged_pages(
    data: &Path,
    control: &Control,
    cancel: &Cancel,
    mut read: impl FnMut(u64),
) -> Result<Vec<PageAt>, PostgresError> {
    let page_bytes: usize = fitted(control.block_bytes);
    let mut buffer = vec![0; READ_BYTES.max(page_bytes)];
    let mut damaged = Vec::new();
    for found in list(data)? {
        let path = data.join(&found.path);
        let file = File::open(&path).doing("open", &path)?;
        let relation = found.path.display().to_string();
        let relation = match found.segment {
            0 => relation,
            segment => relation.trim_end_matches(&format!(".{segment}")).to_owned(),
        };
        let mut block = found.segment * control.relation_segment_blocks;
        let mut offset = 0;
        loop {
            cancel.check()?;
            let (count, error) = fill(&file, offset, &mut buffer);
            read(count as u64);
            for page in buffer[..count].chunks_exact(page_bytes) {
                if !is_whole(page, block) {
                    let relation = relation.clone();
                    damaged.push(PageAt { relation, block });
                }
                (block, offset) = (block + 1, offset + page_bytes as u64);
            }
            if error.is_some() {
                let relation = relation.clone();
                damaged.push(PageAt { relation, block });
                (block, offset) = (block + 1, offset + page_bytes as u64);
            } else if count < buffer.len() {
                break;
            }
        }
    }
    damaged.sort();
    Ok(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_as_the_server_names_them() {
        let page = PageAt::parse("base/5/16384:17").unwrap();
        assert_eq!((page.relation.as_str(), page.block), ("base/5/16384", 17));
        assert_eq!(page.to_string(), "base/5/16384:17");
        let later = PageAt::parse("base/5/16384_vm.2:262145").unwrap();
        assert_eq!(later.to_string(), "base/5/16384_vm:262145");
        let tablespace = "pg_tblspc/16390/PG_15_202209061/5/16391:0";
        assert_eq!(PageAt::parse(tablespace).unwrap().to_string(), tablespace);
        for text in [
            "base/5/16384",
            "base/5/16384:",
            "base/5/16384:-1",
            "base/5/pg_filenode.map:0",
            "base/../global/1262:0",
            "/base/5/16384:0",
            "pg_xact/0000:0",
            "base/5/t3_16384:0",
            "16384:0",
        ] {
            assert_eq!(PageAt::parse(text), None, "{text}");
        }
    }
}

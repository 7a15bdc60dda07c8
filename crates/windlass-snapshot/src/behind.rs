//! Writes in a thread of its own, a few blocks behind the caller: while one block is written, the
//! next one is read.
//!
//! Invariants
//! - Blocks are written in the order in which they come.
//! - When `finish` returns, or the value is gone, nothing writes any more. `finish` returns the
//!   error of the first block that could not be written; no later block is written then.
//!
//! Never does: sync.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use memmap2::MmapMut;
use rustix::fs::Advice;
use windlass_engine::DirectFile;

use crate::error::{Doing, SnapshotError};

/// The most bytes of a block: a multiple of every page size.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// How many blocks may wait.
const BLOCKS_MAX: usize = 4;
/// After so many bytes the disk gets work.
const PUSH_BYTES: u64 = 8 << 20;

/// A part of a file that is to be written.
pub(crate) struct Block {
    pub(crate) file: Arc<DirectFile>,
    /// For an error.
    pub(crate) path: Arc<Path>,
    pub(crate) offset: u64,
    pub(crate) bytes: Memory,
}

/// The memory of a block. It begins where a page does, so it can be written past the cache.
pub(crate) struct Memory {
    pages: MmapMut,
    length: usize,
}

impl Memory {
    fn new(capacity: usize) -> io::Result<Self> {
        let pages = MmapMut::map_anon(capacity)?;
        Ok(Self {
            length: pages.len(),
            pages,
        })
    }

    /// Sets how many bytes are in use.
    pub(crate) fn set_len(&mut self, length: usize) {
        assert!(length <= self.pages.len(), "a block has no more bytes");
        self.length = length;
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages[..self.length]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.length]
    }
}

/// Writes blocks.
pub(crate) struct Behind {
    blocks: Option<SyncSender<Block>>,
    used: Receiver<Memory>,
    thread: Option<JoinHandle<Result<(), SnapshotError>>>,
}

impl Behind {
    pub(crate) fn start() -> Self {
        let (blocks, waiting) = sync_channel(BLOCKS_MAX);
        let (back, used) = channel();
        Self {
            blocks: Some(blocks),
            used,
            thread: Some(std::thread::spawn(move || write(&waiting, &back))),
        }
    }

    /// Memory for a block, with any content. It is that of a block which was written, if there is
    /// one. All blocks take the same.
    pub(crate) fn memory(&self) -> Result<Memory, SnapshotError> {
        if let Ok(mut used) = self.used.try_recv() {
            used.set_len(used.pages.len());
            return Ok(used);
        }
        Memory::new(BLOCK_BYTES).doing("allocate", Path::new("a block"))
    }

    /// Gives a block to the thread. Waits if too many are waiting.
    pub(crate) fn write(&mut self, block: Block) -> Result<(), SnapshotError> {
        let path = Arc::clone(&block.path);
        let blocks = self.blocks.as_ref();
        if blocks.is_some_and(|blocks| blocks.send(block).is_ok()) {
            return Ok(());
        }
        self.finish()?;
        Err(io::Error::other("the thread that writes has ended")).doing("write", &path)
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) -> Result<(), SnapshotError> {
        self.blocks = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            // Whoever wants to know asked `finish`.
            drop(thread.join());
        }
    }
}

/// Writes what comes.
fn write(waiting: &Receiver<Block>, back: &Sender<Memory>) -> Result<(), SnapshotError> {
    let mut run: Option<(Arc<DirectFile>, Range<u64>)> = None;
    for block in waiting {
        let written = block.file.write_all_at(&block.bytes, block.offset);
        written.doing("write", &block.path)?;
        let end = block.offset + block.bytes.len() as u64;
        let start = match run.take() {
            Some((file, range)) if Arc::ptr_eq(&file, &block.file) && range.end == block.offset => {
                range.start
            }
            _ => block.offset,
        };
        let is_long = end - start >= PUSH_BYTES;
        if is_long && !block.file.is_direct() {
            push(block.file.file(), start..end);
        }
        run = Some((block.file, if is_long { end } else { start }..end));
        // The caller may want no more.
        drop(back.send(block.bytes));
    }
    Ok(())
}

/// Lets the disk begin with a part of a file that was written. The sync at the end waits for less
/// then. The advice is that nobody reads the part soon, and the system writes it without a wait.
fn push(file: &File, range: Range<u64>) {
    let bytes = NonZeroU64::new(range.end - range.start);
    rustix::fs::fadvise(file, range.start, bytes, Advice::DontNeed).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// How far a block is from the next one, and its bytes: whole units of direct writes, and not.
    const BLOCKS: [(u64, usize); 2] = [(1000, 1000), (16384, 12300)];

    fn block(behind: &Behind, file: &Arc<DirectFile>, offset: u64, bytes: usize) -> Block {
        let mut memory = behind.memory().unwrap();
        memory.set_len(bytes);
        memory.fill(1);
        Block {
            file: Arc::clone(file),
            path: Path::new("a file").into(),
            offset,
            bytes: memory,
        }
    }

    #[test]
    fn all_blocks_are_there_when_it_ends_and_later_ones_win() {
        for (far, length) in BLOCKS {
            let place = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            let file = Arc::new(DirectFile::open(place.reopen().unwrap()));
            let mut behind = Behind::start();
            for (round, numbers) in [(1, 0..100), (2, 20..30)] {
                for number in numbers {
                    let mut block = block(&behind, &file, u64::from(number) * far, length);
                    block.bytes.fill(round);
                    block.bytes[0] = number;
                    behind.write(block).unwrap();
                }
            }
            behind.finish().unwrap();
            for number in 0..100 {
                let mut found = vec![0; length];
                let read = place
                    .as_file()
                    .read_exact_at(&mut found, u64::from(number) * far);
                read.unwrap();
                assert_eq!(found[0], number);
                let expected = if (20..30).contains(&number) { 2 } else { 1 };
                assert!(found[1..].iter().all(|byte| *byte == expected), "{number}");
            }
        }
    }

    #[test]
    fn the_error_of_a_block_reaches_whoever_writes_on_or_ends() {
        // It is open for reading only.
        let file = Arc::new(DirectFile::cached(File::open("/dev/null").unwrap()));
        let mut behind = Behind::start();
        behind.write(block(&behind, &file, 0, 10)).unwrap();
        assert!(behind.finish().is_err());
        let mut behind = Behind::start();
        let failed = (0..100).find_map(|_| behind.write(block(&behind, &file, 0, 10)).err());
        assert!(failed.is_some());
    }
}

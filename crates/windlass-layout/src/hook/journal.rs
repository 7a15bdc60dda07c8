//! A journal of what changes while a snapshot is being made: which names, and which lengths.
//!
//!   controller   begin --grace--> list everything ------> PAUSE: read, look at these again
//!   writers            name or length changes: note it --^
//!
//! So the time of the pause follows what has changed, and not how many files there are.
//!
//!   entry   kind and length 1 | a path, or device 1, inode 2 | zeros up to the end
//!
//! A writer notes before its call, while it is inside. So in a pause everything is noted. An entry
//! that is not filled then belongs to a process that died.
//!
//! Invariants
//! - What cannot be noted spoils the journal: then the controller looks at everything again.

use super::memory::{JOURNAL_AT, JOURNAL_ENTRIES_AT, JOURNAL_NEXT_AT, JOURNAL_SPOILED_AT, Memory};
use super::snapshot::FileKey;

/// Words of an entry.
pub const JOURNAL_ENTRY_WORDS: usize = 32;
/// The longest path that can be noted.
pub const JOURNAL_PATH_BYTES_MAX: usize = (JOURNAL_ENTRY_WORDS - 1) * 4;

const KIND_FILE: u32 = 1 << 16;
const KIND_PATH: u32 = 2 << 16;
const LENGTH: u32 = 0xFFFF;
/// A file that grows is noted once in so many entries.
const LOOKED_BACK: u32 = 8;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The length of this file.
    File(FileKey),
    /// What this path leads to: the bytes of it, and how many they are.
    Path([u8; JOURNAL_PATH_BYTES_MAX], usize),
}

/// Begins a journal of so many entries in words of zeros. After a grace, everything is noted.
pub fn begin_journal(memory: Memory<'_>, at: u64, entries: u32) {
    let [a, b, c, d, rest @ ..] = at.to_le_bytes();
    memory.store(JOURNAL_AT, u32::from_le_bytes([a, b, c, d]));
    memory.store(JOURNAL_AT + 1, u32::from_le_bytes(rest));
    memory.store(JOURNAL_NEXT_AT, 0);
    memory.store(JOURNAL_SPOILED_AT, 0);
    memory.store(JOURNAL_ENTRIES_AT, entries);
}

/// Ends the journal. After a grace nobody writes to its words any more.
pub fn end_journal(memory: Memory<'_>) {
    memory.store(JOURNAL_ENTRIES_AT, 0);
}

/// Where a journal is, and how many words it has; `None` if there is none.
pub fn journal_extent(memory: Memory<'_>) -> Option<(u64, u64)> {
    let entries = memory.load(JOURNAL_ENTRIES_AT);
    (entries != 0).then(|| {
        (
            start(memory),
            u64::from(entries) * JOURNAL_ENTRY_WORDS as u64,
        )
    })
}

fn start(memory: Memory<'_>) -> u64 {
    u64::from(memory.load(JOURNAL_AT)) | u64::from(memory.load(JOURNAL_AT + 1)) << 32
}

/// Whether changes have to be noted.
#[inline]
pub fn is_noting(memory: Memory<'_>) -> bool {
    memory.load(JOURNAL_ENTRIES_AT) != 0 && memory.load(JOURNAL_SPOILED_AT) == 0
}

/// Notes that something changes that cannot be named.
pub fn spoil_journal(memory: Memory<'_>) {
    memory.store(JOURNAL_SPOILED_AT, 1);
}

/// Notes that the length of a file changes. Call it inside, before the change.
pub fn note_file(memory: Memory<'_>, key: FileKey) {
    let next = memory.load(JOURNAL_NEXT_AT);
    let noted = |entry: u32| read(memory, entry) == Some(Noted::File(key));
    if !is_noting(memory) || (next.saturating_sub(LOOKED_BACK)..next).any(noted) {
        return;
    }
    let [a, b, c, d, rest @ ..] = key.inode.to_le_bytes();
    let words = [
        key.device,
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes(rest),
    ];
    note(memory, KIND_FILE, words.into_iter());
}

/// Notes that the name at a path comes, goes, or becomes that of another file. Call it inside,
/// before the change.
pub fn note_path(memory: Memory<'_>, path: &[u8]) {
    let length = u32::try_from(path.len()).ok();
    let length = length.filter(|_| path.len() <= JOURNAL_PATH_BYTES_MAX);
    let Some(length) = length else {
        return spoil_journal(memory);
    };
    let words = path.chunks(4).map(|four| {
        let mut bytes = [0; 4];
        bytes[..four.len()].copy_from_slice(four);
        u32::from_le_bytes(bytes)
    });
    note(memory, KIND_PATH | length, words);
}

fn note(memory: Memory<'_>, kind: u32, words: impl Iterator<Item = u32>) {
    if !is_noting(memory) {
        return;
    }
    let entry = memory.add(JOURNAL_NEXT_AT);
    let Some(at) = place(memory, entry) else {
        return spoil_journal(memory);
    };
    for (word, value) in (at + 1..at + JOURNAL_ENTRY_WORDS).zip(words) {
        memory.store(word, value);
    }
    // The entry counts from now on.
    memory.store(at, kind);
}

fn place(memory: Memory<'_>, entry: u32) -> Option<usize> {
    if entry >= memory.load(JOURNAL_ENTRIES_AT) {
        return None;
    }
    let words = u64::from(entry) * JOURNAL_ENTRY_WORDS as u64;
    usize::try_from(start(memory).checked_add(words)?).ok()
}

fn read(memory: Memory<'_>, entry: u32) -> Option<Noted> {
    let at = place(memory, entry)?;
    let kind = memory.load(at);
    let length = (kind & LENGTH) as usize;
    match kind & !LENGTH {
        KIND_FILE => Some(Noted::File(FileKey {
            device: memory.load(at + 1),
            inode: u64::from(memory.load(at + 2)) | u64::from(memory.load(at + 3)) << 32,
        })),
        KIND_PATH if length <= JOURNAL_PATH_BYTES_MAX => {
            let mut path = [0; JOURNAL_PATH_BYTES_MAX];
            for (word, four) in (at + 1..).zip(path.chunks_mut(4)) {
                four.copy_from_slice(&memory.load(word).to_le_bytes());
            }
            Some(Noted::Path(path, length))
        }
        _ => None,
    }
}

/// Gives everything that was noted to `each`. False if that is not all that has changed: the
/// journal was full, or somebody died. Nobody may be inside a call.
pub fn read_journal(memory: Memory<'_>, mut each: impl FnMut(Noted)) -> bool {
    let entries = memory.load(JOURNAL_NEXT_AT);
    for entry in 0..entries.min(memory.load(JOURNAL_ENTRIES_AT)) {
        let Some(noted) = read(memory, entry) else {
            return false;
        };
        each(noted);
    }
    is_noting(memory)
}

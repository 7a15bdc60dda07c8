//! The protocol's own files, compiled with this test's `sync`.

#![allow(dead_code, unused_imports, reason = "the models use a part of it")]

#[path = "../../../windlass-layout/src/hook/ahead.rs"]
mod ahead;
#[path = "../../../windlass-layout/src/hook/cell.rs"]
mod cell;
#[path = "../../../windlass-layout/src/hook/chain.rs"]
mod chain;
#[path = "../../../windlass-layout/src/hook/changed.rs"]
mod changed;
#[path = "../../../windlass-layout/src/hook/journal.rs"]
mod journal;
#[path = "../../../windlass-layout/src/hook/limits.rs"]
mod limits;
#[path = "../../../windlass-layout/src/hook/lock.rs"]
mod lock;
#[path = "../../../windlass-layout/src/hook/memory.rs"]
mod memory;
#[path = "../../../windlass-layout/src/hook/names.rs"]
mod names;
#[path = "../../../windlass-layout/src/hook/process.rs"]
mod process;
#[path = "../../../windlass-layout/src/hook/reader.rs"]
mod reader;
#[path = "../../../windlass-layout/src/hook/snapshot.rs"]
mod snapshot;
#[path = "../../../windlass-layout/src/hook/writer.rs"]
mod writer;

pub use ahead::{Ahead, copy_ahead, settle_ahead};
pub use chain::{Moved, Unpublished, claim, drain, merge, publish, release, unlink};
pub use changed::{
    MapMark, MapShape, begin_map, end_map, is_changed, mark_changed, next_generation,
};
pub use journal::{
    JOURNAL_ENTRY_WORDS, Noted, begin_journal, end_journal, note_file, note_path, read_journal,
};
pub use memory::{AREA_BYTES_AT, Cause, Memory, SNAPSHOTS_MAX};
pub use names::{lose_unpinned, needs_grave, needs_pin};
pub use process::{Busy, Process, Waiter, grace, pause, resume};
pub use reader::{Found, Reading, find, is_lost};
pub use snapshot::{FileKey, FileLink, FileRecord, Limits, Snapshot};
pub use writer::{Fault, System, first_needed, preserve};

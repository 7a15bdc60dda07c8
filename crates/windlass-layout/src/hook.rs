//! The protocol between the write hook inside a server and the controller outside of it.
//!
//!   server process --enter--> is a snapshot linked? --no--------------------------> system call
//!                               \--yes--> file in its index? --> preserve the page --/
//!   controller ----build index and map--> publish --grace--> ... --> drain, merge, unlink, grace
//!
//! Both sides map one piece of shared memory and see it as words ([`Memory`]). A writer preserves a
//! page only into the newest snapshot that has the block. Older snapshots read through newer ones,
//! so many snapshots cost what one costs. docs/decisions/0015-write-hook.md says why this is
//! right.
//!
//! Invariants
//! - Nothing here allocates, panics or waits without a bound. A word outside of the memory reads as
//!   zero, and a write to it does nothing.
//! - While a block's cell is unset in a snapshot and in all newer ones, the source holds the page
//!   as it was when the snapshot was made.
//! - While a durable snapshot is linked, a cell is set without a mark only when the page is on the
//!   store's disk, and nobody overwrites a page whose cell has a mark. So the caller's own write
//!   never reaches a disk before the copy.
//! - If a page cannot be preserved, the snapshot and all older ones are marked lost before the
//!   caller's own write begins.
//!
//! Ordering: the words that decide who sees what (`pause`, `newest`, the counters of processes) are
//! sequentially consistent on both sides, so no side needs a barrier of its own.

mod ahead;
mod cell;
mod chain;
mod changed;
mod journal;
mod limits;
mod lock;
mod memory;
mod names;
mod process;
mod reader;
mod saved;
mod snapshot;
mod times;
mod writer;

pub use ahead::{Ahead, copy_ahead, lose_ahead, settle_ahead};
pub use chain::{Moved, Unpublished, claim, drain, merge, publish, release, unlink};
pub use changed::{
    MapMark, MapShape, begin_map, blind_map, end_map, forget_map, is_blind, is_changed, is_mapping,
    is_of_map, map_extent, map_mark, mark_changed, next_generation, see_again,
};
pub use journal::{
    JOURNAL_ENTRY_WORDS, JOURNAL_PATH_BYTES_MAX, Noted, begin_journal, end_journal, is_noting,
    journal_extent, note_file, note_path, read_journal, spoil_journal,
};
pub use limits::end;
pub use memory::{
    AREA_BYTES_AT, CLUSTER_BYTES_AT, CONTROL_BYTES, Cause, FOREIGN_BYTES_AT, MAGIC, Memory, Phase,
    SNAPSHOTS_MAX, VERSION, identity_of_store,
};
pub use names::{GRAVE_NAME_BYTES, GRAVEYARD_SUFFIX, lose_unpinned, needs_grave, needs_pin};
pub use process::{Busy, Process, Waiter, grace, pause, resume};
pub use reader::{Found, Reading, find, is_lost};
pub use saved::{
    CONTROL_TOLD_BYTES, PAGED_DEPTH_MAX, PAGED_DIRECTORIES, PLACES_NAME, SAVED_DIRECTORIES_MAX,
    SAVED_DIRECTORY, SAVED_DIRECTORY_BYTES, SAVED_HEADER_BYTES, SAVED_IN_TABLESPACE, STAMP_BYTES,
    STAMP_NAME, SavedDirectory, SavedHeader, Stamp, saved_name,
};
pub use snapshot::{
    CONTROL_DIRECTORY, CONTROL_NAME_BYTES, FILE_WORDS, FileKey, FileLink, FileRecord, IndexFull,
    Limits, Snapshot, index_records,
};
pub use times::{
    Change, FileTimes, Moment, begin_changes, has_other_clock, is_own_change, last_change,
    set_last_change,
};
pub use writer::{
    Fault, System, blocks_of, first_needed, is_durable, is_tracked, lose_all, lose_numbered,
    preserve, restore,
};

//! SQLite: what of a live database to read, and when it is consistent.
//!
//!   other processes --> database file, -wal, -shm
//!                            |          |     |
//!   session (SQLite's locks) |          |     +--> view: which commit is pinned
//!                            |          +--------> overlay: its pages that are in the log only
//!                            +-------------------> engine: the bytes, at the hardware's speed
//!
//! The bytes are read raw; SQLite itself is used for nothing but its locks. The result is one
//! plain file in exactly one committed state.
//!
//! Invariants
//! - The source is never written to, but for what every reader of it does: SQLite rolls a hot
//!   journal back, and makes the -wal and -shm files that a database in WAL mode lacks.
//! - The locks hold until the last byte is read, although POSIX drops a process's locks on a file
//!   whenever it closes any descriptor of it: `session.rs` and `lock.rs` say how.
//! - In WAL mode no writer ever waits for a backup. In rollback mode they wait while the last
//!   difference is settled, and the backup says for how long.
//!
//! Start with `backup.rs`; `view.rs` has the proof for WAL mode.

mod backup;
mod database;
mod error;
mod extent;
mod facts;
mod fingerprint;
mod header;
mod hook;
mod lock;
mod open;
mod overlay;
mod pinned;
mod ranges;
mod restore;
mod session;
mod settle;
mod shm;
mod sides;
mod view;
mod wal;

pub use database::{BackupOutcome, Database, LOCK_LIMIT_DEFAULT, LOCK_WAIT_DEFAULT, is_sqlite};
pub use error::SqliteError;
pub use facts::{DatabaseFacts, JournalMode, KIND};
pub use header::{DATABASE_HEADER_BYTES, DATABASE_MAGIC, DatabaseHeader};
pub use open::{Inspection, View, inspect, view};
pub use pinned::{PinnedReader, PinnedState};
pub use restore::{RestorePlan, restore_layout};
pub use shm::{WAL_INDEX_BYTES, WalIndex};
pub use sides::{files_of, side_file_of};
pub use wal::{
    Checksum, FRAME_HEADER_BYTES, PageFrame, ReadAt, WAL_HEADER_BYTES, WalHeader, WalState, scan,
};

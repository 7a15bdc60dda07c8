//! SQLite: what to read of a live database, and when it is consistent.
//!
//!   other processes --> database file, -wal, -shm
//!                            |          |     |
//!   session (SQLite's locks) |          |     +--> view: which commit is pinned
//!                            |          +--------> log pages: those that are in the log only
//!                            +-------------------> engine: the bytes, at the hardware's speed
//!
//! What a database file says of itself:
//!
//! ```
//! use windlass_sqlite::{Database, JournalMode};
//!
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("shop.db");
//! # let made = rusqlite::Connection::open(&path)?;
//! # made.execute_batch("pragma journal_mode=wal; create table item(name)")?;
//! # drop(made);
//! let shop = Database::open(&path)?;
//! assert_eq!(shop.facts().journal_mode, JournalMode::Wal);
//! assert_eq!(shop.facts().page_bytes, 4096);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Windlass reads the bytes itself and uses SQLite only for its locks. The result is one plain file
//! in exactly one committed state.
//!
//! Invariants
//! - A backup writes only what every reader of the source would write: SQLite rolls a hot journal
//!   back, and it creates the -wal and -shm files that a database in WAL mode lacks.
//! - The locks hold until the last byte is read. This needs care: POSIX drops a process's locks on
//!   a file whenever the process closes any descriptor of it. `session.rs` and `lock.rs` say how.
//! - In WAL mode no writer ever waits for a backup. In rollback mode writers wait while the backup
//!   settles the last difference, and the backup reports how long.
//!
//! - Only `overwrite.rs` changes a database, in one transaction of SQLite.
//!
//! Start with `backup.rs`; `view.rs` has the proof for WAL mode, and `capture.rs` that for the log.

mod access;
mod backup;
mod capture;
mod chain;
mod cloned;
mod database;
mod error;
mod extents;
mod facts;
mod fingerprint;
mod foreign;
mod header;
mod hook;
mod journal;
mod key;
mod left_open;
mod lock;
mod log_pages;
mod open;
mod outcome;
mod overwrite;
mod page_hashes;
mod pinned;
mod playback;
mod ranges;
mod reach;
mod restore;
mod session;
mod settle;
mod shm;
mod sides;
mod standing;
mod view;
mod wal;
mod warning;
mod written;

pub use capture::{Commit, Held, LogCapture, Look, Watch};
pub use chain::{Chain, ChainBase};
pub use cloned::CloneOutcome;
pub use database::{Database, LOCK_LIMIT_DEFAULT, LOCK_WAIT_DEFAULT, is_sqlite};
pub use error::SqliteError;
pub use extents::SharedExtents;
pub use facts::{DatabaseFacts, HashedPages, JournalMode, KIND};
pub use header::{DATABASE_HEADER_BYTES, DATABASE_MAGIC, DatabaseHeader};
pub use hook::layout_of_file;
pub use key::DatabaseKey;
pub use left_open::{LeftOpen, left_open};
pub use open::{Inspection, ShownDatabase, ask, inspect, shown};
pub use outcome::BackupOutcome;
pub use overwrite::{Overwrite, comparable_first_page, is_lock_page, shape_of_state};
pub use pinned::{PinnedReader, PinnedState};
pub use restore::{Left, RestorePlan, check_set, restore_layout, target_files};
pub use shm::{WAL_INDEX_BYTES, WalIndex};
pub use sides::{files_of, side_file_of};
pub use standing::{FileMark, LogPoint, Standing, booted_nanos};
pub use wal::{
    Checksum, FRAME_HEADER_BYTES, PageFrame, ReadAt, WAL_HEADER_BYTES, WalHeader, WalState, scan,
};
pub use warning::Warning;

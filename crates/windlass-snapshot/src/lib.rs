//! Snapshots: a live database as of one moment, kept in a directory of its own.
//!
//!   database --[Maker]--> content --+
//!                                   +--> PLACE/NAME/ --> [Snapshot] --> Image
//!   facts, times, promise --record--+
//!
//! Each method is a [`Maker`]. `copy` is a sealed set in the snapshot's directory, and `clone` is
//! files that share their blocks with the database. Whatever the method, a snapshot is an image and
//! its facts.
//!
//! Invariants
//! - A snapshot exists as soon as its record is durable, and as long as the record is there. All
//!   that it needs is durable before.
//! - What a killed process left is a directory without a record that nobody has locked. The next
//!   one that makes or drops a snapshot of this database removes it. One in which a revert kept
//!   something has lost its record, and stays, unless it says that somebody began to drop it.
//! - Only a directory with our mark is ever removed.
//! - A snapshot that somebody reads is locked, and cannot be dropped.
//!
//! Start with `place.rs`; `record.rs` says what is kept about a snapshot.

mod apart;
mod behind;
mod choice;
mod clone;
mod clone_postgres;
mod cluster;
mod cluster_back;
mod copy;
mod create;
mod directory;
mod error;
pub mod hook;
mod image;
mod maker;
mod method;
mod name;
mod numbers;
mod obstacle;
mod overwritten;
mod place;
mod put_back;
mod record;
mod revert;
mod room;
mod snapshot;
mod states;
mod undo;
mod usage;

pub use choice::{Chosen, PassedOver, choose};
pub use clone::SqliteClone;
pub use clone_postgres::PostgresClone;
pub use cluster_back::ClusterBack;
pub use copy::{PostgresCopy, SqliteCopy};
pub use create::{Created, create};
pub use error::{Left, Older, SnapshotError};
pub use hook::PostgresHook;
pub use maker::{Made, Maker};
pub use method::Method;
pub use name::SnapshotName;
pub use obstacle::Obstacle;
pub use overwritten::{Settled, UndoNumber};
pub use place::{Entry, Place, Reserved, snapshot_around};
pub use put_back::{check_left_open, put_back};
pub use record::{Record, Source, State, Step, Survives};
pub use revert::{Back, Decided, Reverted, revert, settle};
pub use snapshot::{Content, Hold, Snapshot};
pub use states::{
    STATES_KEPT, Undo, find_undo, has_undo, leaving, newest_undo, remove_undo, undo_states,
};
pub use undo::UndoRecord;

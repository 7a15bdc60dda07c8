//! Repositories: the archived log of databases in a place, and the catalog of runs.
//!
//!   PLACE/log/SYSTEM/TIMELINE/HIGH/START-END.wlog     the log, in objects
//!   PLACE/log/SYSTEM/files/NAME.wlog                  files that belong to it: history files
//!   PLACE/log/sqlite-DATABASE/TIMELINE/HIGH/START-END.wlog   transactions of a SQLite database
//!
//! A place is a directory, or the prefix of a bucket. It holds the log of any number of clusters,
//! each below its system identifier. An object says itself what it holds; names only make it quick
//! to find. HIGH is the upper half of the position, so no folder grows without end.
//!
//! Invariants
//! - What is stored is durable before a function returns: the file, and each directory above it;
//!   or the object in the bucket, whose end was read back.
//! - No byte of an object is used before its checksum was checked.
//! - No object is ever changed, except one that grows; and none is replaced by different content.
//! - This crate is not needed to restore a set, and it never prints.

mod ahead;
mod catalog;
mod commits;
mod compress;
mod content;
mod copy;
mod error;
mod expired;
mod fetch;
mod file_name;
mod growing;
mod history;
mod known;
mod locked;
mod lost;
mod mark;
mod object;
mod outermost;
mod path;
mod place;
mod push;
mod ranges;
mod reader;
mod readings;
pub mod retention;
mod spool;
mod token;
mod verify;
mod writer;

pub use ahead::{Ahead, check_spool};
pub use catalog::{
    CATALOG_FILE, Catalog, CatalogError, CatalogRun, DETAILED_MAX, OpenedCatalog, RUNS_MAX,
    RunState,
};
pub use commits::{
    CommitLog, CommitReader, Linked, Links, NewCommit, Record, StandAbout, WrittenSince,
    database_number, link, written_since,
};
pub use copy::{CopiedLog, CopyRequest, copy};
pub use error::{LostEnd, RepositoryError};
pub use expired::{Expired, ExpiredLog};
pub use fetch::{Fetched, fetch};
pub use file_name::LogFileName;
pub use growing::{GrowingLog, GrowingStart};
pub use history::Histories;
pub use known::KnownEnd;
pub use path::{LogPath, LogStep};
pub use place::{LogPlace, ObjectName, Place, has_log, log_databases, log_directory, log_systems};
pub use push::{LookAhead, PushRequest, Pushed, content_key_beside, push, system_beside};
pub use ranges::{KnownLog, LogSpan, TimelineLog};
pub use reader::LogReader;
pub use spool::Spool;
pub use token::ContentKey;
pub use verify::{CheckDepth, LogCheck};

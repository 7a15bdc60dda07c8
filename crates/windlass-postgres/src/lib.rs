//! PostgreSQL for Windlass: what to read, when it is consistent, and how it recovers.
//!
//!   connection string --> `Cluster` --backup--> files, WAL, label, manifest --> `BackupRun`
//!   facts and file table of a set --> `RestorePlan` --> layout for the engine's restore
//!   a data directory that may be thrown away --> `Server`, private and recovered
//!
//! This crate supports PostgreSQL 14 to 19, primaries and standbys. The data directory must be on
//! this machine, and this process must run as its owner.
//!
//! Where a moment of the log is, and whether a page is sound:
//!
//! ```
//! use windlass_postgres::{Lsn, PageState, judge_page};
//!
//! let lsn = Lsn::parse("0/3000028").expect("two numbers in hexadecimal digits");
//! assert_eq!(lsn.0, 0x300_0028);
//! // PostgreSQL has no checksum for a page that it has never written.
//! assert_eq!(judge_page(&[0; 8192], 17, lsn), PageState::Good);
//! let mut damaged = [0; 8192];
//! damaged[5000] = 1;
//! assert_eq!(judge_page(&damaged, 17, lsn), PageState::Bad);
//! ```
//!
//! Invariants
//! - Windlass never writes into a live data directory.
//! - This crate never knows a device, and never prints.
//! - The server goes on whatever happens here: when a session ends, the server ends its backup.

mod activity;
mod archiving;
mod backup;
mod chain;
mod checksum;
mod cluster;
mod cluster_files;
mod cluster_server;
mod configuration;
mod conninfo;
mod control;
mod error;
mod facts;
mod hook;
mod inspect;
mod keeper;
mod layouts;
mod listing;
mod load;
mod lsn;
mod manifest;
mod names;
mod open;
mod origin;
mod own_cluster;
mod owner;
mod page_at;
mod places;
mod preload;
mod quoting;
mod relations;
mod replication;
mod restore;
mod rights;
mod scan;
mod session;
mod stopped;
mod summaries;
mod tablespace;
mod tls;
mod users;
mod wal;
mod warning;
mod windows;
mod witness;
mod written;

pub use activity::ServerCounters;
pub use backup::{
    BackupOutcome, BackupRequest, Bracket, BracketEnd, BracketFiles, BracketSegment, Chain,
    ChangedFiles, CrashState, ExpectedChanges, Foreseen, Pinned,
};
pub use chain::{ChainBase, ChainFault};
pub use checksum::{PageState, judge_page, page_checksum};
pub use cluster::{Cluster, MAJOR_NEWEST, MAJOR_OLDEST};
pub use cluster_files::{ClusterFiles, ReadError};
pub use cluster_server::{ClusterServer, Lack};
pub use control::{Checksums, Control};
pub use error::{OverFault, PostgresError, ServerEnd, ServerError};
pub use facts::{
    BadFile, ChecksumFacts, ClusterFacts, ConfigurationFault, DatabaseFacts, KIND, Outgoing,
    Tablespace,
};
pub use inspect::{Inspection, RelationFault, ask, inspect};
pub use layouts::{PageLayouts, PageRelation};
pub use load::{Load, LoadCounts, LoadTables, PAGES_OF_SCALE, Transaction};
pub use lsn::{Lsn, Segment, Timeline};
pub use manifest::MANIFEST_PATH;
pub use names::{Fork, is_beside_the_data, is_relation_file, is_skipped_anywhere};
pub use open::end_with_this_thread;
pub use open::{
    Apart, Connection, OpenRequest, Programs, Server, UnusableDatabase, server_view, source_view,
};
pub use origin::{RestoreId, is_from_past};
pub use own_cluster::{OwnCluster, OwnClusterRequest, OwnSession};
pub use owner::{server_address, socket_owner};
pub use page_at::{PageAt, damaged_pages, is_page_whole, lsn_of_page};
pub use places::{cluster_around, places_of, running_cluster_around};
pub use preload::Preload;
pub use relations::{
    NameFault, NamedFile, Relation, RelationKind, RelationNames, RelationPattern,
    RelationPatternError, database_names,
};
pub use replication::{ReplicationSession, ReplicationSystem, SlotKeeps, Streamed};
pub use restore::{
    Kept, LeftOut, OverCluster, Recovery, RecoveryAction, RecoveryPoint, RecoveryTimeline,
    RestorePlan, RestoreRequest, TablespacePlan, check_image, check_set, check_unoccupied,
    manifest_of_image,
};
pub use rights::{Right, Rights};
pub use stopped::StoppedCluster;
pub use tablespace::check_links;
pub use users::user_shown;
pub use wal::ends::log_ends;
pub use wal::head::SegmentHead;
pub use wal::moments::{Sought, Stop, last_transaction, seek_point, seek_within};
pub use wal::outside::{ReplayedTablespace, check_log_inside, replayed_tablespaces};
pub use wal::records::{Record as LogRecord, Records as LogRecords};
pub use wal::source::{LogSource, SegmentFiles};
pub use wal::written::SegmentPages;
pub use wal::{LogEnd, WalRange, parse_history, timelines_before};
pub use warning::Warning;
pub use windows::{EarlierWindow, WindowCause};
pub use witness::{ChangeMark, ChangeWitness};
pub use written::WrittenLog;

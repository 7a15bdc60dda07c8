//! What each command does, as functions: a typed request in, a typed outcome out.
//!
//!   request --> resolve names --> become the owner --> plan --> run --> judge --> outcome
//!                                                       |
//!                                                       +--> [`Observer`]: what happens meanwhile
//!
//! A backup of a SQLite database, and a restore of it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_engine::Cancel;
//! use windlass_operations::{
//!     BackupRequest, Caller, Ending, RestoreRequest, Unobserved, back_up, restore,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let path = |name: &str| place.path().join(name).display().to_string();
//! # let (shop, backups, copy) = (path("shop.db"), path("backups"), path("copy.db"));
//! # let shop_connection = rusqlite::Connection::open(&shop)?;
//! # shop_connection.execute_batch("create table item(name)")?;
//! let caller = Caller::sharing("example 1.0", Arc::new(Unobserved));
//! let mut request = BackupRequest::new(&shop, &[&backups]);
//! request.keep_prediction = false;
//! let (backup, ending) = back_up(&caller, &request, &Cancel::new())?;
//! assert_eq!(ending, Ending::Done);
//! println!("{:?}: {}", backup.report.set_id, backup.report.verdict);
//! assert_eq!(backup.stripes.len(), 1);
//!
//! let mut request = RestoreRequest::new(&backups, &copy);
//! request.keep_prediction = false;
//! let (restored, ending) = restore(&caller, &request, &Cancel::new())?;
//! assert_eq!(ending, Ending::Done);
//! assert_eq!(restored.report.set_id, backup.report.set_id);
//! # let copied: i64 = rusqlite::Connection::open(&copy)?
//! #     .query_row("select count(*) from item", [], |row| row.get(0))?;
//! # assert_eq!(copied, 0);
//! # Ok(()) }
//! ```
//!
//! The operations:
//!
//! - Sets: [`back_up`], [`restore`], [`verify`], [`expire::expire`].
//! - What would happen: [`check::check_backup`], [`check::check_restore`], [`plan::plan`].
//! - What sets hold: [`info::info`], [`diff::diff`], [`extract::extract`], [`mounting::mount`],
//!   [`opening::open`], [`drill::drill`].
//! - What storage and settings give: [`probing::probe`], [`tuning::tune`], [`sweeping::sweep`],
//!   [`rehearsing::rehearse`], [`experimenting::experiment`].
//! - What runs do, and did: [`status::list`], [`recorded::evaluate`], [`history::history`].
//! - What is to run, and when: [`schedule::install`].
//!
//! Invariants
//! - Nothing is printed, and no signal is handled. What the process is asked to do is the caller's.
//! - Operations of one process share nothing but the connections to buckets and what
//!   [`ProcessUse`] says: only an operation that has the process for itself becomes another user.
//! - No word of a command line: what to type next is said by whoever shows an error.

pub mod advice;
mod archive;
mod as_cluster;
mod backup;
mod caller;
mod captured;
pub mod check;
pub mod checks;
pub mod commits;
pub mod compression;
pub mod database;
pub mod denied;
pub mod devices;
pub mod diff;
pub mod drill;
pub mod emptied;
mod ended;
mod ending;
mod error;
pub mod experimenting;
pub mod expire;
pub mod extract;
pub mod foretold;
mod held;
mod hidden;
pub mod history;
pub mod hold;
pub mod hooks;
pub mod images;
pub mod info;
pub mod kept;
pub mod keys;
pub mod locks;
pub mod metrics;
pub mod moments;
pub mod mounting;
pub mod nearest;
mod notice;
pub mod notify;
mod objects;
mod opened;
pub mod opening;
pub mod outputs;
pub mod owners;
pub mod paging;
pub mod places;
pub mod plan;
pub mod privilege;
pub mod probed;
pub mod probing;
pub mod reach;
mod receive;
mod receiver;
pub mod recorded;
mod recovered;
mod recovery;
pub mod rehearsing;
mod repair;
mod repair_set;
mod restore;
pub mod run;
pub mod sampled;
pub mod schedule;
mod scratch;
mod settings;
pub mod snapshots;
pub mod status;
mod stored;
pub mod sweeping;
pub mod tuning;
pub mod verify;
pub mod warnings;
pub mod watch;

pub use archive::{
    ArchiveGetRequest, ArchivePushRequest, ArchivePushed, LOOK_AHEAD_DEFAULT, archive_get,
    archive_get_ahead, archive_get_has_more, archive_push, archive_push_ahead,
};
pub use backup::{
    BackupOutcome, BackupRequest, DatabaseLogOutcome, LogBackedUp, LogBackupOutcome,
    LogBackupRequest, MirrorRequest, Mirrored, PageChoice, Remark, back_up, back_up_log,
    backup_not_begun, merge,
};
pub use caller::{Caller, ProcessUse};
pub use captured::CapturedLog;
pub use compression::Compression;
pub use ended::{RunCounts, RunEnd, RunStart};
pub use ending::Ending;
pub use error::{CompressionError, DatabaseError, DeviceError, OperationError, OwnerError, chain};
pub use held::Held;
pub use hidden::hidden;
pub use hooks::{HookCommands, HookError, HookEvent, HookFault};
pub use keys::add_keys;
pub use notice::{MoreMemory, Notice, Observer, Unobserved};
pub use opened::{Mounted, OpenSettings, Opened, ToOpen};
pub use places::{PlaceError, SetChoice, SetRequest};
pub use receive::{
    BUCKET_INTERVAL, CLUSTER_INTERVAL, DATABASE_INTERVAL, ReceiveRequest, Received, ReceivedLog,
    receive,
};
pub use recovered::MomentRequest;
pub use recovery::{
    FilePlan, PointRemark, RecoveryError, RecoveryPlan, RecoveryRequest, WindowShown,
};
pub use repair::{RepairError, RepairOutcome, RepairRequest, RepairedPage, Unsafe, repair};
pub use repair_set::repair_set;
pub use restore::{
    ChangedCluster, RestoreOutcome, RestoreRequest, Restored, cluster_owner, parent, restore,
    restore_not_begun,
};
pub use settings::{Rates, RunSettings};
pub use stored::configure_buckets;
pub use verify::{VerifyRequest, VerifyStep, verify, verify_not_begun};
pub use watch::{Events, Watching};

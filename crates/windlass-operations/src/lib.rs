//! What each command does, as functions: a typed request in, a typed outcome out.
//!
//!   request --> resolve names --> become the owner --> plan --> run --> judge --> outcome
//!                                                       |
//!                                                       +--> [`Observer`]: what happens meanwhile
//!
//! A backup of a SQLite database, and what came of it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_engine::Cancel;
//! use windlass_operations::{BackupRequest, Caller, Ending, Unobserved, back_up};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let shop = place.path().join("shop.db").display().to_string();
//! # let backups = place.path().join("backups").display().to_string();
//! # let shop_connection = rusqlite::Connection::open(&shop)?;
//! # shop_connection.execute_batch("create table item(name)")?;
//! let caller = Caller::sharing("example 1.0", Arc::new(Unobserved));
//! let mut request = BackupRequest::new(&shop, &[&backups]);
//! request.keep_prediction = false;
//! let (backup, ending) = back_up(&caller, &request, &Cancel::new())?;
//! assert_eq!(ending, Ending::Done);
//! println!("{}: {}", backup.report.set_id, backup.report.verdict);
//! assert_eq!(backup.stripes.len(), 1);
//! # Ok(()) }
//! ```
//!
//! Invariants
//! - Nothing is printed, and no signal is handled. What the process is asked to do is the caller's.
//! - Operations of one process share nothing but what [`ProcessUse`] says: only an operation that
//!   has the process for itself becomes another user.
//! - No word of a command line: what to type next is said by whoever shows an error.

pub mod advice;
mod backup;
mod caller;
pub mod compression;
pub mod database;
pub mod denied;
pub mod devices;
mod ending;
mod error;
pub mod foretold;
mod held;
mod hidden;
pub mod hooks;
pub mod images;
pub mod metrics;
pub mod moments;
pub mod nearest;
mod notice;
mod opened;
pub mod outputs;
pub mod places;
pub mod privilege;
pub mod probed;
pub mod run;
mod scratch;
mod settings;
pub mod status;
pub mod warnings;
pub mod watch;

pub use backup::{BackupOutcome, BackupRequest, Remark, back_up, not_begun};
pub use caller::{Caller, ProcessUse};
pub use compression::Compression;
pub use ending::Ending;
pub use error::{CompressionError, DatabaseError, DeviceError, OperationError, OwnerError, chain};
pub use held::Held;
pub use hidden::hidden;
pub use hooks::{HookCommands, HookError, HookEvent, HookFault};
pub use notice::{Notice, Observer, Unobserved};
pub use opened::{Mounted, OpenSettings, Opened, ToOpen};
pub use places::{PlaceError, SetChoice, SetRequest};
pub use settings::{Rates, RunSettings};
pub use watch::{Events, Watching};

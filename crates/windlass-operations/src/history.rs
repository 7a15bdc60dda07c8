//! The history of runs: what was run when, how fast, what bound it, and what changed.
//!
//!   Run --begin, end--> [`History`] --> catalog in the state directory --> [`history()`]
//!   sets of places --rebuild--> rows that the catalog lacks
//!
//! Invariants
//! - The history never fails a run. A run that is not in it ends with a warning.
//! - The catalog is opened when a run begins, before the process becomes the owner of a database.
//! - A run that began and whose process has ended without a word was killed.

mod causes;
mod changes;
mod elsewhere;
mod error;
mod figures;
mod find;
mod keeper;
mod page;
mod proofs;
mod rebuild;
mod record;
mod schedule;
mod summary;
mod words;

pub use causes::{Cause, CauseKind};
pub use changes::{Break, Quantity};
pub(crate) use elsewhere::{Elsewhere, made_elsewhere};
pub use error::HistoryError;
pub use find::{HistoryOutcome, HistoryRequest, history};
pub use keeper::History;
pub use proofs::Proofs;
pub(crate) use record::{HistoryRun, RunAbout, recorded};
pub use schedule::{ClockJump, Gap};
pub use summary::{DatabaseHistory, Newest, Proof, Shown};
pub use windlass_repository::{CatalogError, RunState};

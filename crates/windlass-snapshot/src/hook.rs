//! Snapshots by the write hook: pages are kept when the server overwrites them for the first time.
//!
//!   create --> links, index, map --> the hook preserves pages --> [store] --+
//!                                        [database's own files] ------------+--> HookImage
//!
//! The hook inside the server and this controller share the memory that `control` maps.
//! windlass-layout has the protocol; docs/decisions/0015-write-hook.md has the reasons.
//!
//! Invariants
//! - Nothing is written into the database's files. Only links to them are made, in places that no
//!   tool of PostgreSQL copies or cleans up.
//! - A page that is given out is the page of the snapshot, or there is an error.

mod atomic;
mod changed;
mod control;
mod create;
mod durable;
mod early;
mod error;
mod examined;
mod graves;
mod homes;
mod image;
mod index;
mod journal;
mod keeper;
mod libraries;
mod limits;
mod links;
mod loading;
mod locked;
mod maker;
mod memories;
mod moved;
mod orphans;
mod pauses;
mod publishing;
mod record;
mod remove;
mod renewed;
mod seen;
mod state;
mod store;
mod tail;
mod taken;
mod unnamed;
mod untouched;

pub use changed::ChangeMap;
pub use create::{HookMade, HookRequest, HookStart, create};
pub(crate) use durable::move_stamp;
pub use error::HookError;
pub(crate) use homes::{forget_home, homes_before, homes_missing};
#[cfg(test)]
pub(crate) use homes::{note as note_home, path_of as note_of_homes};
pub use image::HookImage;
pub(crate) use keeper::Keeper;
pub use limits::HookLimits;
pub use loading::{check_modules, depending, is_active, memory_of};
pub use maker::PostgresHook;
pub use memories::sweep_memories;
pub(crate) use moved::note_named;
pub(crate) use orphans::take_out_missing;
pub use orphans::{Orphans, missed};
pub(crate) use record::{CONTENT, Document, check_readable, forget_document};
pub use remove::remove;
pub use state::{HookState, give_up, is_limit, state};
pub(crate) use state::{Looked, look};

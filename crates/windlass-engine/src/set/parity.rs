//! Sets with parity: finding the files with parity, and rebuilding what is lost of stripes.
//!
//!   stripes, parity files --> [Rebuilder] --member, checked--> MendedBytes, OpenStripe
//!
//! A set that is whole is opened as every other. If a stripe is missing, or cannot be opened, then
//! `MendedStorage` has bytes in its place that are rebuilt as they are read. If a frame or an index
//! block turns out to be damaged later, it is rebuilt then.
//!
//! Invariants
//! - Nothing that is rebuilt is used before its checksum was right.
//! - Everything that was rebuilt is noted, so that nobody takes the set for a whole one.

mod cache;
mod choice;
pub(crate) mod file;
mod find;
mod mended;
mod model;
mod notes;
pub(crate) mod rebuild;

pub(crate) use choice::Said;
pub(crate) use find::{Device, Devices, find_devices, mended, rebuilder_of, sealed};
pub(crate) use model::{parity_files, stripes_of};
pub use notes::{LostDevice, Mends, RebuiltPart};
pub use rebuild::Rebuilder;
pub(crate) use rebuild::{Described, Group};

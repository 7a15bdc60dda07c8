//! Mounts: an image, or an overlay of one, as a directory tree for every program, through FUSE.
//!
//!   program --> kernel (page cache) --> /dev/fuse --> [filesystem] --> View --> image, overlay
//!                                                          |
//!                                                     [read-ahead] --> image: decode on all cores
//!
//! Invariants
//! - What is damaged is an error for whoever reads it, and told once; it is never zeros, never a
//!   short file, and nothing beside it suffers.
//! - The kernel keeps what it was given: an image never changes, and an overlay changes only
//!   through its mount.
//! - No link is followed here. Names are looked up one by one, in the view alone.
//! - This crate never knows a database, and never prints.

mod attributes;
mod counters;
mod damage;
mod error;
mod filesystem;
mod kernel_ahead;
mod listings;
mod mount;
mod read_ahead;
mod served;
mod unmount;

pub use counters::MountStatistics;
pub use damage::DamageHook;
pub use error::MountError;
pub use mount::{Mount, MountOptions};
pub use unmount::{Unmounted, detach};

//! Mounts: an image, or an overlay of one, as a directory tree for every program, through FUSE.
//!
//!   program --> kernel (page cache) --> /dev/fuse --> [filesystem] --> View --> image, overlay
//!                                                          |
//!                                                     [read-ahead] --> image: decode on all cores
//!
//! A directory, mounted a second time and read through the mount:
//!
//! ```
//! use std::sync::Arc;
//! use windlass_image::DirectoryImage;
//! use windlass_mount::{Mount, MountOptions};
//!
//! # let (source, at) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # std::fs::create_dir(source.path().join("base"))?;
//! let image = Arc::new(DirectoryImage::open(source.path())?);
//! let mount = Mount::image(image, at.path(), &MountOptions::default())?;
//! assert!(at.path().join("base").is_dir());
//! mount.unmount()?;
//! assert!(!at.path().join("base").exists());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants
//! - Whoever reads damaged bytes gets an error, never zeros and never a short file. The damage is
//!   reported once, and everything else can be read.
//! - The kernel may keep whatever it was given, because an image never changes, and an overlay
//!   changes only through its mount.
//! - This crate follows no links. It looks up names one by one, and only in the view.
//! - This crate never knows a database, and never prints.

mod apart;
mod attributes;
mod counters;
mod damage;
mod end;
mod error;
mod filesystem;
mod kernel_ahead;
mod listings;
mod mount;
mod read_ahead;
mod served;
mod unmount;

pub use apart::apart;
pub use counters::MountStatistics;
pub use damage::DamageHook;
pub use error::MountError;
pub use mount::{Mount, MountOptions};
pub use unmount::{Unmounted, detach};

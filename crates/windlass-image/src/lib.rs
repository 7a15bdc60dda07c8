//! Images: a database as of one moment, readable at any offset of any of its files.
//!
//!   media set ------> SetImage -------+                +--> compare
//!   directory ------> DirectoryImage -+--> [Image] ----+--> extract
//!   overlay --------> ViewImage ------+                +--> backup (ImageSource)
//!                                                      +--> mount, open (the crates above)
//!
//! Whatever is an image can be compared, extracted, backed up, mounted or opened; nobody writes
//! that twice.
//!
//! What differs between a set and a directory:
//!
//! ```
//! use windlass_image::{CompareOptions, DirectoryImage, SetImage, SetImageOptions, compare};
//!
//! # use windlass_testkit::sets::{Planted, make_set, open_set, two_stripes};
//! # let (backup, place) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # make_set(&[Planted::file("note", b"as it was".to_vec())], backup.path(), &two_stripes());
//! # let set = open_set(backup.path());
//! # let root = place.path();
//! std::os::unix::fs::symlink("elsewhere", root.join("new"))?;
//! let then = SetImage::open(set, &SetImageOptions::default())?;
//! let now = DirectoryImage::open(root)?;
//! let differences = compare(&then, &now, &CompareOptions::default())?;
//! assert_eq!(differences.only_first, [b"note"]);
//! assert_eq!(differences.only_second, [b"new"]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants
//! - An image never changes while it is open, and reading it never writes.
//! - No byte of a set is given to a reader before its checksum was right. Damage is an error for
//!   the bytes that are damaged, never for others, and never a wrong answer.
//! - Memory is bounded: two caches with stated capacities, and one frame for each reader.
//! - This crate never knows a device or a database.

mod compare;
mod directory;
mod edited;
mod error;
mod extract;
mod image;
mod overlay;
mod set;
mod source;
mod store;
mod view;

pub use compare::{CompareOptions, Differences, FileDifference, RANGES_MAX, compare};
pub use directory::DirectoryImage;
pub use edited::{EditedImage, Patch};
pub use error::ImageError;
pub use extract::{
    EXTRACT_FLUSH_BYTES, EXTRACT_GROUP_BYTES, ExtractReport, Patterns, extract, extract_files,
};
pub use image::{Checksummed, Image};
pub use overlay::{Overlay, OverlayStatistics};
pub use set::{
    FRAME_CACHE_BYTES_DEFAULT, INDEX_CACHE_BYTES_DEFAULT, ImageStatistics, SetImage,
    SetImageOptions,
};
pub use source::ImageSource;
pub use store::{PageOwner, PageStore, Slot, StoreError, Writing};
pub use view::{Attributes, Change, Creation, ImageView, Listed, NodeNo, Space, View, ViewImage};
pub use windlass_layout as layout;

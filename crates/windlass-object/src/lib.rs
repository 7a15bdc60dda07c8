//! Buckets as devices and as places: S3, Google Cloud Storage, Azure Blob Storage.
//!
//!   backup   buffers --> ObjectDevice --> parts | seal | name
//!   restore  Buckets (a `Storage`) --> name --> ranges of the data
//!   log      Buckets (`Objects`) --> whole objects, or ranges of them
//!
//! Invariants
//! - No asynchronous code leaves this crate. Its threads run requests only.
//! - A set exists only when the seals of all its stripes are there. Nothing of it is ever replaced.
//! - A secret never stands in an error, in a log or in a set.

mod bytes;
mod cleanup;
mod client;
mod clock;
mod device;
mod document;
mod error;
mod gathered;
mod layout;
mod list;
mod location;
mod marker;
mod measure;
mod objects;
mod probe;
mod reading;
mod removal;
mod request;
mod settings;
mod storage;
mod upload;
mod webhook;

pub use cleanup::FOREIGN_WRITER_LIVES;
pub use clock::Spent;
pub use device::{ObjectDevice, ObjectStripe};
pub use error::{Fault, ObjectError, Removal};
pub use location::{Location, Service, is_in_bucket, is_stripe_name};
pub use measure::{MeasureKind, MeasurePlan, Measured};
pub use probe::Probed;
pub use reading::{RECEIVER, is_of_same_log};
pub use settings::{
    BucketSettings, ObjectSettings, PART_BYTES_DEFAULT, PART_BYTES_MAX, PART_BYTES_MIN,
    PARTS_IN_FLIGHT, PARTS_MAX, part_bytes_for,
};
pub use storage::Buckets;
pub use webhook::{Webhook, WebhookError};

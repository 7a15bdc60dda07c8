//! The engine: pool, pipeline, waits, devices, rate limits; backup and restore of media sets.
//!
//!   source --> readers --> [full] --> compressors --> [chunks] --> writers --> devices
//!                 ^                                                   |
//!                 +------------------ buffer pool <-------------------+
//!
//! Is a set sound?
//!
//! ```
//! use std::sync::Arc;
//! use windlass_engine::{
//!     BufferRequest, Cancel, Files, METADATA_LIMIT_DEFAULT, RestoreOptions, Survey,
//! };
//!
//! # use windlass_testkit::sets::{Planted, make_set, two_stripes};
//! # let place = tempfile::tempdir()?;
//! # make_set(&[Planted::file("base/1", vec![7; 50_000])], place.path(), &two_stripes());
//! # let stripe = place.path().join("set.0.windlass");
//! // One stripe is enough: the other one is found beside it.
//! let survey = Survey::of(&Files, &[stripe], METADATA_LIMIT_DEFAULT)?;
//! let plan = BufferRequest::default().plan(2, 1)?;
//! let options = RestoreOptions { plan, device_rate: None, ring: true, pacing: None };
//! let options = options.fit(survey.set())?;
//! let found = windlass_engine::verify(&survey, &options, &Arc::default(), &Cancel::new())?;
//! assert_eq!(found.damage.damage_count, 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants
//! - The engine never knows a database: it is given files, and a hook for their pages.
//! - The engine never prints, and never runs async code.
//! - Every blocking call is timed under its cause (`waits`); the verdict is made of that.

mod activity;
mod adaptive;
mod backup;
mod bounded;
mod buffer;
mod cancel;
mod check;
mod cleanup;
mod device;
mod direct;
pub mod durable;
mod error;
mod events;
mod free;
mod growth;
mod json;
mod keys;
mod live;
mod mismatch;
mod objects;
mod options;
mod outputs;
mod pace;
mod parity_file;
mod place;
mod process;
mod progress;
mod rate;
mod read;
mod repair_set;
mod report;
mod resource;
mod restore;
mod ring;
mod set;
mod setting;
mod shared;
mod slice;
mod storage;
mod stripe_name;
mod sync;
mod target;
mod units;
mod verdict;
mod waits;

pub use windlass_media as media;

pub use adaptive::{CodecChange, CodecRange, CodecUse, CompressionReport, Controller, Observation};
pub use backup::{
    BackupRun, Encoded, FileClasses, FileContent, FileOutcome, FileSpec, FrameEncoder, Missing,
    PageClass, PageCounts, PageHook, Pages, Stopper,
};
pub use bounded::{
    open_own, open_regular, read_at_most, read_regular_at_most, read_stream_at_most,
};
pub use buffer::{Buffer, Occupancy, Pool, Role, inputs_max, read_depth};
pub use cancel::Cancel;
pub use check::{
    ByteRange, DAMAGE_LISTED_MAX, Damage, DamageReport, DamagedPart, FileRange, LOST_LISTED_MAX,
    LockedSet, LostFile, Survey, Verification, check_locked, check_locked_parity, verify,
    verify_index,
};
pub use cleanup::{CleanedUp, clean_up, clean_up_within};
pub use device::{
    Device, DeviceLayer, FileDevice, FileDeviceOptions, LayeredDevice, NulDevice, WriteDone,
};
pub use direct::DirectFile;
pub use error::{DeviceOperation, EngineError, FILE_SIZE_LIMIT, locked_words, place_hint_for_all};
pub use events::{
    EVENT_BYTES_DEFAULT, EVENT_BYTES_MIN, EventFormat, EventHeader, EventLog, EventOptions,
    EventSummary,
};
pub use free::{free_bytes, free_bytes_beside};
pub use json::to_json;
pub use keys::{KeyFault, Keys, NoKeys};
pub use live::{Live, LiveDevice, LiveLimit, Meter};
pub use mismatch::Mismatch;
pub use objects::{Directory, ListedObject, Listing, Naming, NewObject, Objects, Reading};
pub use options::{
    BackupOptions, BufferPlan, BufferRequest, DEVICE_DEPTH, Encryption, FRAME_BYTES_DEFAULT,
    MEMORY_LIMIT_DEFAULT, TRANSFER_BYTES_DEFAULT, TRANSFER_BYTES_MAX, TRANSFER_BYTES_MIN,
    default_buffer_count, target_writers,
};
pub use outputs::{Guard, OutputKind, Outputs, is_same_output};
pub use pace::{Pace, PacedIo, Paces, Pacing};
pub use place::{
    SetAbout, SetEntry, SetList, SetParity, SetState, StripeEntry, UnknownStripe, list_sets,
};
pub use process::{address_space_has, address_space_left, hostname, without_core_files};
pub use progress::Progress;
pub use rate::RateLimit;
pub use read::{cached_pages, read_uncached};
pub use repair_set::{RepairedDevice, RepairedSet, repair_set};
pub use report::{DeviceReport, PagesReport, RunReport};
pub use resource::{Resource, StageName};
pub use restore::{FittedOptions, RestoreOptions, restore};
pub use ring::{Ring, RingDone};
pub use set::{
    Ancestor, AskedLayers, Beside, FoundSet, Lineage, LostDevice, METADATA_LIMIT_DEFAULT,
    MarkedRemoval, Mends, OpenSet, OpenStripe, Rebuilder, RebuiltPart, Removal, StripeGlance,
    UpperLayers, UpperRange, glance, glance_parities, hide, hold_path, is_removed, key_file_of,
    key_of_set, set_of_stripe, show,
};
pub use setting::{Setting, SettingFault};
pub use storage::{Files, Going, Keep, Kept, Keyed, Lies, NotRemoved, PlaceFile, ReadAt, Storage};
pub use stripe_name::{PARTIAL_SUFFIX, STRIPE_SUFFIX, partial_path};
pub use target::{Changed, DirectoryTarget, Discard, Existing, Target, TargetLayout};
pub use units::{
    UnitError, counted, parse_amount, parse_rate, parse_rate_limit, parse_seconds, parse_size,
    show_bytes, show_number, show_rate, show_size,
};
pub use verdict::{Limit, NextLimit, ResourceUse};
pub use waits::{Cause, Stage, StageReport, WaitReport};

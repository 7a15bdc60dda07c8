//! Errors in the words of the command line: the option that a setting belongs to, and what to type
//! next.
//!
//! The libraries say what is wrong and what can be done about it whoever asks. They know no
//! options and no commands. What needs one is said here, and nowhere else.

mod buckets;
pub mod checks;
mod databases;
pub mod denied;
mod drill;
mod engine;
mod experiments;
pub mod history;
mod images;
mod keys;
mod lab;
mod log;
pub mod metrics;
pub mod operation;
pub mod places;
mod plan;
mod repair;
mod restore;
mod schedule;
mod snapshots;

pub use databases::{postgres, sqlite};
pub use engine::{DAMAGED, hint as engine, message as engine_message};
pub use images::{image, mount};
pub use lab::{hint as lab, message as lab_message};
pub use log::{hint as log, recovery};
pub use snapshots::hint as snapshot;

use windlass_engine::Setting;

/// What follows if a database is damaged, and every byte of its set is right.
pub const OF_SOURCE: &str = "The set is what was backed up: the damage was in the source.";

/// What to do about a value that an option does not take.
pub const OPTION_VALUES: &str = "The command's --help says which values each option takes.";

/// The option that a setting belongs to.
pub fn option(setting: Setting) -> &'static str {
    match setting {
        Setting::Devices => "--to",
        Setting::Buffers => "--buffers",
        Setting::TransferSize => "--transfer-size",
        Setting::BlockSize => "--block-size",
        Setting::FrameSize => "--frame-size",
        Setting::Compressors => "--threads",
        Setting::Readers => "--readers",
        Setting::MemoryLimit => "--max-memory",
        Setting::SourceRate => "--max-rate",
        Setting::DeviceRate => "--max-device-rate",
        Setting::EventsLimit => "--events-limit",
        _ => "an option",
    }
}

//! Parts of the messages of errors, and of what can be done about them.

use std::io;

use windlass_media::{FormatError, SetId};

use super::{DeviceOperation, EngineError};
use crate::keys::KeyFault;

/// What to do if a file may not become larger.
pub const FILE_SIZE_LIMIT: &str = "Raise the limit on the size of a file (`ulimit -f unlimited`, \
    LimitFSIZE= of a systemd unit), or name a place whose file system takes files of this size.";

/// What to do about a place that refuses even root.
const IMMUTABLE: &str = "The directory or file may be immutable or append-only: `lsattr -d` shows \
    it, and `chattr -i` or `chattr -a` ends it. Or name another place.";

/// Whether it is a refusal that no user can avoid, as that of an immutable directory.
fn is_for_all(fault: &io::Error) -> bool {
    fault.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
}

/// What to do about a place where nothing can be written, whoever tries.
pub fn place_hint_for_all(fault: &io::Error) -> Option<&'static str> {
    let is_of_place = matches!(
        fault.kind(),
        io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
    );
    (is_of_place || is_for_all(fault))
        .then(|| place_hint(fault))
        .flatten()
}

/// What to do about a place where nothing can be written.
fn place_hint(fault: &io::Error) -> Option<&'static str> {
    Some(match fault.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "The file system is mounted read-only: name a place on another one, or mount it again \
             with `mount -o remount,rw`."
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "Name a path whose directory exists, or make the directory first."
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free space there, or name a place on another file system."
        }
        io::ErrorKind::FileTooLarge => FILE_SIZE_LIMIT,
        _ if is_for_all(fault) => IMMUTABLE,
        _ => return None,
    })
}

/// The most stripes that a message lists.
const STRIPES_LISTED_MAX: usize = 12;

/// Which stripe is of which set, one line each.
pub(super) fn mixed_words(stripes: &[(String, SetId)]) -> String {
    let listed = stripes.iter().take(STRIPES_LISTED_MAX);
    let mut text: String = listed
        .map(|(location, set)| format!("\n  {location} is of set {set}"))
        .collect();
    let more = stripes.len().saturating_sub(STRIPES_LISTED_MAX);
    if more > 0 {
        text += &format!("\n  and {more} more");
    }
    text
}

/// What to do about a file that is no stripe. Which other sets there are, the engine does not know.
pub(super) fn damage_hint(source: &FormatError, offset: u64) -> Option<&'static str> {
    let is_none = offset == 0 && matches!(source, FormatError::Magic(_));
    is_none.then_some(
        "Name a stripe of a set, or the directory that holds its stripes. If this file was a \
         stripe, its beginning was overwritten.",
    )
}

/// Says what failed on a device. Only reading and writing happen at an offset.
pub(super) fn device_words(
    operation: DeviceOperation,
    device: &str,
    offset: u64,
    source: &io::Error,
) -> String {
    match operation {
        DeviceOperation::Create if source.kind() == io::ErrorKind::AlreadyExists => {
            format!("create {device}: a file of this name is already there")
        }
        DeviceOperation::Create if source.kind() == io::ErrorKind::WouldBlock => {
            format!("create {device}: another run is writing a backup with this name")
        }
        DeviceOperation::Publish if source.kind() == io::ErrorKind::AlreadyExists => {
            format!("cannot name {device}: a file of this name appeared during the backup")
        }
        DeviceOperation::Settle => {
            format!("{device} has its name, but not for sure, or the old one remains: {source}")
        }
        DeviceOperation::Read | DeviceOperation::Write => {
            format!("{operation} device {device} at offset {offset}: {source}")
        }
        _ => format!("{operation} device {device}: {source}"),
    }
}

/// Why a set does not open, and who can open it.
pub fn locked_words(fault: &KeyFault, recipients: &[String]) -> String {
    let who = recipients.join(", ");
    match fault {
        KeyFault::NoKey => format!("no key was given; it can be read by {who}"),
        KeyFault::WrongKey => {
            format!("none of the keys that were given opens it; it can be read by {who}")
        }
        KeyFault::Failed(why) => format!("{why}; it can be read by {who}"),
    }
}

impl EngineError {
    /// What can be done when the system refused a call.
    pub(super) fn hint_of_io(&self) -> Option<&'static str> {
        Some(match self {
            Self::DeviceIo { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Free space on the device, or add another device."
            }
            Self::TargetIo { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Free space there and remove what was written, or restore somewhere else."
            }
            Self::OutputIo { source, .. } | Self::EventFile { source, .. }
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                "Free space there, or name another place."
            }
            Self::DeviceIo {
                operation, source, ..
            } if device_hint(*operation, source).is_some() => {
                return device_hint(*operation, source);
            }
            Self::DeviceIo { source, .. }
            | Self::TargetIo { source, .. }
            | Self::EventFile { source, .. }
            | Self::OutputIo { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied && !is_for_all(source) =>
            {
                "Windlass runs as the owner of the database; let that user write there."
            }
            Self::DeviceIo { source, .. }
            | Self::TargetIo { source, .. }
            | Self::EventFile { source, .. }
            | Self::OutputIo { source, .. } => return place_hint(source),
            _ => return None,
        })
    }
}

/// What to do when this operation on a stripe fails in this way, if that needs words of its own.
fn device_hint(operation: DeviceOperation, source: &io::Error) -> Option<&'static str> {
    Some(match (operation, source.kind()) {
        (DeviceOperation::Publish, io::ErrorKind::AlreadyExists) => {
            "The stripe is sealed and is called NAME.partial. Move the other file away, and rename \
             the stripe to NAME."
        }
        (DeviceOperation::Publish, _) => {
            "All stripes are sealed, so the set is complete. A stripe that did not get its name is \
             still called NAME.partial. Name the directories of the stripes to use the set. The \
             next backup there gives the stripe its name, if the directory lets it."
        }
        (DeviceOperation::Settle, _) => {
            "All stripes are sealed, so the set is complete, and it can be used. If NAME.partial \
             is there too, remove it: it is the same file."
        }
        (DeviceOperation::Read, io::ErrorKind::InvalidInput) => {
            "A set is read from regular files. Name a stripe of it, or the directory that holds \
             its stripes."
        }
        (DeviceOperation::Create, io::ErrorKind::AlreadyExists) => {
            "Choose another name, or name a directory."
        }
        (DeviceOperation::Create, io::ErrorKind::WouldBlock) => {
            "Wait for that backup, or choose another name."
        }
        (DeviceOperation::Read, io::ErrorKind::PermissionDenied) => {
            "Let this user read it, or run as the user who owns it."
        }
        _ => return None,
    })
}

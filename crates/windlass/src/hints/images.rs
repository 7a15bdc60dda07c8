//! The errors of images and mounts.

use std::io::ErrorKind;

use windlass_engine::place_hint_for_all;
use windlass_image::ImageError;
use windlass_mount::MountError;

use crate::words::quoted;

/// What to do about an image.
pub fn image(error: &ImageError) -> Option<String> {
    let text = match error {
        ImageError::Read { source, .. } | ImageError::Engine(source) => {
            return super::engine(source);
        }
        ImageError::Missing { .. } | ImageError::FileChecksum { .. } => {
            "Run `windlass verify` on the set to see all damage."
        }
        ImageError::Extract { source, .. } => match source.kind() {
            ErrorKind::AlreadyExists => {
                "Windlass overwrites no files. Name a new directory with --into."
            }
            ErrorKind::StorageFull => {
                "Free space there, or name another directory with --into. What was extracted \
                 completely is there already: remove it before the next try, because Windlass \
                 overwrites no files."
            }
            // What even root may not do has a hint of its own.
            ErrorKind::PermissionDenied if place_hint_for_all(source).is_none() => {
                "If root starts it, Windlass becomes the owner of the directory that exists: let \
                 that user write there, or name another directory with --into."
            }
            _ => return place_hint_for_all(source).map(str::to_owned),
        },
        error => return error.hint(),
    };
    Some(text.to_owned())
}

/// What to do about a mount.
pub fn mount(error: &MountError) -> Option<String> {
    let own = error.hint();
    match error {
        MountError::NoDevice | MountError::Device { .. } | MountError::NoHelper => {
            let own = own.unwrap_or_default().trim_end_matches('.');
            let without = "`windlass extract` and `windlass restore` need no FUSE.";
            Some(format!("{own}; {without}"))
        }
        MountError::Taken { at } => {
            let at = quoted(&at.display().to_string());
            let text = format!("Type fusermount3 -u {at}, or name another directory.");
            Some(text)
        }
        MountError::AddressSpace { .. } => {
            let text = "Raise the limit (ulimit -v, LimitAS= of a systemd unit), or take less with \
                        --cache, and for `windlass mount` with --threads.";
            Some(text.to_owned())
        }
        MountError::NotForOthers { .. } => {
            let text =
                "Write user_allow_other into /etc/fuse.conf, or mount without --allow-other.";
            Some(text.to_owned())
        }
        _ => own.map(str::to_owned),
    }
}

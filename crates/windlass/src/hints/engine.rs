//! The errors of the engine.

use std::io::ErrorKind;

use windlass_engine::media::FormatError;
use windlass_engine::{DeviceOperation, EngineError, KeyFault, Setting, SettingFault, StageName};

use super::{OPTION_VALUES, buckets, option};

/// What to do when a set is damaged, as far as it does not depend on which other sets there are.
pub const DAMAGED: &str = "`windlass verify SET` lists what is lost in this set, and `windlass \
    info PLACE` the sets of a directory.";

/// What went wrong.
pub fn message(error: &EngineError) -> String {
    match error {
        EngineError::Setting { setting, fault } => {
            format!("{}: {}", option(*setting), fault_words(*setting, fault))
        }
        // It says itself what was done with which object.
        EngineError::DeviceIo { source, .. } if buckets::of_io(source).is_some() => {
            source.to_string()
        }
        error => error.to_string(),
    }
}

fn fault_words(setting: Setting, fault: &SettingFault) -> String {
    let near: Vec<String> = fault.near().into_iter().map(typed).collect();
    match fault {
        SettingFault::NoDevice | SettingFault::DevicesMixed => {
            "name one or more devices, and `nul` only with other `nul`s".to_owned()
        }
        SettingFault::TooMany { asked, most } if setting == Setting::Devices => {
            format!("{asked} devices are more than {most}")
        }
        SettingFault::FrameOfTransfer {
            most_bytes,
            needed_bytes,
            ..
        } => {
            let transfer = option(Setting::TransferSize);
            let or = |needed| format!(", or {transfer} {}", typed(needed));
            let needed = needed_bytes.map_or_else(String::new, or);
            format!("{fault}: write {} at most{needed}", typed(*most_bytes))
        }
        _ if near.is_empty() => fault.to_string(),
        _ => format!("{fault}: write {}", near.join(" or ")),
    }
}

/// A size as it is typed on the command line: `512KiB`.
fn typed(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 4096 => bytes.to_string(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes => format!("{}KiB", bytes >> 10),
    }
}

/// What to do about it.
pub fn hint(error: &EngineError) -> Option<String> {
    let text = match error {
        EngineError::Setting { .. } => OPTION_VALUES,
        EngineError::SetRemoved { .. } => {
            "Take another set. `windlass info` lists those that are there."
        }
        EngineError::MemoryLimit { .. } => {
            "Lower --buffers or --transfer-size, or raise --max-memory."
        }
        EngineError::PagesMemory { needed_bytes, .. } => {
            return Some(format!(
                "Pass --max-memory {needed_bytes}, or fewer --threads, or --pages off."
            ));
        }
        EngineError::ParityMemory { needed_bytes, .. } => {
            return Some(format!(
                "Pass --max-memory {needed_bytes}, or fewer --buffers, or a smaller --transfer-size."
            ));
        }
        EngineError::FramesTooLarge { needed_bytes, .. } => {
            return Some(format!(
                "Pass --max-memory {needed_bytes}, or fewer --buffers (2 are enough)."
            ));
        }
        EngineError::Thread { stage, .. } => return thread_hint(*stage).or(error.hint()),
        EngineError::NoDatabase { .. } => {
            "Use a newer version of Windlass. `windlass info` says what is in the set."
        }
        EngineError::Locked {
            fault: KeyFault::NoKey,
            ..
        } => {
            "Name the key: --key identity-file:PATH, --key passphrase-file:PATH, or --key \
             command:PROGRAM, which prints one. Or set WINDLASS_KEY."
        }
        EngineError::Locked { .. } => "`windlass key list` shows who can read each set.",
        EngineError::BaseMissing { .. } => {
            "Name the directory of the base after the set, or copy the base back to where it was."
        }
        EngineError::DeviceIo { source, .. } if buckets::of_io(source).is_some() => {
            buckets::hint(buckets::of_io(source)?)
        }
        EngineError::DeviceIo {
            operation, source, ..
        } if device_hint(*operation, source.kind()).is_some() => {
            device_hint(*operation, source.kind())?
        }
        EngineError::Damage {
            source: FormatError::Magic(_),
            offset: 0,
            ..
        } => return error.hint(),
        EngineError::Damage { .. } | EngineError::Incomplete { .. } => DAMAGED,
        error => return error.hint(),
    };
    Some(text.to_owned())
}

fn device_hint(operation: DeviceOperation, kind: ErrorKind) -> Option<&'static str> {
    Some(match (operation, kind) {
        (DeviceOperation::Create, ErrorKind::AlreadyExists) => {
            "Choose another name, name a directory, or pass --overwrite."
        }
        (DeviceOperation::Create, ErrorKind::WouldBlock) => {
            "Wait for that backup (`windlass status` shows it), or choose another name."
        }
        (_, ErrorKind::StorageFull) => {
            "Free space on the device, or add a device with another --to."
        }
        _ => return None,
    })
}

fn thread_hint(stage: StageName) -> Option<String> {
    let setting = match stage {
        StageName::Reader => Setting::Readers,
        StageName::Compressor | StageName::Decompressor => Setting::Compressors,
        _ => return None,
    };
    let option = option(setting);
    Some(format!(
        "Lower {option}, or raise the limit of this user on processes (ulimit -u, TasksMax of a \
         systemd unit) or on memory (ulimit -v)."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_engine::BufferRequest;

    #[test]
    fn a_size_that_does_not_fit_is_refused_with_what_to_type() {
        let says = |request: BufferRequest| message(&request.plan(1, 1).unwrap_err());
        let frame = |bytes| BufferRequest {
            frame_bytes: Some(bytes),
            ..Default::default()
        };
        let near = "--frame-size: 300000 is not a power of two from 4 KiB to 2 MiB: write 256KiB \
                    or 512KiB";
        assert_eq!(says(frame(300_000)), near);
        assert!(says(frame(3 << 20)).ends_with("write 2MiB"));
        let large = "--frame-size: a frame of 1 MiB is more than half a transfer of 1 MiB: write \
                     512KiB at most, or --transfer-size 2MiB";
        assert_eq!(says(frame(1 << 20)), large);
        assert!(says(frame(8 << 20)).ends_with("write 512KiB at most"));
        let block = BufferRequest {
            alignment: Some(1000),
            ..Default::default()
        };
        let near =
            "--block-size: 1000 is not a power of two from 512 B to 64 KiB: write 512 or 1024";
        assert_eq!(says(block), near);
        let buffers = BufferRequest {
            buffers: Some(1),
            ..Default::default()
        };
        let few = "--buffers: 1 is too few: a reader and a writer need one each";
        assert_eq!(says(buffers), few);
    }
}

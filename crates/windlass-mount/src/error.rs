//! Why an image cannot be mounted or unmounted.

use std::io;
use std::path::PathBuf;

use windlass_engine::show_size;

/// Why a mount fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE, or this machine is not given the device.
    #[error("there is no /dev/fuse: this system has no FUSE")]
    NoDevice,
    /// The device is there, but not for this user.
    #[error("open /dev/fuse: {source}")]
    Device {
        /// What the system said.
        source: io::Error,
    },
    /// An ordinary user needs the helper program, and it is not installed.
    #[error("there is no fusermount3 on the PATH, and only root can mount without it")]
    NoHelper,
    /// The directory to mount on cannot be used.
    #[error("mount on {at}: {what}")]
    Place {
        /// The directory.
        at: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another tree is mounted on the directory already.
    #[error("mount on {at}: something is mounted there already")]
    Taken {
        /// The directory.
        at: PathBuf,
    },
    /// Other users should see the tree, and the system does not let this user allow that.
    #[error("mount on {at}: this system does not let you show a mount to other users")]
    NotForOthers {
        /// The directory.
        at: PathBuf,
    },
    /// The tree should belong to another user.
    #[error("mount on {at}: only root can mount for another user")]
    NotForOwner {
        /// The directory.
        at: PathBuf,
    },
    /// The system refused the mount.
    #[error("mount on {at}: {source}")]
    Mount {
        /// The directory.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The limit on the address space leaves too little.
    #[error(
        "a mount may need {} of address space, and the limit of this process leaves {}",
        show_size(*needed_bytes), show_size(*left_bytes)
    )]
    AddressSpace {
        /// What it may need.
        needed_bytes: u64,
        /// What is left.
        left_bytes: u64,
    },
    /// Serving the mount failed, or ended too early.
    #[error("serve {at}: {source}")]
    Serve {
        /// The directory.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The tree cannot be unmounted.
    #[error("unmount {at}: {what}")]
    Unmount {
        /// The directory.
        at: PathBuf,
        /// What the system said.
        what: String,
    },
}

impl MountError {
    /// What can be done about it, as a full sentence.
    pub fn hint(&self) -> Option<&'static str> {
        let text = match self {
            Self::NoDevice => "Load FUSE with `modprobe fuse`, or give /dev/fuse to the container.",
            Self::Device { .. } => "Run as root, or let users open it with `chmod 0666 /dev/fuse`.",
            Self::NoHelper => "Install it with `apt install fuse3`.",
            Self::Place { .. } => "Name an empty directory that is yours.",
            Self::AddressSpace { .. } => {
                "Raise the limit (ulimit -v, LimitAS= of a systemd unit), or use a smaller cache."
            }
            Self::Taken { .. } => {
                "Unmount that first with `fusermount3 -u`, or name another directory."
            }
            Self::NotForOthers { .. } => {
                "Write user_allow_other into /etc/fuse.conf, or mount for the own user alone."
            }
            Self::NotForOwner { .. } => "Run as root, or as the user who will own the files.",
            Self::Unmount { .. } => "End the programs that use it. `fuser -m` lists them.",
            _ => return None,
        };
        Some(text)
    }
}

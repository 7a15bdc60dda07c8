//! Unmounting: with the system call as root, through fusermount3 as any other user.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::MountError;

/// How often to try again: programs that have just ended may hold files a moment longer.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// How an unmount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used the mount, and it is gone.
    Gone,
    /// The mount is in use. It has no path any more, and ends when the last file is closed.
    Detached,
}

enum Answer {
    Done,
    Busy,
    NotMounted,
}

/// Unmounts. If the mount is in use and stays so, detaches it from the tree of directories.
pub(crate) fn unmount(at: &Path) -> Result<Unmounted, MountError> {
    for _ in 0..BUSY_RETRIES {
        match ask(at, false)? {
            Answer::Done => return Ok(Unmounted::Gone),
            // Somebody else took it away. That may have been a lazy unmount, so it may still be in
            // use.
            Answer::NotMounted => return Ok(Unmounted::Detached),
            Answer::Busy => std::thread::sleep(BUSY_PAUSE),
        }
    }
    detach(at)
}

/// Detaches a mount from the tree of directories, in use or not. Its server may be dead.
pub fn detach(at: &Path) -> Result<Unmounted, MountError> {
    match ask(at, true)? {
        Answer::Done | Answer::NotMounted => Ok(Unmounted::Detached),
        Answer::Busy => Err(MountError::Unmount {
            at: at.to_owned(),
            what: Errno::BUSY.to_string(),
        }),
    }
}

fn ask(at: &Path, lazily: bool) -> Result<Answer, MountError> {
    let flags = if lazily {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    // If a link has taken the place of the directory, the call must not follow it to another mount.
    match rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Answer::Done),
        Err(Errno::BUSY) => Ok(Answer::Busy),
        Err(Errno::INVAL | Errno::NOENT) => Ok(Answer::NotMounted),
        Err(Errno::PERM) => ask_helper(at, lazily),
        Err(errno) => Err(fault(at, errno.to_string())),
    }
}

fn ask_helper(at: &Path, lazily: bool) -> Result<Answer, MountError> {
    let helper = helper().ok_or(MountError::NoHelper)?;
    let mut command = Command::new(helper);
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    // The code below looks for words in its message, so the message must always be in one language.
    command
        .arg("--")
        .arg(at)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| fault(at, error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.trim() {
        _ if output.status.success() => Ok(Answer::Done),
        said if said.contains("busy") => Ok(Answer::Busy),
        said if said.contains("not found") || said.contains("not mounted") => {
            Ok(Answer::NotMounted)
        }
        said => Err(fault(at, said.to_owned())),
    }
}

fn fault(at: &Path, what: String) -> MountError {
    let at = at.to_owned();
    MountError::Unmount { at, what }
}

/// The program that mounts and unmounts for ordinary users.
pub(crate) fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin", "/bin"].map(PathBuf::from));
    let helpers = places
        .flat_map(|place| ["fusermount3", "fusermount"].map(|name| place.join(OsStr::new(name))));
    helpers.into_iter().find(|helper| helper.is_file())
}

/// True for a mount whose server is dead: nothing in it can be reached, and it blocks the
/// directory. Its attributes prove nothing, because the kernel goes on showing those that it has.
pub(crate) fn is_dead(at: &Path) -> bool {
    let answer = std::fs::read_dir(at).map_err(|error| error.raw_os_error());
    answer.err().flatten() == Some(Errno::NOTCONN.raw_os_error())
}

/// Opens the FUSE device in the same way as the mount will.
pub(crate) fn check_device() -> Result<(), MountError> {
    let opened = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    match opened {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountError::NoDevice),
        // The device file exists, but there is no driver behind it.
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
            Err(MountError::NoDevice)
        }
        Err(source) => Err(MountError::Device { source }),
    }
}

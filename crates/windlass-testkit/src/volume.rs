//! File systems of their own, in a file that is mounted through a loop device.
//!
//! Cloning files depends on the file system, so the tests bring their own. Mounting needs root:
//! whoever is not, needs a `sudo` that does not ask.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::starting;

/// How long processes may take to end that have files open on a volume, or a copy of its mount.
const ENDING_MAX: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);

/// A file system in a file, mounted until this value is dropped.
#[derive(Debug)]
pub struct Volume {
    at: PathBuf,
    /// The loop device. It stays the same through power cuts, as a disk does.
    device: String,
    _place: tempfile::TempDir,
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Clones files.
    Xfs,
    /// Clones files.
    Btrfs,
    /// Does not clone files.
    Ext4,
}

impl VolumeKind {
    /// Makes the file system (Debian: xfsprogs, btrfs-progs, e2fsprogs).
    fn format(self, image: &Path) {
        let (program, words): (_, &[&str]) = match self {
            Self::Xfs => ("mkfs.xfs", &["-q", "-m", "reflink=1"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q"]),
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F"]),
        };
        run(Command::new(program).args(words).arg(image));
    }
}

impl Volume {
    /// Makes and mounts a file system of this many MiB, to which everybody may write.
    pub fn new(kind: VolumeKind, mebibytes: u64) -> Self {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory for the volume");
        open_to_all(place.path());
        let (image, at) = (place.path().join("image"), place.path().join("at"));
        let file = std::fs::File::create(&image).expect("create the image");
        file.set_len(mebibytes << 20).expect("set its length");
        kind.format(&image);
        std::fs::create_dir(&at).expect("create the mount point");
        let find = ["--find", "--show"];
        let device = run(as_root("losetup").args(find).arg(&image));
        let volume = Self {
            at,
            device: device.trim().to_owned(),
            _place: place,
        };
        volume.mount();
        run(as_root("chmod").arg("0777").arg(&volume.at));
        volume
    }

    /// Cuts the power of an XFS volume, and mounts it again: what nobody had synced is gone. Nobody
    /// may have a file open there.
    pub fn cut_power(&self) {
        self.power_off();
        self.power_on();
    }

    /// Cuts the power of an XFS volume: nothing can be read or written from now on.
    pub fn power_off(&self) {
        run(as_root("xfs_io")
            .args(["-x", "-c", "shutdown"])
            .arg(&self.at));
    }

    /// Mounts it again after a power cut. Nobody may have a file open there but processes that are
    /// ending: their end is waited for.
    pub fn power_on(&self) {
        let mut umount = as_root("umount");
        umount.arg(&self.at);
        let until = Instant::now() + ENDING_MAX;
        loop {
            let output = starting::output(&mut umount).expect("run umount");
            if output.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(Instant::now() < until, "{umount:?}: {said}");
            std::thread::sleep(POLL);
        }
        // A mount namespace that another test has made has a copy of the mount. As long as that is
        // there, the kernel would mount the same again: a file system without power.
        while self.is_mounted_anywhere() {
            assert!(Instant::now() < until, "{} stays mounted", self.device);
            std::thread::sleep(POLL);
        }
        self.mount();
    }

    /// Whether an XFS volume is mounted, in whatever namespace.
    fn is_mounted_anywhere(&self) -> bool {
        let name = self.device.trim_start_matches("/dev/");
        Path::new("/sys/fs/xfs").join(name).exists()
    }

    fn mount(&self) {
        run(as_root("mount").arg(&self.device).arg(&self.at));
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.at
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A failed test may have files open here. Then the mount goes when these are closed.
        starting::run(as_root("umount").arg("--lazy").arg(&self.at)).ok();
        let detach = ["--detach", &self.device];
        starting::run(as_root("losetup").args(detach)).ok();
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("open the directory to all");
}

fn as_root(program: &str) -> Command {
    if geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", program]);
    command
}

fn run(command: &mut Command) -> String {
    let output = starting::output(command);
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

//! Servers with the hook, and where the library is.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_layout::hook::{CONTROL_DIRECTORY, FileKey};
use windlass_testkit::installed::library;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

/// Long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until it is so.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that loads the hook, and the directory that holds its copy of the library.
pub struct Hooked {
    pub server: PrivateCluster,
    _library: TempDir,
}

impl Hooked {
    pub fn start(bin: &Path, settings: &[&str]) -> Self {
        become_server_user();
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("windlass.so");
        std::fs::copy(library(), &copy).unwrap();
        let mut options = ClusterOptions {
            bin: bin.into(),
            ..ClusterOptions::default()
        };
        let preload = format!("shared_preload_libraries = '{}'", copy.display());
        options = options.setting(preload);
        for setting in settings {
            options = options.setting(*setting);
        }
        Self {
            server: PrivateCluster::start(&options),
            _library: place,
        }
    }

    /// The file with the shared memory.
    pub fn memory(&self) -> PathBuf {
        let found = std::fs::metadata(self.server.data()).unwrap();
        let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
        let name = FileKey::new(major, minor, found.ino()).control_name();
        Path::new(CONTROL_DIRECTORY).join(std::str::from_utf8(&name).unwrap())
    }

    /// The server's processes. Some of them may just be ending.
    pub fn processes(&self) -> Vec<u32> {
        let pid_file = self.server.data().join("postmaster.pid");
        let text = std::fs::read_to_string(pid_file).unwrap();
        let first: u32 = text.lines().next().unwrap().trim().parse().unwrap();
        let children = format!("/proc/{first}/task/{first}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        std::iter::once(first).chain(children).collect()
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        std::fs::remove_file(self.memory()).unwrap_or_default();
    }
}

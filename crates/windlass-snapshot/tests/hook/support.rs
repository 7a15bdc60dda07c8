//! Servers with the hook, snapshots of them, and servers on what a snapshot shows.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use windlass_engine::media::{FileEntry, FileKind, crc32c};
use windlass_engine::{Cancel, Progress};
use windlass_image::Image;
use windlass_postgres::{Cluster, server_view};
use windlass_snapshot::hook::{
    self, HookError, HookImage, HookLimits, HookMade, HookRequest, HookStart,
};
use windlass_testkit::installed::library;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

/// A server with the hook, and a place for its snapshots.
pub struct Source {
    pub server: PrivateCluster,
    pub place: TempDir,
}

/// A snapshot in its directory.
pub struct Snapshot {
    pub directory: PathBuf,
    pub made: HookMade,
}

impl Source {
    pub fn start(bin: &Path) -> Self {
        Self::start_with(bin, &[])
    }

    pub fn start_with(bin: &Path, settings: &[&str]) -> Self {
        Self::start_of(bin, settings, &["--data-checksums"])
    }

    /// One of a cluster that initdb made with these arguments.
    pub fn start_of(bin: &Path, settings: &[&str], initdb: &[&str]) -> Self {
        become_server_user();
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("windlass.so");
        std::fs::copy(library(), &copy).unwrap();
        std::fs::create_dir(place.path().join("store")).unwrap();
        let mut options = ClusterOptions {
            bin: bin.into(),
            ..ClusterOptions::default()
        };
        for argument in initdb {
            options = options.initdb(*argument);
        }
        options = options.setting(format!("shared_preload_libraries = '{}'", copy.display()));
        for setting in settings {
            options = options.setting(*setting);
        }
        let server = PrivateCluster::start(&options);
        Self { server, place }
    }

    pub fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    pub fn snapshot(&self, name: &str) -> Snapshot {
        self.try_snapshot(name, HookStart::Checkpoint).unwrap()
    }

    /// A snapshot of one moment, without a checkpoint.
    pub fn pause(&self, name: &str) -> Snapshot {
        self.try_snapshot(name, HookStart::Pause).unwrap()
    }

    /// One of a moment that has no links.
    pub fn late(&self, name: &str) -> Snapshot {
        self.try_late(name).unwrap()
    }

    pub fn try_late(&self, name: &str) -> Result<Snapshot, HookError> {
        let request = (HookLimits::default(), false, 0);
        self.try_made(name, HookStart::Pause, request)
    }

    /// One through the backup API that has no links.
    pub fn late_window(&self, name: &str) -> Snapshot {
        let request = (HookLimits::default(), false, 0);
        let made = self.try_made(name, HookStart::Checkpoint, request);
        made.unwrap()
    }

    pub fn try_snapshot(&self, name: &str, start: HookStart) -> Result<Snapshot, HookError> {
        self.try_limited(name, start, HookLimits::default())
    }

    pub fn try_limited(
        &self,
        name: &str,
        start: HookStart,
        limits: HookLimits,
    ) -> Result<Snapshot, HookError> {
        self.try_made(name, start, (limits, false, usize::MAX))
    }

    /// Stops the server: in a mode of pg_ctl, or `kill`. Whatever is changed later has a later
    /// time than the server's own changes: most file systems tell times by a clock that moves some
    /// hundred times in a second.
    pub fn end(&mut self, how: &str) {
        match how {
            "kill" => self.kill(),
            mode => self.server.stop(mode),
        }
        let (ended, probe) = (SystemTime::now(), self.place.path().join("probe"));
        let is_later = || {
            std::fs::write(&probe, "x").unwrap();
            probe.metadata().unwrap().modified().unwrap() > ended
        };
        while !is_later() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills the server. It can start again when nobody has its first process's number any more.
    fn kill(&mut self) {
        let path = self.server.data().join("postmaster.pid");
        let first = std::fs::read_to_string(path).unwrap();
        let first = Path::new("/proc").join(first.lines().next().unwrap());
        self.server.kill();
        while first.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One that outlives a power cut.
    pub fn durable(&self, name: &str) -> Snapshot {
        let limits = HookLimits::default();
        let made = self.try_made(name, HookStart::Checkpoint, (limits, true, 0));
        made.unwrap()
    }

    fn try_made(
        &self,
        name: &str,
        start: HookStart,
        (limits, durable, links_max): (HookLimits, bool, usize),
    ) -> Result<Snapshot, HookError> {
        let directory = self.place.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let mut cluster = Cluster::connect(&self.server.conninfo()).unwrap();
        let store = self.store();
        let request = HookRequest {
            directory: &directory,
            store: &store,
            home: None,
            start,
            limits,
            durable,
            links_max,
            label: name,
            progress: &Progress::default(),
        };
        let made = hook::create(&mut cluster, &request, &Cancel::new())?;
        Ok(Snapshot { directory, made })
    }

    /// Where the shared memory is.
    pub fn memory(&self) -> Option<PathBuf> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(self.server.data()).ok()?;
        let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
        let key = windlass_image::layout::hook::FileKey::new(major, minor, found.ino());
        let name = key.control_name();
        Some(Path::new("/dev/shm").join(std::str::from_utf8(&name).unwrap()))
    }

    /// Crashes the server, and does what a start of the system does to the shared memory.
    pub fn crash_system(&mut self) {
        self.server.stop("immediate");
        let memory = self.memory().unwrap();
        // One without snapshots goes with any command of this user.
        std::fs::remove_file(&memory).unwrap_or_default();
        assert!(!memory.exists());
    }

    /// Makes a new cluster in the directory of the old one, whose server is stopped. The old
    /// snapshots are forgotten, but not by the shared memory.
    pub fn make_anew(&self) {
        let data = self.server.data();
        let settings = std::fs::read_to_string(data.join("postgresql.conf")).unwrap();
        for entry in std::fs::read_dir(data).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
        std::fs::remove_dir_all(self.store()).unwrap();
        std::fs::create_dir(self.store()).unwrap();
        let mut initdb = self.server.tool("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "-D"]);
        succeed(initdb.arg(data));
        std::fs::write(data.join("postgresql.conf"), settings).unwrap();
    }

    /// Starts a server on what a snapshot shows.
    pub fn view(&self, snapshot: &Snapshot) -> PrivateCluster {
        let into = tempfile::tempdir_in(self.place.path()).unwrap().keep();
        let data = into.join("data");
        materialize(&snapshot.directory, &data);
        let view = PrivateCluster::adopt_stopped(&data, self.server.bin());
        view.configure(&["shared_preload_libraries = ''"]);
        let mut view = view;
        view.run();
        view
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(path) = self.memory() {
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}

/// Writes out what a snapshot shows. Tablespaces come into the directory, too.
fn materialize(directory: &Path, into: &Path) {
    let mut private = std::fs::DirBuilder::new();
    private.mode(0o700).create(into).unwrap();
    let image = HookImage::open(directory).unwrap();
    let files = server_view(image.files()).unwrap();
    // A server would make the links of this map, which lead to the source.
    let is_map = |entry: &&FileEntry| entry.path == b"tablespace_map";
    for entry in files.0.iter().filter(|entry| !is_map(entry)) {
        let path = into.join(entry.path_lossy());
        match entry.kind {
            FileKind::Directory => private.create(&path).unwrap(),
            FileKind::File => std::fs::write(&path, bytes(&image, entry)).unwrap(),
            FileKind::Symlink => {
                let target = std::ffi::OsStr::from_bytes(&entry.link_target);
                std::os::unix::fs::symlink(target, &path).unwrap();
            }
        }
    }
}

/// All bytes of a file.
fn bytes(image: &HookImage, entry: &FileEntry) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
    let count = image.read(entry.file, 0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len(), "{}", entry.path_lossy());
    bytes
}

/// Kills the checkpointer. The server ends its other processes and recovers, and it takes sessions
/// again when this returns.
pub fn kill_checkpointer(server: &PrivateCluster) {
    let rest = || std::thread::sleep(Duration::from_millis(10));
    let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let pid = loop {
        let pid = server.sql("postgres", sql);
        if !pid.is_empty() {
            break pid;
        }
        // The server has just begun it.
        rest();
    };
    succeed(std::process::Command::new("kill").args(["-KILL", &pid]));
    // Until the server has waited for it, it takes sessions that it ends later.
    let place = Path::new("/proc").join(&pid);
    while place.exists() {
        rest();
    }
    while !server.try_sql("postgres", "SELECT 1").status.success() {
        rest();
    }
}

/// A checksum of every file of a snapshot, by path.
pub fn sums(directory: &Path) -> Vec<(String, u32)> {
    let image = HookImage::open(directory).unwrap();
    let files = image.files().0.iter();
    let files = files.filter(|entry| entry.kind == FileKind::File);
    let sums = files.map(|entry| (entry.path_lossy(), crc32c(&bytes(&image, entry))));
    sums.collect()
}

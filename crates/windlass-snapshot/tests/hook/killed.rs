//! Controllers that are killed: the next one finishes or undoes what they began.
//!
//! A test runs itself as another process, which makes and drops snapshots until it is killed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass_engine::{Cancel, Progress};
use windlass_image::layout::hook::{AREA_BYTES_AT, Memory};
use windlass_postgres::Cluster;
use windlass_snapshot::hook::{self, HookLimits, HookRequest, HookStart};
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::support::{Source, sums};

/// Where the other process finds the server, and where its snapshots go.
const SERVER: &str = "WINDLASS_TEST_HOOK_SERVER";
const PLACE: &str = "WINDLASS_TEST_HOOK_PLACE";
/// How long the other process may work, in milliseconds: from the first call to several snapshots.
const MOMENTS: [u64; 12] = [5, 20, 40, 60, 80, 110, 140, 180, 230, 300, 400, 600];

/// The other process. Run alone, it does nothing.
#[test]
fn makes_and_drops_until_it_is_killed() {
    let Ok(conninfo) = std::env::var(SERVER) else {
        return;
    };
    let place = PathBuf::from(std::env::var(PLACE).unwrap());
    let mut cluster = Cluster::connect(&conninfo).unwrap();
    for turn in 0.. {
        let directory = place.join(format!("killed-{}-{turn}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let request = HookRequest {
            directory: &directory,
            store: &place.join("store"),
            home: None,
            start: match turn % 2 {
                0 => HookStart::Pause,
                _ => HookStart::Checkpoint,
            },
            limits: HookLimits::default(),
            durable: turn % 3 == 0,
            links_max: 0,
            label: "killed",
            progress: &Progress::default(),
        };
        hook::create(&mut cluster, &request, &Cancel::new()).unwrap();
        hook::remove(&directory).unwrap();
    }
}

fn run_and_kill(source: &Source, moment: u64) {
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "killed::makes_and_drops_until_it_is_killed"]);
    other.env(SERVER, source.server.conninfo());
    other.env(PLACE, source.place.path());
    other.stdout(Stdio::null()).stderr(Stdio::null());
    let mut other = other.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(moment));
    other.kill().unwrap();
    other.wait().unwrap();
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).map_or(0, |entries| entries.count())
}

#[test]
fn a_killed_controller_leaves_nothing_that_counts() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
    source
        .server
        .sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    let kept = source.snapshot("kept");
    let before = sums(&kept.directory);
    for moment in MOMENTS {
        run_and_kill(&source, moment);
        // Nobody waits for the dead: the server goes on at once, also after a pause.
        source
            .server
            .sql("postgres", "UPDATE t SET x = x || 'y' WHERE i % 5 = 0");
        source.server.sql("postgres", "CHECKPOINT");
        assert_eq!(sums(&kept.directory), before, "after {moment} ms");
    }
    // The server ends with it, and nobody told what either was at.
    for moment in [60, 140] {
        run_and_kill(&source, moment);
        source.end("kill");
        assert_eq!(sums(&kept.directory), before, "both killed, {moment} ms");
        source.server.run();
        assert_eq!(sums(&kept.directory), before, "both killed, {moment} ms");
    }
    // Some were complete when their maker was killed.
    for entry in std::fs::read_dir(source.place.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("/killed-") {
            hook::remove(&path).unwrap();
        }
    }
    let last = source.snapshot("last");
    assert_eq!(sums(&kept.directory), before);
    let links = source.server.data().join("pg_subtrans/windlass");
    assert_eq!(entries(&links), 2, "only those of the two that exist");
    hook::remove(&last.directory).unwrap();
    assert_eq!(sums(&kept.directory), before);
    hook::remove(&kept.directory).unwrap();
    assert_eq!((entries(&links), entries(&source.store())), (0, 0));
}

/// The file of the pages is the last that goes with the last snapshot. Only the memory says where
/// it is.
#[test]
fn a_store_that_a_killed_drop_left_goes_with_the_next_one() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let snapshot = source.snapshot("one");
    let store = std::fs::read_dir(source.store()).unwrap().next().unwrap();
    let (store, left) = (store.unwrap().path(), source.place.path().join("left"));
    std::fs::copy(&store, &left).unwrap();
    hook::remove(&snapshot.directory).unwrap();
    assert!(!store.exists());
    // As long as it is open, no other command takes it away.
    let mut options = File::options();
    let options = options.read(true).write(true);
    let file = options.open(source.memory().unwrap()).unwrap();
    source.server.stop("fast");
    let mut bytes = vec![0; usize::try_from(AREA_BYTES_AT).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let words = bytes.as_chunks::<4>().0.iter();
    let words = words.map(|word| AtomicU32::new(u32::from_le_bytes(*word)));
    let words: Vec<_> = words.collect();
    let memory = Memory::new(&words).unwrap();
    assert!(memory.set_store(left.as_os_str().as_bytes()));
    let words = words.iter().map(|word| word.load(Ordering::Relaxed));
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    file.write_all_at(&bytes, 0).unwrap();
    hook::remove(&snapshot.directory).unwrap();
    assert!(!left.exists());
}

#[test]
fn no_tool_copies_what_a_snapshot_keeps_in_the_data_directory() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let space = source.place.path().join("space");
    std::fs::create_dir(&space).unwrap();
    let sql = format!("CREATE TABLESPACE s LOCATION '{}'", space.display());
    source.server.sql("postgres", &sql);
    source
        .server
        .sql("postgres", "CREATE TABLE t TABLESPACE s AS SELECT 1 AS i");
    let snapshot = source.snapshot("one");
    assert!(space.join("windlass").is_dir());
    let copy = source.place.path().join("copy");
    let mut tool = source.server.tool("pg_basebackup");
    tool.arg(format!(
        "--tablespace-mapping={}={}",
        space.display(),
        copy.join("space").display()
    ));
    tool.args(["-c", "fast", "-D"]).arg(copy.join("data"));
    windlass_testkit::postgres::succeed(&mut tool);
    assert!(!copy.join("data/pg_subtrans/windlass").exists());
    assert!(!copy.join("space/windlass").exists());
    let files = sums(&snapshot.directory);
    assert!(
        !files.iter().any(|(path, _)| path.contains("windlass")),
        "{files:?}"
    );
    let second = source.snapshot("two");
    let files = sums(&second.directory);
    assert!(
        !files.iter().any(|(path, _)| path.contains("windlass")),
        "{files:?}"
    );
}

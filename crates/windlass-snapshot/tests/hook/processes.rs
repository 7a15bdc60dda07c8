//! Processes that come and go, and more of them than the table of the shared memory has places:
//! nobody is invisible, and nobody is taken for one that he is not.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use windlass_snapshot::hook;
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::support::{Source, sums};

/// Where the places are, in bytes; how long one is; how many there are.
const PLACES_AT: u64 = 2048 * 4;
const PLACE_BYTES: u64 = 64;
const PLACES: u64 = 4096;

/// Gives every free place to this process, which lives and is in no call. Returns how many were
/// taken by the server.
fn take_all_places(source: &Source) -> usize {
    let path = source.memory().unwrap();
    let memory = OpenOptions::new().read(true).write(true).open(path);
    let memory = memory.unwrap();
    let mut taken = 0;
    for place in 0..PLACES {
        let at = PLACES_AT + place * PLACE_BYTES;
        let mut pid = [0; 4];
        memory.read_exact_at(&mut pid, at).unwrap();
        match u32::from_le_bytes(pid) {
            0 => memory
                .write_all_at(&std::process::id().to_le_bytes(), at)
                .unwrap(),
            pid => {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                taken += usize::from(name.is_ok_and(|name| name.trim() == "postgres"));
            }
        }
    }
    taken
}

#[test]
fn a_server_with_more_processes_than_places_has_right_snapshots() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let server = &source.server;
    windlass_testkit::postgres::succeed(
        server
            .tool("pgbench")
            .args(["-i", "-s", "2", "-q", "postgres"]),
    );
    server.sql("postgres", "CREATE TABLE kept (n bigint)");
    let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
    server.sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    server.sql("postgres", "CHECKPOINT");
    assert!(take_all_places(&source) > 0, "the checkpointer has one");
    let made = under_load(server, || {
        let made = [
            source.snapshot("one"),
            source.pause("two"),
            source.late("three"),
        ];
        let before = made.each_ref().map(|it| sums(&it.directory));
        server.sql("postgres", "UPDATE t SET x = 'changed'");
        server.sql("postgres", "DROP TABLE t; CHECKPOINT");
        made.into_iter().zip(before).collect::<Vec<_>>()
    });
    for (snapshot, before) in &made {
        assert!(sums(&snapshot.directory) == *before);
        let view = source.view(snapshot);
        let count = "SELECT count(*) FROM t WHERE x <> 'changed'";
        assert_eq!(view.sql("postgres", count), "4000");
    }
    hook::remove(&made[1].0.directory).unwrap();
    assert!(sums(&made[0].0.directory) == made[0].1);
}

#[test]
fn processes_that_end_while_they_are_examined_are_not_taken_for_ones_without_the_hook() {
    // A process that ends has its place for a while, and there are many of them.
    let source = Source::start_with(DEFAULT_BIN.as_ref(), &["max_connections = 300"]);
    let script = source.place.path().join("look.sql");
    std::fs::write(&script, "SELECT 1;").unwrap();
    let mut visitors = source.server.tool("pgbench");
    visitors.args(["-n", "-C", "-c", "4", "-t", "400", "-f"]);
    visitors.arg(&script).arg("postgres");
    visitors.stdout(std::process::Stdio::null());
    let mut visitors = visitors
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut times = 0;
    let ended = loop {
        if let Some(ended) = visitors.try_wait().unwrap() {
            break ended;
        }
        times += 1;
        assert!(
            hook::is_active(source.server.data()).unwrap(),
            "time {times}"
        );
    };
    assert!(ended.success() && times > 0, "{times}");
}

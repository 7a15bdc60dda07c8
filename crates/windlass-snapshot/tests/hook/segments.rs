//! A table of more than 1 GiB has several files. Most of the first one is a hole here.

use std::fs::OpenOptions;

use windlass_engine::media::crc32c;
use windlass_image::Image;
use windlass_snapshot::hook::{self, HookImage};
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::support::{Snapshot, Source};

const PAGE: u64 = 8192;
/// So many blocks are in a file.
const SEGMENT: u64 = 131_072;
/// The rows begin after so many blocks that are empty, and each takes a block.
const HOLE: u64 = 130_000;
const ROWS: u64 = 3000;

/// The table, and where its first file is.
fn source() -> (Source, String) {
    // While it looks at any table, no VACUUM can take rows away, and the table is not cut off.
    let mut source = Source::start_with(DEFAULT_BIN.as_ref(), &["autovacuum = off"]);
    let server = &mut source.server;
    let sql = "CREATE TABLE t (i int, x text) WITH (fillfactor = 10)";
    server.sql("postgres", sql);
    let path = server.sql("postgres", "SELECT pg_relation_filepath('t')");
    server.stop("fast");
    let file = OpenOptions::new()
        .write(true)
        .open(server.data().join(&path));
    // The server takes pages of zeros for pages that nobody has used yet.
    file.unwrap().set_len(HOLE * PAGE).unwrap();
    server.run();
    insert(&source);
    (source, path)
}

fn insert(source: &Source) {
    let rows = format!("SELECT i, repeat('x', 700) FROM generate_series(1, {ROWS}) i");
    source
        .server
        .sql("postgres", &format!("INSERT INTO t {rows}"));
    source.server.sql("postgres", "CHECKPOINT");
}

fn blocks(source: &Source) -> u64 {
    let sql = "SELECT pg_relation_size('t') / 8192";
    source.server.sql("postgres", sql).parse().unwrap()
}

/// The lengths of both files in a snapshot, and checksums of the pages of their rows.
fn shown(snapshot: &Snapshot, path: &str) -> Vec<(u64, u32)> {
    let image = HookImage::open(&snapshot.directory).unwrap();
    let parts = [
        (path.to_owned(), (HOLE - 10) * PAGE),
        (format!("{path}.1"), 0),
    ];
    let shown = parts.map(|(path, from)| {
        let mut files = image.files().0.iter();
        let entry = files.find(|entry| entry.path == path.as_bytes()).unwrap();
        let mut bytes = vec![0; usize::try_from(entry.bytes - from).unwrap()];
        let count = image.read(entry.file, from, &mut bytes).unwrap();
        assert_eq!(count, bytes.len());
        (entry.bytes, crc32c(&bytes))
    });
    shown.into()
}

fn pages(snapshot: &Snapshot) -> u64 {
    hook::state(&snapshot.directory).unwrap().pages
}

#[test]
fn snapshots_keep_a_table_of_more_than_one_file() {
    let (mut source, path) = source();
    assert!(blocks(&source) >= HOLE + ROWS - 1);
    let linked = source.snapshot("linked");
    let before = shown(&linked, &path);
    assert_eq!(before[0].0, SEGMENT * PAGE);
    assert!(before[1].0 > 1500 * PAGE);

    // Every page on both sides of the border.
    source
        .server
        .sql("postgres", "UPDATE t SET x = repeat('y', 700)");
    source.server.sql("postgres", "CHECKPOINT");
    assert!(shown(&linked, &path) == before, "changed");
    let kept = pages(&linked);
    assert!((ROWS..ROWS + 500).contains(&kept), "{kept}");

    let late = source.late("late");
    let changed = shown(&late, &path);
    assert!(changed != before);
    insert(&source);
    assert!(blocks(&source) >= HOLE + 2 * ROWS - 2);
    assert!(shown(&late, &path) == changed, "grown");

    // The second file becomes empty, and the end of the first one goes.
    source
        .server
        .sql("postgres", "DELETE FROM t WHERE ctid >= '(130500,0)'");
    source.server.sql("postgres", "VACUUM t");
    assert!((HOLE..HOLE + 501).contains(&blocks(&source)));
    assert!(shown(&late, &path) == changed, "cut off");
    let kept = pages(&late);
    assert!((ROWS - 500..ROWS + 500).contains(&kept), "{kept}");

    // Recovery makes both as long as they were, and cuts them again.
    source.server.stop("immediate");
    source.server.run();
    assert!((HOLE..HOLE + 501).contains(&blocks(&source)));
    source.server.sql("postgres", "DROP TABLE t");
    source.server.sql("postgres", "CHECKPOINT");
    assert!(shown(&linked, &path) == before, "dropped");
    assert!(shown(&late, &path) == changed, "dropped");
    hook::remove(&late.directory).unwrap();
    assert!(shown(&linked, &path) == before, "without the newer one");
}

//! Relations of more than 1 GiB, which lie in several files. Page numbers go on from one file to
//! the next, and a relation may grow beyond its first file while it is copied.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::media::BackupType;
use windlass_postgres::BackupOutcome;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, restore_set, try_backup, verify_backup};

const SEGMENT_BYTES: u64 = 1 << 30;
const SEGMENT_PAGES: u64 = SEGMENT_BYTES / 8192;
/// Pages that are free in the first file when the first backup starts.
const PAGES_LEFT: u64 = 150;
/// Slow enough that many of the transactions below run during the copy.
const SOURCE_RATE: u64 = 400 << 20;

/// True unless a backup waits for the server to begin it.
const NOT_BEGINNING: &str = "NOT EXISTS (SELECT FROM pg_stat_activity \
    WHERE application_name = 'windlass' AND state = 'active' AND query LIKE '%pg_backup_start%')";

/// A table with one row on each page: a gigabyte of pages from little data and little log.
fn make_table(cluster: &PrivateCluster) {
    let rows = SEGMENT_PAGES - PAGES_LEFT;
    cluster.sql(
        "postgres",
        "CREATE TABLE big (i int, pad text) WITH (fillfactor = 10); \
         ALTER TABLE big ALTER pad SET STORAGE PLAIN; \
         ALTER TABLE big SET (autovacuum_enabled = off)",
    );
    let fill =
        format!("INSERT INTO big SELECT i, repeat('x', 500) FROM generate_series(1, {rows}) i");
    cluster.sql("postgres", &fill);
    let pages = "SELECT pg_relation_size('big') / 8192";
    assert_eq!(cluster.sql("postgres", pages), rows.to_string());
}

/// The length of the table's file with this suffix. `data` has the same file names as the cluster.
fn file(cluster: &PrivateCluster, data: &Path, suffix: &str) -> u64 {
    let path = cluster.sql("postgres", "SELECT pg_relation_filepath('big')");
    let metadata = std::fs::metadata(data.join(path + suffix));
    metadata.map_or(0, |metadata| metadata.len())
}

/// A question whose answer is `t` from the moment on in which the next backup has begun.
fn has_begun(cluster: &PrivateCluster) -> String {
    // The next checkpoint is then the one with which a backup begins.
    cluster.sql("postgres", "CHECKPOINT");
    let redo = "SELECT redo_lsn FROM pg_control_checkpoint()";
    let before = cluster.sql("postgres", redo);
    format!("SELECT redo_lsn <> '{before}' AND {NOT_BEGINNING} FROM pg_control_checkpoint()")
}

/// Adds rows, transaction after transaction, until `done` is set.
fn insert_until(cluster: &PrivateCluster, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let more = "INSERT INTO big SELECT (SELECT max(i) FROM big) + g, repeat('y', 500) \
            FROM generate_series(1, 40) g";
        cluster.sql("postgres", more);
    }
}

/// Checks that all rows from the start are there, and that later rows have no gap and come in whole
/// transactions.
fn judge_rows(restored: &PrivateCluster) {
    let first = SEGMENT_PAGES - PAGES_LEFT;
    let sound = format!(
        "SELECT count(DISTINCT i) = max(i) AND max(i) = count(*) AND count(*) >= {first} \
         AND (count(*) - {first}) % 40 = 0 AND bool_and(length(pad) = 500) FROM big"
    );
    assert_eq!(restored.sql("postgres", &sound), "t");
}

/// A page of the second file would be bad if it were checked with its number in that file.
fn judge_checksums(outcome: &BackupOutcome) {
    let found = &outcome.facts.checksums;
    assert!(
        found.enabled && found.verified && found.pages_bad == 0,
        "{found:?}"
    );
    assert!(
        found.pages_checked >= SEGMENT_PAGES - PAGES_LEFT,
        "{found:?}"
    );
}

#[test]
fn a_table_of_more_than_a_gigabyte_is_backed_up_while_it_grows_into_its_second_file() {
    become_server_user();
    let options = ClusterOptions::default().initdb("--data-checksums");
    let source = PrivateCluster::start(&options.setting("max_wal_size = 1GB"));
    make_table(&source);
    source.sql("postgres", "CREATE INDEX big_i ON big (i)");
    let place = tempfile::tempdir().unwrap();
    let (growing, into) = (place.path().join("growing"), place.path().join("restored"));
    let wish = Wish {
        source_rate: Some(SOURCE_RATE),
        ..Wish::default()
    };
    let begun = has_begun(&source);
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            source.wait_until(&begun, "t");
            insert_until(&source, &done);
        });
        let outcome = try_backup(&source, &growing, &wish);
        // Go on until the table has outgrown its first file, however fast the machine is.
        while file(&source, source.data(), ".1") == 0 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        outcome.unwrap()
    });
    judge_checksums(&outcome);
    restore_set(&growing, &into, &[]);
    verify_backup(&source, &into);
    let mut restored = PrivateCluster::adopt(&into, source.bin());
    assert_eq!(file(&restored, &into, ""), SEGMENT_BYTES);
    judge_rows(&restored);
    restored.stop("fast");
    let mut check = restored.tool("pg_checksums");
    succeed(check.arg("--check").arg("-D").arg(&into));

    // A link finds both files. Of the first it takes what came after the base, and the second one
    // whole. Its pages already have checksums for their number.
    source.sql("postgres", "CHECKPOINT");
    let (grown, again) = (place.path().join("grown"), place.path().join("again"));
    let wish = Wish {
        chain: Some((BackupType::Incr, growing)),
        strict: true,
        ..Wish::default()
    };
    judge_checksums(&try_backup(&source, &grown, &wish).unwrap());
    std::fs::remove_dir_all(&into).unwrap();
    restore_set(&grown, &again, &[]);
    let chained = PrivateCluster::adopt(&again, source.bin());
    for suffix in ["", ".1"] {
        let lengths = [&source, &chained].map(|server| file(server, server.data(), suffix));
        assert_eq!(lengths[0], lengths[1], "{suffix}");
    }
    let sum = "SELECT sum(hashtextextended(t::text, 0)::numeric) FROM big t";
    assert_eq!(chained.sql("postgres", sum), source.sql("postgres", sum));
}

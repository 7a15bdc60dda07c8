//! PostgreSQL's own regression database, which has the richest schema there is. The test backs it
//! up while it is being made, and again when it is finished, with its pages taken apart as a backup
//! does by default.

use std::os::unix::fs::symlink;
use std::path::Path;

use windlass_engine::media::{PageEncoder, Taken};
use windlass_postgres::Cluster;
use windlass_testkit::load::{assert_same_dump, start_regression};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::inspect::inspected;
use crate::open::Opened;
use crate::support::{Wish, restore_and_judge, restore_set, try_backup, verify_backup};

/// So slow that several groups of tests run during the copy.
const SOURCE_RATE: u64 = 12 << 20;
/// As many bytes share a frame of a backup.
const FRAME_BYTES: usize = 128 << 10;

fn dump(server: &PrivateCluster) -> String {
    // A restore leaves unlogged tables empty, as a crash does.
    let mut tool = server.tool("pg_dumpall");
    succeed(tool.args(["--no-sync", "--no-unlogged-table-data"]))
}

/// An opened set has relations of every kind, in every state that the suite brings about.
fn assert_sound(source: &PrivateCluster, set: &Path) {
    let place = tempfile::tempdir().unwrap();
    symlink(set, place.path().join("set")).unwrap();
    let inspection = inspected(&Opened::new(source.bin(), place));
    assert_eq!(inspection.faults, []);
}

/// Takes all large relations apart, also those that a backup leaves as they are because that is
/// shorter. Each frame is put together again and compared.
fn assert_all_pages_come_back(source: &PrivateCluster) {
    let connected = Cluster::connect(&source.conninfo()).unwrap();
    let (mut pages, mut apart) = (PageEncoder::default(), 0);
    for relation in connected.page_relations().unwrap() {
        let bytes = std::fs::read(source.data().join(&relation.path)).unwrap();
        for frame in bytes.chunks(FRAME_BYTES) {
            match pages.take_apart(&relation.layout, frame) {
                Taken::Wrong => panic!("{} in {}", relation.name, relation.path),
                Taken::Apart => apart += frame.len(),
                Taken::NotWorth => {}
            }
        }
    }
    assert!(apart > 4 << 20, "only {apart} bytes were taken apart");
}

/// Backs up, and returns how many bytes of pages were taken apart.
fn back_up_apart(source: &PrivateCluster, set: &Path, source_rate: Option<u64>) -> u64 {
    let wish = Wish {
        source_rate,
        pages: true,
        ..Wish::default()
    };
    let outcome = try_backup(source, set, &wish).unwrap();
    let checksums = &outcome.facts.checksums;
    assert_eq!(checksums.pages_bad, 0, "{checksums:?}");
    let pages = outcome.report.pages.unwrap_or_default();
    assert_eq!(pages.wrong_frames, 0, "{pages:?}");
    pages.apart_bytes
}

#[test]
fn the_regression_database_is_backed_up_in_the_making_and_when_done() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    let mut suite = start_regression(&source, &place.path().join("output"));
    let begun = "SELECT count(*) FROM pg_stat_database WHERE datname = 'regression' \
        AND tup_inserted > 200000";
    source.wait_until(begun, "1");
    let live = place.path().join("live");
    back_up_apart(&source, &live, Some(SOURCE_RATE));
    suite.wait().unwrap();
    drop(restore_and_judge(
        &source,
        &live,
        &place.path().join("restored-live"),
        &[],
    ));

    assert_sound(&source, &live);

    let relations = source.sql(
        "regression",
        "SELECT count(*) FROM pg_class WHERE relkind = 'r'",
    );
    assert!(
        relations.parse::<u32>().unwrap() > 500,
        "{relations} tables: the suite did not run"
    );
    let done = place.path().join("done");
    let apart = back_up_apart(&source, &done, None);
    assert!(apart > 1 << 20, "only {apart} bytes were taken apart");
    assert_all_pages_come_back(&source);
    assert_sound(&source, &done);
    let into = place.path().join("restored-done");
    restore_set(&done, &into, &[]);
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    let (ours, theirs) = (dump(&server), dump(&source));
    assert_same_dump(&ours, &theirs);
    let lines = ours.lines().count();
    assert!(lines > 50_000, "{lines} lines of dump prove little");
}

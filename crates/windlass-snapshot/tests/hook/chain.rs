//! Several snapshots of one server: each shows its own moment, and dropping one keeps the others.

use windlass_snapshot::hook;
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::support::{Snapshot, Source, sums};

fn source() -> Source {
    let source = Source::start_with(DEFAULT_BIN.as_ref(), &["autovacuum = off"]);
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
    source
        .server
        .sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    source.server.sql("postgres", "VACUUM FREEZE t");
    source
}

fn write(source: &Source, what: &str) {
    let sql = format!("UPDATE t SET x = '{what}' || repeat('x', 150) WHERE i % 7 = 0");
    source.server.sql("postgres", &sql);
    source.server.sql("postgres", "CHECKPOINT");
}

/// What each snapshot shows.
fn shown(snapshots: &[&Snapshot]) -> Vec<Vec<(String, u32)>> {
    let shown = snapshots.iter();
    shown.map(|snapshot| sums(&snapshot.directory)).collect()
}

#[test]
fn any_snapshot_can_be_dropped_and_the_others_stay_as_they_are() {
    for dropped in 0..3 {
        let source = source();
        let snapshots: Vec<_> = ["one", "two", "three"]
            .map(|name| {
                let snapshot = source.snapshot(name);
                write(&source, name);
                snapshot
            })
            .into();
        let kept: Vec<&Snapshot> = (0..)
            .zip(&snapshots)
            .filter(|(at, _)| *at != dropped)
            .map(|(_, it)| it)
            .collect();
        let before = shown(&kept);
        hook::remove(&snapshots[dropped].directory).unwrap();
        assert_eq!(shown(&kept), before);
        write(&source, "later");
        assert_eq!(shown(&kept), before);
        assert!(hook::HookImage::open(&snapshots[dropped].directory).is_err());
        // Dropped again, it is still gone.
        hook::remove(&snapshots[dropped].directory).unwrap();
        for snapshot in kept {
            hook::remove(&snapshot.directory).unwrap();
        }
        let left = std::fs::read_dir(source.store()).unwrap().count();
        assert_eq!(left, 0, "the store goes with the last snapshot");
        let links = source.server.data().join("pg_subtrans/windlass");
        assert_eq!(std::fs::read_dir(links).unwrap().count(), 0);
    }
}

#[test]
fn many_snapshots_cost_what_one_costs() {
    let source = source();
    let snapshots: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|name| source.snapshot(name))
        .into();
    write(&source, "changed");
    let pages = |snapshot: &Snapshot| hook::state(&snapshot.directory).unwrap().pages;
    let newest = pages(&snapshots[4]);
    let older: u64 = snapshots[..4].iter().map(pages).sum();
    assert!(newest > 100, "{newest}");
    // What the checkpoints between them wrote.
    assert!(older < newest / 2, "{older} of {newest}");
}

/// The files of these tables go. That costs pages of the catalogs only.
#[test]
fn a_table_that_is_dropped_emptied_or_packed_costs_no_pages() {
    const CATALOGS_MAX: u64 = 120;
    let source = Source::start_with(DEFAULT_BIN.as_ref(), &["autovacuum = off"]);
    let sql = |sql: &str| source.server.sql("postgres", sql);
    type Make = fn(&Source, &str) -> Snapshot;
    let kinds: [(&str, Make); 4] = [
        ("linked", Source::snapshot),
        ("paused", Source::pause),
        ("late", Source::late),
        ("durable", Source::durable),
    ];
    for (kind, make) in kinds {
        for table in ["dropped", "emptied", "packed"] {
            let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 20000) i";
            sql(&format!("CREATE TABLE {kind}_{table} AS {rows}"));
            sql(&format!("CREATE INDEX ON {kind}_{table} (i)"));
            sql(&format!("VACUUM (FREEZE, ANALYZE) {kind}_{table}"));
            let size = format!("SELECT pg_relation_size('{kind}_{table}') / 8192");
            assert!(sql(&size).parse::<u64>().unwrap() > 4 * CATALOGS_MAX);
        }
        sql("CHECKPOINT");
        let snapshot = make(&source, kind);
        let before = sums(&snapshot.directory);
        let pages = || hook::state(&snapshot.directory).unwrap().pages;
        let mut kept = pages();
        for change in ["DROP TABLE", "TRUNCATE", "VACUUM FULL"] {
            let table = match change {
                "DROP TABLE" => "dropped",
                "TRUNCATE" => "emptied",
                _ => "packed",
            };
            sql(&format!("{change} {kind}_{table}"));
            sql("CHECKPOINT");
            let cost = pages() - std::mem::replace(&mut kept, pages());
            assert!(cost < CATALOGS_MAX, "{change}, {kind}: {cost} pages");
        }
        assert!(sums(&snapshot.directory) == before, "{kind}");
        hook::remove(&snapshot.directory).unwrap();
    }
}

#[test]
fn snapshots_go_on_when_the_server_starts_again() {
    let mut source = source();
    let snapshot = source.snapshot("one");
    let before = sums(&snapshot.directory);
    write(&source, "one");
    source.server.stop("immediate");
    source.server.run();
    write(&source, "two");
    source.server.stop("fast");
    source.server.run();
    write(&source, "three");
    assert_eq!(sums(&snapshot.directory), before);
}

//! PostgreSQL's own regression tests, while snapshots come and go: none of its results changes, and
//! no snapshot does.
//!
//! It takes as long as the tests themselves, about half a minute, because nothing else makes the
//! server change files in so many ways. The map of changes names all that they changed.

use windlass_snapshot::hook::{self, HookStart};
use windlass_testkit::load::start_regression;
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::changed::Watched;
use crate::support::{Snapshot, Source, sums};

/// So many snapshots are there at once; the one in the middle goes next.
const SNAPSHOTS: usize = 4;

type Kept = (Snapshot, Vec<(String, u32)>);

fn assert_unchanged(kept: &[Kept]) {
    for (snapshot, before) in kept {
        let after = sums(&snapshot.directory);
        let differing: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(differing.is_empty(), "{differing:?}");
    }
}

#[test]
fn the_servers_own_tests_run_while_snapshots_come_and_go() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let watched = Watched::begin(&source);
    let mut suite = start_regression(&source.server, &source.place.path().join("output"));
    let mut kept: Vec<Kept> = Vec::new();
    let mut made = 0;
    let ended = loop {
        if let Some(ended) = suite.try_wait().unwrap() {
            break ended;
        }
        made += 1;
        let name = format!("s{made}");
        let snapshot = match made % 3 {
            0 => source.try_snapshot(&name, HookStart::Pause),
            1 => source.try_late(&name),
            _ => source.try_snapshot(&name, HookStart::Checkpoint),
        };
        // The tests create and drop databases. A window in which they do that may be refused.
        let Ok(snapshot) = snapshot else { continue };
        let before = sums(&snapshot.directory);
        kept.push((snapshot, before));
        if kept.len() > SNAPSHOTS {
            let gone = kept.remove(SNAPSHOTS / 2);
            assert_unchanged(std::slice::from_ref(&gone));
            hook::remove(&gone.0.directory).unwrap();
        }
    };
    let diffs = source.place.path().join("output/regression.diffs");
    let diffs = std::fs::read_to_string(diffs).unwrap_or_default();
    assert!(ended.success(), "{diffs}");
    assert_eq!(kept.len(), SNAPSHOTS, "{made} were tried");
    assert_unchanged(&kept);
    source.server.sql("postgres", "CHECKPOINT");
    watched.assert_named();
}

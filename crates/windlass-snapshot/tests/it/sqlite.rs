//! Snapshots of SQLite databases, while other processes write.

use std::path::Path;

use windlass_snapshot::{Method, Place, Snapshot, SnapshotError, Survives};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Storm};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::support::*;

const JOURNALS: [Journal; 4] = [
    Journal::Wal,
    Journal::Delete,
    Journal::Truncate,
    Journal::Persist,
];

fn empty(directory: &Path, journal: Journal) -> CommitLedger {
    let spec = LedgerSpec {
        journal,
        ..LedgerSpec::default()
    };
    let path = directory.join(format!("{}.db", journal.name()));
    CommitLedger::create(&path, spec)
}

/// A ledger with 40 transactions.
fn ledger(directory: &Path, journal: Journal) -> CommitLedger {
    let ledger = empty(directory, journal);
    ledger.commit(1, 40);
    ledger
}

/// Makes snapshots under a storm of writers. Each is in one committed state: the one of its moment.
/// In WAL mode, writers see nothing of it.
fn snapshots_under_a_storm(directory: &Path, method: Method) {
    for journal in JOURNALS {
        let ledger = empty(directory, journal);
        // Checkpoints come often, so that they meet the clones.
        let setup = match journal {
            // It waits for no lock, and would end with an error if it met one.
            Journal::Wal => ".timeout 0\nPRAGMA wal_autocheckpoint=20;",
            _ => "",
        };
        let storm = Storm::start(&ledger, setup, 400);
        storm.wait_for(40);
        let mut kept = Vec::new();
        for round in 0..8 {
            let before = storm.committed();
            let made = snapshot(&ledger.path, &format!("s{round}"), Some(method)).unwrap();
            let record = made.snapshot.record().clone();
            assert_eq!(record.method, method);
            assert_eq!(record.survives, Survives::PowerCut);
            if journal == Journal::Wal {
                assert_eq!(record.writers_stopped_seconds, 0.0);
            } else {
                assert!(record.writers_stopped_seconds > 0.0, "{record:?}");
            }
            kept.push((made.snapshot, before));
            storm.wait_for(before + 40);
        }
        let last = storm.stop();
        let mut states = Vec::new();
        for (snapshot, before) in &kept {
            let copy = written_out(snapshot, directory);
            let state = ledger.check(&copy);
            assert!(
                (*before..=last).contains(&state),
                "{state} of {before} to {last}"
            );
            states.push(state);
            for side in ["-wal", "-shm", "-journal", ""] {
                let path = format!("{}{side}", copy.display());
                std::fs::remove_file(path).ok();
            }
        }
        assert!(states.is_sorted(), "{states:?}");
        assert_ne!(states.first(), states.last());
        // The database is as its writers left it.
        assert_eq!(ledger.check(&ledger.path), last);
    }
}

#[test]
fn copies_under_writers_are_each_in_one_committed_state() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    snapshots_under_a_storm(place.path(), Method::Copy);
}

#[test]
fn clones_on_xfs_under_writers_are_each_in_one_committed_state() {
    let volume = Volume::new(VolumeKind::Xfs, 600);
    snapshots_under_a_storm(volume.at(), Method::Clone);
}

#[test]
fn clones_on_btrfs_under_writers_are_each_in_one_committed_state() {
    let volume = Volume::new(VolumeKind::Btrfs, 600);
    snapshots_under_a_storm(volume.at(), Method::Clone);
}

/// A process that was killed in a commit leaves a hot journal, and a log whose last frames were
/// never committed. Neither may be in a snapshot.
#[test]
fn what_a_killed_writer_left_is_in_no_snapshot() {
    let volume = Volume::new(VolumeKind::Xfs, 600);
    for journal in JOURNALS {
        for method in [Method::Clone, Method::Copy] {
            let directory = volume.at().join(format!("{}-{method}", journal.name()));
            std::fs::create_dir(&directory).unwrap();
            let ledger = ledger(&directory, journal);
            let mut shell = ledger.shell();
            shell.run("PRAGMA cache_size=2; PRAGMA cache_spill=1; PRAGMA wal_autocheckpoint=0;");
            shell.run(&ledger.transaction(41));
            shell.run(&format!(
                "BEGIN IMMEDIATE; {} UPDATE account SET payload = 'x';",
                ledger.changes(42)
            ));
            shell.kill();
            let made = snapshot(&ledger.path, "after", Some(method)).unwrap();
            let copy = written_out(&made.snapshot, &directory);
            assert_eq!(ledger.check(&copy), 41, "{journal:?} {method}");
        }
    }
}

#[test]
fn without_clones_the_database_is_copied_and_the_reason_is_told() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let volume = Volume::new(VolumeKind::Ext4, 200);
    for directory in [place.path(), volume.at()] {
        let ledger = ledger(directory, Journal::Wal);
        let error = snapshot(&ledger.path, "a", Some(Method::Clone)).unwrap_err();
        assert!(matches!(error, SnapshotError::Method { .. }), "{error}");
        // Nothing is left of the attempt.
        let home = Place::beside(&ledger.path).unwrap();
        assert!(!home.home().exists());
        let made = snapshot(&ledger.path, "a", None).unwrap();
        assert_eq!(made.snapshot.record().method, Method::Copy);
    }
}

#[test]
fn a_snapshot_stays_as_it_is_while_the_database_changes() {
    let volume = Volume::new(VolumeKind::Xfs, 600);
    let ledger = ledger(volume.at(), Journal::Wal);
    let made: Vec<Snapshot> = [Method::Clone, Method::Copy]
        .map(|method| {
            snapshot(&ledger.path, method.word(), Some(method))
                .unwrap()
                .snapshot
        })
        .into();
    ledger.commit(41, 90);
    let mut shell = ledger.shell();
    shell.run("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);");
    shell.close();
    for snapshot in made {
        let place = tempfile::tempdir_in(volume.at()).unwrap();
        assert_eq!(ledger.check(&written_out(&snapshot, place.path())), 40);
    }
    assert_eq!(ledger.check(&ledger.path), 90);
}

#[test]
fn an_empty_database_has_snapshots_too() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let path = volume.at().join("empty.db");
    std::fs::write(&path, b"").unwrap();
    for method in [Method::Clone, Method::Copy] {
        let made = snapshot(&path, method.word(), Some(method)).unwrap();
        assert_eq!(image(&made.snapshot).files().0[0].bytes, 0);
    }
}

//! A pinned state is one committed state, however much others write while it is read.

use windlass_engine::Cancel;
use windlass_sqlite::{Database, PinnedReader};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Storm, run_once};

use crate::support::Room;

/// Reads all of it, in steps that are not page sizes.
fn content(reader: &PinnedReader) -> Vec<u8> {
    let (mut content, mut part) = (Vec::new(), vec![0; 10_007]);
    loop {
        let found = reader.read(content.len() as u64, &mut part).unwrap();
        content.extend_from_slice(&part[..found]);
        if found < part.len() {
            assert_eq!(content.len() as u64, reader.bytes());
            return content;
        }
    }
}

fn spec(journal: Journal) -> LedgerSpec {
    LedgerSpec {
        journal,
        ..LedgerSpec::default()
    }
}

#[test]
fn a_storm_of_writers_does_not_move_what_is_pinned() {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("ledger.db"), spec(Journal::Wal));
    let storm = Storm::start(&ledger, "PRAGMA wal_autocheckpoint=5;", u64::MAX);
    for number in 0..4 {
        storm.wait_for(16 * (number + 1));
        let before = storm.committed();
        let pinned = Database::open(&ledger.path)
            .unwrap()
            .pin(&Cancel::new())
            .unwrap();
        assert!(pinned.writers_go_on());
        let first = content(&pinned.reader());
        storm.wait_for(storm.committed() + 8);
        assert!(first == content(&pinned.reader()), "the state moved");
        pinned.end().unwrap();
        let copy = room.path(&format!("copy{number}"));
        std::fs::write(&copy, first).unwrap();
        assert!(ledger.check(&copy) >= before);
    }
    storm.stop();
}

#[test]
fn in_rollback_mode_nobody_commits_while_a_state_is_pinned() {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("ledger.db"), spec(Journal::Delete));
    ledger.commit(1, 5);
    let pinned = Database::open(&ledger.path)
        .unwrap()
        .pin(&Cancel::new())
        .unwrap();
    assert!(!pinned.writers_go_on());
    let refused = run_once(&ledger.path, "CREATE TABLE other (i)").unwrap_err();
    assert!(refused.contains("locked"), "{refused}");
    let held = content(&pinned.reader());
    assert!(held == std::fs::read(&ledger.path).unwrap());
    pinned.end().unwrap();
    run_once(&ledger.path, "CREATE TABLE other (i)").unwrap();
}

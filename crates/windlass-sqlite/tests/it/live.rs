//! Writers at full speed in other processes while backups are taken.

use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Storm};

use crate::support::{Room, round_trip};

/// Takes `backups` backups under a storm of `setup` and expects each to be one committed state,
/// no older than what was committed before it began.
fn storm(spec: LedgerSpec, setup: &str, backups: u32) {
    storm_of(spec, setup, backups, u64::MAX);
}

/// Does the same with a writer that gets at most `ahead_max` transactions ahead of the test.
fn storm_of(spec: LedgerSpec, setup: &str, backups: u32, ahead_max: u64) {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("ledger.db"), spec);
    let storm = Storm::start(&ledger, setup, ahead_max);
    storm.wait_for(16);
    let mut last = 0;
    for number in 0..backups {
        let before = storm.committed();
        let stripe = room.path(&format!("set{number}"));
        let copy = room.path(&format!("copy{number}"));
        let (outcome, _) = round_trip(&ledger.path, &stripe, &copy);
        let found = ledger.check(&copy);
        assert!(
            found >= before,
            "backup {number} has {found} transactions, {before} were there"
        );
        assert!(
            found >= last,
            "backup {number} is older than the one before"
        );
        assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
        last = found;
        // Wait until the writer has gone on, so that each backup meets another state.
        storm.wait_for(found + 8);
    }
    let committed = storm.stop();
    assert!(committed > last);
    assert_eq!(
        ledger.check(&ledger.path),
        committed,
        "the source is unharmed"
    );
}

const SMALL_PAGES: LedgerSpec = LedgerSpec {
    page_bytes: 512,
    journal: Journal::Wal,
    auto_vacuum: true,
    accounts: 600,
    payload_bytes: 900,
    seed: 3,
};

#[test]
fn wal_with_a_checkpoint_every_few_pages() {
    storm(LedgerSpec::default(), "PRAGMA wal_autocheckpoint=5;", 8);
}

#[test]
fn wal_with_the_default_checkpoints() {
    storm(SMALL_PAGES, "", 8);
}

#[test]
fn wal_that_is_never_checkpointed() {
    let spec = LedgerSpec {
        seed: 5,
        ..LedgerSpec::default()
    };
    // Each transaction stays in the log, and each backup reads all of them. So a writer without a
    // bound makes a slow backup slower.
    storm_of(spec, "PRAGMA wal_autocheckpoint=0;", 8, 500);
}

#[test]
fn wal_with_the_largest_pages() {
    let spec = LedgerSpec {
        page_bytes: 65536,
        seed: 6,
        ..LedgerSpec::default()
    };
    storm(spec, "PRAGMA wal_autocheckpoint=40;", 6);
}

#[test]
fn rollback_journal_deleted() {
    let spec = LedgerSpec {
        journal: Journal::Delete,
        seed: 7,
        ..LedgerSpec::default()
    };
    storm(spec, "", 6);
}

#[test]
fn rollback_journal_truncated_with_a_file_that_shrinks() {
    storm(
        LedgerSpec {
            journal: Journal::Truncate,
            seed: 8,
            ..SMALL_PAGES
        },
        "",
        10,
    );
}

#[test]
fn rollback_journal_persisted_with_a_cache_that_spills() {
    let spec = LedgerSpec {
        journal: Journal::Persist,
        seed: 9,
        ..LedgerSpec::default()
    };
    storm(spec, "PRAGMA cache_size=2; PRAGMA cache_spill=1;", 6);
}

//! Backups that take the pages of SQLite apart: the same bytes come back, and they take less room.

use std::fs;
use std::path::Path;

use windlass_engine::PagesReport;
use windlass_engine::media::Codec;
use windlass_sqlite::{BackupOutcome, Database};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell, Storm};

use crate::support::{
    Coding, Room, TRANSFER_BYTES, coded_run, gated_coded_run, read_set, restore_to, same_content,
    write_copy,
};

const APART: Coding = Coding {
    codec: Codec::Zstd(1),
    pages: true,
};
const AS_THEY_ARE: Coding = Coding {
    pages: false,
    ..APART
};
const PAGE_SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

fn back_up(database: &Path, stripe: &Path, coding: Coding) -> BackupOutcome {
    let mut database = Database::open(database).unwrap();
    database.backup(coded_run(stripe, coding)).unwrap()
}

fn pages_of(outcome: &BackupOutcome) -> PagesReport {
    let pages = outcome.report.pages.unwrap();
    assert_eq!(pages.wrong_frames, 0);
    pages
}

/// A table and an index of numbers, days and words, as programs have them.
const ORDERS: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT, price REAL, day TEXT, state TEXT);
    CREATE INDEX by_customer ON orders (customer, day);
    INSERT INTO orders WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 20000)
        SELECT n, n * 7919 % 900, (n * 7919 % 100000) / 100.0,
            date('2020-01-01', '+' || (n * 31 % 1000) || ' days'),
            CASE n % 3 WHEN 0 THEN 'open' WHEN 1 THEN 'paid' ELSE 'sent' END FROM n;";
/// What no codec makes smaller, so that a backup writes while it reads.
const NOISE: &str = "
    CREATE TABLE noise (noise BLOB);
    INSERT INTO noise WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 6000)
        SELECT randomblob(500) FROM n;";

/// A ledger with 60 transactions, and these tables.
fn ledger(room: &Room, page_bytes: u32, journal: Journal, tables: &str) -> CommitLedger {
    let spec = LedgerSpec {
        page_bytes,
        journal,
        accounts: 300,
        payload_bytes: 40,
        seed: page_bytes.into(),
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&room.path("ledger.db"), spec);
    let mut shell = ledger.shell();
    shell.run(tables);
    shell.close();
    ledger.commit(1, 60);
    ledger
}

#[test]
fn every_page_size_comes_back_byte_for_byte_in_less_room() {
    let mut saved = 0;
    for page_bytes in PAGE_SIZES {
        for journal in [Journal::Wal, Journal::Delete] {
            let room = Room::new();
            let ledger = ledger(&room, page_bytes, journal, ORDERS);
            // An open connection keeps the log from being written back at the end of each commit.
            let mut reader = ledger.shell();
            reader.run("SELECT count(*) FROM account;");
            ledger.commit(61, 80);
            let [apart, plain] = ["apart", "plain"].map(|name| room.path(name));
            let pages = pages_of(&back_up(&ledger.path, &apart, APART));
            back_up(&ledger.path, &plain, AS_THEY_ARE);
            assert_eq!(read_set(&apart).content, read_set(&plain).content);
            assert!(pages.apart_bytes > 0, "{page_bytes} {journal:?}: {pages:?}");
            // Where few frames are of large pages, it may gain nothing. It never costs a hundredth.
            let [apart_bytes, plain_bytes] =
                [&apart, &plain].map(|stripe| fs::metadata(stripe).unwrap().len());
            assert!(
                apart_bytes <= plain_bytes + plain_bytes / 100,
                "{page_bytes} {journal:?}: {apart_bytes} {plain_bytes}"
            );
            saved += plain_bytes.saturating_sub(apart_bytes);
            reader.close();

            // All is in the file now, so the source itself is what must come back.
            fs::remove_file(&apart).unwrap();
            back_up(&ledger.path, &apart, APART);
            let restored = restore_to(&apart, &room.path("restored.db"), false).unwrap();
            assert!(
                same_content(&ledger.path, &restored),
                "{page_bytes} {journal:?}"
            );
            assert_eq!(ledger.check(&restored), 80);
        }
    }
    assert!(saved > 1 << 20, "{saved}");
}

/// Takes backups with pages taken apart under a writer at full speed. Each must be one committed
/// state, no older than what was committed before it began.
fn storm(spec: LedgerSpec, setup: &str) {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("ledger.db"), spec);
    let storm = Storm::start(&ledger, setup, 2000);
    storm.wait_for(16);
    for number in 0..5 {
        let before = storm.committed();
        let stripe = room.path(&format!("set{number}"));
        let copy = room.path(&format!("copy{number}"));
        let pages = pages_of(&back_up(&ledger.path, &stripe, APART));
        assert!(pages.apart_bytes + pages.plain_bytes > 0);
        write_copy(&stripe, &copy);
        let found = ledger.check(&copy);
        assert!(
            found >= before,
            "backup {number}: {found}, {before} were there"
        );
        storm.wait_for(found + 8);
    }
    storm.stop();
}

#[test]
fn pages_are_taken_apart_while_writers_write_to_the_log() {
    storm(LedgerSpec::default(), "PRAGMA wal_autocheckpoint=5;");
}

#[test]
fn pages_are_taken_apart_while_a_file_without_a_log_shrinks_and_grows() {
    let spec = LedgerSpec {
        page_bytes: 512,
        journal: Journal::Truncate,
        auto_vacuum: true,
        accounts: 600,
        payload_bytes: 900,
        seed: 8,
    };
    storm(spec, "");
}

#[test]
fn another_page_size_in_the_middle_of_a_backup_costs_room_only() {
    let room = Room::new();
    let ledger = ledger(&room, 1024, Journal::Delete, &[ORDERS, NOISE].concat());
    let (stripe, copy) = (room.path("set"), room.path("copy"));
    // The header says 1024 when the backup looks, and 8192 when it reads the pages.
    let mut database = Database::open(&ledger.path).unwrap();
    let layout = database.page_layout().unwrap().unwrap();
    assert_eq!(layout.layout().page_size().bytes(), 1024);
    let path = ledger.path.clone();
    let mut path = Some(path);
    let run = gated_coded_run(
        &database,
        &stripe,
        (TRANSFER_BYTES, None, APART),
        move |_| {
            if let Some(path) = path.take() {
                let mut shell = Shell::open(&path);
                shell.run("PRAGMA page_size=8192; VACUUM;");
                shell.close();
            }
        },
    );
    let outcome = database.backup(run).unwrap();
    assert_eq!(outcome.facts.page_bytes, 8192);
    pages_of(&outcome);
    write_copy(&stripe, &copy);
    assert_eq!(ledger.check(&copy), 60);
}

#[test]
fn an_empty_database_and_a_damaged_one_come_back_as_they_are() {
    let room = Room::new();
    let (empty, stripe) = (room.path("empty.db"), room.path("set"));
    fs::write(&empty, b"").unwrap();
    assert!(back_up(&empty, &stripe, APART).report.pages.is_none());
    assert!(read_set(&stripe).content.is_empty());

    let ledger = ledger(&room, 4096, Journal::Delete, ORDERS);
    let mut bytes = fs::read(&ledger.path).unwrap();
    // The header stays, so that it is a database. All else is hit here and there.
    for (number, at) in (200..bytes.len()).step_by(997).enumerate() {
        bytes[at] ^= u8::try_from(number % 255 + 1).unwrap();
    }
    fs::write(&ledger.path, &bytes).unwrap();
    let stripe = room.path("damaged");
    pages_of(&back_up(&ledger.path, &stripe, APART));
    assert_eq!(read_set(&stripe).content, bytes);
}

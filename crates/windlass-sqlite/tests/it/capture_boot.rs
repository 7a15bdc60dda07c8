//! A capture that goes on after the system was started again.

use windlass_engine::Cancel;
use windlass_sqlite::{LogCapture, Standing};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec};

use crate::support::Room;

/// The same, looked at when the file was at rest: at this moment, if it is given.
fn at_rest(standing: Standing, seen_nanos: Option<&str>) -> Standing {
    let text = String::from(standing);
    let mut words: Vec<&str> = text.split(' ').collect();
    words[9] = "1";
    words[10] = seen_nanos.unwrap_or(words[10]);
    Standing::try_from(words.join(" ")).unwrap()
}

/// SQLite makes durable what it copies into the file, and not the time of that.
#[test]
fn a_change_time_from_before_the_start_proves_nothing_while_there_is_a_log() {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("a.db"), LedgerSpec::default());
    let begin = || LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
    let capture = begin();
    let standing = capture.standing().unwrap();
    capture.end().unwrap();
    let goes_on = |before: Standing| {
        let mut capture = begin();
        let goes_on = capture.go_on_from(&before).unwrap();
        capture.end().unwrap();
        goes_on
    };
    let (since, before) = (at_rest(standing, None), at_rest(standing, Some("1")));
    for standing in [since, before] {
        // As if a program had closed the database last, which removes them.
        for side in ["a.db-wal", "a.db-shm"] {
            std::fs::remove_file(room.path(side)).ok();
        }
        assert!(goes_on(standing));
    }
    let mut shell = ledger.shell();
    shell.run("SELECT count(*) FROM log;");
    assert!(room.path("a.db-wal").exists());
    assert!(goes_on(since) && !goes_on(before));
    shell.close();
}

//! A writer that died while it changed the index of the log.

use std::path::Path;
use std::process::Command;

use windlass_engine::Cancel;
use windlass_sqlite::{LogCapture, SqliteError, Watch};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec};

use crate::support::Room;

/// Makes the two copies of the header differ. It is another process: this one would lose its locks
/// if it closed the file.
fn leave_half_written(index: &Path) {
    let program = "import sys
file = open(sys.argv[1], 'r+b')
file.seek(56)
byte = file.read(1)[0]
file.seek(56)
file.write(bytes([byte ^ 1]))
file.close()";
    let mut command = Command::new("python3");
    let status = command.args(["-c", program]).arg(index).status();
    assert!(status.unwrap().success());
}

/// SQLite mends the index when the next pin begins. Nothing is lost, so no capture has to end.
#[test]
fn an_index_that_was_left_half_written_ends_a_watch_and_no_capture() {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("a.db"), LedgerSpec::default());
    let mut shell = ledger.shell();
    let mut capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
    let mut watch = Watch::default();
    let stand = |watch: &mut Watch, capture: &LogCapture| {
        let stands = watch.standing_at(capture, capture.point());
        stands.unwrap().1
    };
    let first = stand(&mut watch, &capture);
    assert!(first.is_some());
    for number in 1..=2 {
        shell.run(&ledger.transaction(number));
        leave_half_written(&room.path("a.db-shm"));
        watch.look_under_pin(&capture).unwrap();
        assert_eq!(watch.number(), None);
        assert_eq!(stand(&mut watch, &capture), None);
        let mut commits = 0;
        let looked = capture.look(&Cancel::new(), |_, look| {
            commits += look.commits.len();
            Ok::<_, SqliteError>(())
        });
        looked.unwrap();
        assert_eq!(commits, 1);
        let next = stand(&mut watch, &capture);
        assert!(next.is_some() && next != first);
    }
    capture.end().unwrap();
    shell.close();
}

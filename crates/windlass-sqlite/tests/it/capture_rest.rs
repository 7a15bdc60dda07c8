//! How much of a log is kept while writers wait for that.

use windlass_engine::Cancel;
use windlass_sqlite::{LogCapture, SqliteError};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec, Shell};

use crate::support::Room;

/// Writes so many pages in one transaction, and a few more.
fn write(shell: &mut Shell, pages: u32) {
    shell.run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {pages})
         INSERT INTO rest SELECT printf('%.*c', 400, 'x') FROM n;"
    ));
}

/// Whoever keeps what was captured takes so long for it that writers commit meanwhile.
#[test]
fn writers_wait_for_no_more_than_there_is_room_for() {
    for (rest_max, is_expected) in [(None, true), (Some(9000), true), (Some(100), false)] {
        let room = Room::new();
        let spec = LedgerSpec {
            page_bytes: 512,
            accounts: 10,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        let mut shell = ledger.shell();
        shell.run("PRAGMA wal_autocheckpoint=0; CREATE TABLE rest(x);");
        let mut capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
        if let Some(pages) = rest_max {
            capture.set_rest_max(pages * 512);
        }
        write(&mut shell, 9000);
        let mut has_waited = false;
        let looked = capture.look(&Cancel::new(), |_, look| {
            match look.writers_wait {
                true => has_waited = true,
                false => write(&mut shell, 300),
            }
            Ok::<_, SqliteError>(())
        });
        looked.unwrap();
        assert_eq!(has_waited, is_expected, "{rest_max:?}");
        // The next look has the rest.
        let mut commits = 0;
        let looked = capture.look(&Cancel::new(), |_, look| {
            commits += look.commits.len();
            Ok::<_, SqliteError>(())
        });
        looked.unwrap();
        assert_eq!(commits, usize::from(!is_expected), "{rest_max:?}");
        capture.end().unwrap();
    }
}

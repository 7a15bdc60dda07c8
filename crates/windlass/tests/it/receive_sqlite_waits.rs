//! A receiver of a SQLite database, and checkpoints that wait for it and for other readers.

use std::time::Duration;

use crate::chains_captured::{gave_way, start_patient};
use crate::receive_sqlite::Receiving;

/// So much processor time is far more than a receiver needs that looks a hundred times.
const TICKS_MAX: u64 = 30 * 100;

/// How much processor time the receiver has used, in ticks, of which a second has a hundred.
fn ticks(receiving: &Receiving) -> u64 {
    let id = receiving.child.as_ref().unwrap().id();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, behind_name) = stat.rsplit_once(") ").unwrap();
    let times = behind_name.split(' ').skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

/// The receiver gives way at each look, and that does not end the wait.
#[test]
fn a_checkpoint_that_waits_for_another_reader_does_not_keep_the_receiver_busy() {
    let mut receiving = Receiving::new();
    let mut reader = receiving.place.ledger.shell();
    reader.run("BEGIN; SELECT count(*) FROM account;");
    start_patient(&mut receiving);
    let mut writer = receiving.place.ledger.shell();
    writer.run(&receiving.place.ledger.transaction(21));
    writer.send("PRAGMA wal_checkpoint(RESTART);");
    // It looks only because the checkpoint waits.
    receiving.wait_for(1);
    let (before, used) = (gave_way(&receiving), ticks(&receiving));
    while gave_way(&receiving) < before + 100 {
        assert!(ticks(&receiving) < used + TICKS_MAX, "it looks on and on");
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.run("COMMIT;");
    writer.wait();
    receiving.stop();
}

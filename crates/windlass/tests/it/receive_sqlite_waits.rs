//! A receiver of a SQLite database, and what keeps the log from being copied into the file: other
//! readers, and a full disk.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::chains_captured::{gave_way, start_patient};
use crate::receive_sqlite::Receiving;
use crate::support::*;

/// So much processor time is far more than a receiver needs that looks a hundred times.
const TICKS_MAX: u64 = 30 * 100;
/// A transaction after which a receiver copies the log.
const LONG: &str = "CREATE TABLE long AS
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1200)
    SELECT printf('%.*c', 4000, 'x') AS x FROM n;";

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

/// Starts a receiver that cannot write to the file of the database, because the disk is full.
fn start_on_a_full_disk(receiving: &mut Receiving) {
    let (database, sets) = receiving.place.ends();
    std::fs::create_dir_all(receiving.place.path("sets/log")).unwrap();
    let plain = command();
    let mut strace = around("strace");
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-P", &database]);
    strace.args(["-e", "inject=write,pwrite64:error=ENOSPC"]);
    strace.arg(plain.get_program()).args(plain.get_args());
    strace.args(["receive", &database, "--to", &sets, "--interval", "10ms"]);
    let child = strace.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    receiving.child = Some(child);
}

/// Waits until so many transactions are received.
fn wait_for(receiving: &mut Receiving, number: u64) {
    loop {
        let timelines = receiving.timelines();
        let newest = timelines.last();
        if newest.is_some_and(|newest| newest["transactions"] == number) {
            return;
        }
        let child = receiving.child.as_mut().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_that_a_full_disk_keeps_from_being_copied_is_received_all_the_same() {
    let mut receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint = 0;");
    start_on_a_full_disk(&mut receiving);
    shell.run(&receiving.place.ledger.transaction(21));
    wait_for(&mut receiving, 1);
    assert_eq!(receiving.back_up("full").0, 0);
    shell.run(LONG);
    wait_for(&mut receiving, 2);
    // Another look finds this one, when the log could not be copied.
    shell.run(&receiving.place.ledger.transaction(22));
    wait_for(&mut receiving, 3);
    let bytes = receiving.place.path("shop.db").metadata().unwrap().len();
    assert!(bytes < 1000 * 4096, "{bytes}");
    receiving.stop();
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(22));
}

//! A receiver as the synchronous standby of a server: commits wait for it.

use std::process::Stdio;

use crate::log::rows;
use crate::receive::{Receiving, cluster};
use crate::run::*;

/// How many sessions wait for a standby.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A commit does not end before the receiver has said that the log is durable, and what has ended
/// is restored, although receiver and server crash at once.
#[test]
fn a_commit_waits_until_its_log_is_durable_in_the_place() {
    let mut receiving = Receiving::new();
    let mut server = cluster();
    receiving.back_up(&server);
    receiving.start(&server, &["--slot", "kept", "--create-slot"]);
    receiving.insert(&server, 1);
    let names = "ALTER SYSTEM SET synchronous_standby_names = 'windlass'";
    server.sql("postgres", names);
    server.sql("postgres", "SELECT pg_reload_conf()");
    // What looks whether somebody waits does not wait itself.
    let is_set = "SELECT current_setting('synchronous_standby_names')";
    server.wait_until(is_set, "windlass");
    server.wait_until("SELECT sync_state FROM pg_stat_replication", "sync");
    signal(&receiving.child, "STOP");
    let mut insert = server.tool("psql");
    insert.args(["-XAtc", "INSERT INTO t VALUES (2)", "postgres"]);
    insert.stdout(Stdio::null()).stderr(Stdio::null());
    let mut insert = insert.spawn().unwrap();
    server.wait_until(WAITING, "1");
    assert_eq!(insert.try_wait().unwrap(), None, "nobody has the log");
    assert_eq!(rows(&server), "1", "nobody sees the row yet");
    signal(&receiving.child, "CONT");
    server.wait_until(WAITING, "0");
    assert!(insert.wait().unwrap().success());
    receiving.kill();
    server.stop("immediate");
    let recovered = receiving.recovered("recovered", server.bin());
    assert_eq!(rows(&recovered), "1 2");
}

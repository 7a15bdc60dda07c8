//! Log that is received from a standby, which becomes the primary meanwhile.

use std::path::PathBuf;

use windlass_testkit::postgres::PrivateCluster;

use crate::log::rows;
use crate::receive::{Receiving, cluster};
use crate::run::*;

/// A standby that follows a server.
fn standby(receiving: &Receiving, of: &PrivateCluster) -> PrivateCluster {
    let copy = PathBuf::from(receiving.arg("standby"));
    let mut tool = of.tool("pg_basebackup");
    tool.args(["--checkpoint=fast", "--no-sync", "-R", "-D"]);
    let output = tool.arg(&copy).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    PrivateCluster::adopt(&copy, of.bin())
}

/// Inserts a row, and waits until the server that is received from hears that the row's log is
/// durable elsewhere.
fn insert(row: u32, into: &PrivateCluster, received: &PrivateCluster) {
    into.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
    let lsn = into.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
    let question = format!("SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{lsn}'");
    received.wait_until(&question, "1");
}

/// The server ends its old timeline within the session, and goes on with the next one.
#[test]
fn a_standby_that_is_promoted_is_followed_in_the_same_session() {
    let mut receiving = Receiving::new();
    let primary = cluster();
    let standby = standby(&receiving, &primary);
    receiving.back_up(&primary);
    receiving.start(&standby, &[]);
    insert(1, &primary, &standby);
    primary.sql("postgres", "SELECT pg_switch_wal()");
    insert(2, &primary, &standby);
    let sender = "SELECT pid FROM pg_stat_replication";
    let before = standby.sql("postgres", sender);
    standby.sql("postgres", "SELECT pg_promote()");
    insert(3, &standby, &standby);
    standby.sql("postgres", "SELECT pg_switch_wal()");
    insert(4, &standby, &standby);
    assert_eq!(standby.sql("postgres", sender), before);
    receiving.end();
    // The old primary goes on, too, and nobody receives that.
    primary.sql("postgres", "INSERT INTO t VALUES (30)");
    let place = receiving.arg("place");
    let verified = windlass(&["verify", &place]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let (code, document) = json(&["info", &place]);
    assert_eq!(code, 0, "{document}");
    let timelines = document["logs"][0]["timelines"].as_array().unwrap();
    assert_eq!(timelines.len(), 2, "{document}");
    for timeline in timelines {
        assert_eq!(timeline["gaps"].as_array().map(Vec::len), Some(0));
    }
    let restored = receiving.recovered("recovered", primary.bin());
    assert_eq!(rows(&restored), "1 2 3 4");
}

//! pg_control as a real server writes it, against what PostgreSQL's pg_controldata says of it.

use windlass_postgres::Control;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, succeed};

#[test]
fn pg_control_says_what_pg_controldata_says_and_no_byte_may_change() {
    let options = ClusterOptions::default().initdb("--data-checksums");
    let options = options
        .setting("max_prepared_transactions = 17")
        .setting("max_locks_per_transaction = 99")
        .setting("track_commit_timestamp = on");
    let mut cluster = PrivateCluster::start(&options);
    cluster.stop("fast");
    let control = Control::read(cluster.data()).unwrap();
    let text = succeed(cluster.tool("pg_controldata").arg(cluster.data()));
    let says = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    assert_eq!(
        control.system_identifier.to_string(),
        says("Database system identifier")
    );
    assert_eq!(
        control.control_version.to_string(),
        says("pg_control version number")
    );
    assert_eq!(
        control.catalog_version.to_string(),
        says("Catalog version number")
    );
    assert_eq!(
        control.checkpoint.to_string(),
        says("Latest checkpoint location")
    );
    assert_eq!(
        control.checkpoint_timeline.0.to_string(),
        says("Latest checkpoint's TimeLineID")
    );
    let ending = says("Min recovery ending loc's timeline");
    assert_eq!(control.min_recovery_timeline.0.to_string(), ending);
    assert_eq!(control.block_bytes.to_string(), says("Database block size"));
    assert_eq!(
        control.relation_segment_blocks.to_string(),
        says("Blocks per segment of large relation")
    );
    assert_eq!(control.wal_block_bytes.to_string(), says("WAL block size"));
    assert_eq!(
        control.wal_segment_bytes.to_string(),
        says("Bytes per WAL segment")
    );
    assert_eq!(
        control.checksum_version.to_string(),
        says("Data page checksum version")
    );
    let connections = control.connections_max.to_string();
    assert_eq!(connections, says("max_connections setting"));
    let prepared = control.prepared_transactions_max.to_string();
    assert_eq!(prepared, says("max_prepared_xacts setting"));
    let locks = control.locks_per_transaction_max.to_string();
    assert_eq!(locks, says("max_locks_per_xact setting"));
    assert!(control.commit_timestamps);
    assert_eq!(says("track_commit_timestamp setting"), "on");

    let path = cluster.data().join("global/pg_control");
    let bytes = std::fs::read(&path).unwrap();
    let meaningful = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for at in 0..=meaningful {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(
            Control::parse(changed).is_err(),
            "a change of byte {at} went unnoticed"
        );
    }

    std::fs::write(&path, control.without_checkpoint()).unwrap();
    let text = succeed(cluster.tool("pg_controldata").arg(cluster.data()));
    assert!(
        text.contains("Latest checkpoint location:           0/DEAD"),
        "{text}"
    );
    assert!(
        !text.contains("CRC"),
        "pg_controldata warns of a wrong CRC: {text}"
    );
}

//! pg_control as a real server writes it, compared with the output of PostgreSQL's pg_controldata.

use windlass_engine::media::crc32c;
use windlass_postgres::{Checksums, Control, Lsn, MAJOR_NEWEST};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::versions::{own_clients, versions};

#[test]
fn pg_control_says_what_pg_controldata_says_and_no_byte_may_change() {
    says_the_same(ClusterOptions::default());
}

/// The newest version has a field in the middle of the layout that older versions do not have.
#[test]
fn pg_control_of_the_newest_version_says_what_its_pg_controldata_says() {
    become_server_user();
    for (major, bin) in own_clients(MAJOR_NEWEST) {
        assert!(bin.join("pg_controldata").exists(), "{major}");
        says_the_same(ClusterOptions {
            bin,
            ..ClusterOptions::default()
        });
    }
}

/// The field stands in the middle of the layout. Some versions have no pg_controldata here, so the
/// server itself says what it is.
#[test]
fn the_next_transaction_is_what_the_server_of_each_version_says() {
    become_server_user();
    for (major, bin) in versions() {
        let options = ClusterOptions {
            bin,
            ..ClusterOptions::default()
        };
        let cluster = PrivateCluster::start(&options);
        lock_a_row_twice(&cluster);
        let next = cluster.sql("postgres", "SELECT next_xid FROM pg_control_checkpoint()");
        let control = Control::read(cluster.data()).unwrap();
        let found = format!("0:{}", control.next_transaction);
        assert_eq!(found, next, "PostgreSQL {major}");
        let ask = "SELECT next_multixact_id, next_multi_offset FROM pg_control_checkpoint()";
        let found = format!("{}|{}", control.next_multixact, control.next_member);
        assert_eq!(found, cluster.sql("postgres", ask), "PostgreSQL {major}");
    }
}

/// Makes a multixact: two transactions lock the same row. A checkpoint records it.
fn lock_a_row_twice(cluster: &PrivateCluster) {
    let lock = "BEGIN; SELECT FROM locked FOR KEY SHARE; SAVEPOINT again; \
        UPDATE locked SET x = 1; COMMIT; CHECKPOINT";
    let sql = format!("CREATE TABLE locked AS SELECT 1 i, 0 x; {lock}");
    cluster.sql("postgres", &sql);
}

fn says_the_same(options: ClusterOptions) {
    let options = options.initdb("--data-checksums");
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
    // 19 prints the second half of a position with its leading zeros.
    let location = says("Latest checkpoint location");
    assert_eq!(Lsn::parse(&location), Some(control.checkpoint));
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
    assert_eq!(control.checksums(), Checksums::On);
    let (epoch, next) = (
        control.next_transaction >> 32,
        control.next_transaction & u64::from(u32::MAX),
    );
    assert_eq!(
        format!("{epoch}:{next}"),
        says("Latest checkpoint's NextXID")
    );
    let connections = control.connections_max.to_string();
    assert_eq!(connections, says("max_connections setting"));
    let prepared = control.prepared_transactions_max.to_string();
    assert_eq!(prepared, says("max_prepared_xacts setting"));
    let locks = control.locks_per_transaction_max.to_string();
    assert_eq!(locks, says("max_locks_per_xact setting"));
    assert!(control.commit_timestamps);
    assert_eq!(says("track_commit_timestamp setting"), "on");
    let secret = control.secret().unwrap().iter();
    let secret: String = secret.map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(secret, says("Mock authentication nonce"));

    let path = cluster.data().join("global/pg_control");
    let bytes = std::fs::read(&path).unwrap();
    check_states(&bytes, &control);
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
    let location = text
        .lines()
        .find_map(|line| line.strip_prefix("Latest checkpoint location:"));
    assert!(location.unwrap().ends_with("DEAD"), "{text}");
    assert!(
        !text.contains("CRC"),
        "pg_controldata warns of a wrong CRC: {text}"
    );
}

/// Tries the states of checksums at the right place in the file. The test finds that place by
/// changing each byte and making the CRC match: the right one is where the parser then says `Off`.
fn check_states(bytes: &[u8], control: &Control) {
    let meaningful = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let crc_at = meaningful / 4 * 4;
    let with = |at: usize, state: u8| {
        let mut changed = bytes.to_vec();
        changed[at] = state;
        let crc = crc32c(&changed[..crc_at]);
        changed[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        Control::parse(changed)
    };
    let is_state = |at: &usize| with(*at, 0).is_ok_and(|read| read.checksums() == Checksums::Off);
    let places: Vec<usize> = (0..crc_at).filter(is_state).collect();
    let [at] = places[..] else {
        panic!("{places:?}")
    };
    for (state, meaning) in [
        (1, Checksums::On),
        (2, Checksums::Changing),
        (3, Checksums::Changing),
    ] {
        let read = with(at, state).unwrap();
        assert_eq!(read.checksums(), meaning, "{state}");
        assert_eq!(read.system_identifier, control.system_identifier);
    }
}

/// The tests copy the files that initdb made once. A server does not start if pg_control has a
/// wrong checksum, or another identifier than the log.
#[test]
fn each_cluster_of_the_tests_is_a_system_of_its_own() {
    become_server_user();
    for (_, bin) in versions() {
        let options = ClusterOptions {
            bin,
            ..ClusterOptions::default()
        };
        let options = options.initdb("--wal-segsize=1");
        let servers = [(); 3].map(|()| PrivateCluster::start(&options));
        let identifier = "SELECT system_identifier FROM pg_control_system()";
        let found = servers.iter().map(|it| it.sql("postgres", identifier));
        let found: std::collections::BTreeSet<_> = found.collect();
        assert_eq!(found.len(), servers.len(), "{found:?}");
    }
}

//! Snapshots of PostgreSQL clusters by clones of the file system, under load.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_testkit::installed::other_versions;
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::Scratch;
use crate::snapshot_room::{MIB, leave};
use crate::support::text;

/// Tables whose content is known, each for one way to be changed later.
const TABLES: [&str; 6] = [
    "updated",
    "emptied",
    "dropped",
    "packed",
    "cut",
    "elsewhere",
];

/// What changes them.
const CHANGES: [&str; 10] = [
    "UPDATE updated SET x = 'changed'",
    "TRUNCATE emptied",
    "DROP TABLE dropped",
    "DELETE FROM packed WHERE i % 2 = 0",
    "VACUUM FULL packed",
    "DELETE FROM cut WHERE i > 10",
    "VACUUM cut",
    "REINDEX TABLE updated",
    "UPDATE elsewhere SET x = 'changed'",
    "CHECKPOINT",
];

/// What pgbench keeps true in every state.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// A checksum of the rows of a table.
fn hash(table: &str) -> String {
    format!("SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t")
}

/// The newest version that is installed beside the one of the system.
fn another_version() -> PathBuf {
    other_versions().into_iter().max().unwrap().1
}

/// A cluster on this volume, with a tablespace that is not.
fn cluster_on(volume: &Volume, bin: &Path, elsewhere: &Path) -> PrivateCluster {
    let options = ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default()
    };
    let mut made = PrivateCluster::start(&options.initdb("--data-checksums"));
    made.stop("fast");
    let data = volume.at().join("data");
    succeed(Command::new("cp").arg("-a").arg(made.data()).arg(&data));
    let cluster = PrivateCluster::adopt(&data, bin);
    succeed(
        cluster
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    give_to_servers(elsewhere);
    let place = elsewhere.display();
    cluster.sql(
        "postgres",
        &format!("CREATE TABLESPACE far LOCATION '{place}'"),
    );
    cluster.sql("postgres", "CREATE TABLE kept (n bigint)");
    for table in TABLES {
        let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
        cluster.sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
        cluster.sql("postgres", &format!("CREATE INDEX ON {table} (i)"));
    }
    cluster.sql("postgres", "ALTER TABLE elsewhere SET TABLESPACE far");
    cluster
}

fn run(scratch: &Scratch, words: &[&str]) -> String {
    let output = scratch.run(None, words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    said
}

fn a_cluster_is_cloned(kind: VolumeKind, bin: &Path) {
    stay_root();
    let volume = Volume::new(kind, 1500);
    let (scratch, far) = (Scratch::new(), tempfile::tempdir_in("/var/tmp").unwrap());
    let cluster = cluster_on(&volume, bin, far.path());
    let conninfo = cluster.conninfo();
    let before = TABLES.map(|table| cluster.sql("postgres", &hash(table)));
    let create = ["snapshot", "create", &conninfo, "before", "--json"];
    let made = under_load(&cluster, || {
        let made = run(&scratch, &create);
        for change in CHANGES {
            cluster.sql("postgres", change);
        }
        made
    });
    let made: serde_json::Value = serde_json::from_str(made.trim()).unwrap();
    assert_eq!(made["method"], "clone", "{made}");
    assert_eq!(made["survives"], "power_cut");
    assert_eq!(made["writers_stopped_seconds"], 0.0);
    assert!(made["lsn"].as_str().unwrap().contains('/'), "{made}");
    let word = format!("{conninfo}@before");
    let mut sql = vec![SUMS.to_owned()];
    sql.extend(TABLES.map(hash));
    let sql = sql.join("; ");
    let bin = bin.to_str().unwrap();
    let rows = |word: &str| {
        let open = ["open", "--quiet", "--bindir", bin, word, "--"];
        let rows = run(
            &scratch,
            &[&open[..], &["psql", "-XqAt", "-c", &sql]].concat(),
        );
        rows.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut expected = vec!["t".to_owned()];
    expected.extend(before);
    assert_eq!(rows(&word), expected);
    let printed = run(&scratch, &["verify", "--open", "--bindir", bin, &word]);
    assert!(printed.contains("nothing wrong was found"), "{printed}");
    // A backup of it has the same content.
    let sets = scratch.path().join("sets").display().to_string();
    run(&scratch, &["backup", &word, "--to", &sets]);
    assert_eq!(rows(&sets), expected);
    // PostgreSQL's own tool finds every file of a restore as the set's manifest lists it.
    let into = scratch.path().join("restored").display().to_string();
    let near = scratch.path().join("near").display().to_string();
    let map = format!("{}={near}", far.path().display());
    run(
        &scratch,
        &["restore", &sets, "--into", &into, "--tablespace-map", &map],
    );
    succeed(cluster.tool("pg_verifybackup").arg(&into));
    run(&scratch, &["snapshot", "drop", &conninfo, "before"]);
    assert!(!volume.at().join("data.windlass-snapshots").exists());
    scratch.assert_clean();
}

#[test]
fn a_cluster_on_xfs_is_cloned_under_load() {
    a_cluster_is_cloned(VolumeKind::Xfs, DEFAULT_BIN.as_ref());
}

#[test]
fn a_cluster_on_btrfs_is_cloned_under_load() {
    a_cluster_is_cloned(VolumeKind::Btrfs, &another_version());
}

/// A cluster on this volume.
fn small_cluster_on(volume: &Volume) -> PrivateCluster {
    let mut made = PrivateCluster::start(&ClusterOptions::default());
    made.stop("fast");
    let data = volume.at().join("data");
    succeed(Command::new("cp").arg("-a").arg(made.data()).arg(&data));
    PrivateCluster::adopt(&data, DEFAULT_BIN.as_ref())
}

/// Whether a part of this file is that of another one, too (Debian: e2fsprogs).
fn is_shared(path: &Path) -> bool {
    let mut filefrag = Command::new("filefrag");
    let output = filefrag.arg("-v").arg(path).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let flags = |line: &str| line.split([' ', ',']).any(|flag| flag == "shared");
    said.lines().any(flags)
}

/// A server uses the files of its log again. Where it shared their blocks, that needed new ones,
/// and a server that gets none ends with a panic.
#[test]
fn a_clone_shares_no_block_of_the_log_with_its_server() {
    stay_root();
    let (volume, scratch) = (Volume::new(VolumeKind::Xfs, 400), Scratch::new());
    let cluster = small_cluster_on(&volume);
    let conninfo = cluster.conninfo();
    let create = ["snapshot", "create", &conninfo, "one", "--method", "clone"];
    run(&scratch, &create);
    let data = volume.at().join("data.windlass-snapshots/one/data");
    let entries = std::fs::read_dir(data).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    // No other file of a new cluster is as long as a segment of the log.
    let (log, rest): (Vec<_>, Vec<_>) =
        files.partition(|path| path.metadata().unwrap().len() == 16 * MIB);
    assert!(!log.is_empty());
    assert!(rest.iter().any(|path| is_shared(path)));
    assert!(!log.iter().any(|path| is_shared(path)), "{log:?}");
}

#[test]
fn a_clone_is_refused_where_a_server_would_have_too_little_room() {
    stay_root();
    let (volume, scratch) = (Volume::new(VolumeKind::Xfs, 400), Scratch::new());
    let cluster = small_cluster_on(&volume);
    cluster.sql("postgres", "CREATE TABLE t AS SELECT 1 AS i");
    cluster.sql("postgres", "CHECKPOINT");
    let conninfo = cluster.conninfo();
    leave(volume.at(), 24 * MIB);
    let create = ["snapshot", "create", &conninfo, "one", "--method", "clone"];
    let output = scratch.run(None, &create);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("must stay so"), "{said}");
    assert!(said.contains("hint: "), "{said}");
    // The server has room, and nothing is left.
    cluster.sql("postgres", "INSERT INTO t VALUES (2)");
    assert!(!volume.at().join("data.windlass-snapshots").exists());
}

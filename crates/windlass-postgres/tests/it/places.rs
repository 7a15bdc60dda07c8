//! Where files lie and who may read them: tablespaces, links, modes, and what a backup leaves out.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_postgres::{Cluster, Server, Warning, socket_owner};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::open::Opened;
use crate::support::{Wish, backup, restore_and_judge, restore_set, try_backup, verify_backup};
use crate::versions::versions;

fn place() -> tempfile::TempDir {
    become_server_user();
    tempfile::tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn tablespaces_are_restored_elsewhere_and_the_old_ones_stay_untouched() {
    let place = place();
    let source = PrivateCluster::start(
        &ClusterOptions::default().setting("allow_in_place_tablespaces = on"),
    );
    let old = place.path().join("old space");
    std::fs::create_dir(&old).unwrap();
    source.sql(
        "postgres",
        &format!("CREATE TABLESPACE away LOCATION '{}'", old.display()),
    );
    source.sql("postgres", "CREATE TABLESPACE within LOCATION ''");
    source.sql(
        "postgres",
        "CREATE TABLE a TABLESPACE away AS SELECT generate_series(1, 1000) i",
    );
    source.sql(
        "postgres",
        "CREATE TABLE w TABLESPACE within AS SELECT generate_series(1, 900) i",
    );
    source.sql("postgres", "CREATE DATABASE d TABLESPACE away");
    let outcome = backup(&source, &place.path().join("set"));
    assert_eq!(outcome.facts.tablespaces.len(), 2);

    let (into, new) = (
        place.path().join("restored"),
        place.path().join("new space"),
    );
    let map = [(old.clone(), new.clone())];
    let server = restore_and_judge(&source, &place.path().join("set"), &into, &map);
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM a"), "1000");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM w"), "900");
    assert_eq!(server.sql("d", "SELECT 1"), "1");
    let location = "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 'away'";
    assert_eq!(server.sql("postgres", location), new.to_str().unwrap());
    server.sql("postgres", "DROP TABLE a");
    assert_eq!(source.sql("postgres", "SELECT count(*) FROM a"), "1000");
}

/// Makes a table in a tablespace in place, in a session that may. The configuration does not allow
/// it, so by itself no server recovers with such a tablespace.
fn create_in_place(source: &PrivateCluster, name: &str) {
    let space = format!("CREATE TABLESPACE {name} LOCATION ''");
    let mut psql = source.tool("psql");
    psql.env("PGOPTIONS", "-c allow_in_place_tablespaces=on");
    succeed(psql.args(["-X", "-d", "postgres", "-c", &space]));
    let table = format!("CREATE TABLE in_{name} TABLESPACE {name} AS SELECT 42 i");
    source.sql("postgres", &table);
}

fn starts_restored(source: &PrivateCluster, place: &Path, tables: &[&str]) {
    let (set, into) = (place.join("set"), place.join("restored"));
    let plan = restore_set(&set, &into, &[]);
    let words = plan.next_steps();
    assert!(words.contains("allow_in_place_tablespaces"), "{words}");
    let server = PrivateCluster::adopt(&into, source.bin());
    for table in tables {
        let sql = format!("SELECT i FROM {table}");
        assert_eq!(server.sql("postgres", &sql), "42");
    }
}

#[test]
fn a_restored_cluster_with_a_tablespace_in_place_starts() {
    become_server_user();
    for (_, bin) in versions().into_iter().filter(|(major, _)| *major >= 15) {
        let place = place();
        let source = PrivateCluster::start(&ClusterOptions {
            bin,
            ..ClusterOptions::default()
        });
        create_in_place(&source, "early");
        backup(&source, &place.path().join("set"));
        starts_restored(&source, place.path(), &["in_early"]);
    }
}

/// The files were listed before the tablespace existed, so only the log has it.
#[test]
fn a_restored_cluster_starts_if_its_log_creates_a_tablespace_in_place() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let (set, gate) = (place.path().join("set"), Gate::default());
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        gate.wait_reached();
        create_in_place(&source, "late");
        gate.open();
        backup.join().unwrap().unwrap();
    });
    starts_restored(&source, place.path(), &["in_late"]);
}

#[test]
fn unlogged_tables_are_restored_empty_and_temporary_ones_not_at_all() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql("postgres", "CREATE UNLOGGED TABLE u (i int PRIMARY KEY)");
    source.sql(
        "postgres",
        "INSERT INTO u SELECT generate_series(1, 100000)",
    );
    source.sql("postgres", "CHECKPOINT");
    let path = source.sql("postgres", "SELECT pg_relation_filepath('u')");
    // A session that keeps a temporary table while the backup runs.
    let mut psql = source.tool("psql");
    psql.args([
        "-X",
        "-q",
        "-c",
        "CREATE TEMP TABLE t AS SELECT generate_series(1, 100000)",
    ]);
    psql.args(["-c", "SELECT pg_sleep(1000)"])
        .stdout(std::process::Stdio::null());
    let mut holder = psql.spawn().unwrap();
    let holds = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relname = 't'";
    source.wait_until(holds, "1");
    backup(&source, &place.path().join("set"));
    holder.kill().unwrap();
    holder.wait().unwrap();

    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    assert!(!into.join(&path).exists() && into.join(format!("{path}_init")).exists());
    let database = into.join(&path).parent().unwrap().to_path_buf();
    let names = std::fs::read_dir(database)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(
        names
            .filter(|name| name.as_encoded_bytes().starts_with(b"t"))
            .count(),
        0
    );
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM u"), "0");
    server.sql("postgres", "INSERT INTO u VALUES (1)");
}

#[test]
fn group_access_and_a_linked_log_directory_come_back_as_they_should() {
    let place = place();
    let wal = place.path().join("wal");
    let source = PrivateCluster::start(
        &ClusterOptions::default()
            .initdb("--allow-group-access")
            .initdb(format!("--waldir={}", wal.display())),
    );
    let (space, moved) = (place.path().join("space"), place.path().join("moved"));
    std::fs::create_dir(&space).unwrap();
    let create = format!("CREATE TABLESPACE space LOCATION '{}'", space.display());
    source.sql("postgres", &create);
    let outcome = backup(&source, &place.path().join("set"));
    assert!(outcome.facts.group_access);
    let into = place.path().join("restored");
    let map = [(space, moved.clone())];
    let server = restore_and_judge(&source, &place.path().join("set"), &into, &map);
    assert!(
        !into.join("pg_wal").is_symlink(),
        "the restored log is inside"
    );
    assert_eq!((mode(server.data()), mode(&moved)), (0o750, 0o750));
    for name in ["base", "global", "pg_wal"] {
        assert_eq!(mode(&into.join(name)), 0o750, "{name}");
    }
    assert_eq!(
        (
            mode(&into.join("PG_VERSION")),
            mode(&into.join("pg_hba.conf"))
        ),
        (0o640, 0o640)
    );
    let us = nix_uid();
    assert_eq!(
        std::fs::metadata(into.join("PG_VERSION")).unwrap().uid(),
        us
    );
}

#[test]
fn a_cluster_whose_links_lead_to_links_is_backed_up_restored_and_opened() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(at(to), at(name)).unwrap();
    // The log lies behind two links, and the location of a tablespace is a link.
    let waldir = format!("--waldir={}", at("wal").display());
    let mut source = PrivateCluster::start(&ClusterOptions::default().initdb(waldir));
    source.stop("fast");
    std::fs::rename(at("wal"), at("real wal")).unwrap();
    link("real wal", "wal");
    std::fs::create_dir(at("real space")).unwrap();
    link("real space", "space");
    source.run();
    let create = format!(
        "CREATE TABLESPACE space LOCATION '{}'",
        at("space").display()
    );
    source.sql("postgres", &create);
    let sql = "CREATE TABLE t TABLESPACE space AS SELECT generate_series(1, 1000) i";
    source.sql("postgres", sql);
    let outcome = backup(&source, &at("set"));
    assert_eq!(
        outcome.facts.tablespaces[0].location,
        at("space").display().to_string()
    );

    let map = [(at("space"), at("moved"))];
    let server = restore_and_judge(&source, &at("set"), &at("restored"), &map);
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM t"), "1000");
    // Restore the tablespace to its old place, behind the link that still exists.
    drop(server);
    source.stop("fast");
    std::fs::remove_dir_all(at("real space")).unwrap();
    std::fs::create_dir(at("real space")).unwrap();
    let server = restore_and_judge(&source, &at("set"), &at("again"), &[]);
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM t"), "1000");
    assert!(at("space").is_symlink());

    let opened = Opened::new(source.bin(), place);
    let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
    assert_eq!(opened.sql(&server, "SELECT count(*) FROM t"), "1000");
}

fn nix_uid() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn what_is_not_in_the_set_is_said() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql(
        "postgres",
        "SELECT pg_create_physical_replication_slot('kept')",
    );
    let outside = place.path().join("hba.conf");
    std::fs::copy(source.data().join("pg_hba.conf"), &outside).unwrap();
    let set_hba = format!("ALTER SYSTEM SET hba_file = '{}'", outside.display());
    source.sql("postgres", &set_hba);
    let mut source = source;
    source.stop("fast");
    source.run();
    let log = place.path().join("log-elsewhere");
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join("today"), "a line\n").unwrap();
    std::os::unix::fs::symlink(&log, source.data().join("log")).unwrap();

    let outcome = backup(&source, &place.path().join("set"));
    let warnings = outcome.facts.warnings;
    assert!(
        warnings.contains(&Warning::ReplicationSlots { count: 1 }),
        "{warnings:?}"
    );
    let outside = outside.display().to_string();
    assert!(warnings.contains(&Warning::ConfigurationOutside {
        path: outside.clone()
    }));
    let target = log.display().to_string();
    assert!(warnings.contains(&Warning::LinkFollowed {
        path: "log".into(),
        target
    }));

    let into = place.path().join("restored");
    let plan = restore_set(&place.path().join("set"), &into, &[]);
    assert!(plan.next_steps().contains(&outside));
    assert_eq!(
        std::fs::read_to_string(into.join("log/today")).unwrap(),
        "a line\n"
    );
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    server.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
}

#[test]
fn a_configuration_that_no_server_would_start_with_is_named() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let backed_up = |name: &str| {
        let outcome = backup(&source, &place.path().join(name));
        let warnings = outcome.facts.warnings.into_iter();
        let of_configuration = warnings.filter(|one| one.name() == "configuration-error");
        of_configuration
            .map(|one| one.to_string())
            .collect::<Vec<_>>()
    };
    // A server starts with these. The running one has not taken them.
    source.configure(&["max_connections = 17", "search_path = 'nowhere'"]);
    assert_eq!(backed_up("sound"), Vec::<String>::new());
    source.configure(&["work_mem = = 1"]);
    let file = source.data().join("postgresql.conf");
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    let file = file.display();
    assert_eq!(
        backed_up("wrong"),
        [format!(
            "{file} line {lines}: syntax error: no server starts with this configuration"
        )]
    );
}

#[test]
fn the_user_to_become_is_the_sockets_owner_or_the_usual_one() {
    let _place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let owner = std::fs::metadata(source.data()).unwrap();
    assert_eq!(
        socket_owner(&source.conninfo()),
        Some((owner.uid(), owner.gid()))
    );
    assert_eq!(socket_owner("host=/nonexistent"), None);
    assert_eq!(socket_owner("no connection string"), None);
    // If this process started as root, it has become that user.
    let usual = socket_owner("host=127.0.0.1").unwrap();
    assert_eq!(usual, socket_owner("postgresql://localhost:9/x").unwrap());
}

#[test]
fn without_its_label_a_restored_cluster_does_not_start() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    backup(&source, &place.path().join("set"));
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    std::fs::remove_file(into.join("backup_label")).unwrap();
    let mut server = PrivateCluster::adopt_stopped(&into, source.bin());
    let started = server.try_run();
    assert!(!started.status.success());
    let log = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(log.contains("checkpoint record"), "{log}");
}

#[test]
fn facts_are_the_servers_and_the_label_is_the_users() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let cluster = Cluster::connect(&source.conninfo()).unwrap();
    let facts = cluster.facts();
    let identifier = "SELECT system_identifier FROM pg_control_system()";
    assert_eq!(
        facts.system_identifier.to_string(),
        source.sql("postgres", identifier)
    );
    assert_eq!(
        facts.data_directory,
        PathBuf::from(source.sql("postgres", "SHOW data_directory"))
    );
    assert_eq!(
        (facts.block_bytes, facts.wal_segment_bytes),
        (8192, 16 << 20)
    );
    assert!(!facts.standby && facts.wal_level == "replica");
    assert_eq!(cluster.scan_volumes().unwrap(), 1);
    let size: u64 = source
        .sql(
            "postgres",
            "SELECT sum(pg_database_size(oid)) FROM pg_database",
        )
        .parse()
        .unwrap();
    assert!(cluster.estimate_bytes().unwrap() >= size / 2);

    let wish = Wish {
        label: "Täglich um 3".into(),
        ..Wish::default()
    };
    let outcome = try_backup(&source, &place.path().join("set"), &wish).unwrap();
    assert_eq!(outcome.facts.label, wish.label);
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    let label = std::fs::read_to_string(into.join("backup_label")).unwrap();
    assert!(label.contains("LABEL: Täglich um 3\n"), "{label}");
}

//! A restored cluster leaves its source alone: the archive, the subscriptions and the directories.

use std::path::Path;

use windlass_postgres::Kept;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{backup, restore_keeping, restore_set, verify_backup};
use crate::versions::versions;
use crate::windows::options_of;

const SWITCH: &str = "SELECT pg_logical_emit_message(true, '', 'x'); SELECT pg_switch_wal()";

fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// A cluster that archives, with the settings for this in every file that can hold them.
fn archiving(place: &Path) -> PrivateCluster {
    let archive = place.join("archive");
    std::fs::create_dir(&archive).unwrap();
    let command = format!("archive_command = 'cp %p {}/%f'", archive.display());
    let options = ClusterOptions::default()
        .setting("archive_mode = on")
        .setting("include_if_exists 'archive.conf'");
    let mut source = PrivateCluster::start(&options.setting(&command));
    std::fs::write(source.data().join("archive.conf"), &command).unwrap();
    source.sql("postgres", "ALTER SYSTEM SET archive_mode = 'always'");
    let system = format!("ALTER SYSTEM SET {}", command.replace(" = ", " TO "));
    source.sql("postgres", &system);
    source.stop("fast");
    source.run();
    source
}

/// How many files a server has yet to archive.
pub const UNARCHIVED: &str =
    "SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'";

/// Waits until the archive of a server has everything that it was given. Returns the names in it.
fn settled(server: &PrivateCluster, archive: &Path) -> Vec<String> {
    let given = server.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal() - 1)");
    let archived = format!("SELECT last_archived_wal >= '{given}' FROM pg_stat_archiver");
    server.wait_until(&archived, "t");
    // The file that tells of a backup comes later, and a command may outlive its server.
    server.wait_until(UNARCHIVED, "0");
    names(archive)
}

/// Starts a restored server with more settings, makes it write log, and stops it. When a server
/// stops, its archiver does the work that is left.
fn write_log(server: &mut PrivateCluster, lines: &[&str]) {
    server.configure(lines);
    server.run();
    for _ in 0..2 {
        server.sql("postgres", SWITCH);
    }
    assert_eq!(server.sql("postgres", "SELECT pg_is_in_recovery()"), "f");
    server.sql("postgres", "CHECKPOINT");
    server.stop("fast");
}

#[test]
fn a_restored_server_writes_nothing_into_the_archive_of_its_source() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let mut source = archiving(place.path());
    let set = place.path().join("set");
    backup(&source, &set);
    let archive = place.path().join("archive");
    let archived = settled(&source, &archive);
    source.stop("immediate");

    let into = place.path().join("restored");
    let plan = restore_set(&set, &into, &[]);
    verify_backup(&source, &into);
    let next = plan.next_steps();
    assert!(next.contains("Archiving is off"), "{next}");
    let mut server = PrivateCluster::adopt_stopped(&into, source.bin());
    write_log(&mut server, &[]);
    // Files that the server reads earlier do not turn archiving on, and neither does archive_mode
    // alone on the command line.
    let again = format!("archive_command = 'cp %p {}/again'", archive.display());
    write_log(&mut server, &["archive_mode = on", &again]);
    server.option("-c archive_mode=on");
    write_log(&mut server, &[]);
    assert_eq!(names(&archive), archived);
}

#[test]
fn a_restored_server_that_is_promoted_writes_nothing_into_the_archive_either() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let mut source = archiving(place.path());
    let set = place.path().join("set");
    backup(&source, &set);
    source.sql("postgres", "CREATE TABLE later AS SELECT 1 AS i");
    let archive = place.path().join("archive");
    let archived = settled(&source, &archive);
    source.stop("immediate");

    let into = place.path().join("restored");
    restore_set(&set, &into, &[]);
    let mut server = PrivateCluster::adopt_stopped(&into, source.bin());
    server.configure(&[format!(
        "restore_command = 'cp {}/%f %p'",
        archive.display()
    )]);
    std::fs::write(into.join("recovery.signal"), "").unwrap();
    server.run();
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(server.sql("postgres", "SELECT i FROM later"), "1");
    server.sql("postgres", SWITCH);
    server.stop("fast");
    assert_eq!(names(&archive), archived, "no history, no segment");
}

#[test]
fn archiving_goes_on_when_it_is_asked_for() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let mut source = archiving(place.path());
    let set = place.path().join("set");
    backup(&source, &set);
    let archive = place.path().join("archive");
    let archived = settled(&source, &archive);
    source.stop("immediate");
    let keep = Kept {
        archive: true,
        ..Kept::default()
    };
    let into = place.path().join("restored");
    let plan = restore_keeping(&set, &into, &[], keep);
    assert!(plan.next_steps().contains("archives its log as its source"));
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    server.sql("postgres", SWITCH);
    assert!(settled(&server, &archive).len() > archived.len());
}

#[test]
fn a_restored_subscriber_leaves_the_subscription_to_its_source() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let options = ClusterOptions::default().setting("wal_level = logical");
    let publisher = PrivateCluster::start(&options);
    let source = PrivateCluster::start(&ClusterOptions::default());
    for cluster in [&publisher, &source] {
        cluster.sql("postgres", "CREATE TABLE t (i int PRIMARY KEY)");
    }
    publisher.sql("postgres", "CREATE PUBLICATION p FOR TABLE t");
    let subscribe = format!(
        "CREATE SUBSCRIPTION s CONNECTION '{}' PUBLICATION p",
        publisher.conninfo()
    );
    source.sql("postgres", &subscribe);
    let active = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 's' AND active";
    publisher.wait_until(&format!("SELECT count(*) FROM ({active}) a"), "1");
    let set = place.path().join("set");
    let outcome = backup(&source, &set);
    assert_eq!(outcome.facts.outgoing.subscriptions, Some(1));

    let into = place.path().join("restored");
    let plan = restore_set(&set, &into, &[]);
    assert!(plan.next_steps().contains("subscriptions (1) are off"));
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    // The launcher would start with the server. Without it nobody connects to the publisher.
    let launcher = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'logical repl%'";
    assert_eq!(server.sql("postgres", launcher), "0");
    publisher.sql("postgres", "INSERT INTO t VALUES (1)");
    source.wait_until("SELECT count(*) FROM t", "1");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM t"), "0");

    let keep = Kept {
        subscriptions: true,
        ..Kept::default()
    };
    let into = place.path().join("kept");
    restore_keeping(&set, &into, &[], keep);
    let server = PrivateCluster::adopt(&into, source.bin());
    // The server starts it after it accepts connections.
    server.wait_until(launcher, "1");
}

#[test]
fn a_restored_server_stays_within_its_own_directories() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (log, pid) = (place.path().join("log"), place.path().join("pid"));
    let options = ClusterOptions::default()
        .setting("logging_collector = on")
        .setting(format!("log_directory = '{}'", log.display()))
        .setting(format!("external_pid_file = '{}'", pid.display()));
    let mut source = PrivateCluster::start(&options);
    let own = format!("data_directory = '{}'", source.data().display());
    source.configure(&[own]);
    source.stop("fast");
    source.run();
    let set = place.path().join("set");
    backup(&source, &set);
    source.stop("fast");
    assert!(!pid.exists());
    let logged = names(&log);

    let into = place.path().join("restored");
    let next = restore_set(&set, &into, &[]).next_steps();
    let option = format!("-c data_directory={}", into.display());
    assert!(next.contains(&option), "{next}");
    assert!(next.contains("Its server log goes to"), "{next}");
    let mut server = PrivateCluster::adopt_stopped(&into, source.bin());
    server.option(&option);
    server.run();
    let directory = server.sql("postgres", "SHOW data_directory");
    assert_eq!(Path::new(&directory), into);
    assert!(!pid.exists() && !names(&into.join("log")).is_empty());
    assert_eq!(names(&log), logged);
    assert!(
        !server.log().contains("external PID file"),
        "{}",
        server.log()
    );
}

#[test]
fn relative_paths_out_of_the_data_directory_are_not_followed() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let old = versions().into_iter().find(|(major, _)| *major == 14);
    let (_, bin) = old.expect("PostgreSQL 14");
    let servers = [ClusterOptions::default(), options_of(&bin)];
    for (index, options) in servers.iter().enumerate() {
        let (statistics, beside) = (place.path().join("stats"), format!("../beside-{index}"));
        let mut source = PrivateCluster::start(options);
        let mut lines = vec![
            "logging_collector = on".to_owned(),
            format!("log_directory = '{beside}'"),
            "log_filename = '../again/x.log'".to_owned(),
        ];
        if index == 1 {
            std::fs::create_dir(&statistics).unwrap();
            let line = format!("stats_temp_directory = '{}'", statistics.display());
            lines.push(line);
        }
        std::fs::create_dir(source.data().join("../again")).unwrap();
        source.configure(&lines);
        source.stop("fast");
        source.run();
        let set = place.path().join(format!("set-{index}"));
        backup(&source, &set);
        source.stop("fast");

        let new = place.path().join(format!("new-{index}"));
        std::fs::create_dir(&new).unwrap();
        let into = new.join("restored");
        let next = restore_set(&set, &into, &[]).next_steps();
        assert!(next.contains(&format!("instead of {beside}")), "{next}");
        assert!(next.contains("instead of ../again/x.log"), "{next}");
        let server = PrivateCluster::adopt(&into, source.bin());
        assert_eq!(names(&new), ["restored"]);
        assert!(!names(&into.join("log")).is_empty());
        assert!(!server.log().contains("external PID file"));
        if index == 1 {
            let directory = server.sql("postgres", "SHOW stats_temp_directory");
            assert_eq!(directory, "pg_stat_tmp");
            assert!(next.contains("Its temporary statistics go to"), "{next}");
        }
    }
}

#[test]
fn a_set_without_settings_of_alter_system_is_restored_with_ours() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default().setting("archive_mode = on"));
    std::fs::remove_file(source.data().join("postgresql.auto.conf")).unwrap();
    backup(&source, &place.path().join("set"));
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    assert_eq!(server.sql("postgres", "SHOW archive_mode"), "off");
}

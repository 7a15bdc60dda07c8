//! What makes a backup fail, and what an interrupted backup leaves behind: nothing.

use std::path::Path;

use windlass_postgres::{Cluster, PostgresError, Warning};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, backup_connected, end_window_at_gate, holds_no_set, try_backup};

/// So slow that the copy is still running when something happens to it.
const CRAWL: u64 = 2 << 20;
/// Returns 1 once a backup is copying files.
pub const IN_BACKUP: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE application_name = 'windlass' AND state = 'idle' AND query LIKE '%pg_backup_start%'";

/// Starts a slow backup, runs `disturb` while it copies files, and returns its error.
fn disturbed(
    source: &PrivateCluster,
    set: &Path,
    disturb: impl FnOnce(&PrivateCluster, &Wish),
) -> PostgresError {
    let wish = Wish {
        source_rate: Some(CRAWL),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(source, set, &wish));
        source.wait_until(IN_BACKUP, "1");
        disturb(source, &wish);
        backup.join().unwrap().unwrap_err()
    });
    assert!(holds_no_set(set), "a set that failed must not be there");
    let left = std::fs::read_dir(set).unwrap().count();
    assert_eq!(left, 0, "a set that failed leaves no file");
    source.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
    error
}

fn small_cluster() -> (tempfile::TempDir, PrivateCluster) {
    become_server_user();
    let cluster = PrivateCluster::start(&ClusterOptions::default());
    (tempfile::tempdir().unwrap(), cluster)
}

#[test]
fn a_backup_whose_session_is_killed_fails_and_the_next_one_succeeds() {
    let (place, source) = small_cluster();
    // Ends the backup's own session, and the one that pins the log.
    let kill = "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'windlass'";
    let error = disturbed(&source, &place.path().join("set"), |source, _| {
        assert_eq!(source.sql("postgres", kill), "t");
    });
    assert!(matches!(error, PostgresError::Sql { .. }), "{error}");
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
}

#[test]
fn the_end_of_the_backups_session_is_noticed_at_once() {
    let (place, source) = small_cluster();
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'windlass' AND query LIKE '%pg_backup_start%'";
    // The copy would take minutes, and the test must not wait for it.
    let wish = Wish {
        source_rate: Some(64 << 10),
        ..Wish::default()
    };
    let set = place.path().join("set");
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        source.wait_until(IN_BACKUP, "1");
        assert_eq!(source.sql("postgres", kill), "1");
        backup.join().unwrap().unwrap_err()
    });
    let text = error.to_string();
    assert!(
        text.contains("FATAL: terminating connection due to administrator"),
        "{text}"
    );
    assert!(holds_no_set(&set));
}

/// The test ends the session that pins the log twice. The log stays pinned, and the backup goes on.
#[test]
fn the_end_of_the_slots_session_is_noticed_at_once_and_another_one_pins_the_log() {
    let (place, source) = small_cluster();
    let pinned = "SELECT coalesce(min(active_pid), 0) FROM pg_replication_slots WHERE temporary";
    let wish = Wish {
        source_rate: Some(CRAWL),
        ..Wish::default()
    };
    let set = place.path().join("set");
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        source.wait_until(IN_BACKUP, "1");
        for _ in 0..2 {
            // The server makes the slot while it starts the backup, so the slot may come later.
            source.wait_until(&format!("SELECT ({pinned}) <> 0"), "t");
            let by = source.sql("postgres", pinned);
            source.sql("postgres", &format!("SELECT pg_terminate_backend({by})"));
            source.wait_until(&format!("SELECT ({pinned}) NOT IN (0, {by})"), "t");
        }
        assert!(!backup.is_finished());
        backup.join().unwrap().unwrap()
    });
    let reason = "FATAL: terminating connection due to administrator command".to_owned();
    let lost = Warning::WalPinLost {
        reason,
        again: true,
    };
    assert_eq!(outcome.facts.warnings, [lost.clone(), lost]);
    source.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
}

#[test]
fn a_backup_whose_server_dies_fails() {
    become_server_user();
    let mut source = PrivateCluster::start(&ClusterOptions::default());
    let place = tempfile::tempdir().unwrap();
    let set = place.path().join("set");
    let wish = Wish {
        source_rate: Some(CRAWL),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let conninfo = source.conninfo();
        let mut connected = Cluster::connect(&conninfo).unwrap();
        let backup = scope.spawn({
            let (set, wish) = (&set, &wish);
            move || backup_connected(&mut connected, set, wish).unwrap_err()
        });
        source.wait_until(IN_BACKUP, "1");
        source.stop("immediate");
        backup.join().unwrap()
    });
    assert!(matches!(error, PostgresError::Sql { .. }), "{error}");
    assert!(holds_no_set(&set));
}

/// A directory that the system shows without this file would give a set that no restore takes.
#[test]
fn a_copy_that_no_restore_would_take_is_not_sealed() {
    let (place, mut source) = small_cluster();
    let set = place.path().join("set");
    let (version, away) = (source.data().join("PG_VERSION"), place.path().join("away"));
    std::fs::rename(&version, &away).unwrap();
    let error = try_backup(&source, &set, &Wish::default()).unwrap_err();
    std::fs::rename(&away, &version).unwrap();
    assert_eq!(
        error.to_string(),
        "the copy is not a whole cluster: it holds no PG_VERSION"
    );
    assert!(holds_no_set(&set));
    source.stop("immediate");
}

/// Its files look like those that a server removes. A set without them would not start.
#[test]
fn a_backup_whose_status_of_transactions_vanishes_fails() {
    let (place, mut source) = small_cluster();
    let set = place.path().join("set");
    let status = source.data().join("pg_xact");
    let away = source.data().join("away");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        gate.wait_reached();
        std::fs::rename(&status, &away).unwrap();
        std::fs::create_dir(&status).unwrap();
        gate.open();
        backup.join().unwrap().unwrap_err()
    });
    let said = error.to_string();
    assert_eq!(
        said,
        "the copy is not a whole cluster: it holds no pg_xact/0000"
    );
    assert!(error.hint().is_some());
    assert!(holds_no_set(&set));
    source.stop("immediate");
}

/// Each file of it is then missing, and the log's first segment is noticed first. But more log
/// would not help.
#[test]
fn a_data_directory_that_is_moved_away_is_named_as_the_cause() {
    let (place, source) = small_cluster();
    let (data, away) = (source.data().to_owned(), place.path().join("away"));
    let error = disturbed(&source, &place.path().join("set"), |source, _| {
        std::fs::rename(source.data(), &away).unwrap();
    });
    std::fs::rename(&away, &data).unwrap();
    let said = error.to_string();
    let expected = format!("data directory {} is not there any more", data.display());
    assert_eq!(said, expected);
    assert!(error.hint().unwrap().contains("moved"));
}

#[test]
fn a_cancelled_backup_ends_at_once_and_leaves_nothing() {
    let (place, source) = small_cluster();
    let error = disturbed(&source, &place.path().join("set"), |_, wish| {
        wish.cancel.cancel()
    });
    assert_eq!(error.to_string(), "interrupted");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";
    source.wait_until(running, "0");
}

#[test]
fn a_backup_that_waits_for_its_checkpoint_can_be_cancelled() {
    let (place, source) = small_cluster();
    // Give the checkpoint work, which the server then spreads over minutes.
    source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 300000) i",
    );
    let wish = Wish {
        slow_checkpoint: true,
        ..Wish::default()
    };
    let set = place.path().join("set");
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish).unwrap_err());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass' \
            AND wait_event IN ('CheckpointStart', 'CheckpointDone')";
        source.wait_until(waits, "1");
        wish.cancel.cancel();
        backup.join().unwrap()
    });
    assert_eq!(error.to_string(), "interrupted");
    assert!(holds_no_set(&set));
}

#[test]
fn without_a_slot_the_log_may_be_recycled_and_then_the_backup_fails() {
    become_server_user();
    let options = ClusterOptions::default().initdb("--wal-segsize=1");
    let source = PrivateCluster::start(
        &options
            .setting("max_replication_slots = 0")
            .setting("wal_keep_size = 0")
            .setting("min_wal_size = 2MB"),
    );
    let place = tempfile::tempdir().unwrap();
    let kept = try_backup(&source, &place.path().join("kept"), &Wish::default()).unwrap();
    let unpinned = |warning: &Warning| matches!(warning, Warning::WalNotPinned { .. });
    assert!(
        kept.facts.warnings.iter().any(unpinned),
        "{:?}",
        kept.facts.warnings
    );
    let error = disturbed(&source, &place.path().join("set"), |source, _| {
        fill_log(source);
    });
    assert!(matches!(error, PostgresError::WalMissing { .. }), "{error}");
    assert!(error.hint().unwrap().contains("wal_keep_size"));
}

/// The server ends the session that holds the slot, and takes the slot's log. Another slot, which
/// Windlass makes then, does not bring that log back.
#[test]
fn a_slot_that_the_server_takes_for_its_size_fails_the_backup() {
    become_server_user();
    let options = ClusterOptions::default().initdb("--wal-segsize=1");
    let source = PrivateCluster::start(
        &options
            .setting("max_slot_wal_keep_size = 1MB")
            .setting("wal_keep_size = 0")
            .setting("min_wal_size = 2MB"),
    );
    let place = tempfile::tempdir().unwrap();
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE temporary";
    let error = disturbed(&source, &place.path().join("set"), |source, _| {
        source.wait_until(slots, "1");
        fill_log(source);
    });
    let PostgresError::WalMissing { segment, .. } = &error else {
        panic!("{error}");
    };
    assert!(segment.starts_with("00000001"), "{segment}");
    assert!(error.hint().unwrap().contains("max_slot_wal_keep_size"));
    assert!(source.log().contains("to release replication slot"));
}

/// The server has stopped the backup, and the log is being read.
#[test]
fn log_that_is_removed_while_it_is_read_is_named_with_the_limit_of_slots() {
    become_server_user();
    let options = ClusterOptions::default().initdb("--wal-segsize=1");
    let options = options.setting("max_prepared_transactions = 1");
    let source = PrivateCluster::start(&options.setting("max_slot_wal_keep_size = 1GB"));
    let place = tempfile::tempdir().unwrap();
    let set = place.path().join("set");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let (error, last) = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        gate.wait_reached();
        fill_log(&source);
        let last = source.sql("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn())");
        end_window_at_gate(&source, &gate);
        // What has been read fills the buffers, and the last segment has not been read.
        gate.wait_reached();
        let path = source.data().join("pg_wal").join(&last);
        std::fs::rename(path, place.path().join("away")).unwrap();
        gate.open();
        (backup.join().unwrap().unwrap_err(), last)
    });
    let said = error.to_string();
    assert!(
        said.starts_with(&format!("the server has removed WAL segment {last} from ")),
        "{said}"
    );
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("max_slot_wal_keep_size is 1GB"), "{hint}");
    assert!(holds_no_set(&set));
}

/// Writes eight segments of 1 MiB, each with a checkpoint behind it.
fn fill_log(source: &PrivateCluster) {
    for _ in 0..8 {
        source.sql(
            "postgres",
            "SELECT pg_logical_emit_message(true, '', repeat('x', 900000))",
        );
        source.sql("postgres", "SELECT pg_switch_wal()");
        source.sql("postgres", "CHECKPOINT");
    }
}

/// The session is silent while files are copied, and the server must accept that.
#[test]
fn no_setting_of_the_role_ends_a_backup() {
    let (place, source) = small_cluster();
    for setting in [
        "idle_session_timeout = '500ms'",
        "search_path = nowhere",
        "datestyle = 'German'",
        "default_transaction_read_only = on",
    ] {
        source.sql("postgres", &format!("ALTER ROLE postgres SET {setting}"));
    }
    let wish = Wish {
        // The copy then takes some seconds.
        source_rate: Some(4 * CRAWL),
        ..Wish::default()
    };
    try_backup(&source, &place.path().join("set"), &wish).unwrap();
}

#[test]
fn minimal_wal_is_refused() {
    become_server_user();
    let options = ClusterOptions::default().setting("wal_level = minimal");
    let source = PrivateCluster::start(&options.setting("max_wal_senders = 0"));
    let error = Cluster::connect(&source.conninfo()).err().unwrap();
    assert!(matches!(error, PostgresError::WalLevelMinimal), "{error}");
}

#[test]
fn another_clusters_directory_at_the_servers_path_is_refused() {
    let (_place, source) = small_cluster();
    let other = PrivateCluster::start(&ClusterOptions::default());
    let aside = source.place().join("aside");
    std::fs::rename(source.data(), &aside).unwrap();
    succeed(
        std::process::Command::new("cp")
            .arg("-a")
            .arg(other.data())
            .arg(source.data()),
    );
    let refused = Cluster::connect(&source.conninfo()).err().unwrap();
    std::fs::remove_dir_all(source.data()).unwrap();
    std::fs::rename(&aside, source.data()).unwrap();
    assert!(
        matches!(refused, PostgresError::OtherCluster { .. }),
        "{refused}"
    );
    Cluster::connect(&source.conninfo()).unwrap();
}

#[test]
fn a_label_that_would_forge_backup_label_is_refused() {
    let (place, source) = small_cluster();
    for label in ["a\nSTART TIMELINE: 9".to_owned(), "x".repeat(1025)] {
        let wish = Wish {
            label,
            ..Wish::default()
        };
        let error = try_backup(&source, &place.path().join("set"), &wish).unwrap_err();
        assert!(matches!(error, PostgresError::Label { .. }), "{error}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    become_server_user();
    let error = Cluster::connect("host=/nonexistent port=6543")
        .err()
        .unwrap();
    assert!(matches!(error, PostgresError::Connect { .. }));
    assert!(
        error.to_string().contains("/nonexistent/.s.PGSQL.6543"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("PGHOST"));
}

/// The error of connecting, as the command shows it: the text with its causes, and the hint.
fn refusal(conninfo: &str) -> (String, String) {
    let error = Cluster::connect(conninfo).err().unwrap();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if !text.contains(&inner.to_string()) {
            text = format!("{text}: {inner}");
        }
        cause = inner.source();
    }
    (text, error.hint().unwrap_or_default())
}

#[test]
fn what_the_server_says_when_it_refuses_a_session_is_shown_as_it_said_it() {
    become_server_user();
    let options = ClusterOptions::default().setting("superuser_reserved_connections = 0");
    let mut source = PrivateCluster::start(&options.setting("max_wal_senders = 2"));
    let conninfo = source.conninfo();
    let (text, _) = refusal(&format!("{conninfo} dbname=nowhere"));
    assert!(
        text.ends_with(": FATAL: database \"nowhere\" does not exist"),
        "{text}"
    );
    let (text, _) = refusal(&conninfo.replace("user=postgres", "user=nobody"));
    assert!(
        text.ends_with(": FATAL: role \"nobody\" does not exist"),
        "{text}"
    );
    source.sql("postgres", "ALTER DATABASE template1 CONNECTION LIMIT 0");
    source.sql("postgres", "CREATE ROLE limited LOGIN");
    let limited = conninfo.replace("user=postgres", "user=limited dbname=template1");
    let (text, _) = refusal(&limited);
    assert!(
        text.ends_with(": FATAL: too many connections for database \"template1\""),
        "{text}"
    );
    // If the server adds a detail, the error shows it too.
    source.stop("fast");
    std::fs::write(source.data().join("standby.signal"), "").unwrap();
    source.configure(&["hot_standby = off"]);
    source.run();
    let (text, _) = refusal(&conninfo);
    let expected = ": FATAL: the database system is not accepting connections \
        (DETAIL: Hot standby mode is disabled.)";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_right_that_is_missing_is_named_as_the_server_names_it() {
    let (place, source) = small_cluster();
    source.sql("postgres", "CREATE ROLE plain LOGIN");
    source.sql("postgres", "GRANT pg_read_all_settings TO plain");
    source.sql(
        "postgres",
        "GRANT EXECUTE ON FUNCTION pg_control_system TO plain",
    );
    let conninfo = source.conninfo().replace("user=postgres", "user=plain");
    let mut cluster = Cluster::connect(&conninfo).unwrap();
    let set = place.path().join("set");
    let error = backup_connected(&mut cluster, &set, &Wish::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("ERROR: permission denied for function"),
        "{text}"
    );
}

//! A receiver that is killed at its system calls: what the server was told is never lost. Some of
//! each kind of call are tried, and all in `scripts/soak`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use windlass_testkit::counted::is_soak;
use windlass_testkit::postgres::PrivateCluster;

use crate::log::rows;
use crate::receive::{Receiving, cluster};
use crate::run::*;

/// Runs receive, and kills it at the `number`th call of a system call. Ends when it is dead, or has
/// confirmed this position. True if it was killed.
fn killed(
    receiving: &mut Receiving,
    server: &PrivateCluster,
    (call, number): (&str, usize),
    row: u32,
) -> bool {
    let plain = command();
    let words = plain.get_args().map(|word| word.to_owned());
    let mut traced = std::process::Command::new("strace");
    traced.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e"]);
    traced.arg(format!("trace={call}")).arg("-e");
    traced.arg(format!("inject={call}:signal=KILL:when={number}"));
    traced.arg(plain.get_program()).args(words);
    traced.args([
        "receive",
        &server.conninfo(),
        "--to",
        &receiving.arg("place"),
    ]);
    traced.args(["--slot", "kept", "--create-slot", "--interval", "0.02s"]);
    traced.env("WINDLASS_CONFIG", "/dev/null");
    traced.stdout(Stdio::null()).stderr(Stdio::null());
    receiving.child = traced.spawn().unwrap();
    let sql = |sql: &str| server.sql("postgres", sql);
    sql(&format!("INSERT INTO t VALUES ({row})"));
    let lsn = sql("SELECT pg_current_wal_flush_lsn()");
    let question = format!(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'kept' \
         AND restart_lsn >= '{lsn}'"
    );
    loop {
        if let Some(status) = receiving.child.try_wait().unwrap() {
            assert!(!status.success(), "{call} {number}: it ended by itself");
            return true;
        }
        if sql(&question) == "1" {
            // The call may come while the receiver ends.
            signal(&receiving.child, "TERM");
            return !receiving.child.wait().unwrap().success();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The end of what a place has, as a position of the server.
fn durable(place: &str) -> String {
    let (code, document) = json(&["info", place]);
    assert_eq!(code, 0, "{document}");
    let timeline = &document["logs"][0]["timelines"][0];
    assert_eq!(
        timeline["gaps"].as_array().map(Vec::len),
        Some(0),
        "{document}"
    );
    let spans = timeline["spans"].as_array().unwrap();
    spans[0]["end"].as_str().unwrap().to_owned()
}

/// Whatever call a receiver is killed at: what the server was told is durable, nothing is missing
/// between two runs, and the last one has everything.
#[test]
fn a_receiver_that_is_killed_at_any_system_call_loses_nothing_that_was_confirmed() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    let place = receiving.arg("place");
    let (mut row, mut kills) = (0, 0);
    for (call, first, step) in [
        ("fdatasync", 1, 1),
        ("fsync", 1, 2),
        ("write", 1, 3),
        ("mkdir", 1, 1),
        ("renameat2", 1, 1),
        ("ftruncate", 1, 1),
        ("pwrite64", 1, 2),
        ("unlink", 1, 1),
        ("flock", 1, 1),
        ("sendto", 1, 3),
        ("lseek", 1, 1),
    ] {
        // A soak tries all calls up to the last one before a row is confirmed.
        let (step, most) = match is_soak() {
            true => (1, usize::MAX),
            false => (step, 6),
        };
        for number in (first..).step_by(step).take(most) {
            row += 1;
            if row % 4 == 0 {
                server.sql("postgres", "SELECT pg_switch_wal()");
            }
            if !killed(&mut receiving, &server, (call, number), row) {
                break;
            }
            kills += 1;
            let told = "SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = 'kept'";
            let told = server.sql("postgres", told);
            if kills > 4 && !told.is_empty() {
                let end = durable(&place);
                let question = format!("SELECT '{told}'::pg_lsn <= '{end}'::pg_lsn");
                assert_eq!(
                    server.sql("postgres", &question),
                    "t",
                    "{call} {number}: {told} {end}"
                );
            }
        }
    }
    assert!(kills > 5, "only {kills} kills");
    receiving.start(&server, &["--slot", "kept"]);
    receiving.insert(&server, row + 1);
    receiving.end();
    assert_eq!(windlass(&["verify", &place]).status.code(), Some(0));
    let restored = receiving.recovered("into", server.bin());
    let expected: Vec<_> = (1..=row + 1).map(|row| row.to_string()).collect();
    assert_eq!(rows(&restored), expected.join(" "));
}

/// What cuts off log that the server heard was durable, is damage, until the log comes again.
#[test]
fn a_growing_object_that_has_lost_its_end_is_damage_until_it_comes_again() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    let place = receiving.arg("place");
    let slot = ["--slot", "kept", "--create-slot"];
    receiving.start(&server, &slot);
    receiving.insert(&server, 1);
    let object = growing(Path::new(&place));
    let before = std::fs::read(&object).unwrap().len();
    receiving.insert(&server, 2);
    receiving.kill();
    assert_eq!(windlass(&["verify", &place]).status.code(), Some(0));
    let whole = std::fs::read(&object).unwrap();
    assert!(whole.len() > before);
    for left in [0, before, whole.len() - 1] {
        std::fs::write(&object, &whole[..left]).unwrap();
        let verified = windlass(&["verify", &place]);
        assert_eq!(verified.status.code(), Some(4), "{}", text(&verified));
        assert!(
            text(&verified).contains("was durable"),
            "{}",
            text(&verified)
        );
        let (code, document) = json(&["info", &place]);
        let timeline = &document["logs"][0]["timelines"][0];
        assert_eq!(code, 4, "{document}");
        assert_eq!(timeline["gaps"].as_array().unwrap().len(), 1, "{document}");
        assert_eq!(timeline["lost"].as_array().unwrap().len(), 1, "{document}");
        let end = timeline["lost"][0]["durable"].as_str().unwrap();
        let into = receiving.arg("into");
        let restored = windlass(&["restore", &place, "--into", &into, "--target-lsn", end]);
        assert_eq!(restored.status.code(), Some(4), "{}", text(&restored));
        let said = text(&restored);
        assert!(
            said.contains("is missing") && said.contains("hint: "),
            "{said}"
        );
        assert!(!Path::new(&into).exists());
    }
    receiving.start(&server, &slot);
    receiving.insert(&server, 3);
    signal(&receiving.child, "TERM");
    assert_eq!(receiving.child.wait().unwrap().code(), Some(3));
    assert_eq!(windlass(&["verify", &place]).status.code(), Some(0));
    assert_eq!(rows(&receiving.recovered("into", server.bin())), "1 2 3");
}

/// A copy of a place that is received has an object that ends before its mark: the mark was copied
/// later. Such a copy is restored as far as it goes, and says what it lacks.
#[test]
fn a_copy_of_a_place_that_is_received_leads_as_far_as_it_goes() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    let place = receiving.arg("place");
    receiving.start(&server, &[]);
    receiving.insert(&server, 1);
    let lsn = || server.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
    let first = lsn();
    // Behind the record of this position comes another one before the object is copied.
    receiving.insert(&server, 2);
    let object = std::fs::read(growing(Path::new(&place))).unwrap();
    receiving.insert(&server, 3);
    let last = lsn();
    receiving.kill();
    std::fs::write(growing(Path::new(&place)), object).unwrap();
    let restored = |into: &str, options: &[&str]| {
        let into = receiving.arg(into);
        let output = windlass(&[&["restore", &place, "--into", &into], options].concat());
        (output.status.code(), text(&output))
    };
    let (code, said) = restored("past", &["--target-lsn", &last]);
    assert!(code == Some(4) && said.contains("was durable"), "{said}");
    let late = ["--target-time", "2100-01-01T00:00:00Z"];
    let (code, said) = restored("past", &late);
    assert!(code == Some(4) && said.contains("was durable"), "{said}");
    assert!(!Path::new(&receiving.arg("past")).exists());
    let found = |into: &str| {
        let into = PathBuf::from(receiving.arg(into));
        let server = PrivateCluster::adopt(&into, server.bin());
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        rows(&server)
    };
    let (code, said) = restored("before", &["--target-lsn", &first]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(found("before"), "1");
    for options in [&["--target-latest"][..], &[]] {
        let (code, said) = restored("latest", options);
        assert!(code == Some(3) && said.contains("was durable"), "{said}");
        assert_eq!(found("latest"), "1 2");
        std::fs::remove_dir_all(receiving.arg("latest")).unwrap();
    }
    let psql = server.bin().join("psql");
    let query = "SELECT 'rows: ' || count(*) FROM t";
    let open = [
        "open",
        &place,
        "--at",
        "latest",
        "--",
        psql.to_str().unwrap(),
    ];
    let opened = windlass(&[&open[..], &["-AtXqc", query]].concat());
    assert_eq!(opened.status.code(), Some(3), "{}", text(&opened));
    assert!(text(&opened).contains("rows: 2"), "{}", text(&opened));
}

/// If not even the header is left, a restored server starts without that log.
#[test]
fn a_server_is_restored_to_where_a_growing_object_has_lost_its_header() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    let place = receiving.arg("place");
    receiving.start(&server, &[]);
    receiving.insert(&server, 1);
    receiving.kill();
    let object = growing(Path::new(&place));
    let whole = std::fs::read(&object).unwrap();
    let mut flipped = whole.clone();
    flipped[20] ^= 1;
    for (left, words) in [
        (&whole[..20], "was durable"),
        (&flipped[..], "nobody knows"),
    ] {
        std::fs::write(&object, left).unwrap();
        if left.len() == whole.len() {
            std::fs::remove_file(object.with_extension("until")).unwrap();
        }
        let (code, document) = json(&["info", &place]);
        let timeline = &document["logs"][0]["timelines"][0];
        assert_eq!(code, 4, "{document}");
        // The segment before it is whole: the slot had kept it.
        let lost = &timeline["lost"][0]["end"];
        let spans = timeline["spans"].as_array().unwrap();
        assert!(spans.iter().all(|span| span["end"] == *lost), "{document}");
        let into = receiving.arg("into");
        let restored = windlass(&["restore", &place, "--into", &into, "--target-latest"]);
        let said = text(&restored);
        assert!(
            restored.status.code() == Some(3) && said.contains(words),
            "{said}"
        );
        let restored = PrivateCluster::adopt(Path::new(&into), server.bin());
        restored.wait_until("SELECT pg_is_in_recovery()", "f");
        assert_eq!(rows(&restored), "");
        drop(restored);
        std::fs::remove_dir_all(&into).unwrap();
    }
}

/// The server has removed what is lost. `receive` ends and says so, and the loss stays named, until
/// somebody admits it.
#[test]
fn log_that_is_lost_and_that_no_server_has_any_more_stays_missing() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    let place = receiving.arg("place");
    receiving.start(&server, &[]);
    receiving.insert(&server, 1);
    let object = growing(Path::new(&place));
    let before = std::fs::read(&object).unwrap();
    receiving.insert(&server, 2);
    receiving.kill();
    std::fs::write(&object, &before).unwrap();
    server.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
    let sql = |sql: &str| server.sql("postgres", sql);
    let segment = sql("SELECT pg_walfile_name(pg_current_wal_insert_lsn())");
    let segment = server.data().join("pg_wal").join(segment);
    for _ in 0..20 {
        sql("INSERT INTO t VALUES (3)");
        sql("SELECT pg_switch_wal()");
        sql("CHECKPOINT");
    }
    assert!(!segment.exists(), "{}", segment.display());
    for _ in 0..2 {
        let received = windlass(&["receive", &server.conninfo(), "--to", &place]);
        let said = text(&received);
        assert_eq!(received.status.code(), Some(4), "{said}");
        for words in ["no longer has it", "was durable", "is missing", "hint: "] {
            assert!(said.contains(words), "{words}: {said}");
        }
        for command in ["verify", "info"] {
            let output = windlass(&[command, &place]);
            assert_eq!(output.status.code(), Some(4), "{}", text(&output));
            assert!(text(&output).contains("was durable"), "{}", text(&output));
        }
    }
    let into = receiving.arg("into");
    let restored = windlass(&["restore", &place, "--into", &into, "--target-latest"]);
    assert_eq!(restored.status.code(), Some(3), "{}", text(&restored));
    // What the server still has is copied, and received from there on.
    let copied = windlass(&[
        "backup",
        &server.conninfo(),
        "--to",
        &place,
        "--type",
        "log",
    ]);
    assert_eq!(copied.status.code(), Some(3), "{}", text(&copied));
    receiving.start(&server, &[]);
    receiving.insert(&server, 4);
    receiving.end();
    assert_eq!(windlass(&["verify", &place]).status.code(), Some(4));
    // Whoever removes the mark admits the loss: it is a gap then.
    std::fs::remove_file(object.with_extension("until")).unwrap();
    assert_eq!(windlass(&["verify", &place]).status.code(), Some(3));
}

/// The object of a place that grows.
fn growing(place: &Path) -> PathBuf {
    let mut waiting = vec![place.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false if path.to_string_lossy().ends_with("-open.wlog") => return path,
                false => {}
            }
        }
    }
    panic!("no object grows in {}", place.display());
}

//! How commands end if nobody receives their result, and which signals end them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;
use crate::trouble::grow;

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let place = Place::new();
    let set = place.back_up();
    let (set, db) = (set.to_str().unwrap(), place.arg("shop.db"));
    for words in [
        &["backup", &db, "--to", "nul", "--json"][..],
        &["backup", &db, "--to", "nul"],
        &["verify", set, "--json"],
        &["verify", set],
        &["info", set, "--json"],
        &["info", set],
        &["diff", set, &db],
        &["restore", set, "--into", &place.arg("new.db"), "--json"],
        &["status", "--json"],
        &["open", set, "--json", "--", "true"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command();
        let output = command.args(words).stdout(full).output().unwrap();
        // The output of a program on an opened set is that program's own business.
        let expected = i32::from(words[0] != "open");
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{words:?}: {}",
            text(&output)
        );
        let said = text(&output).contains("cannot write the result to standard output");
        assert_eq!(said, expected == 1, "{words:?}: {}", text(&output));
    }
    // The restore itself was done, and its result is complete.
    assert_eq!(place.ledger.check(&place.path("new.db")), 20);
}

/// Runs `windlass` in a shell that closes standard output first.
fn with_closed_output(words: &[&str]) -> std::process::Output {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "exec \"$0\" \"$@\" >&-",
        env!("CARGO_BIN_EXE_windlass"),
    ]);
    command.args(words).env("WINDLASS_CONFIG", "/dev/null");
    command.output().unwrap()
}

#[test]
fn a_result_for_a_closed_standard_output_is_a_failure() {
    let place = Place::new();
    let set = place.back_up();
    let (set, db) = (set.to_str().unwrap(), place.arg("shop.db"));
    for words in [
        &["info", "--json", set, set][..],
        &["info", set],
        &["verify", set],
        &["backup", &db, "--to", "nul"],
        &["--version"],
    ] {
        let output = with_closed_output(words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        let says = "cannot write the result to standard output";
        assert!(printed.contains(says), "{words:?}: {printed}");
    }
    // Without a result nothing has to be written.
    let quiet = with_closed_output(&["backup", &db, "--to", "nul", "--quiet"]);
    assert_eq!(quiet.status.code(), Some(0), "{}", text(&quiet));
    // A result that nobody wants may go to /dev/null.
    let mut command = command();
    let null = command.args(["info", set]).stdout(Stdio::null());
    assert_eq!(null.status().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_wants_no_more_makes_no_failure() {
    let place = Place::new();
    let set = place.back_up();
    for words in [&["info", set.to_str().unwrap()][..], &["--help"]] {
        let mut command = command();
        command.args(words).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{words:?}");
    }
}

fn wait_for_a_stripe(place: &Place) {
    while place.sets().is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_hangup_ends_a_backup_as_an_interrupt_does_unless_it_is_ignored() {
    let place = Place::new();
    grow(&place);
    // It would take a minute.
    let mut slow = command();
    let (db, sets) = place.ends();
    slow.args(["backup", &db, "--to", &sets, "--to", &sets]);
    slow.args(["--max-rate", "50KiB", "--transfer-size", "64KiB"]);
    slow.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = slow.spawn().unwrap();
    wait_for_a_stripe(&place);
    signal(&child, "HUP");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.sets(), Vec::<String>::new(), "no stripe is left over");
    // With SIGHUP ignored, as under nohup.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_windlass"));
    command.args(["backup", &place.arg("shop.db"), "--to", &place.arg("sets")]);
    command.args(["--max-rate", "40MiB", "--config", "/dev/null"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_a_stripe(&place);
    signal(&child, "HUP");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.sets().len(), 1);
}

/// The signal arrives when the process opens its configuration, long before any work.
#[test]
fn a_signal_at_the_very_beginning_ends_a_command_as_a_later_one_does() {
    let place = Place::new();
    let (db, config) = (place.arg("shop.db"), place.arg("windlass.toml"));
    drop(File::create(&config).unwrap());
    for words in [&["backup", &db, "--to", "nul"][..], &["info", &db]] {
        for signal in ["INT", "TERM", "HUP"] {
            // A shell that starts the tests in the background makes them ignore SIGINT.
            let mut strace = Command::new("env");
            strace.args(["--default-signal", "strace"]);
            let inject = format!("inject=openat:signal=SIG{signal}");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-P", &config, "-e", &inject]);
            strace.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
            let status = strace.args(["--config", &config]).status().unwrap();
            assert_eq!(status.code(), Some(130), "{signal} {words:?}");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_magic_is_damage_wherever_the_set_is_named() {
    let place = Place::new();
    let set = place.back_up();
    let file = File::options().read(true).write(true).open(&set).unwrap();
    let (name, directory) = (set.to_str().unwrap(), place.arg("sets"));
    let into = place.arg("new.db");
    for offset in [0, 3, 6, 7, 8, 12, 30, 100] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
        for words in [
            &["verify", name][..],
            &["verify", &directory],
            &["restore", name, "--into", &into],
            &["restore", &directory, "--into", &into],
            &["info", name],
            &["info", &directory],
        ] {
            let output = windlass(words);
            let printed = text(&output);
            assert_eq!(
                output.status.code(),
                Some(4),
                "{offset} {words:?}: {printed}"
            );
        }
        file.write_all_at(&byte, offset).unwrap();
    }
    assert_eq!(place.restored(&set), 20);
}

#[test]
fn damage_ends_verify_open_with_4_and_its_list_whatever_else_fails() {
    let place = Place::new();
    let set = place.back_up();
    let file = File::options().read(true).write(true).open(&set).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 8000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 8000).unwrap();
    let set = set.to_str().unwrap();
    // This directory does not exist, so the set cannot be opened, damaged or not.
    let words = ["verify", "--open", set, "--scratch", "/nonexistent"];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("8000") || text(&output).contains("frame"));
    let (code, document) = json(&words);
    assert_eq!(code, 4);
    assert_eq!(document["damage_count"], 1, "{document}");
    assert!(document["open"]["error"].is_string(), "{document}");
}

#[test]
fn a_full_scratch_directory_is_no_damage() {
    let place = Place::new();
    let set = place.back_up();
    std::fs::create_dir(place.path("small")).unwrap();
    let fill = "CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                WHERE i < 4000) SELECT i, randomblob(1000) AS b FROM n";
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && \
                  \"$2\" open --writable --scratch \"$1\" \"$3\" -- sqlite3 {} \"$4\"";
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", script, "sh", &place.arg("small")]);
    unshare.arg(env!("CARGO_BIN_EXE_windlass"));
    unshare.args([set.to_str().unwrap(), fill]);
    let output = unshare
        .env("WINDLASS_CONFIG", "/dev/null")
        .output()
        .unwrap();
    let printed = text(&output);
    let code = output.status.code().unwrap();
    assert!(code != 0 && code != 4, "{code}: {printed}");
    assert!(printed.contains("No space left on device"), "{printed}");
    assert!(!printed.contains("damage"), "{printed}");
}

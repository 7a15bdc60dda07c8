//! Runs that do not end as they began: killed, interrupted, out of space.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use windlass_testkit::sqlite::Random;

use crate::support::*;

/// A backup that takes a while, because its source is throttled.
fn slow_backup(place: &Place) -> Child {
    let mut command = command();
    command.args(["backup", &place.arg("shop.db"), "--to", &place.arg("sets")]);
    command.args([
        "--to",
        &place.arg("sets"),
        "--max-rate",
        "3MiB",
        "--compress",
        "none",
    ]);
    command.args(["--transfer-size", "64KiB"]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The bytes of a directory's files, by name.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_killed_backup_leaves_older_sets_alone_and_the_next_run_cleans_up() {
    let place = Place::new();
    grow(&place);
    let older = place.back_up();
    let before = contents(&place.path("sets"));
    let mut random = Random(0x5eed);
    for _ in 0..12 {
        let mut child = slow_backup(&place);
        // The moment is random; what must hold, holds at any.
        std::thread::sleep(Duration::from_millis(u64::from(random.below(700))));
        child.kill().unwrap();
        child.wait().unwrap();
        for (name, bytes) in &before {
            assert!(
                &std::fs::read(place.path("sets").join(name)).unwrap() == bytes,
                "{name}"
            );
        }
        assert_eq!(place.restored(&older), 20);
    }
    let newer = place.back_up_cleaning();
    assert_eq!(place.restored(&newer), 20);
    let partial = place
        .sets()
        .into_iter()
        .find(|name| name.ends_with(".partial"));
    assert_eq!(partial, None);
}

#[test]
fn an_interrupted_backup_says_so_and_leaves_nothing() {
    let place = Place::new();
    grow(&place);
    for signal in ["INT", "TERM"] {
        let mut child = slow_backup(&place);
        // Until it is writing, so that the signal meets a run and not a start.
        while place.sets().is_empty() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the backup ended by itself"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "SIG{signal}");
        assert_eq!(place.sets(), Vec::<String>::new(), "SIG{signal}");
    }
}

#[test]
fn a_full_disk_fails_the_backup_and_keeps_what_was_there() {
    let place = Place::new();
    grow(&place);
    // A file system of its own, seen by nobody else, with room for one small file.
    let script = "mount -t tmpfs -o size=256k none \"$1\" && cd \"$1\" && echo precious > older && \
                  \"$2\" backup \"$3\" --to \"$1\"; code=$?; ls; cat older; exit $code";
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", script, "sh", &place.arg("sets")]);
    unshare.args([env!("CARGO_BIN_EXE_windlass"), &place.arg("shop.db")]);
    let output = unshare
        .env("WINDLASS_CONFIG", "/dev/null")
        .output()
        .unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("No space left on device"), "{printed}");
    assert!(
        printed.contains("hint: Free space on the device"),
        "{printed}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "older\nprecious\n");
}

/// Makes the database a few megabytes large.
pub fn grow(place: &Place) {
    let mut shell = place.ledger.shell();
    shell.run(
        "CREATE TABLE ballast AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n \
         WHERE x < 4000) SELECT x, hex(randomblob(256)) AS filler FROM n;\n\
         PRAGMA wal_checkpoint(TRUNCATE);",
    );
    shell.close();
}

impl Place {
    /// Like `back_up`, where left-over stripes may go away meanwhile.
    fn back_up_cleaning(&self) -> std::path::PathBuf {
        let before = self.sets();
        let output = windlass(&["backup", &self.arg("shop.db"), "--to", &self.arg("sets")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let new = self
            .sets()
            .into_iter()
            .find(|name| !before.contains(name))
            .unwrap();
        self.path("sets").join(new)
    }
}

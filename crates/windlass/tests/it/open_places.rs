//! `windlass open` where something is missing: free space for what is written, FUSE, or its helper.
//! Each run has mounts of its own that produce this state and that nobody else sees.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::{Command, Output};

use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, server_ids, stay_root,
};

use crate::opening::{Scratch, open_to_all};
use crate::support::{Place, text};

/// Runs a shell script as root with its own mounts. `$1` is windlass, the rest is `words`.
fn with_own_mounts(scratch: &Scratch, script: &str, words: &[&str]) -> Output {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    unshare.args(["--mount", "--propagation", "private"]);
    unshare.args(["sh", "-ec", script, "sh", env!("CARGO_BIN_EXE_windlass")]);
    let path = std::env::var("PATH").unwrap_or_default();
    unshare
        .args(words)
        .env("PATH", format!("{DEFAULT_BIN}:{path}"));
    unshare.env("WINDLASS_CONFIG", "/dev/null");
    unshare.env("TMPDIR", scratch.path()).current_dir("/");
    unshare.output().unwrap()
}

/// A cluster with rows to look for, and its set.
fn set_of_rows(place: &Path) -> String {
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    let sql = "CREATE TABLE kept AS SELECT generate_series(1, 50000) i";
    source.sql("postgres", sql);
    let set = place.join("set");
    std::fs::create_dir(&set).unwrap();
    give_to_servers(&set);
    let set = set.to_str().unwrap().to_owned();
    let words = ["backup", &source.conninfo(), "--to", &set, "--quiet"];
    let output = Scratch::new().run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    set
}

#[test]
fn a_full_overlay_is_an_error_and_never_a_wrong_answer() {
    stay_root();
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    open_to_all(place.path(), 0o755);
    let set = set_of_rows(place.path());
    let stripe = std::fs::read_dir(&set).unwrap().next().unwrap().unwrap();
    let before = std::fs::read(stripe.path()).unwrap();
    let scratch = Scratch::new();
    let small = scratch.path().join("small");
    std::fs::create_dir(&small).unwrap();
    // Space runs out in a large table; then the script asks for what was there before.
    let work = r#"run() { psql -XqAt -v ON_ERROR_STOP=1 -c "$1"; }
        run "SELECT count(*) FROM kept"
        run "CREATE TABLE big AS SELECT i, repeat('x', 500) x FROM generate_series(1, 400000) i" \
            && echo made
        run "SELECT 'sum=' || sum(i) FROM kept"
        run "SELECT 'big=' || count(*) FROM big"
        grep -m 1 "No space left on device" "$PGHOST/server.log""#;
    let script = r#"mount -t tmpfs -o size=96m,mode=1777 none "$3"
        exec "$1" open --writable --scratch "$3" "$2" -- sh -c "$4""#;
    let words = [&set, small.to_str().unwrap(), work];
    let output = with_own_mounts(&scratch, script, &words);
    let said = text(&output);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("50000\n"), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(
        !printed.contains("made") && !printed.contains("big="),
        "{said}"
    );
    let sums: Vec<_> = printed
        .lines()
        .filter(|line| line.starts_with("sum="))
        .collect();
    assert!(sums.is_empty() || sums == ["sum=1250025000"], "{said}");
    assert_eq!(std::fs::read(stripe.path()).unwrap(), before);
}

#[test]
fn without_fuse_it_says_so_and_names_the_way_out() {
    stay_root();
    let place = Place::new();
    let set = place.back_up();
    open_to_all(place.dir.path(), 0o755);
    open_to_all(&place.path("sets"), 0o755);
    open_to_all(&set, 0o644);
    let scratch = Scratch::new();
    // Without the helper, only root can mount.
    let ordinary = server_ids().map_or(String::new(), |(user, group)| {
        format!("setpriv --reuid {user} --regid {group} --clear-groups")
    });
    let no_helper = "mount --bind /dev/null \"$(command -v fusermount3)\"";
    let cases = [
        (
            "mount -t tmpfs none /dev; touch /dev/null",
            "",
            "there is no /dev/fuse",
        ),
        (no_helper, &ordinary, "there is no fusermount3"),
    ];
    for (hide, run_as, says) in cases {
        let script = format!("{hide}\nexec {run_as} \"$1\" open \"$2\" -- true");
        let output = with_own_mounts(&scratch, &script, &[set.to_str().unwrap()]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{said}");
        assert!(said.contains("`windlass restore` need no FUSE"), "{said}");
        scratch.assert_clean();
    }
}

//! Media that nobody can write to, and runs that root starts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::*;

const NOBODY: &str = "65534";

/// Runs the program as a user who is not root: the user of this process, or `nobody`.
fn ordinary(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_windlass");
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = around("setpriv");
        command.args([
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            program,
        ]);
        command
    } else {
        around(program)
    };
    command.args(words).output().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory to which everybody may write.
fn open_directory(place: &Place) -> PathBuf {
    let open = place.path("open");
    std::fs::create_dir(&open).unwrap();
    set_mode(&open, 0o777);
    open
}

#[test]
fn a_set_that_may_only_be_read_is_looked_at_verified_and_restored() {
    let place = Place::new();
    let set = place.back_up();
    let open = open_directory(&place);
    set_mode(place.dir.path(), 0o755);
    set_mode(&set, 0o444);
    set_mode(&place.path("sets"), 0o555);
    let sets = place.arg("sets");
    for words in [
        vec!["info", &sets],
        vec!["verify", &sets],
        vec!["verify", "--quick", &sets],
    ] {
        let output = ordinary(&words);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
    }
    let into = open.join("restored.db");
    let output = ordinary(&["restore", &sets, "--into", into.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    // Nothing is left beside the set, and the copy is complete.
    assert_eq!(place.sets().len(), 1);
    assert_eq!(place.ledger.check(&into), 20);
    set_mode(&place.path("sets"), 0o755);
}

#[test]
fn a_set_on_a_read_only_mount_is_looked_at_verified_and_restored() {
    let place = Place::new();
    place.back_up();
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && \
                  ! touch \"$1/x\" 2>/dev/null && \"$2\" info \"$1\" && \
                  \"$2\" verify \"$1\" && \"$2\" restore \"$1\" --into \"$3\"";
    let mut unshare = around("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", script, "sh", &place.arg("sets")]);
    unshare.args([env!("CARGO_BIN_EXE_windlass"), &place.arg("restored.db")]);
    let output = unshare.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(place.ledger.check(&place.path("restored.db")), 20);
}

/// A command that runs as the servers' user. It needs root, or sudo without a password.
fn as_server(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("setpriv")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "setpriv"]);
        sudo
    };
    command.args([
        "--reuid",
        "postgres",
        "--regid",
        "postgres",
        "--init-groups",
    ]);
    command.arg(program).env("LC_ALL", "C");
    command
}

/// A server that runs as another user than this process.
struct Server {
    data: PathBuf,
    bin: PathBuf,
}

impl Server {
    fn start(place: &Path) -> Self {
        let bin = PathBuf::from(windlass_testkit::postgres::DEFAULT_BIN);
        let server = Self {
            data: place.join("data"),
            bin,
        };
        let data = server.data.to_str().unwrap();
        server.run(
            "initdb",
            &[
                "--auth=trust",
                "--username=postgres",
                "--no-sync",
                "-D",
                data,
            ],
        );
        let socket = place.to_str().unwrap();
        let options = format!("-c listen_addresses= -c unix_socket_directories={socket}");
        let log = place.join("log");
        let log = log.to_str().unwrap();
        server.run(
            "pg_ctl",
            &["-w", "-s", "-D", data, "-o", &options, "-l", log, "start"],
        );
        server
    }

    fn run(&self, program: &str, words: &[&str]) {
        let mut command = as_server(&self.bin.join(program));
        // A server inherits pg_ctl's descriptors: it would keep a pipe open, and its end would not
        // come.
        let null = std::process::Stdio::null;
        let status = command
            .args(words)
            .stdin(null())
            .stdout(null())
            .stderr(null())
            .status();
        assert!(status.unwrap().success(), "{program} {words:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data.to_str().unwrap();
        self.run(
            "pg_ctl",
            &["-w", "-s", "-m", "immediate", "-D", data, "stop"],
        );
    }
}

/// Runs the program as root.
fn as_root(words: &[&str]) -> Output {
    let mut command = by_root(env!("CARGO_BIN_EXE_windlass"));
    let quiet = ["--config", "/dev/null"];
    command.args(words).args(quiet).output().unwrap()
}

/// A program that root runs. This process may be root itself.
fn by_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return around(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", program]);
    sudo
}

#[test]
fn a_backup_and_a_restore_that_root_starts_leave_nothing_that_root_owns() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    set_mode(place.path(), 0o777);
    let server_place = place.path().join("server");
    let make = |path: &Path| as_server(Path::new("mkdir")).arg(path).status().unwrap();
    assert!(make(&server_place).success());
    let server = Server::start(&server_place);
    let sets = server_place.join("sets");
    assert!(make(&sets).success());
    let conninfo = format!("host={} user=postgres", server_place.display());
    let (sets, into) = (sets.to_str().unwrap(), server_place.join("restored"));
    let into = into.to_str().unwrap();
    let root = |words: &[&str]| {
        let output = as_root(words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    };
    root(&["backup", &conninfo, "--to", sets]);
    root(&["verify", sets]);
    root(&["restore", sets, "--into", into]);
    // An empty directory that root made for the cluster.
    let made = server_place.join("made");
    assert!(by_root("mkdir").arg(&made).status().unwrap().success());
    root(&["restore", sets, "--into", made.to_str().unwrap()]);
    // A refused run leaves no directory behind.
    let other = server_place.join("other");
    let words = ["restore", sets, "--into", other.to_str().unwrap()];
    let refused = as_root(&[&words[..], &["--tablespace-map", "/a=/b"]].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(
        text(&refused).contains("hint: `windlass info` names"),
        "{}",
        text(&refused)
    );
    assert!(!other.exists());
    drop(server);
    assert_eq!(roots_files(&server_place), "");
    let restored = as_server(Path::new("cat"))
        .arg(format!("{into}/PG_VERSION"))
        .output();
    assert!(restored.unwrap().status.success());
}

/// Lists what root owns below a directory, or only root can look into, as the servers' user sees
/// it.
fn roots_files(place: &Path) -> String {
    let mut find = as_server(Path::new("find"));
    let found = find.arg(place).args(["-uid", "0"]).output().unwrap();
    assert!(found.status.success(), "{}", text(&found));
    text(&found)
}

#[test]
fn a_sqlite_database_is_backed_up_and_restored_as_its_owner() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    set_mode(place.path(), 0o777);
    let home = place.path().join("home");
    let run = |program: &str, words: &[&str]| {
        let output = as_server(Path::new(program)).args(words).output().unwrap();
        assert!(output.status.success(), "{program}: {}", text(&output));
        text(&output)
    };
    run("mkdir", &["--mode", "700", home.to_str().unwrap()]);
    let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let make = "PRAGMA journal_mode = WAL; CREATE TABLE t AS SELECT 42 AS a";
    run("sqlite3", &[&at("shop.db"), make]);
    let (db, set, new) = (at("shop.db"), at("set"), at("new.db"));
    for words in [
        &["backup", &db, "--to", &set][..],
        &["restore", &set, "--into", &new],
    ] {
        let output = as_root(words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    // Into a directory that only root can write to. It does not contain this name yet.
    let rooted = place.path().join("rooted");
    std::fs::create_dir(&rooted).unwrap();
    set_mode(&rooted, 0o755);
    let to = rooted.join("shop");
    let output = as_root(&["backup", &db, "--to", to.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let mode = std::fs::metadata(&to).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert_eq!(roots_files(&to), "");
    assert_eq!(roots_files(&home), "");
    assert_eq!(run("sqlite3", &[&new, "SELECT a FROM t"]), "42\n");
}

/// Whether this process may become another user.
fn may_become_another() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_set_that_this_user_may_not_read_is_not_called_damaged() {
    if !may_become_another() {
        return;
    }
    let place = Place::new();
    let set = place.back_up();
    place.back_up();
    for name in place.sets() {
        set_mode(&place.path("sets").join(name), 0o600);
    }
    let open = open_directory(&place);
    set_mode(place.dir.path(), 0o755);
    let into = open.join("new.db").display().to_string();
    let (sets, stripe) = (place.arg("sets"), set.to_str().unwrap());
    for words in [
        &["info", &sets][..],
        &["info", &sets, "--long"],
        &["info", stripe],
        &["verify", &sets],
        &["verify", &sets, "--quick"],
        &["verify", &sets, "--latest"],
        &["verify", stripe],
        &["restore", &sets, "--into", &into],
        &["restore", stripe, "--into", &into],
        &["extract", &sets, "**", "--into", &into],
        &["open", &sets, "--", "true"],
    ] {
        let output = ordinary(words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(!said.contains("damaged"), "{words:?}: {said}");
        let says = "cannot be read by user nobody: permission denied";
        assert!(said.contains(says), "{words:?}: {said}");
        // A list has no hints.
        let is_list = words[0] == "info" && words[1] == sets;
        assert!(is_list || said.contains("as root"), "{words:?}: {said}");
    }
}

#[test]
fn a_stripe_in_a_directory_that_this_user_may_not_enter_is_not_called_missing() {
    if !may_become_another() {
        return;
    }
    let place = Place::new();
    let (db, near, far) = (place.arg("shop.db"), place.arg("sets"), place.arg("far"));
    let output = windlass(&["backup", &db, "--to", &near, "--to", &far]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    set_mode(place.dir.path(), 0o755);
    set_mode(&place.path("sets"), 0o755);
    for name in place.sets() {
        set_mode(&place.path("sets").join(name), 0o644);
    }
    set_mode(&place.path("far"), 0o700);
    for words in [
        &["info", &near][..],
        &["info", &near, "--long"],
        &["verify", &near],
        &["verify", &near, "--latest"],
    ] {
        let output = ordinary(words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(!said.contains("missing"), "{words:?}: {said}");
        assert!(said.to_lowercase().contains("permission denied"), "{said}");
    }
}

#[test]
fn newer_sets_of_another_user_keep_nobody_from_his_own() {
    if !may_become_another() {
        return;
    }
    let place = Place::new();
    let own = place.back_up();
    let other = {
        place.ledger.commit(21, 30);
        place.back_up()
    };
    let nobody = Some(NOBODY.parse().unwrap());
    std::os::unix::fs::chown(&own, nobody, nobody).unwrap();
    set_mode(&other, 0o600);
    set_mode(place.dir.path(), 0o755);
    let into = open_directory(&place).join("new.db");
    let words = [
        "restore",
        &place.arg("sets"),
        "--into",
        into.to_str().unwrap(),
    ];
    let output = ordinary(&words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let says = "note: 1 newer file of another user there cannot be read by user nobody";
    assert!(said.contains(says), "{said}");
    assert_eq!(place.ledger.check(&into), 20);
    std::fs::remove_file(&into).unwrap();
    // His own file that he may not read may be the newest set: that still stops him.
    std::os::unix::fs::chown(&other, nobody, nobody).unwrap();
    set_mode(&other, 0o000);
    let output = ordinary(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("may be a newer set"),
        "{}",
        text(&output)
    );
}

#[test]
fn root_reads_a_set_that_the_owner_of_the_target_may_not_read() {
    if !may_become_another() {
        return;
    }
    let place = Place::new();
    let set = place.back_up();
    set_mode(&set, 0o600);
    set_mode(place.dir.path(), 0o755);
    set_mode(&place.path("sets"), 0o700);
    let open = open_directory(&place);
    let nobody = Some(NOBODY.parse().unwrap());
    std::os::unix::fs::chown(&open, nobody, nobody).unwrap();
    let (sets, files) = (place.arg("sets"), open.display().to_string());
    let output = as_root(&["extract", &sets, "shop.db", "--into", &files]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    use std::os::unix::fs::MetadataExt;
    let made = open.join("shop.db").metadata().unwrap();
    assert_eq!(Some(made.uid()), nobody);
    let live = open.join("shop.db").display().to_string();
    for words in [["diff", &sets, &live], ["diff", &live, &sets]] {
        let output = as_root(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn an_extract_by_root_reads_a_set_that_the_owner_of_the_directory_may_not_read() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let set = place.back_up();
    std::fs::set_permissions(place.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.path("sets"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::create_dir(place.path("out")).unwrap();
    std::os::unix::fs::chown(place.path("out"), Some(65534), Some(65534)).unwrap();
    let (set, out) = (set.to_str().unwrap(), place.arg("out"));
    let output = windlass(&["extract", set, "shop.db", "--into", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let found = place.path("out/shop.db").metadata().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&found), 65534);
}

#[test]
fn a_directory_that_may_not_be_made_is_told_with_who_may_not_write_where() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let nobody = Some(65534);
    for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
        if place.path(name).exists() {
            std::os::unix::fs::chown(place.path(name), nobody, nobody).unwrap();
        }
    }
    let own = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.dir.path(), own).unwrap();
    std::fs::set_permissions(place.path("sets"), PermissionsExt::from_mode(0o755)).unwrap();
    let (db, new) = (place.arg("shop.db"), place.arg("sets/new"));
    let output = ordinary(&["backup", &db, "--to", &new]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let says = format!("may not write to {}. Make the directory", place.arg("sets"));
    assert!(printed.contains(&says), "{printed}");
    // A check says the same before, and root would make the directory.
    let printed = text(&ordinary(&["check", &db, "--to", &new]));
    assert!(printed.contains("does not exist, and user"), "{printed}");
    let checked = windlass(&["check", &db, "--to", &new]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
}

#[test]
fn a_verification_prints_no_line_for_each_set_but_its_result() {
    let place = Place::new();
    place.back_up();
    place.back_up();
    let output = windlass(&["verify", &place.arg("sets")]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.lines().any(|line| line == "verifying"), "{errors}");
}

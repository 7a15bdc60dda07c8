//! The log of real servers, encrypted: by hosts that cannot read it again, and read by those that
//! can.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::receive::Receiving;
use crate::run::*;

/// A pair, whose private key is 32 times the byte 42.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const READER: &str = "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const OTHER: &str = "AGE-SECRET-KEY-1GDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDPSST380Y";
/// What nobody without a key may find.
const ROW: &str = "the plans of the lighthouse";

fn keep(dir: &Path, name: &str, content: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("identity-file:{}", path.display())
}

/// A server that archives, encrypted to a reader whose key the server does not have.
struct Sealed {
    server: PrivateCluster,
    dir: tempfile::TempDir,
    key: String,
    other: String,
}

impl Sealed {
    fn start() -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir_all(dir.path().join("place/log")).unwrap();
        let program = env!("CARGO_BIN_EXE_windlass");
        let push = format!(
            "archive_command = 'WINDLASS_CONFIG=/dev/null {program} archive-push %p --to {} \
             --encrypt {READER} --compress none'",
            dir.path().join("place").display()
        );
        let options = ClusterOptions::default()
            .initdb("--wal-segsize=1")
            .setting("archive_mode = on")
            .setting(push);
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i text)");
        let (key, other) = (
            keep(dir.path(), "key", IDENTITY),
            keep(dir.path(), "other", OTHER),
        );
        let sealed = Self {
            server,
            dir,
            key,
            other,
        };
        let conninfo = sealed.server.conninfo();
        sealed.ends(
            &["backup", &conninfo, "--to", "PLACE", "--encrypt", READER],
            0,
        );
        sealed
    }

    fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command, which must end with this code; `PLACE` is the place.
    fn ends(&self, words: &[&str], code: i32) -> Output {
        let place = self.arg("place");
        let words: Vec<_> = words
            .iter()
            .map(|word| if *word == "PLACE" { &place } else { *word })
            .collect();
        let output = windlass(&words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        output
    }

    /// Inserts a row, and waits until the segment that has it is archived. Returns the segment.
    fn insert_and_archive(&self, row: &str) -> String {
        self.server
            .sql("postgres", &format!("INSERT INTO t VALUES ('{row}')"));
        let segment = self
            .server
            .sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
        let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
        self.server.wait_until(&question, "t");
        segment
    }

    fn segment(&self, name: &str) -> PathBuf {
        self.server.data().join("pg_wal").join(name)
    }
}

/// Files of a directory that have this text.
fn holders(dir: &str, text: &str) -> String {
    let found = Command::new("grep")
        .args(["-rlF", text, dir])
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap()
}

fn rows(server: &PrivateCluster) -> String {
    server.sql("postgres", "SELECT string_agg(i, ' ' ORDER BY i) FROM t")
}

#[test]
fn a_server_without_the_key_archives_and_only_the_key_restores() {
    let source = Sealed::start();
    let segment = source.insert_and_archive(ROW);
    assert_eq!(holders(&source.arg("place"), ROW), "");
    let path = source.segment(&segment);
    let path = path.to_str().unwrap();
    assert_ne!(holders(path, ROW), "", "the server has it in the clear");

    // The same segment again is no mistake, and another one is refused, without any key.
    let push = ["archive-push", path, "--to", "PLACE"];
    let encrypted = [&push[..], &["--encrypt", READER]].concat();
    source.ends(&encrypted, 0);
    source.ends(&push, 0);
    let own = std::fs::read(path).unwrap();
    let mut changed = own.clone();
    changed[5000] ^= 1;
    std::fs::write(path, &changed).unwrap();
    for words in [
        &push[..],
        &encrypted,
        &[&push[..], &["--key", &source.key]].concat(),
    ] {
        let refused = text(&source.ends(words, 1));
        assert!(refused.contains("with other content"), "{refused}");
    }
    std::fs::write(path, &own).unwrap();

    // Nothing is fetched without the key, and a server never takes that for the end of the log.
    let into = source.arg("fetched");
    let get = ["archive-get", &segment, &into, "--from", "PLACE"];
    let refused = text(&source.ends(&get, 255));
    assert!(refused.contains("no key was given"), "{refused}");
    source.ends(&[&get[..], &["--key", &source.other]].concat(), 255);
    assert!(!Path::new(&into).exists());
    source.ends(&[&get[..], &["--key", &source.key]].concat(), 0);
    assert!(std::fs::read(&into).unwrap() == own);

    let unread = text(&source.ends(&["verify", "PLACE"], 3));
    assert!(
        unread.contains("content not checked without a key"),
        "{unread}"
    );
    source.ends(&["verify", "PLACE", "--key", &source.key], 0);
    source.ends(&["verify", "PLACE", "--key", &source.other], 1);

    // The restored server fetches its log with the key that the restore was given.
    let copy = source.arg("copy");
    let restore = ["restore", "PLACE", "--into", &copy, "--target-latest"];
    source.ends(&restore, 1);
    assert!(!Path::new(&copy).exists());
    source.ends(&[&restore[..], &["--key", &source.key]].concat(), 0);
    let server = PrivateCluster::adopt(Path::new(&copy), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), ROW);

    let open = ["open", "PLACE", "--at", "latest", "--key", &source.key];
    let psql = source.server.bin().join("psql");
    let query = ["--", psql.to_str().unwrap(), "-Atc", "SELECT i FROM t"];
    let shown = text(&source.ends(&[&open[..], &query].concat(), 0));
    assert!(shown.contains(ROW), "{shown}");
}

#[test]
fn log_is_copied_once_and_again_by_a_host_without_the_key() {
    let source = Sealed::start();
    let conninfo = source.server.conninfo();
    let copy = ["backup", &conninfo, "--to", "PLACE", "--type", "log"];
    // Without the key nobody knows that the set there is of this cluster.
    let copy = [&copy[..], &["--accept", "log-without-set"]].concat();
    for row in ["one", "two", "three"] {
        source
            .server
            .sql("postgres", &format!("INSERT INTO t VALUES ('{row} {ROW}')"));
        source.ends(&[&copy[..], &["--encrypt", READER]].concat(), 0);
        source.ends(&[&copy[..], &["--encrypt", READER]].concat(), 0);
    }
    // What was copied of a segment is compared when the server archives all of it.
    source.insert_and_archive("z");
    assert_eq!(holders(&source.arg("place"), ROW), "");
    let into = source.arg("copy");
    let restore = ["restore", "PLACE", "--into", &into, "--target-latest"];
    source.ends(&[&restore[..], &["--key", &source.key]].concat(), 0);
    let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), format!("one {ROW} three {ROW} two {ROW} z"));
}

#[test]
fn what_a_killed_receiver_kept_is_read_with_the_key_only() {
    let mut receiving = Receiving::new();
    let server = crate::receive::cluster();
    let place = receiving.arg("place");
    let dir = Path::new(&place).parent().unwrap().to_owned();
    let key = keep(&dir, "key", IDENTITY);
    let conninfo = server.conninfo();
    let output = windlass(&["backup", &conninfo, "--to", &place, "--encrypt", READER]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let words = ["--slot", "kept", "--create-slot", "--encrypt", READER];
    receiving.start(&server, &words);
    for row in 1..=4 {
        receiving.insert(&server, row);
        receiving.kill();
        receiving.start(&server, &words);
        if row == 2 {
            server.sql("postgres", "SELECT pg_switch_wal()");
        }
    }
    receiving.insert(&server, 5);
    receiving.end();
    let into = receiving.arg("copy");
    let restore = ["restore", &place, "--into", &into, "--target-latest"];
    let output = windlass(&restore);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let output = windlass(&[&restore[..], &["--key", &key]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let copy = PrivateCluster::adopt(Path::new(&into), server.bin());
    copy.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(crate::log::rows(&copy), "1 2 3 4 5");
    let output = windlass(&["verify", &place, "--key", &key]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

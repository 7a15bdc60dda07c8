//! Sets in a bucket of Google Cloud Storage: a stub that is as strict as the service (the testkit's
//! `google`), because no real server runs here.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{read, remove_file, write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use windlass_testkit::evil::{Asked, Evil, Proxy};
use windlass_testkit::google::{BUCKET, GoogleStub};

use crate::buckets::sqlite;
use crate::run::{command, text};

/// A stub with a bucket, a proxy in front of it, and a database.
struct Shop {
    stub: GoogleStub,
    proxy: Proxy,
    directory: TempDir,
}

impl Shop {
    fn new() -> Self {
        let stub = GoogleStub::start();
        let proxy = Proxy::start(stub.port);
        let directory = tempfile::tempdir().unwrap();
        let shop = Self {
            stub,
            proxy,
            directory,
        };
        let text = format!(
            "[object]\nendpoint = {:?}\npart-size = \"5MiB\"\ndeadline = \"60s\"\n",
            shop.proxy.endpoint(),
        );
        write(shop.path("windlass.toml"), text).unwrap();
        shop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A database with this many rows, of about 1 KiB each.
    fn database(&self, rows: u32) -> String {
        let path = self.path("shop.db");
        let sql = format!(
            "create table item(id integer primary key, name text); insert into item with \
             recursive n(i) as (values(1) union all select i + 1 from n where i < {rows}) select \
             i, printf('%01000d', i) from n"
        );
        sqlite(&path, &sql);
        path.display().to_string()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command();
        command.args(words);
        command.env("WINDLASS_CONFIG", self.path("windlass.toml"));
        // So that a database of a few megabytes has parts.
        command.env("WINDLASS_COMPRESS", "none");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GOOGLE_") || text.starts_with("AWS_") {
                command.env_remove(&name);
            }
        }
        // The stub takes any token, and refuses who has none.
        command.env("GOOGLE_BEARER_TOKEN", "of a test");
        command
    }

    /// Runs a command that must end with this code. Returns what it printed.
    fn ends(&self, words: &[&str], code: i32) -> String {
        let output = self.command(words).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn done(&self, words: &[&str]) -> String {
        self.ends(words, 0)
    }

    fn spawn(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Restores the newest set of a place, and compares it with the database.
    fn restores(&self, place: &str, database: &str) {
        let copy = self.path("copy.db");
        self.done(&["restore", place, "--into", &self.word("copy.db")]);
        let is_same = read(&copy).unwrap() == read(database).unwrap();
        assert!(is_same, "the copy differs");
        remove_file(&copy).unwrap();
    }

    /// The objects of the bucket by what they are: names, data, seals, markers.
    fn objects(&self) -> [usize; 4] {
        let keys = self.stub.keys();
        let count = |what: fn(&str) -> bool| keys.iter().filter(|key| what(key)).count();
        [
            count(|key| key.ends_with(".windlass")),
            count(|key| key.ends_with(".data")),
            count(|key| key.ends_with(".seal")),
            count(|key| key.contains("begun/")),
        ]
    }
}

fn place(name: &str) -> String {
    format!("gs://{BUCKET}/{name}")
}

#[test]
fn a_chain_in_googles_bucket_is_listed_restored_verified_and_read_like_any_other() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    let said = shop.done(&["check", &database, "--to", &night]);
    let can = format!("{night} can be written to and read back");
    assert!(said.contains(&can), "{said}");
    assert_eq!(shop.stub.keys(), [""; 0], "check leaves nothing behind");
    shop.done(&["backup", &database, "--to", &night]);
    assert!(shop.proxy.count(Asked::Part) > 2, "it is uploaded in parts");
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
    let sql = "update item set name = 'sold' where id % 500 = 0";
    sqlite(Path::new(&database), sql);
    let incremental = ["--type", "incr", "--strict"];
    let backup = ["backup", &database, "--to", &night];
    shop.done(&[&backup[..], &incremental].concat());
    assert_eq!(shop.objects(), [2, 2, 2, 0]);
    assert_eq!(shop.stub.uploads(), 0);
    let listed = shop.done(&["info", &night]);
    assert!(listed.contains("shop.db"), "{listed}");
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
    let query = "select name from item where id = 1000";
    let said = shop.done(&["open", &night, "--", "sqlite3", "{}", query]);
    assert!(said.lines().any(|line| line == "sold"), "{said}");
    shop.done(&["extract", &night, "*", "--into", &shop.word("files")]);
    assert!(read(shop.path("files/shop.db")).unwrap() == read(&database).unwrap());
    // What has expired is hidden by one run, and removed by the next one.
    shop.done(&["backup", &database, "--to", &night]);
    for _ in 0..2 {
        shop.done(&["expire", &night, "--keep-full", "1", "--grace", "0"]);
    }
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
    shop.restores(&night, &database);
}

#[test]
fn an_object_of_somebody_else_in_googles_bucket_is_not_replaced() {
    let shop = Shop::new();
    let (database, taken) = (shop.database(100), place("mine.windlass"));
    shop.done(&["backup", &database, "--to", &taken]);
    let before = shop.stub.keys();
    let said = shop.ends(&["backup", &database, "--to", &taken], 1);
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(shop.stub.keys(), before);
    shop.restores(&taken, &database);
    let said = shop.ends(&["backup", &database, "--to", "gs://nobody/night"], 1);
    assert!(said.contains("gs://nobody"), "{said}");
}

#[test]
fn what_networks_do_costs_no_backup_to_google_and_a_kill_leaves_nothing() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    use Asked::{Begin, Complete, Get, Head, List, Name, Part, Remove};
    let faults = [
        ("503", Evil::Answer(503, "ServiceUnavailable")),
        ("lost", Evil::LostAnswer),
        ("hang", Evil::Hang(Duration::from_millis(500))),
    ];
    for (name, fault) in faults {
        // Markers, seals and names are all written in one request.
        for asked in [Begin, Part, Complete, Head, Name, List, Get, Remove] {
            shop.proxy.rule(asked, (0, 1), fault.clone());
        }
        shop.done(&["backup", &database, "--to", &place(name)]);
        assert_eq!(shop.proxy.reset(), 0, "{name}: every fault happened");
        shop.restores(&place(name), &database);
    }
    let [names, data, seals, markers] = shop.objects();
    assert_eq!([names, data, seals, markers], [3, 3, 3, 0]);
    // Of an upload that was begun and not completed nothing is left by the next run.
    let before = shop.stub.uploads();
    let killed = place("killed");
    shop.proxy.rule(Part, (1, 1), Evil::KillBefore);
    let mut run = shop.spawn(&["backup", &database, "--to", &killed]);
    shop.proxy.victim(run.id());
    assert_eq!(run.wait().unwrap().code(), None);
    shop.proxy.reset();
    assert_eq!(shop.stub.uploads(), before + 1);
    let listed = text(&shop.command(&["info", &killed, "--json"]).output().unwrap());
    assert!(listed.contains(".windlass.partial"), "{listed}");
    shop.done(&["backup", &database, "--to", &killed]);
    assert_eq!(shop.stub.uploads(), before);
    shop.restores(&killed, &database);
    shop.done(&["verify", &killed]);
}

//! Sets in buckets of a real S3 server: written, listed, read by every command, and cut off.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{create_dir, read, write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_testkit::bucket::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use windlass_testkit::evil::{Asked, Evil, Proxy};

use crate::run::{command, core_file_limit, text};

/// How long a test waits for what must come.
const HANG: Duration = Duration::from_secs(120);

/// A server with a bucket, and what a test has beside it.
pub struct Shop {
    pub server: S3Server,
    beside: Beside,
}

impl Deref for Shop {
    type Target = Beside;

    fn deref(&self) -> &Beside {
        &self.beside
    }
}

impl Shop {
    pub fn new() -> Self {
        let server = S3Server::start();
        let beside = Beside::new(server.port);
        let shop = Self { server, beside };
        shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "60s");
        shop
    }

    /// Writes the configuration and the file with the keys.
    pub fn configure(&self, endpoint: &str, secret: &str, deadline: &str) {
        let keys = self.path("keys");
        let text = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {secret}\n");
        write(&keys, text).unwrap();
        let text = format!(
            "[object]\nendpoint = {endpoint:?}\nregion = \"us-east-1\"\ncredentials-file = {:?}\n\
             part-size = \"5MiB\"\ndeadline = {deadline:?}\n",
            keys.display().to_string()
        );
        write(self.path("windlass.toml"), text).unwrap();
    }

    /// The objects of the bucket by what they are.
    fn objects(&self) -> [usize; 4] {
        kinds(&self.server.keys())
    }
}

/// A proxy in front of a server of buckets, and a directory with a database and the configuration.
pub struct Beside {
    pub proxy: Proxy,
    directory: TempDir,
}

impl Beside {
    /// Of the server at this port.
    pub fn new(port: u16) -> Self {
        Self {
            proxy: Proxy::start(port),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Adds lines to the configuration.
    pub fn append(&self, lines: &str) {
        let path = self.path("windlass.toml");
        let text = std::fs::read_to_string(&path).unwrap() + lines;
        write(path, text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A database with this many rows, of about 1 KiB each.
    pub fn database(&self, rows: u32) -> String {
        let path = self.path("shop.db");
        let sql = format!(
            "create table item(id integer primary key, name text); insert into item with \
             recursive n(i) as (values(1) union all select i + 1 from n where i < {rows}) select \
             i, printf('%01000d', i) from n"
        );
        sqlite(&path, &sql);
        path.display().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
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
        // The stub of Google's takes any token, and refuses who has none.
        command.env("GOOGLE_BEARER_TOKEN", "of a test");
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed. Returns what it printed.
    pub fn done(&self, words: &[&str]) -> String {
        self.ends(words, 0)
    }

    /// Runs a command that must end with this code. Returns what it printed.
    pub fn ends(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        text(&output)
    }

    pub fn spawn(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        let null = std::process::Stdio::null;
        command.stdout(null()).stderr(null()).spawn().unwrap()
    }

    /// Runs a command, and kills it before the server gets its second request of this kind.
    pub fn killed_before(&self, asked: Asked, words: &[&str]) {
        self.proxy.rule(asked, (1, 1), Evil::KillBefore);
        let mut run = self.spawn(words);
        self.proxy.victim(run.id());
        assert_eq!(run.wait().unwrap().code(), None);
        self.proxy.reset();
    }

    /// Restores the newest set of a place, and compares it with the database.
    pub fn restores(&self, place: &str, database: &str) {
        let copy = self.path("copy.db");
        if copy.exists() {
            std::fs::remove_file(&copy).unwrap();
        }
        self.done(&["restore", place, "--into", &self.word("copy.db")]);
        assert!(
            read(&copy).unwrap() == read(database).unwrap(),
            "the copy differs"
        );
    }
}

/// Objects by what they are: names, data, seals, markers.
pub fn kinds(keys: &[String]) -> [usize; 4] {
    let count = |what: fn(&str) -> bool| keys.iter().filter(|key| what(key)).count();
    [
        count(|key| key.ends_with(".windlass")),
        count(|key| key.ends_with(".data")),
        count(|key| key.ends_with(".seal")),
        count(|key| key.contains("begun/")),
    ]
}

/// Runs statements in a database.
pub fn sqlite(database: &Path, sql: &str) {
    let output = Command::new("sqlite3")
        .arg(database)
        .arg(sql)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

pub fn place(name: &str) -> String {
    format!("s3://{BUCKET}/{name}")
}

#[test]
fn a_set_in_a_bucket_is_listed_restored_verified_and_read_like_any_other() {
    let shop = Shop::new();
    let (database, place) = (shop.database(30_000), place("night"));
    let said = shop.done(&["backup", &database, "--to", &place]);
    // The report says where the set is, and how to restore it.
    let command = said.lines().find_map(|line| line.strip_prefix("restore "));
    let command = command.and_then(|text| text.trim().strip_suffix(" --into PATH"));
    let stripe = command.and_then(|text| text.strip_prefix("windlass restore "));
    let stripe = stripe.expect(&said);
    assert!(stripe.starts_with("s3://shop/night/"), "{said}");
    shop.restores(stripe, &database);
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
    let seen = shop.proxy.seen().into_iter();
    let parts = seen.filter(|one| one.asked == Asked::Part);
    let parts: Vec<_> = parts.map(|one| one.sent).collect();
    let short = parts.iter().filter(|bytes| **bytes != 5 << 20).count();
    assert!(
        parts.len() > 3 && short <= 1,
        "parts of one length: {parts:?}"
    );
    let listed = shop.done(&["info", &place]);
    assert!(listed.contains("shop.db"), "{listed}");
    shop.restores(&place, &database);
    shop.done(&["verify", &place]);
    shop.proxy.reset();
    let query = "select length(name) from item where id = 20001";
    let said = shop.done(&["open", &place, "--", "sqlite3", "{}", query]);
    assert!(said.lines().any(|line| line == "1000"), "{said}");
    let read_bytes = shop.proxy.received();
    assert!(read_bytes < 3 << 20, "one query read {read_bytes} bytes");
    shop.done(&["verify", &place, "--open"]);
    shop.done(&["extract", &place, "*", "--into", &shop.word("files")]);
    assert!(read(shop.path("files/shop.db")).unwrap() == read(&database).unwrap());
    shop.done(&["diff", &place, &database]);
    let name = shop
        .server
        .keys()
        .into_iter()
        .find(|key| key.ends_with(".windlass"));
    let stripe = format!("s3://{BUCKET}/{}", name.unwrap());
    shop.done(&["info", &stripe]);
    shop.done(&["verify", &stripe]);
    // Without Windlass: the bytes of the data and of the seal are those of a stripe in a file.
    let mut stripe = Vec::new();
    for ending in [".data", ".seal"] {
        let key = shop
            .server
            .keys()
            .into_iter()
            .find(|key| key.ends_with(ending));
        stripe.extend(read(shop.server.objects().join(key.unwrap())).unwrap());
    }
    write(shop.path("joined.windlass"), stripe).unwrap();
    shop.done(&["verify", &shop.word("joined.windlass")]);
}

#[test]
fn objects_and_parts_go_with_checksums_where_the_configuration_says_so() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    for (lines, sends) in [("", false), ("checksums = true\n", true)] {
        shop.append(lines);
        shop.proxy.reset();
        let night = place(&format!("sums-{sends}"));
        shop.done(&["backup", &database, "--to", &night]);
        let seen = shop.proxy.seen();
        for asked in [Asked::Marker, Asked::Part, Asked::Seal, Asked::Name] {
            let sums = seen.iter().filter(|one| one.asked == asked);
            let sums: Vec<_> = sums.map(|one| one.is_summed).collect();
            let are_right = !sums.is_empty() && sums.iter().all(|is_summed| *is_summed == sends);
            assert!(are_right, "{asked:?}: {sums:?}");
        }
        shop.restores(&night, &database);
    }
}

#[test]
fn stripes_go_to_buckets_and_directories_at_once_and_chains_build_on_them() {
    let shop = Shop::new();
    let database = shop.database(20_000);
    create_dir(shop.path("disk")).unwrap();
    let (one, two, disk) = (place("one"), place("two"), shop.word("disk"));
    let to = ["--to", &one, "--to", &two, "--to", &disk];
    shop.done(&[&["backup", database.as_str()][..], &to].concat());
    let sql = "update item set name = 'sold' where id % 50 = 0";
    sqlite(Path::new(&database), sql);
    shop.done(&[&["backup", database.as_str(), "--type", "diff"][..], &to].concat());
    assert_eq!(shop.objects(), [4, 4, 4, 0]);
    let copy = shop.word("copy.db");
    shop.done(&["restore", &one, &two, &disk, "--into", &copy]);
    assert!(read(&copy).unwrap() == read(&database).unwrap());
    let listed = shop.done(&["info", &one, &two, &disk]);
    assert!(listed.contains("diff"), "{listed}");
}

#[test]
fn what_networks_and_servers_do_costs_no_backup() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let after = Duration::from_millis(1500);
    let faults = [
        ("500", Evil::Answer(500, "InternalError")),
        ("503", Evil::Answer(503, "SlowDown")),
        ("reset", Evil::Reset),
        ("lost", Evil::LostAnswer),
        ("hang", Evil::Hang(after)),
    ];
    use Asked::{Begin, Complete, Get, Head, List, Marker, Name, Part, Seal};
    for (name, fault) in faults {
        let place = place(name);
        for asked in [Marker, Begin, Part, Complete, Head, Seal, Name, List, Get] {
            shop.proxy.rule(asked, (0, 1), fault.clone());
        }
        shop.done(&["backup", &database, "--to", &place]);
        assert_eq!(shop.proxy.reset(), 0, "{name}: every fault happened");
        for asked in [List, Get] {
            shop.proxy.rule(asked, (1, 1), fault.clone());
        }
        shop.proxy.rule(Get, (3, 2), Evil::Cut(1000));
        shop.restores(&place, &database);
        shop.proxy.reset();
    }
    let [names, data, seals, markers] = shop.objects();
    assert_eq!([names, data, seals, markers], [5, 5, 5, 0]);
}

#[test]
fn a_conflict_is_no_success_and_an_own_success_is_no_conflict() {
    let shop = Shop::new();
    let database = shop.database(100);
    for asked in [Asked::Marker, Asked::Seal, Asked::Name] {
        for (status, code) in [
            (409, "ConditionalRequestConflict"),
            (412, "PreconditionFailed"),
        ] {
            shop.proxy.rule(asked, (0, 2), Evil::Answer(status, code));
        }
        shop.done(&["backup", &database, "--to", &place("night")]);
        shop.proxy.reset();
    }
    assert_eq!(shop.objects(), [3, 3, 3, 0]);
    // Somebody else's object with the name: nothing is replaced.
    let taken = place("mine.windlass");
    shop.done(&["backup", &database, "--to", &taken]);
    let before = read(shop.server.objects().join("mine.windlass")).unwrap();
    let said = shop.ends(&["backup", &database, "--to", &taken], 1);
    assert!(said.contains("exists already"), "{said}");
    let said = shop.ends(&["backup", &database, "--to", &taken, "--overwrite"], 1);
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(
        read(shop.server.objects().join("mine.windlass")).unwrap(),
        before
    );
    assert_eq!(shop.objects(), [4, 4, 4, 0]);
}

#[test]
fn a_run_killed_at_any_step_leaves_a_set_or_nothing() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let mut steps = 0;
    use Asked::{Begin, Complete, Get, Head, Marker, Name, Part, Remove, Seal};
    let kinds = [Marker, Begin, Part, Complete, Head, Seal, Get, Name, Remove];
    for (number, asked) in (0..).zip(kinds) {
        for evil in [Evil::KillBefore, Evil::KillAfter] {
            let place = place(&format!("kill-{number}-{evil:?}"));
            // The second request of a kind: the first stripe's has passed.
            shop.proxy.rule(asked, (1, 1), evil.clone());
            let mut run = shop.spawn(&["backup", &database, "--to", &place, "--to", &place]);
            shop.proxy.victim(run.id());
            let ended = run.wait().unwrap();
            let is_killed = ended.code().is_none();
            steps += usize::from(is_killed);
            shop.proxy.reset();
            // A stripe that got little of the database is one object without an upload in parts.
            if is_killed && matches!(asked, Begin | Part | Complete) {
                let said = text(&shop.run(&["info", &place, "--json"]));
                assert!(
                    said.contains(".windlass.partial"),
                    "{asked:?} {evil:?}: {said}"
                );
            }
            // The next run cleans up, and what is listed can be restored.
            shop.done(&["backup", &database, "--to", &place]);
            shop.restores(&place, &database);
            shop.done(&["verify", &place]);
            let sets = shop.done(&["info", &place, "--json"]);
            assert!(!sets.contains(".partial"), "{asked:?} {evil:?}: {sets}");
        }
    }
    assert!(steps >= 12, "only {steps} runs were killed");
    let [names, data, seals, markers] = shop.objects();
    assert_eq!((names, seals, markers), (data, data, 0));
    assert_eq!(shop.server.uploads(), 0, "no part of an upload is left");
}

/// Only the name that the stripe itself got says that it is sealed.
#[test]
fn what_has_the_name_of_a_stripe_does_not_seal_it() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let night = place("night");
    let names = ["first.windlass", "second.windlass"];
    let [first, second] = names.map(|name| place(&format!("night/{name}")));
    // One of the two stripes gets its seal.
    let words = ["backup", &database, "--to", &first, "--to", &second];
    shop.killed_before(Asked::Seal, &words);
    // The proxy may still pass on what the killed one sent.
    let begin = Instant::now();
    let seals = loop {
        let mut seals = shop.server.keys();
        seals.retain(|key| key.ends_with(".seal"));
        if !seals.is_empty() {
            break seals;
        }
        assert!(begin.elapsed() < HANG, "no stripe gets its seal");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(seals.len(), 1, "{seals:?}");
    let sealed = usize::from(seals[0].ends_with("/1.seal"));
    let at = |index: usize| shop.server.objects().join("night").join(names[index]);
    write(at(1 - sealed), "somebody else's").unwrap();
    shop.done(&["backup", &database, "--to", &night]);
    assert!(!at(sealed).exists(), "half a set has a name");
    assert_eq!(read(at(1 - sealed)).unwrap(), b"somebody else's");
    let mut left = shop.server.keys();
    left.retain(|key| key == &seals[0]);
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_marker_that_cannot_be_read_hides_no_other() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    shop.killed_before(Asked::Part, &["backup", &database, "--to", &night]);
    let keys = shop.server.keys().into_iter();
    let [first, second]: [String; 2] = keys.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(second, format!("{first}.parts"));
    write(shop.server.objects().join(second), "torn").unwrap();
    let said = text(&shop.run(&["info", &night, "--json"]));
    assert!(said.contains(".windlass.partial"), "{said}");
    shop.done(&["backup", &database, "--to", &night]);
    shop.restores(&night, &database);
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
}

#[test]
fn a_bucket_that_cannot_be_used_says_why() {
    let mut shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    let said = shop.done(&["check", &database, "--to", &night]);
    assert!(
        said.contains("s3://shop/night can be written to and read back"),
        "{said}"
    );
    assert_eq!(shop.server.keys(), [""; 0], "check leaves nothing behind");
    let said = shop.ends(&["backup", &database, "--to", "s3://nobody/night"], 1);
    assert!(said.contains("NoSuchBucket"), "{said}");
    shop.configure(&shop.proxy.endpoint(), "wrong-secret", "60s");
    let said = shop.ends(&["backup", &database, "--to", &night], 1);
    assert!(
        said.contains("SignatureDoesNotMatch") && said.contains("hint:"),
        "{said}"
    );
    assert!(!said.contains("wrong-secret"), "{said}");
    shop.ends(&["check", &database, "--to", &night], 1);
    shop.configure(&shop.server.endpoint(), SECRET_KEY, "2s");
    shop.server.stop();
    for words in [
        &["backup", database.as_str(), "--to", night.as_str()][..],
        &["info", &night],
        &["verify", &night],
        &["restore", &night, "--into", &shop.word("copy.db")],
    ] {
        let said = shop.ends(words, 1);
        assert!(said.contains("Connection refused"), "{words:?}: {said}");
    }
    assert!(!shop.path("copy.db").exists());
    shop.server.go_on();
    shop.configure(&shop.server.endpoint(), SECRET_KEY, "60s");
    shop.done(&["backup", &database, "--to", &night]);
}

#[test]
fn a_process_that_uses_a_bucket_makes_no_core_file() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let limit = core_file_limit(&[&night], &shop.path("windlass.toml"));
    assert!(limit == "1" || limit == "0", "{limit}");
}

#[test]
fn secrets_are_in_no_output_and_in_no_set() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    let log = shop.word("log");
    let said = shop.done(&["backup", &database, "--to", &night, "--log", &log, "--json"]);
    let listed = shop.done(&["info", &night, "--json"]);
    let mut texts = vec![said.into_bytes(), listed.into_bytes(), read(&log).unwrap()];
    for key in shop.server.keys() {
        texts.push(read(shop.server.objects().join(key)).unwrap());
    }
    let secret = SECRET_KEY.as_bytes();
    let has = |bytes: &Vec<u8>| bytes.windows(secret.len()).any(|window| window == secret);
    assert!(!texts.iter().any(has));
}

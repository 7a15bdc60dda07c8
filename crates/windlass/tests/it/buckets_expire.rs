//! `windlass expire` in buckets: what is hidden, what goes, and that no reader loses what it reads.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{File, create_dir, read, remove_file};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place, sqlite};
use crate::run::signal;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs a command, and returns its exit code and the document that it printed.
fn json(shop: &Shop, words: &[&str]) -> (i32, Value) {
    let output = shop.run(&[words, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let said = crate::run::text(&output);
    let document = serde_json::from_str(text.lines().last().unwrap_or_default());
    (
        output.status.code().unwrap_or(-1),
        document.unwrap_or_else(|error| panic!("{words:?}: {error}: {said}")),
    )
}

pub fn back_up(shop: &Shop, database: &str, more: &[&str]) -> String {
    sqlite(
        Path::new(database),
        "update item set name = name || '.' where id = 1",
    );
    let (code, done) = json(shop, &[&["backup", database], more].concat());
    assert_eq!(code, 0, "{done}");
    done["set_id"].as_str().unwrap().to_owned()
}

/// A full set, one on it, and the same again.
fn two_chains(shop: &Shop, database: &str, to: &[&str]) -> Vec<String> {
    let kinds = ["full", "incr", "full", "incr"];
    kinds
        .map(|kind| back_up(shop, database, &[&["--type", kind], to].concat()))
        .into()
}

pub fn expire(shop: &Shop, place: &str, more: &[&str]) -> (i32, Value) {
    let rule = match more.contains(&"--keep-full") {
        true => &[][..],
        false => &["--keep-full", "1"],
    };
    json(shop, &[&["expire", place], rule, more].concat())
}

/// The ids of all sets that `info` lists. It must find no damage.
pub fn listed(shop: &Shop, places: &[&str]) -> Vec<String> {
    let (code, document) = json(shop, &[&["info"], places].concat());
    assert_eq!(code, 0, "{places:?}: {document}");
    let sets = document["sets"].as_array().unwrap().iter();
    sets.map(|set| set["set_id"].as_str().unwrap().to_owned())
        .collect()
}

pub fn words(values: &Value) -> Vec<&str> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_str().unwrap()).collect()
}

/// What becomes of each set, by the document of an expire.
fn steps(document: &Value) -> Vec<&str> {
    let sets = document["databases"][0]["sets"].as_array().unwrap();
    let step = |set: &'_ Value| match set["step"].as_str() {
        None => "stays",
        Some("remove") => "remove",
        Some("hide") => "hide",
        Some(_) => "wait",
    };
    sets.iter().map(step).collect()
}

/// Makes the marks that hide sets this old, by the clock of the server.
fn age_marks(shop: &Shop, age: Duration) -> usize {
    let keys = shop.server.keys();
    let marks = keys.iter().filter(|key| key.ends_with(".hidden"));
    let aged = marks.map(|key| {
        let path = shop.server.objects().join(key);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    });
    aged.count()
}

/// The objects that are not those of whole sets: marks, notes, markers.
fn leftovers(shop: &Shop) -> Vec<String> {
    let endings = [".windlass", ".data", ".seal"];
    let mut keys = shop.server.keys();
    keys.retain(|key| !endings.iter().any(|ending| key.ends_with(ending)));
    keys
}

/// A process that reads a set until it is told to end.
struct Reader(Child);

impl Reader {
    fn start(shop: &Shop, words: &[&str]) -> Self {
        let mut command = shop.command(words);
        command.args(["--", "sh", "-c", "echo open; read line; cat {} >/dev/null"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "open\n");
        Self(child)
    }

    /// Reads all of it, and says whether that worked.
    fn end(mut self) -> bool {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        self.0.wait().unwrap().success()
    }
}

/// A backup on a base that has begun and stands still, however long its test takes. It goes on when
/// it is sent the signal CONT.
fn stopped_backup(shop: &Shop, database: &str, night: &str, base: &str) -> Child {
    let mut slow = shop.command(&["backup", database, "--max-rate", "400KiB", "--quiet"]);
    let to = ["--to", night, "--base", base, "--type", "incr"];
    let mut slow = slow.args(to).spawn().unwrap();
    let has_begun = || shop.server.keys().iter().any(|key| key.contains("begun/"));
    while !has_begun() {
        std::thread::sleep(Duration::from_millis(5));
        assert!(slow.try_wait().unwrap().is_none(), "it ended too early");
    }
    signal(&slow, "STOP");
    assert!(has_begun(), "it ended too early");
    slow
}

#[test]
fn what_expired_is_hidden_first_and_removed_when_its_grace_is_over() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    let ids = two_chains(&shop, &database, &["--to", &night]);
    let before = shop.server.keys();
    let (code, plan) = expire(&shop, &night, &["--dry-run"]);
    assert_eq!(
        (code, steps(&plan)),
        (0, vec!["hide", "hide", "stays", "stays"])
    );
    assert_eq!(shop.server.keys(), before);

    let (code, done) = expire(&shop, &night, &[]);
    assert_eq!(
        (code, words(&done["hidden"])),
        (0, vec![&*ids[1], &*ids[0]])
    );
    assert_eq!(words(&done["removed"]).len(), 0);
    assert_eq!(listed(&shop, &[&night]), ids[2..]);
    let (_, info) = json(&shop, &["info", &night]);
    assert_eq!(words(&info["hidden"]), [&*ids[0], &*ids[1]]);
    let said = shop.done(&["info", &night]);
    assert!(said.contains("hidden        2 sets"), "{said}");
    assert_eq!(shop.server.keys().len(), before.len() + 2);
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
    // Nobody takes a hidden set, and no run removes it before its time.
    let said = shop.ends(&["restore", &night, "--set", &ids[0], "--into", "x"], 1);
    assert!(
        said.contains("has expired") && said.contains("hint: "),
        "{said}"
    );
    assert_eq!(age_marks(&shop, 23 * HOUR), 2);
    let (code, done) = expire(&shop, &night, &[]);
    assert_eq!(
        (code, steps(&done)),
        (0, vec!["wait", "wait", "stays", "stays"])
    );
    assert_eq!(shop.server.keys().len(), before.len() + 2);
    // A base is not removed before what builds on it, whatever the marks say.
    let mark = shop
        .server
        .objects()
        .join(format!("night/{}.hidden", ids[0]));
    let file = File::options().write(true).open(mark).unwrap();
    file.set_modified(SystemTime::now() - 25 * HOUR).unwrap();
    let (_, done) = expire(&shop, &night, &["--dry-run"]);
    assert_eq!(steps(&done), ["wait", "wait", "stays", "stays"]);

    age_marks(&shop, 25 * HOUR);
    let (code, done) = expire(&shop, &night, &[]);
    assert_eq!(
        (code, words(&done["removed"])),
        (0, vec![&*ids[1], &*ids[0]])
    );
    assert_eq!(leftovers(&shop), [""; 0]);
    assert_eq!(shop.server.keys().len(), before.len() / 2);
    assert_eq!(listed(&shop, &[&night]), ids[2..]);
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
}

#[test]
fn other_rules_bring_a_hidden_set_back() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    let ids = two_chains(&shop, &database, &["--to", &night]);
    expire(&shop, &night, &[]);
    let (code, done) = expire(&shop, &night, &["--keep-daily", "7", "--keep-full", "2"]);
    assert_eq!(
        (code, words(&done["shown_again"])),
        (0, vec![&*ids[0], &*ids[1]])
    );
    assert_eq!(listed(&shop, &[&night]), ids);
    assert_eq!(leftovers(&shop), [""; 0]);
    shop.done(&["verify", &night]);
}

#[test]
fn what_somebody_reads_stays_and_what_a_killed_reader_read_goes() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    let ids = two_chains(&shop, &database, &["--to", &night]);
    let reader = Reader::start(&shop, &["open", &night, "--set", &ids[1]]);
    let before = shop.server.keys();
    for grace in ["0", "1d"] {
        let (code, done) = expire(&shop, &night, &["--grace", grace]);
        assert_eq!((code, words(&done["in_use"]).len()), (3, 2), "{done}");
        assert_eq!(listed(&shop, &[&night]), ids);
        assert_eq!(shop.server.keys(), before);
    }
    assert!(reader.end());
    assert_eq!(leftovers(&shop), [""; 0], "a reader takes its note away");
    let mut killed = Reader::start(&shop, &["open", &night, "--set", &ids[1]]);
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let (code, done) = expire(&shop, &night, &["--grace", "0"]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 2), "{done}");
    assert_eq!(listed(&shop, &[&night]), ids[2..]);
    assert_eq!(leftovers(&shop), [""; 0]);
}

#[test]
fn a_reader_without_the_right_to_write_is_not_cut_off_while_the_grace_lasts() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    let ids = two_chains(&shop, &database, &["--to", &night]);
    shop.proxy
        .rule(Asked::Note, (0, 100), Evil::Answer(403, "AccessDenied"));
    let start = || Reader::start(&shop, &["open", &night, "--set", &ids[1]]);
    let reader = start();
    let (code, done) = expire(&shop, &night, &[]);
    assert_eq!((code, words(&done["hidden"]).len()), (0, 2), "{done}");
    let (code, _) = expire(&shop, &night, &[]);
    assert_eq!(code, 0);
    assert!(reader.end(), "the reader was cut off");
    // A chain that is built on a hidden set meanwhile brings it back.
    expire(&shop, &night, &["--keep-full", "2"]);
    let mut slow = stopped_backup(&shop, &database, &night, &ids[1]);
    let (_, done) = expire(&shop, &night, &[]);
    signal(&slow, "CONT");
    assert_eq!(words(&done["hidden"]).len(), 2, "{done}");
    assert!(slow.wait().unwrap().success());
    assert_eq!(listed(&shop, &[&night]).len(), 5);
    shop.restores(&night, &database);
    let (code, done) = expire(&shop, &night, &["--grace", "0"]);
    assert_eq!((code, words(&done["shown_again"]).len()), (0, 2), "{done}");
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
}

#[test]
fn a_backup_keeps_its_base_in_a_bucket_until_it_is_sealed() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    let ids = two_chains(&shop, &database, &["--to", &night]);
    let mut slow = stopped_backup(&shop, &database, &night, &ids[1]);
    let (code, done) = expire(&shop, &night, &["--grace", "0"]);
    signal(&slow, "CONT");
    assert_eq!((code, words(&done["removed"]).len()), (3, 0), "{done}");
    assert!(slow.wait().unwrap().success());
    let (code, _) = expire(&shop, &night, &["--grace", "0"]);
    assert_eq!((code, listed(&shop, &[&night]).len()), (0, 5));
    shop.done(&["verify", &night]);
}

/// Kills it at each request. Nothing ever looks damaged, and the next run ends what was begun.
#[test]
fn a_killed_run_in_a_bucket_leaves_no_damage_and_the_next_one_ends_it() {
    let shop = Shop::new();
    let (database, night) = (shop.database(50), place("night"));
    let to = ["--to", night.as_str()];
    let words = ["expire", &night, "--keep-full", "1", "--grace", "0"];
    let mut kept = back_up(&shop, &database, &to);
    let mut kills = 0;
    for asked in [Asked::Mark, Asked::List, Asked::Remove] {
        for number in 0.. {
            let old = kept;
            kept = back_up(&shop, &database, &to);
            let evil = match number % 2 {
                0 => Evil::KillBefore,
                _ => Evil::KillAfter,
            };
            shop.proxy.reset();
            shop.proxy.rule(asked, (number, 1), evil);
            let mut run = shop.spawn(&words);
            shop.proxy.victim(run.id());
            let is_killed = run.wait().unwrap().code().is_none();
            shop.proxy.reset();
            let there = listed(&shop, &[&night]);
            let is_whole = there == [old.clone(), kept.clone()] || there == [kept.clone()];
            assert!(is_whole, "{asked:?} {number}: {there:?}");
            let (code, done) = expire(&shop, &night, &["--grace", "0"]);
            assert_eq!(code, 0, "{asked:?} {number}: {done}");
            assert_eq!(listed(&shop, &[&night]), [kept.clone()]);
            assert_eq!(shop.server.keys().len(), 3, "{asked:?} {number}");
            if !is_killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills >= 8, "only {kills} kills");
    shop.done(&["verify", &night]);
    shop.restores(&night, &database);
}

#[test]
fn two_runs_at_once_and_bad_answers_remove_what_one_would() {
    let shop = Shop::new();
    let (database, night) = (shop.database(50), place("night"));
    let to = ["--to", night.as_str()];
    let sets: Vec<_> = (0..6).map(|_| back_up(&shop, &database, &to)).collect();
    for asked in [Asked::Mark, Asked::List, Asked::Remove] {
        shop.proxy.rule(asked, (1, 1), Evil::LostAnswer);
        shop.proxy
            .rule(asked, (1, 1), Evil::Answer(503, "SlowDown"));
    }
    let words = ["expire", &night, "--keep-full", "1", "--grace", "0"];
    let mut runs = [shop.spawn(&words), shop.spawn(&words)];
    for run in &mut runs {
        assert_eq!(run.wait().unwrap().code(), Some(0));
    }
    let (code, _) = expire(&shop, &night, &[]);
    assert_eq!(code, 0);
    assert_eq!(listed(&shop, &[&night]), sets[5..]);
    assert_eq!(shop.server.keys().len(), 3);
    shop.restores(&night, &database);
}

#[test]
fn a_set_that_the_bucket_protects_stays_and_the_others_go() {
    let shop = Shop::new();
    let (database, night) = (shop.database(50), place("night"));
    let to = ["--to", night.as_str()];
    let sets: Vec<_> = (0..3).map(|_| back_up(&shop, &database, &to)).collect();
    shop.server
        .protect(&format!("night/sets/{}/0.data", sets[0]));
    let before = shop.server.keys();
    let words = ["expire", &night, "--keep-full", "1", "--grace", "0"];
    let said = shop.ends(&words, 1);
    let start = format!("error: set {} stays: ", &sets[0][..8]);
    assert!(said.contains(&start) && said.contains("hint: "), "{said}");
    let mut left = before;
    left.retain(|key| !key.contains(&sets[1]) && !key.contains(&sets[1][..8]));
    let mut now = shop.server.keys();
    now.retain(|key| !key.ends_with(".hidden"));
    assert_eq!(now, left);
    // When the protection has ended, it goes.
    shop.server
        .unprotect(&format!("night/sets/{}/0.data", sets[0]));
    let (code, _) = expire(&shop, &night, &["--grace", "0"]);
    assert_eq!((code, shop.server.keys().len()), (0, 3));
    // Without the right to remove anything, nothing is lost.
    back_up(&shop, &database, &to);
    shop.proxy
        .rule(Asked::Remove, (0, 9), Evil::Answer(403, "AccessDenied"));
    let said = shop.ends(&words, 1);
    assert!(said.contains("AccessDenied"), "{said}");
    shop.proxy.reset();
    shop.restores(&night, &database);
    assert_eq!(expire(&shop, &night, &["--grace", "0"]).0, 0);
    assert_eq!(shop.server.keys().len(), 3);
}

#[test]
fn sets_in_a_bucket_and_a_directory_go_from_both_and_holds_keep_them() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    create_dir(shop.path("disk")).unwrap();
    let disk = shop.word("disk");
    shop.append(&format!(
        "\n[repository.main]\nto = [{night:?}, {disk:?}]\n[database.shop]\nsource = \
         {database:?}\nrepo = \"main\"\n"
    ));
    let ids = two_chains(&shop, &database, &["--repo", "main"]);
    let both = [night.as_str(), disk.as_str()];
    let expire = |more: &[&str]| {
        let words = ["expire", "shop", "--repo", "main", "--keep-full", "1"];
        json(&shop, &[&words, more].concat())
    };
    shop.done(&["hold", &night, &disk, "--set", &ids[1]]);
    let (code, done) = expire(&["--grace", "0"]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 0), "{done}");
    shop.done(&["hold", &night, &disk, "--set", &ids[1], "--release"]);
    let (code, done) = expire(&[]);
    assert_eq!((code, words(&done["hidden"]).len()), (0, 2), "{done}");
    assert_eq!(listed(&shop, &both), ids[2..]);
    assert_eq!(listed(&shop, &[&disk]), ids[2..]);
    age_marks(&shop, 25 * HOUR);
    let (code, done) = expire(&[]);
    assert_eq!((code, words(&done["removed"]).len()), (0, 2), "{done}");
    assert_eq!(std::fs::read_dir(shop.path("disk")).unwrap().count(), 2);
    assert_eq!(leftovers(&shop), [""; 0]);
    let copy = shop.word("copy.db");
    shop.done(&["restore", "shop", "--into", &copy]);
    assert!(read(&copy).unwrap() == read(&database).unwrap());
    remove_file(&copy).unwrap();
    // A place with nothing in it may be a mistake.
    let said = shop.ends(&["expire", &night, &place("nigth"), "--keep-full", "1"], 1);
    assert!(said.contains("it may be the wrong prefix"), "{said}");
}

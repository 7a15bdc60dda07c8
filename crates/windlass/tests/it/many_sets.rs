//! Many nights of backups in one directory: a directory that holds many sets.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

use crate::clusters::{directory, place as server_place};
use crate::info::cut_off;
use crate::opening::Scratch;
use crate::support::*;
use crate::trouble::grow;

/// Two nights of one database in one directory: with twenty transactions, then with thirty.
fn two_nights() -> (Place, String, String) {
    let place = Place::new();
    let first = id_of(&place.back_up());
    place.ledger.commit(21, 30);
    let second = id_of(&place.back_up());
    (place, first, second)
}

/// The beginning of a set's id, as it is in the stripe's name.
fn id_of(stripe: &Path) -> String {
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let (_, id) = name.split_once('.').unwrap().0.rsplit_once('-').unwrap();
    id.to_owned()
}

fn stripe_of(place: &Place, id: &str) -> PathBuf {
    let mut names = place.sets().into_iter();
    place
        .path("sets")
        .join(names.find(|name| name.contains(id)).unwrap())
}

/// Runs a command that must end with `code`. Returns standard output and standard error.
fn ends(code: i32, words: &[&str]) -> (String, String) {
    let output = windlass(words);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {}",
        text(&output)
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Restores with these words. Returns the number of transactions, and what was printed.
fn restored(place: &Place, words: &[&str]) -> (u64, String) {
    let into = place.path("again.db");
    let begin = ["restore", "--into", into.to_str().unwrap()];
    let (_, said) = ends(0, &[&begin[..], words].concat());
    let count = place.ledger.check(&into);
    std::fs::remove_file(&into).unwrap();
    (count, said)
}

#[allow(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn flip(stripe: &Path, at: usize) {
    let mut bytes = std::fs::read(stripe).unwrap();
    bytes[at] ^= 1;
    std::fs::write(stripe, bytes).unwrap();
}

/// Damages a frame, so that only reading the frame reveals it.
fn flip_inside(stripe: &Path) {
    let bytes = std::fs::read(stripe).unwrap().len();
    flip(stripe, bytes / 3);
}

#[test]
fn the_newest_set_is_restored_unless_another_is_chosen() {
    let (place, first, second) = two_nights();
    let sets = place.arg("sets");
    let (count, said) = restored(&place, &[&sets]);
    assert_eq!(count, 30);
    let says = format!("set {second} of shop.db (SQLite, ");
    assert!(said.contains(&says), "{said}");
    assert!(said.contains(": the newest of 2 in "), "{said}");
    assert_eq!(restored(&place, &[&sets, "--set", "latest"]).0, 30);
    assert_eq!(restored(&place, &[&sets, "--set", &first]).0, 20);
    let at = format!("{sets}@{first}");
    assert_eq!(restored(&place, &[&at]).0, 20);
    // In the form of the list, and as JSON.
    let (code, document) = json(&["info", &sets]);
    assert_eq!(code, 0);
    let started = document["sets"][1]["facts"]["started"].as_str().unwrap();
    assert_eq!(restored(&place, &[&sets, "--set", started]).0, 30);
    let (listed, _) = ends(0, &["info", &sets]);
    let line = listed
        .lines()
        .find(|line| line.starts_with(&second))
        .unwrap();
    let begun = &line[second.len()..].trim_start()[..19];
    let (count, said) = restored(&place, &[&sets, "--set", begun]);
    assert_eq!(count, 30);
    // The number is that of the sets up to this time, and the words say so.
    assert!(said.contains(&format!(" begun by {begun} in ")), "{said}");
    // Naming a stripe means its own set.
    let stripe = stripe_of(&place, &first);
    assert_eq!(restored(&place, &[stripe.to_str().unwrap()]).0, 20);
}

#[test]
fn a_choice_that_no_set_meets_is_refused() {
    let (place, first, _) = two_nights();
    let sets = place.arg("sets");
    let into = place.arg("x.db");
    let refused = |words: &[&str], says: &str| {
        let begin = ["restore", "--into", &into];
        let (_, said) = ends(2, &[&begin[..], words].concat());
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(said.contains("hint: "), "{said}");
    };
    refused(&[&sets, "--set", "0000000000"], "no set in ");
    refused(&[&sets, "--set", "2001-01-01"], "was begun by 2001-01-01");
    refused(&[&sets, "--database", "nobody"], "shop.db (SQLite, ");
    let stripe = stripe_of(&place, &first);
    let stripe = stripe.to_str().unwrap();
    refused(&[stripe, "--set", &first], "is one stripe");
    let at = format!("{sets}@{first}");
    refused(&[&at, "--set", "latest"], "another set than --set");
    let output = windlass(&["restore", &sets, "--into", &into, "--set", "newest"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!place.path("x.db").exists());
}

#[test]
fn every_command_takes_the_newest_set_of_a_directory_or_the_chosen_one() {
    let (place, first, second) = two_nights();
    let sets = place.arg("sets");
    let rows = "SELECT count(*) FROM log";
    let count = |words: &[&str]| {
        let begin = [&["open"], words, &["--", "sqlite3", "{}", rows]].concat();
        ends(0, &begin).0.trim().to_owned()
    };
    let (newest, oldest) = (count(&[&sets]), count(&[&sets, "--set", &first]));
    assert_ne!(newest, oldest);
    let out = place.arg("out");
    ends(
        0,
        &["extract", &sets, "shop.db", "--into", &out, "--set", &first],
    );
    assert_eq!(place.ledger.check(&place.path("out/shop.db")), 20);
    let (then, now) = (format!("{sets}@{first}"), format!("{sets}@latest"));
    let (differing, _) = ends(3, &["diff", &then, &now]);
    assert!(!differing.is_empty());
    ends(0, &["diff", &now, &format!("{sets}@{second}")]);
    let mount = place.path("mount");
    std::fs::create_dir(&mount).unwrap();
    let at = mount.to_str().unwrap();
    let (said, _) = ends(0, &["mount", &sets, at, "--set", &first]);
    let copied = place.path("copied.db");
    std::fs::copy(mount.join("shop.db"), &copied).unwrap();
    // A process that another test begins has a copy of the file that was read, until it runs its
    // program.
    let mut umount = std::process::Command::new("umount");
    let unmounted = umount.args(["--lazy", at]).status();
    assert!(unmounted.unwrap().success());
    assert!(said.contains(&first), "{said}");
    assert_eq!(place.ledger.check(&copied), 20);
}

#[test]
fn verify_reads_all_sets_of_a_directory_or_one() {
    let (place, first, second) = two_nights();
    let sets = place.arg("sets");
    let (printed, _) = ends(0, &["verify", &sets]);
    assert!(printed.contains("verified      2 sets, "), "{printed}");
    let (printed, _) = ends(0, &["verify", &sets, "--latest"]);
    assert!(
        printed.contains(&second) && !printed.contains(&first),
        "{printed}"
    );
    let (code, document) = json(&["verify", &sets, "--quick"]);
    assert_eq!((code, &document["ok"]), (0, &true.into()));
    assert_eq!(document["sets"].as_array().unwrap().len(), 2);
    // Now one of them has damage that only reading it reveals.
    let stripe = stripe_of(&place, &first);
    flip_inside(&stripe);
    let (printed, said) = ends(4, &["verify", &sets]);
    assert!(printed.contains("verified      1 of 2 sets, "), "{printed}");
    assert!(!printed.contains("all right"), "{printed}");
    let says = format!("error: 1 of 2 sets damaged: {first}\n");
    assert!(said.contains(&says), "{said}");
    let (code, document) = json(&["verify", &sets]);
    assert_eq!((code, &document["ok"]), (4, &false.into()));
    assert_eq!(document["damaged"], serde_json::json!([first]));
    assert_eq!(document["sets"][0]["damage_count"], 1);
    assert_eq!(document["sets"][1]["ok"], true);
    ends(0, &["verify", &sets, "--latest"]);
    ends(4, &["verify", &sets, "--set", &first]);
    ends(2, &["verify", &sets, "--events", &place.arg("events")]);
    // If nothing is right, nothing says so.
    flip_inside(&stripe_of(&place, &second));
    let (printed, said) = ends(4, &["verify", &sets]);
    assert!(!printed.contains("verified "), "{printed}");
    assert!(said.contains("error: 2 of 2 sets damaged: "), "{said}");
}

#[test]
fn info_names_one_size_of_a_set_in_the_list_and_in_full() {
    let place = Place::new();
    let stripe = place.back_up();
    let stored = windlass_engine::show_size(stripe.metadata().unwrap().len());
    let sets = place.arg("sets");
    let (list, _) = ends(0, &["info", &sets]);
    assert!(list.contains(&format!("  {stored}  ")), "{stored}: {list}");
    let (full, _) = ends(0, &["info", &sets, "--set", "latest"]);
    assert!(
        full.contains(&format!(", stored in {stored}\n")),
        "{stored}: {full}"
    );
}

#[test]
fn the_help_of_set_says_that_info_and_verify_take_all_sets_without_it() {
    for (command, default) in [
        ("info", "all sets"),
        ("verify", "all sets"),
        ("restore", "latest"),
    ] {
        let help = windlass(&[command, "--help"]);
        let help = text(&help).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains(&format!("begun by then [default: {default}]")),
            "{help}"
        );
    }
}

#[test]
fn metrics_of_all_sets_tell_of_the_damaged_one() {
    let (place, first, _) = two_nights();
    let (sets, metrics) = (place.arg("sets"), place.arg("windlass.prom"));
    let success = |code: i32| {
        ends(code, &["verify", &sets, "--metrics-file", &metrics]);
        let metrics = std::fs::read_to_string(&metrics).unwrap();
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with("windlass_run_success{"));
        line.unwrap_or(&metrics).to_owned()
    };
    assert!(success(0).ends_with(" 1"));
    let stripe = stripe_of(&place, &first);
    flip_inside(&stripe);
    // The sound set comes last.
    let line = success(4);
    assert!(line.ends_with(" 0"), "{line}");
}

#[test]
fn a_damaged_newest_set_is_never_passed_over() {
    let (place, first, second) = two_nights();
    let (sets, into) = (place.arg("sets"), place.arg("x.db"));
    let newest = stripe_of(&place, &second);
    let whole = std::fs::read(&newest).unwrap();
    // Once in its header, once in its footer.
    for at in [0, whole.len() - 4097] {
        flip(&newest, at);
        let (_, said) = ends(4, &["restore", &sets, "--into", &into]);
        let hint = format!("The next older sound set is {first}, begun ");
        assert!(said.contains(&hint), "{said}");
        flip(&newest, at);
    }
    // Once in a frame, which only the restore itself reads.
    flip_inside(&newest);
    let (_, said) = ends(4, &["restore", &sets, "--into", &into]);
    let hint = format!("The next older sound set is {first}, begun ");
    assert!(said.contains(&hint), "{said}");
    let hint = format!("`windlass verify {sets} --set {second}` lists what is lost.");
    assert!(said.contains(&hint), "{said}");
    assert!(!place.path("x.db").exists());
    // Nothing of the file can be read: it may be anything, even a newer set.
    std::fs::File::create(&newest).unwrap();
    let (_, said) = ends(4, &["restore", &sets, "--into", &into]);
    assert!(said.contains("may be a newer set"), "{said}");
    assert!(said.contains(&format!("--set {first}")), "{said}");
    let (printed, _) = ends(4, &["info", &sets]);
    assert!(printed.contains("damaged       "), "{printed}");
    ends(4, &["verify", &sets]);
    assert_eq!(restored(&place, &[&sets, "--set", &first]).0, 20);
}

#[test]
fn an_older_damaged_set_does_not_keep_the_newest_from_use() {
    let (place, first, second) = two_nights();
    let sets = place.arg("sets");
    flip(&stripe_of(&place, &first), 0);
    assert_eq!(restored(&place, &[&sets]).0, 30);
    let (printed, _) = ends(4, &["info", &sets]);
    let line = |id: &str| {
        let found = printed.lines().find(|line| line.starts_with(id));
        found.unwrap_or_else(|| panic!("{id}: {printed}"))
    };
    assert!(line(&first).contains("  damaged: "), "{printed}");
    assert!(line(&second).ends_with("  sealed"), "{printed}");
}

#[test]
fn two_databases_in_one_directory_are_told_apart() {
    let (place, _, _) = two_nights();
    let other = place.path("deeper");
    std::fs::create_dir(&other).unwrap();
    let spec = LedgerSpec {
        journal: Journal::Wal,
        ..LedgerSpec::default()
    };
    // A database with the same name in another directory.
    let ledger = CommitLedger::create(&other.join("shop.db"), spec);
    ledger.commit(1, 7);
    let (sets, into) = (place.arg("sets"), place.arg("x.db"));
    ends(0, &["backup", &place.arg("deeper/shop.db"), "--to", &sets]);
    let (_, said) = ends(2, &["restore", &sets, "--into", &into]);
    assert!(said.contains("holds sets of 2 databases"), "{said}");
    for line in [&place.arg("deeper/shop.db"), &place.arg("shop.db")] {
        assert!(said.contains(line), "{said}");
    }
    let named = |name: &str| format!("hint: Name one: --database {}", place.key(name));
    let is_named = ["deeper/shop.db", "shop.db"].map(|name| said.contains(&named(name)));
    assert!(is_named.contains(&true), "{said}");
    let (printed, _) = ends(0, &["info", &sets]);
    for key in [&place.key("deeper/shop.db"), &place.key("shop.db")] {
        assert!(printed.contains(&format!("  {key} ")), "{printed}");
    }
    let database = place.arg("deeper/shop.db");
    ends(
        0,
        &["restore", &sets, "--into", &into, "--database", &database],
    );
    assert_eq!(ledger.check(&place.path("x.db")), 7);
    let (printed, _) = ends(0, &["info", &sets, "--database", &database]);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    ends(0, &["verify", &sets, "--database", &database]);
}

#[test]
fn a_backup_that_was_cut_off_changes_nothing_for_the_sets_beside_it() {
    let (place, _, second) = two_nights();
    grow(&place);
    cut_off(&place);
    let sets = place.arg("sets");
    let (count, said) = restored(&place, &[&sets]);
    assert_eq!(count, 30);
    assert!(said.contains(&second), "{said}");
    ends(0, &["verify", &sets]);
    let (printed, _) = ends(0, &["info", &sets]);
    assert_eq!(printed.matches("unfinished    ").count(), 2, "{printed}");
}

#[test]
fn a_striped_set_of_two_directories_is_one_set_each_night() {
    let place = Place::new();
    for name in ["disk1", "disk2"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let (one, other) = (place.arg("disk1"), place.arg("disk2"));
    for night in [20, 25] {
        place.ledger.commit(21, night);
        ends(
            0,
            &[
                "backup",
                &place.arg("shop.db"),
                "--to",
                &one,
                "--to",
                &other,
            ],
        );
    }
    assert_eq!(restored(&place, &[&one, &other]).0, 25);
    // A stripe leads to its sibling, wherever that was written to.
    assert_eq!(restored(&place, &[&other]).0, 25);
    let moved = place.arg("moved");
    std::process::Command::new("mv")
        .args([&other, &moved])
        .status()
        .unwrap();
    let (printed, _) = ends(0, &["info", &one, &moved]);
    assert_eq!(printed.matches("  sealed").count(), 2, "{printed}");
    let (printed, _) = ends(4, &["info", &one]);
    assert_eq!(
        printed.matches("  incomplete: stripe 2 of set").count(),
        2,
        "{printed}"
    );
    let (_, said) = ends(4, &["restore", &one, "--into", &place.arg("x.db")]);
    assert!(said.contains("hint: Name every place"), "{said}");
    assert_eq!(restored(&place, &[&one, &moved]).0, 25);
}

#[test]
fn a_new_name_becomes_a_directory_unless_it_ends_like_a_stripe() {
    let place = Place::new();
    let db = place.arg("shop.db");
    for (name, is_directory) in [
        ("night", true),
        ("db1.example.com", true),
        ("slash.bak/", true),
        ("one.windlass", false),
        ("one.stripe", false),
        ("one.bak", false),
    ] {
        let to = place.arg(name);
        ends(0, &["backup", &db, "--to", &to]);
        let made = std::fs::metadata(place.path(name)).unwrap();
        assert_eq!(made.is_dir(), is_directory, "{name}");
        if is_directory {
            assert_eq!(made.permissions().mode() & 0o7777, 0o700, "{name}");
        }
        assert_eq!(restored(&place, &[&to]).0, 20);
    }
    let (_, said) = ends(1, &["backup", &db, "--to", &place.arg("no/such")]);
    assert!(said.contains("there is no directory"), "{said}");
    assert!(!place.path("no").exists());
}

#[test]
fn two_clusters_of_one_name_are_told_apart_in_one_directory() {
    let place = server_place();
    let sets = directory(place.path(), "sets");
    let sets = sets.to_str().unwrap();
    let named = ClusterOptions::default().setting("cluster_name = '15/main'");
    let clusters = [&named, &named].map(PrivateCluster::start);
    for cluster in &clusters {
        let words = ["backup", &cluster.conninfo(), "--to", sets, "--quiet"];
        let output = Scratch::new().run(None, &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    let names = std::fs::read_dir(sets).unwrap();
    for name in names.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(name.starts_with("15_main-2"), "{name}");
    }
    let into = place.path().join("restored");
    let into = into.to_str().unwrap();
    let refused = windlass(&["restore", sets, "--into", into]);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert_eq!(
        said.matches("  15/main (PostgreSQL 15.").count(),
        2,
        "{said}"
    );
    let (_, hint) = said.split_once("--database ").unwrap();
    let identifier = hint.split(',').next().unwrap();
    assert!(identifier.parse::<u64>().is_ok(), "{said}");
    let (printed, _) = ends(0, &["info", sets, "--database", identifier]);
    assert_eq!(printed.matches("15/main").count(), 1, "{printed}");
}

#[test]
fn a_set_has_one_time_in_every_message() {
    let place = Place::new();
    let stripe = place.back_up();
    // The description says a minute other than the header.
    windlass_testkit::reforge::reforge(&stripe, |parts| {
        parts.description.facts.started = "2020-05-06T07:08:09Z".to_owned();
    });
    let sets = place.arg("sets");
    let begun = "2020-05-06T07:08:09Z".parse::<jiff::Timestamp>().unwrap();
    let begun = begun.to_zoned(jiff::tz::TimeZone::system());
    let begun = begun.strftime("%F %T").to_string();
    let into = place.arg("x.db");
    for words in [
        &["info", &sets][..],
        &["info", &sets, "--long"],
        &["restore", &sets, "--into", &into, "--dry-run"],
        &["verify", &sets, "--latest"],
    ] {
        let (out, err) = ends(0, words);
        assert!((out + &err).contains(&begun), "{words:?}: {begun}");
    }
    restored(&place, &[&sets, "--set", &begun]);
}

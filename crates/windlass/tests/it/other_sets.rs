//! What the commands say about other sets: which one to take instead of a damaged one, which stripe
//! is of which set, and where sets are that the named directory does not have.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters::{directory, place as server_place};
use crate::support::*;

/// The beginning of a set's id, as it is in the stripe's name.
fn id_of(stripe: &Path) -> String {
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let (_, id) = name.split_once('.').unwrap().0.rsplit_once('-').unwrap();
    id.to_owned()
}

/// Runs a command that must end with this code. Returns what it printed.
fn says(code: i32, words: &[&str]) -> String {
    let output = windlass(words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    printed
}

/// Damages a frame, so that only reading the frame reveals it.
fn flip_inside(stripe: &Path) {
    damage_frames(stripe);
}

/// The commands that meet the damage of a set, with words that name the set.
fn reading(place: &Place, set: &[&str]) -> Vec<String> {
    let (into, out) = (place.arg("x.db"), place.arg("out"));
    let commands = [
        &["verify"][..],
        &["restore", "--into", &into],
        &["extract", "**", "--into", &out],
        &["open"],
    ];
    let mut printed = Vec::new();
    for words in commands {
        let (command, rest) = words.split_first().unwrap();
        let mut words = vec![*command, set[0]];
        words.extend(rest.iter().chain(&set[1..]));
        if *command == "open" {
            words.extend(["--", "cat", "{}"]);
            // The program that reads the damage fails with a code of its own.
            let output = windlass(&words);
            assert_ne!(output.status.code(), Some(0), "{words:?}");
            printed.push(String::from_utf8_lossy(&output.stderr).into_owned());
            continue;
        }
        printed.push(says(4, &words));
        if place.path("out").exists() {
            std::fs::remove_dir_all(place.path("out")).unwrap();
        }
    }
    printed
}

fn assert_all_say(printed: &[String], expected: &str) {
    for printed in printed {
        assert!(printed.contains(expected), "{expected}\n{printed}");
        assert!(!printed.contains("se an older set"), "{printed}");
        assert!(!printed.contains("se another set"), "{printed}");
    }
}

#[test]
fn another_set_is_named_only_if_there_is_one() {
    let place = Place::new();
    let first = place.back_up();
    let sets = place.arg("sets");
    let whole = std::fs::read(&first).unwrap();
    flip_inside(&first);
    let none = format!("No other sound set of this database is in {sets}.");
    let stripe = first.to_str().unwrap();
    assert_all_say(&reading(&place, &[stripe]), &none);
    assert_all_say(&reading(&place, &[&sets]), &none);
    // The older set is sound.
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    std::fs::write(&first, whole).unwrap();
    place.ledger.commit(21, 30);
    let second = place.back_up();
    flip_inside(&second);
    let (old, new) = (id_of(&first), id_of(&second));
    let older = format!("The next older sound set is {old}, begun ");
    let printed = reading(&place, &[second.to_str().unwrap()]);
    assert_all_say(&printed, &older);
    assert_all_say(&printed, &format!("take it with {sets} --set {old}."));
    for words in [&[&*sets][..], &[&sets, "--set", &new]] {
        let printed = reading(&place, words);
        let of_all = &printed[usize::from(words.len() == 1)..];
        assert_all_say(of_all, &older);
        assert_all_say(of_all, &format!("take it with --set {old}."));
    }
    let all = says(4, &["verify", &sets]);
    assert!(all.contains(&older), "{all}");
    let lists = format!("`windlass verify {sets} --set {new}` lists what is lost.");
    assert!(all.contains(&lists), "{all}");
    // A damaged set is never offered, and a newer one is if there is no older one.
    flip_inside(&first);
    let printed = reading(&place, &[&sets, "--set", &old]);
    let newer = format!("No older sound set is there. The newest sound set is {new}");
    // Damage within a frame does not show in the list.
    assert_all_say(&printed, &newer);
    let all = says(4, &["verify", &sets]);
    assert!(!all.contains("sound set"), "{all}");
    let lists = format!("`windlass verify {sets} --set ID` lists what is lost in one of them.");
    assert!(all.contains(&lists), "{all}");
}

#[test]
fn a_missing_stripe_is_called_missing_and_not_damage() {
    let place = Place::new();
    let (a, b) = (place.arg("a.stripe"), place.arg("b.stripe"));
    let words = ["backup", &place.arg("shop.db"), "--to", &a, "--to", &b];
    says(0, &words);
    std::fs::remove_file(&a).unwrap();
    for words in [&["verify", &b][..], &["verify", "--quick", &b]] {
        let printed = says(4, words);
        assert!(
            printed.contains("is incomplete: stripe 1 is missing"),
            "{printed}"
        );
        let hint = "hint: Name every place that holds stripes of this set, or copy the missing \
                    one back. No other sound set of this database is in ";
        assert!(printed.contains(hint), "{printed}");
        assert!(!printed.contains("older"), "{printed}");
    }
    let printed = says(4, &["restore", &b, "--into", &place.arg("x.db")]);
    assert!(printed.contains("hint: Name every place"), "{printed}");
    assert!(printed.contains("No other sound set"), "{printed}");
}

#[test]
fn stripes_of_two_sets_are_told_apart() {
    let place = Place::new();
    let (one, other) = (place.back_up(), place.back_up());
    let words = [one.to_str().unwrap(), other.to_str().unwrap()];
    let into = place.arg("x.db");
    for words in [
        [&["verify"], &words[..]].concat(),
        [&["verify", "--quick"], &words[..]].concat(),
        [&["restore", "--into", &into], &words[..]].concat(),
        [&["open"], &words[..], &["--", "true"]].concat(),
    ] {
        let printed = says(4, &words);
        for stripe in [&one, &other] {
            let line = format!("{} is of set {}", stripe.display(), id_of(stripe));
            assert!(printed.contains(&line), "{words:?}: {printed}");
        }
        let hint = "hint: Name one stripe of the set that you mean";
        assert!(printed.contains(hint), "{words:?}: {printed}");
        assert!(!printed.contains("damaged"), "{words:?}: {printed}");
        assert!(!printed.contains("lost"), "{words:?}: {printed}");
        assert!(!printed.contains("older"), "{words:?}: {printed}");
    }
}

/// How many bytes the files in a directory have.
fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

#[test]
fn a_lost_disk_of_a_cluster_fits_on_a_screen() {
    let place = server_place();
    let disks = ["one", "two", "three"].map(|name| directory(place.path(), name));
    let cluster = PrivateCluster::start(&ClusterOptions::default());
    let mut words = vec!["backup".to_owned(), cluster.conninfo()];
    for disk in &disks {
        words.extend(["--to".to_owned(), disk.to_str().unwrap().to_owned()]);
    }
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    says(0, &words);
    // Whichever device is free gets the next frame, so a stripe can be almost empty.
    let (lost, _) = (disks.iter().map(|disk| size_of(disk)).enumerate())
        .max_by_key(|(_, bytes)| *bytes)
        .unwrap();
    for entry in std::fs::read_dir(&disks[lost]).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let set = disks[(lost + 1) % 3].to_str().unwrap();
    let missing = format!("stripe {} is missing", lost + 1);
    let short = says(4, &["verify", set]);
    assert!(short.lines().count() < 70, "{short}");
    for line in [
        "--details lists more",
        " more files",
        "sum           ",
        missing.as_str(),
    ] {
        assert!(short.contains(line), "{line}: {short}");
    }
    let long = says(4, &["verify", set, "--details"]);
    let files = |printed: &str| {
        printed
            .lines()
            .filter(|line| line.starts_with("lost "))
            .count()
    };
    let (shown, all) = (files(&short), files(&long));
    let (_, document) = json(&["verify", set]);
    assert_eq!(shown, 10);
    assert_eq!(
        Some(all as u64),
        document["sets"][0]["lost"]
            .as_array()
            .map(|all| all.len() as u64)
    );
    assert!(!long.contains("--details lists more"));
}

#[test]
fn copies_of_a_stripe_count_once() {
    let place = Place::new();
    let set = place.back_up();
    let bytes = set.metadata().unwrap().len();
    let copy = place.path("sets/copy.windlass");
    std::fs::copy(&set, &copy).unwrap();
    let stored = windlass_engine::show_size(bytes);
    let words = [set.to_str().unwrap(), copy.to_str().unwrap()];
    let printed = says(4, &["info", words[0], words[1]]);
    assert!(
        printed.contains("recoverable   1 of 1 stripe is sound"),
        "{printed}"
    );
    assert!(
        printed.contains(&format!(", stored in {stored}\n")),
        "{printed}"
    );
    let printed = says(4, &["info", &place.arg("sets")]);
    assert!(printed.contains(&format!("  {stored}  ")), "{printed}");
}

#[test]
fn a_stripe_is_of_one_database() {
    let place = Place::new();
    let set = place.back_up();
    let stripe = set.to_str().unwrap();
    for words in [
        &["info", stripe, "--database", "nosuch"][..],
        &["info", stripe, "--database", "shop"],
        &["info", stripe, "--set", "latest"],
        &["verify", stripe, "--database", "nosuch"],
        &["diff", stripe, stripe, "--database", "nosuch"],
    ] {
        let printed = says(2, words);
        let id = id_of(&set);
        let is = format!(
            "is one stripe, which is of one set: {id} of shop.db (SQLite, {})",
            place.key("shop.db")
        );
        assert!(printed.contains(&is), "{words:?}: {printed}");
        assert!(printed.contains("hint: --set and --database"), "{printed}");
    }
}

#[test]
fn digits_that_read_as_a_day_are_offered_as_a_day() {
    let place = Place::new();
    place.back_up();
    let sets = place.arg("sets");
    for (digits, time) in [
        ("20261117", "2026-11-17"),
        ("202611170115", "'2026-11-17 01:15'"),
    ] {
        let printed = says(2, &["info", &sets, "--set", digits]);
        let hint = format!("Type --set {time}.");
        assert!(
            printed.contains("hint: Did you mean the time 2026-11-17"),
            "{printed}"
        );
        assert!(printed.contains(&hint), "{printed}");
    }
    // A time without dashes that no id can be is a time.
    let printed = says(2, &["info", &sets, "--set", "20261117T0100"]);
    assert!(
        printed.contains("was begun by 2026-11-17 01:00"),
        "{printed}"
    );
}

#[test]
fn a_word_that_can_be_no_path_is_refused_with_a_hint() {
    let place = Place::new();
    let looped = place.path("loop");
    symlink(&looped, &looped).unwrap();
    let long = place.arg(&"n".repeat(256));
    let bare = "n".repeat(256);
    let set = place.back_up();
    let (looped, into) = (looped.to_str().unwrap(), place.arg("x.db"));
    for (word, what) in [
        (looped, "is a symbolic link that leads back to itself"),
        (&long, "is too long: a name has at most 255 bytes"),
        (&bare, "is too long: a name has at most 255 bytes"),
    ] {
        for words in [
            &["info", word][..],
            &["verify", word],
            &["verify", &place.arg("sets"), word],
            &["restore", word, "--into", &into],
            &["extract", word, "*", "--into", &into],
            &["open", word, "--", "true"],
            &["mount", word, &place.arg("sets"), "-f"],
            &["diff", word, &place.arg("shop.db")],
            &["backup", &place.arg("shop.db"), "--to", word],
            &["backup", word, "--to", "nul"],
            &["check", &place.arg("shop.db"), "--to", word],
            &["restore", &place.arg("sets"), "--into", word],
            &["verify", &place.arg("sets"), "--events", word],
            &["extract", &place.arg("sets"), "*", "--into", word],
            &["events", word],
            &["man", word],
        ] {
            let printed = says(2, words);
            // A bare word may also be the name of a database.
            let is_named = printed.contains(what) || printed.contains("is no file, no connection");
            assert!(is_named, "{words:?}: {printed}");
            assert!(printed.contains("hint: "), "{words:?}: {printed}");
        }
    }
    // A connection string is no path, and a choice may follow a long one.
    let conninfo = format!("host=/nonexistent user={}", "n".repeat(300));
    says(1, &["backup", &conninfo, "--to", "nul"]);
    let long = place.path(&"n".repeat(250));
    std::fs::create_dir(&long).unwrap();
    std::fs::copy(&set, long.join("a.windlass")).unwrap();
    says(0, &["info", &format!("{}@latest", long.to_str().unwrap())]);
    says(
        0,
        &[
            "backup",
            &place.arg("shop.db"),
            "--to",
            long.to_str().unwrap(),
        ],
    );
}

#[test]
fn sets_one_level_below_a_directory_are_named() {
    let place = Place::new();
    let (above, db) = (place.arg(""), place.arg("shop.db"));
    let above = above.trim_end_matches('/');
    let none = says(1, &["info", above]);
    assert!(none.contains("hint: Name a stripe of the set"), "{none}");
    let crm: PathBuf = place.path("crm");
    place.back_up();
    place.back_up();
    says(0, &["backup", &db, "--to", crm.to_str().unwrap()]);
    let (sets, crm, into) = (place.arg("sets"), place.arg("crm"), place.arg("x.db"));
    let hint = format!(
        "hint: Sets lie one level below: 1 in {crm} and 2 in {sets}. Name such a directory, as in \
         `windlass info {crm}`."
    );
    for words in [
        &["info", above][..],
        &["verify", above],
        &["verify", above, "--latest"],
        &["restore", above, "--into", &into],
        &["open", above, "--", "true"],
    ] {
        let printed = says(1, words);
        assert!(printed.contains(&hint), "{words:?}: {printed}");
    }
    // A directory that has sets of its own says which it does not show.
    says(0, &["backup", &db, "--to", &place.arg("own.windlass")]);
    let printed = says(0, &["info", above]);
    for line in [
        format!("below         1 set in {crm}: windlass info {crm}"),
        format!("below         2 sets in {sets}: windlass info {sets}"),
    ] {
        assert!(printed.contains(&line), "{printed}");
    }
}

#[test]
fn a_set_of_a_clock_that_ran_fast_is_not_the_newest_in_silence() {
    let place = Place::new();
    let fast = place.back_up();
    place.ledger.commit(21, 30);
    let (first, second) = (id_of(&fast), id_of(&place.back_up()));
    windlass_testkit::reforge::reforge(&fast, |parts| {
        parts.description.facts.started = "2199-01-01T03:00:00Z".to_owned();
    });
    let sets = place.arg("sets");
    let said = says(0, &["info", &sets, "--set", &second]);
    assert!(!said.contains("warning"), "{said}");
    let (into, out, mount) = (place.arg("x.db"), place.arg("out"), place.arg("mount"));
    std::fs::create_dir(&mount).unwrap();
    let other = format!("{sets}@{second}");
    for words in [
        &["restore", &sets, "--into", &into, "--dry-run"][..],
        &["restore", &sets, "--into", &into, "--dry-run", "--json"],
        &["restore", &sets, "--into", &into],
        &["verify", &sets, "--latest"],
        &["info", &sets, "--set", "latest"],
        &["extract", &sets, "*", "--into", &out],
        &["diff", &sets, &other],
        &["open", &sets, "--", "true"],
        &["mount", &sets, &mount],
    ] {
        let said = says(3, words);
        let warning = format!("warning: set {first} says that it was begun at 2199-01-01");
        assert!(said.contains(&warning), "{words:?}: {said}");
        let hint = format!("take it with --set {second}.");
        assert!(said.contains(&hint), "{words:?}: {said}");
        let code = "\"exit_code\":3";
        assert!(!words.contains(&"--json") || said.contains(code), "{said}");
    }
    let unmounted = std::process::Command::new("umount").arg(&mount).status();
    assert!(unmounted.unwrap().success());
    assert_eq!(place.ledger.check(&place.path("x.db")), 20);
    // A command that fails by itself keeps its code.
    says(7, &["open", &sets, "--", "sh", "-c", "exit 7"]);
}

#[test]
fn the_list_shows_labels_if_there_are_any() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    place.back_up();
    let printed = says(0, &["info", &sets]);
    assert!(!printed.contains("label"), "{printed}");
    let label = "before the move of everything to the new machine";
    says(0, &["backup", &db, "--to", &sets, "--label", label]);
    let printed = says(0, &["info", &sets]);
    let lines: Vec<_> = printed.lines().collect();
    assert!(
        lines[0].ends_with("  state") && lines[0].contains("  label "),
        "{printed}"
    );
    let shown = format!("  {}...  sealed", &label[..30]);
    assert!(lines[2].ends_with(&shown), "{printed}");
    assert!(lines[1].ends_with("  sealed"), "{printed}");
}

#[test]
fn a_damaged_copy_is_found_although_the_original_is_right() {
    let place = Place::new();
    let (db, one, two) = (place.arg("shop.db"), place.arg("one"), place.arg("two"));
    says(0, &["backup", &db, "--to", &one, "--to", &two, "-q"]);
    let copy = place.path("copy");
    std::fs::create_dir(&copy).unwrap();
    let stripe_in = |directory: &str| {
        let mut entries = std::fs::read_dir(directory).unwrap();
        entries.next().unwrap().unwrap().path()
    };
    for directory in [&one, &two] {
        let stripe = stripe_in(directory);
        std::fs::copy(&stripe, copy.join(stripe.file_name().unwrap())).unwrap();
    }
    let copy = place.arg("copy");
    for way in [&["verify", &copy][..], &["verify", &copy, "--quick"]] {
        says(0, way);
    }
    // The header is gone, so that only the name tells which stripe it was. The original is found.
    let name = stripe_in(&one).file_name().unwrap().to_owned();
    let first = place.path("copy").join(name);
    let file = std::fs::File::options().write(true).open(first).unwrap();
    file.set_len(2000).unwrap();
    for way in [
        &["verify", &copy][..],
        &["verify", &copy, "--quick"],
        &["verify", &copy, "--latest"],
    ] {
        let printed = says(4, way);
        assert!(printed.contains("truncated"), "{printed}");
    }
    // A set whose stripes lie in several places is right in each of them.
    says(0, &["verify", &one]);
    says(0, &["verify", &two]);
}

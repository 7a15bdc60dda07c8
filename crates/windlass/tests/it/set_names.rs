//! A configured database's name in the place of a set: it stands for the places of its backups.

use crate::support::*;

/// Runs the command with this configuration.
fn with(place: &Place, words: &[&str]) -> (i32, String) {
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    let output = command.args(words).current_dir(place.dir.path()).output();
    let output = output.unwrap();
    (output.status.code().unwrap(), text(&output))
}

fn configure(place: &Place, text: &str) {
    let path = place.path("windlass.toml");
    windlass_engine::durable::write(&path, text.as_bytes(), 0o600).unwrap();
}

/// A place whose configuration names its database and the directory of its sets.
fn configured() -> Place {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let text = format!("[database.orders]\nsource = \"{db}\"\nto = [\"{sets}\"]\n");
    configure(&place, &text);
    place
}

#[test]
fn every_command_that_reads_sets_takes_the_name_of_a_configured_database() {
    let place = configured();
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    place.ledger.commit(21, 22);
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    std::fs::create_dir(place.path("mount")).unwrap();
    let (db, into, files) = (
        place.arg("shop.db"),
        place.arg("new.db"),
        place.arg("files"),
    );
    let overlay = place.arg("mount/absent/overlay");
    for (words, expected, says) in [
        (&["info", "orders"][..], 0, "sealed"),
        (&["verify", "orders"], 0, "2 sets"),
        (&["verify", "orders", "--latest"], 0, "all "),
        (
            &["verify", "orders@latest", "--quick"],
            0,
            "1 stripe sealed",
        ),
        (
            &["restore", "orders", "--into", &into, "--dry-run"],
            0,
            "the newest of 2",
        ),
        (
            &["restore", "orders", "--into", &into],
            0,
            "the newest of 2",
        ),
        (&["extract", "orders", "**", "--into", &files], 0, "1 file"),
        (&["diff", "orders", &db], 0, ""),
        (
            &["diff", "orders@latest", "orders", "--database", "shop"],
            0,
            "",
        ),
        (
            &["open", "orders", "--", "sqlite3", "{}", "SELECT 7 * 6"],
            0,
            "42",
        ),
        // The overlay cannot be made, so nothing is mounted; the set was found before.
        (
            &["mount", "orders", &files, "--overlay", &overlay, "-f"],
            1,
            "the newest of 2",
        ),
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, expected, "{words:?}: {printed}");
        assert!(printed.contains(says), "{words:?}: {printed}");
    }
    assert_eq!(place.ledger.check(&place.path("new.db")), 22);
}

#[test]
fn a_name_that_is_almost_a_configured_one_is_offered() {
    let place = configured();
    for word in ["order", "orderz", "Orders"] {
        for words in [
            &["restore", word, "--into", "new.db"][..],
            &["verify", word],
            &["info", word],
        ] {
            let (code, printed) = with(&place, words);
            assert_eq!(code, 1, "{words:?}: {printed}");
            assert!(printed.contains("no backup set at"), "{words:?}: {printed}");
            let hint = "hint: Did you mean orders, which the configuration names?";
            assert!(printed.contains(hint), "{words:?}: {printed}");
        }
    }
    let (code, printed) = with(&place, &["verify", "nothing"]);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("hint: Name a stripe"), "{printed}");
}

#[test]
fn a_file_of_that_name_comes_first_and_a_word_with_a_slash_is_a_path() {
    let place = configured();
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    let (code, printed) = with(&place, &["verify", "./orders"]);
    assert_eq!(code, 1, "{printed}");
    std::fs::create_dir(place.path("orders")).unwrap();
    let (code, printed) = with(&place, &["verify", "orders"]);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("no backup set at orders"), "{printed}");
}

#[test]
fn a_place_of_several_databases_is_narrowed_to_the_one_that_is_meant() {
    let place = configured();
    let other = place.arg("other.db");
    std::fs::copy(place.path("shop.db"), &other).unwrap();
    for words in [
        &["backup", "orders"][..],
        &["backup", &other, "--to", "sets"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 0, "{printed}");
    }
    let (code, printed) = with(&place, &["verify", "sets", "--latest"]);
    assert_eq!(code, 2, "{printed}");
    let into = ["--into", "new.db"];
    for words in [
        &["verify", "orders", "--latest"][..],
        &["restore", "orders"],
    ] {
        let words = match words[0] {
            "restore" => [words, &into].concat(),
            _ => words.to_vec(),
        };
        let (code, printed) = with(&place, &words);
        assert_eq!(code, 0, "{words:?}: {printed}");
        assert!(
            printed.contains("of shop.db (SQLite"),
            "{words:?}: {printed}"
        );
    }
    let (code, printed) = with(&place, &["info", "orders"]);
    assert_eq!(code, 0, "{printed}");
    // The list has no row of the other; a line below it says that its sets are there.
    let rows = printed.lines().filter(|line| !line.starts_with("other "));
    assert!(
        rows.clone().all(|row| !row.contains("other.db")),
        "{printed}"
    );
    assert_eq!(rows.count(), 2, "{printed}");
}

#[test]
fn a_configured_database_without_a_place_says_what_is_missing() {
    let place = Place::new();
    let db = place.arg("shop.db");
    configure(&place, &format!("[database.orders]\nsource = \"{db}\"\n"));
    let (code, printed) = with(&place, &["verify", "orders"]);
    assert_eq!(code, 2, "{printed}");
    let says = "the configuration does not say where the sets of orders are";
    assert!(printed.contains(says), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    // The places of all backups are those of this one, too.
    let sets = place.arg("sets");
    let text = format!("[backup]\nto = [\"{sets}\"]\n[database.orders]\nsource = \"{db}\"\n");
    configure(&place, &text);
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    let (code, printed) = with(&place, &["verify", "orders"]);
    assert_eq!(code, 0, "{printed}");
}

/// Two configured databases with a directory each, and one backup of `orders`.
fn two_configured() -> Place {
    let place = Place::new();
    std::fs::copy(place.path("shop.db"), place.path("crm.db")).unwrap();
    for name in ["orders", "crm"] {
        std::fs::create_dir(place.path("sets").join(name)).unwrap();
    }
    let section = |name: &str, file: &str| {
        let (db, sets) = (place.arg(file), place.arg(&format!("sets/{name}")));
        format!("[database.{name}]\nsource = \"{db}\"\nto = [\"{sets}\"]\n")
    };
    let text = section("orders", "shop.db") + &section("crm", "crm.db");
    configure(&place, &text);
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    place
}

#[test]
fn each_of_several_configured_names_counts() {
    let place = two_configured();
    let (code, printed) = with(&place, &["backup", "crm"]);
    assert_eq!(code, 0, "{printed}");
    for names in [["orders", "crm"], ["crm", "orders"]] {
        let (code, printed) = with(&place, &["info", names[0], names[1]]);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains("  shop.db "), "{printed}");
        assert!(printed.contains("  crm.db "), "{printed}");
        let (code, printed) = with(&place, &["verify", names[0], names[1]]);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains("verified      2 sets"), "{printed}");
    }
    // A damaged set of either is found.
    for name in ["orders", "crm"] {
        let mut entries = std::fs::read_dir(place.path(&format!("sets/{name}"))).unwrap();
        let stripe = entries.next().unwrap().unwrap().path();
        let whole = std::fs::read(&stripe).unwrap();
        let mut bytes = whole.clone();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 1;
        write(&stripe, &bytes);
        let (code, printed) = with(&place, &["verify", "orders", "crm"]);
        assert_eq!(code, 4, "{printed}");
        assert!(printed.contains("error: 1 of 2 sets damaged"), "{printed}");
        write(&stripe, &whole);
    }
}

#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn write(path: &std::path::Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_command_that_takes_one_set_refuses_two_configured_databases() {
    let place = two_configured();
    let (code, printed) = with(&place, &["backup", "crm"]);
    assert_eq!(code, 0, "{printed}");
    for words in [
        &["restore", "orders", "crm", "--into", "new.db"][..],
        &["restore", "crm", "orders", "--into", "new.db", "--dry-run"],
        &["verify", "orders", "crm", "--latest"],
        &["info", "orders", "crm", "--set", "latest"],
        &["open", "orders", "crm", "--", "true"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 2, "{words:?}: {printed}");
        let says = "are two configured databases, and this command takes one set";
        assert!(printed.contains(says), "{words:?}: {printed}");
    }
    assert!(!place.path("new.db").exists());
    // An id means one set, whichever names were given with it.
    let (_, document) = {
        let mut entries = std::fs::read_dir(place.path("sets/orders")).unwrap();
        json(&[
            "info",
            entries.next().unwrap().unwrap().path().to_str().unwrap(),
        ])
    };
    let id = document["sets"][0]["set_id"].as_str().unwrap();
    let words = ["restore", "orders", "crm", "--set", id, "--into", "new.db"];
    let (code, printed) = with(&place, &words);
    assert_eq!(code, 0, "{printed}");
    // A name says nothing beside a stripe.
    let mut entries = std::fs::read_dir(place.path("sets/orders")).unwrap();
    let stripe = entries.next().unwrap().unwrap().path();
    for command in ["verify", "info"] {
        let (code, printed) = with(&place, &[command, "crm", stripe.to_str().unwrap()]);
        assert_eq!(code, 2, "{printed}");
        assert!(
            printed.contains("is one stripe, and crm names all"),
            "{printed}"
        );
    }
}

#[test]
fn a_configured_database_without_a_set_never_takes_that_of_another() {
    let place = two_configured();
    let text = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    configure(&place, &text.replace("sets/crm", "sets/orders"));
    let named = "is of the configured database crm";
    for words in [
        &["restore", "crm", "--into", "new.db"][..],
        &["verify", "crm"],
        &["verify", "crm", "--latest"],
        &["verify", "orders", "crm"],
        &["info", "crm"],
        &["diff", "crm", "orders"],
        &["extract", "crm", "**", "--into", "files"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 1, "{words:?}: {printed}");
        assert!(printed.contains(named), "{words:?}: {printed}");
        let holds = format!(
            "These places hold sets of shop.db (SQLite, {}",
            place.key("shop.db")
        );
        assert!(printed.contains(&holds), "{words:?}: {printed}");
    }
    assert!(!place.path("new.db").exists());
}

#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn rename(place: &Place, from: &str, to: &str) {
    std::fs::rename(place.path(from), place.path(to)).unwrap();
}

#[test]
fn a_place_that_does_not_exist_is_named_as_such() {
    let place = Place::new();
    let (db, near, far) = (place.arg("shop.db"), place.arg("sets"), place.arg("far"));
    std::fs::create_dir(&far).unwrap();
    let text = format!("[database.orders]\nsource = \"{db}\"\nto = [\"{near}\", \"{far}\"]\n");
    configure(&place, &text);
    for _ in 0..2 {
        let (code, printed) = with(&place, &["backup", "orders"]);
        assert_eq!(code, 0, "{printed}");
    }
    rename(&place, "far", "away");
    for words in [
        &["restore", "orders", "--into", "new.db"][..],
        &["restore", "orders", "--into", "new.db", "--set", "latest"],
        &["verify", "orders"],
        &["verify", "orders", "--latest"],
        &["info", "orders"],
        &["info", "orders@latest"],
        &["open", "orders", "--", "true"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 1, "{words:?}: {printed}");
        let says = format!("there is no directory {far}, where sets of orders are kept");
        assert!(printed.contains(&says), "{words:?}: {printed}");
        let hint = format!("Is its disk mounted? `windlass info {near}` shows");
        assert!(printed.contains(&hint), "{words:?}: {printed}");
    }
    for words in [
        &["info", &far, &near][..],
        &["info", &near, &far],
        &["verify", &far, &near],
        &[
            "restore", &near, &far, "--into", "new.db", "--set", "latest",
        ],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 1, "{words:?}: {printed}");
        let says = format!("there is no file or directory {far}");
        assert!(printed.contains(&says), "{words:?}: {printed}");
    }
    for words in [&["info", &far][..], &["info", &far, "--set", "latest"]] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 1, "{words:?}: {printed}");
        assert!(printed.contains("no backup set at"), "{words:?}: {printed}");
    }
    // The only place of a database.
    rename(&place, "sets", "other");
    let (code, printed) = with(&place, &["info", "orders"]);
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("hint: Is its disk mounted? If no"),
        "{printed}"
    );
}

#[test]
fn the_sets_that_a_database_had_under_another_path_are_not_forgotten() {
    let place = configured();
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    std::fs::copy(place.path("shop.db"), place.path("renamed.db")).unwrap();
    let (old, new) = (place.key("shop.db"), place.key("renamed.db"));
    let text = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    configure(&place, &text.replace("shop.db", "renamed.db"));
    let (code, printed) = with(&place, &["backup", "orders"]);
    assert_eq!(code, 0, "{printed}");
    let (code, printed) = with(&place, &["info", "orders"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("  renamed.db "), "{printed}");
    let says = format!("other         shop.db (SQLite, {old}) has sets there too");
    assert!(printed.contains(&says), "{printed}");
    let words = ["restore", "orders", "--into", "new.db"];
    let (code, printed) = with(&place, &[&words[..], &["--set", "2001-01-01"]].concat());
    assert_eq!(code, 2, "{printed}");
    let says = format!("There are sets of shop.db (SQLite, {old}) too: --database {old}");
    assert!(printed.contains(&says), "{printed}");
    let (code, printed) = with(&place, &[&words[..], &["--database", &old]].concat());
    assert_eq!(code, 0, "{printed}");
    // If the old path is that of another configured database, nothing is said.
    let both = format!(
        "[database.old]\nsource = \"{}\"\nto = [\"{}\"]\n",
        place.arg("shop.db"),
        place.arg("sets")
    );
    let text = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    configure(&place, &(text + &both));
    let (code, printed) = with(&place, &["info", "orders"]);
    assert_eq!(code, 0, "{printed}");
    assert!(!printed.contains("other  ") && !printed.contains(&new.replace("renamed", "shop")));
}

/// `orders` and `crm`, which is configured too, with a backup of each in the same directory.
fn two_in_one_place() -> Place {
    let place = Place::new();
    std::fs::copy(place.path("shop.db"), place.path("crm.db")).unwrap();
    let sets = place.arg("sets");
    let section = |name: &str, file: &str| {
        let db = place.arg(file);
        format!("[database.{name}]\nsource = \"{db}\"\nto = [\"{sets}\"]\n")
    };
    configure(
        &place,
        &(section("orders", "shop.db") + &section("crm", "crm.db")),
    );
    for name in ["orders", "crm"] {
        let (code, printed) = with(&place, &["backup", name]);
        assert_eq!(code, 0, "{printed}");
    }
    place
}

#[test]
fn a_database_option_never_takes_the_sets_of_another_configured_database() {
    let place = two_in_one_place();
    let path = place.arg("shop.db");
    for database in ["shop.db", "shop", path.as_str()] {
        for words in [
            &["restore", "crm", "--into", "x.db"][..],
            &["verify", "crm"],
            &["info", "crm"],
            &["diff", "orders@latest", "crm@latest"],
        ] {
            let words = [words, &["--database", database]].concat();
            let (code, printed) = with(&place, &words);
            assert_eq!(code, 2, "{words:?}: {printed}");
            let says = "which is not the configured database crm";
            assert!(printed.contains(says), "{words:?}: {printed}");
            assert!(printed.contains("or name orders instead"), "{printed}");
        }
    }
    assert!(!place.path("x.db").exists());
    // The word for the database itself changes nothing.
    for words in [
        &["verify", "crm", "--database", "crm.db"][..],
        &["verify", "orders", "crm", "--database", "shop.db"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 0, "{words:?}: {printed}");
    }
}

#[test]
fn a_set_of_a_database_that_was_moved_can_be_taken_by_its_id() {
    let place = two_in_one_place();
    let (_, printed) = with(&place, &["info", "crm", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let old = document["sets"][0]["set_id"].as_str().unwrap()[..8].to_owned();
    let by_id = ["restore", "orders", "--set", &old, "--into", "x.db"];
    let (code, printed) = with(&place, &by_id);
    assert_eq!(code, 2, "{printed}");
    assert!(printed.contains("hint: Name crm instead."), "{printed}");
    windlass_engine::durable::rename(&place.path("crm.db"), &place.path("new.db")).unwrap();
    let configured = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    configure(&place, &configured.replace("crm.db", "new.db"));
    let (code, printed) = with(&place, &["backup", "crm"]);
    assert_eq!(code, 0, "{printed}");
    let (key, sets) = (place.key("crm.db"), place.arg("sets"));
    let by_place = format!("{sets}@{old}");
    let by_name = format!("crm@{old}");
    for words in [
        &["restore", "crm", "--set", &old, "--into", "x.db"][..],
        &["diff", &by_name, "crm"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 2, "{words:?}: {printed}");
        for says in [
            &format!("set {old} in"),
            &format!("--database {key}"),
            &by_place,
        ] {
            assert!(printed.contains(says), "{says}: {printed}");
        }
    }
    for words in [
        &["verify", "crm", "--set", &old, "--database", &key][..],
        &["diff", &by_place, "crm"],
    ] {
        let (code, printed) = with(&place, words);
        assert_eq!(code, 0, "{words:?}: {printed}");
    }
    // A date without dashes is offered as a date, whatever else lies there.
    let (code, printed) = with(&place, &["verify", "crm", "--set", "20201123"]);
    assert_eq!(code, 2, "{printed}");
    for says in ["--set 2020-11-23", "--database"] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
}

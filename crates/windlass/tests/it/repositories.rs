//! `--repo`: places by their name in the configuration, for the sets of many databases.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::*;

/// A place with a configuration of a repository in two directories, a configured database and
/// another one that is not configured.
fn configured() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("more")).unwrap();
    std::fs::copy(&place.ledger.path, place.path("crm.db")).unwrap();
    let text = format!(
        "[repository.main]\nto = [\"{}\", \"{}\"]\n\n[database.shop]\nsource = \"{}\"\n",
        place.arg("sets"),
        place.arg("more"),
        place.arg("shop.db"),
    );
    std::fs::write(place.path("windlass.toml"), text).unwrap();
    place
}

fn run(place: &Place, words: &[&str]) -> Output {
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    command.args(words).output().unwrap()
}

fn done(place: &Place, words: &[&str]) -> Value {
    let output = run(place, &[words, &["--json"]].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words:?}: {}",
        text(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(place: &Place, words: &[&str], says: &str) {
    let output = run(place, words);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{words:?}: {}",
        text(&output)
    );
    assert!(text(&output).contains(says), "{words:?}: {}", text(&output));
}

fn count(document: &Value) -> usize {
    document["sets"].as_array().unwrap().len()
}

#[test]
fn every_command_finds_the_sets_of_a_database_in_a_repository() {
    let place = configured();
    let crm = place.arg("crm.db");
    let shop = done(&place, &["backup", "shop", "--repo", "main"]);
    assert_eq!(shop["devices"].as_array().unwrap().len(), 2, "{shop}");
    done(&place, &["backup", &crm, "--repo", "main"]);
    let incr = ["backup", "shop", "--repo", "main", "--type", "incr"];
    done(&place, &incr);
    // The words are names of databases: those of the configuration, and those of the sets.
    assert_eq!(count(&done(&place, &["info", "shop", "--repo", "main"])), 2);
    assert_eq!(count(&done(&place, &["info", "crm", "--repo", "main"])), 1);
    assert_eq!(count(&done(&place, &["info", &crm, "--repo", "main"])), 1);
    assert_eq!(count(&done(&place, &["info", "--repo", "main"])), 3);
    assert_eq!(count(&done(&place, &["info", "main"])), 3);
    for (number, name) in ["shop", "crm", "shop@latest", "crm@latest"]
        .iter()
        .enumerate()
    {
        let into = place.arg(&format!("restored-{number}.db"));
        done(
            &place,
            &["restore", name, "--repo", "main", "--into", &into],
        );
        assert!(place.ledger.check(Path::new(&into)) > 0);
    }
    done(&place, &["verify", "shop", "--repo", "main"]);
    done(&place, &["verify", "--repo", "main", "--quick"]);
    let into = place.arg("files");
    std::fs::create_dir(&into).unwrap();
    let extract = [
        "extract", "crm", "crm.db", "--repo", "main", "--into", &into,
    ];
    done(&place, &extract);
    let sql = "select count(*) from log";
    let open = ["open", "crm", "--repo", "main", "--", "sqlite3", "{}", sql];
    let opened = run(&place, &open);
    assert_eq!(opened.status.code(), Some(0), "{}", text(&opened));
    let held = done(&place, &["hold", "crm", "--repo", "main"]);
    assert_eq!(held["held"], true);
    let expired = done(&place, &["expire", "--repo", "main", "--keep-full", "1"]);
    assert_eq!(expired["databases"].as_array().unwrap().len(), 2);
}

#[test]
fn a_database_has_its_repository_in_the_configuration() {
    let place = configured();
    let text = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    let write = |text: &str| std::fs::write(place.path("windlass.toml"), text).unwrap();
    write(&format!("{text}repo = \"main\"\n"));
    let backup = done(&place, &["backup", "shop"]);
    assert_eq!(backup["devices"].as_array().unwrap().len(), 2, "{backup}");
    assert_eq!(count(&done(&place, &["info", "shop"])), 1);
    let into = place.arg("restored.db");
    done(&place, &["restore", "shop", "--into", &into]);
    // What is typed wins.
    let other = place.arg("other");
    let backup = done(&place, &["backup", "shop", "--to", &other]);
    assert_eq!(backup["devices"].as_array().unwrap().len(), 1, "{backup}");
    // A database's own devices win over a general repository.
    write(&format!(
        "[backup]\nrepo = \"main\"\n\n{text}to = \"{other}\"\n"
    ));
    let backup = done(&place, &["backup", "shop"]);
    assert_eq!(backup["devices"].as_array().unwrap().len(), 1, "{backup}");
    assert_eq!(count(&done(&place, &["info", "shop"])), 2);
}

/// Two repositories, each with a database of its own. A database can have sets in the other one,
/// too, but nobody looks for them there unasked.
#[test]
fn two_repositories_are_two_places_for_everything() {
    let place = configured();
    let (sets, more, shop) = (place.arg("sets"), place.arg("more"), place.arg("shop.db"));
    let config = format!(
        "[repository.main]\nto = \"{sets}\"\n\n[repository.vault]\nto = \"{more}\"\n\n\
         [database.shop]\nsource = \"{shop}\"\nrepo = \"main\"\n\n\
         [database.crm]\nsource = \"{}\"\nrepo = \"vault\"\n",
        place.arg("crm.db")
    );
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    let counts = || {
        let all = ["main", "vault", "shop", "crm"].map(|word| done(&place, &["info", word]));
        all.map(|document| count(&document))
    };
    done(&place, &["backup", "shop"]);
    done(&place, &["backup", "crm"]);
    assert_eq!(counts(), [1, 1, 1, 1]);
    // What is typed wins, for this command alone.
    place.ledger.commit(21, 25);
    done(&place, &["backup", "shop", "--repo", "vault"]);
    assert_eq!(counts(), [1, 2, 1, 1]);
    let other = ["info", "shop", "--repo", "vault"];
    assert_eq!(count(&done(&place, &other)), 1);
    let restored = |name: &str, more: &[&str]| {
        let into = place.arg(name);
        done(
            &place,
            &[&["restore", "shop", "--into", &into][..], more].concat(),
        );
        place.ledger.check(Path::new(&into))
    };
    assert_eq!(restored("of-main.db", &[]), 20);
    assert_eq!(restored("of-vault.db", &["--repo", "vault"]), 25);
    let into = place.arg("none.db");
    let words = ["restore", "crm", "--repo", "main", "--into", &into];
    let none = run(&place, &words);
    assert_ne!(none.status.code(), Some(0), "{}", text(&none));
    assert!(!place.path("none.db").exists());
    done(&place, &["verify", "--repo", "vault", "--quick"]);
    // A rule is for one repository: the newest full set of each database there stays.
    done(&place, &["backup", "shop"]);
    done(&place, &["backup", "crm"]);
    assert_eq!(counts(), [2, 3, 2, 2]);
    done(&place, &["expire", "--repo", "vault", "--keep-full", "1"]);
    assert_eq!(counts(), [2, 2, 2, 1]);
}

#[test]
fn what_a_repository_cannot_be_is_refused() {
    let place = configured();
    let sets = place.arg("sets");
    refused(
        &place,
        &["backup", "shop", "--repo", "mian"],
        "Did you mean main",
    );
    let both = ["backup", "shop", "--repo", "main", "--to", &sets];
    refused(&place, &both, "both say where");
    refused(&place, &["info", &sets, "--repo", "main"], "both say where");
    refused(
        &place,
        &["info", "crm", "other", "--repo", "main"],
        "two databases",
    );
    refused(&place, &["info"], "SET");
    refused(&place, &["backup", "shop"], "--to");
    let database = "[database.shop]\nsource = \"/shop.db\"\n";
    let write = |text: &str| std::fs::write(place.path("windlass.toml"), text).unwrap();
    for (text, says) in [
        ("[repository.main]\n", "does not say where it is"),
        ("[repository.main]\nto = \"nul\"\n", "not nul"),
        (
            "[repository.main]\nto = \"/a\"\ncompress = \"lz4\"\n",
            "no key compress",
        ),
        (
            "[repository.shop]\nto = \"/a\"\n",
            "a database and a repository",
        ),
        ("[repository.\"a/b\"]\nto = \"/a\"\n", "slash"),
        ("[repository.\"\"]\nto = \"/a\"\n", "has no name"),
    ] {
        write(&format!("{text}\n{database}"));
        refused(&place, &["status"], says);
    }
    write(&format!("{database}to = \"/a\"\nrepo = \"main\"\n"));
    refused(&place, &["status"], "both say where");
}

#[test]
fn a_check_makes_the_round_trip_to_each_directory() {
    let place = configured();
    let checked = done(&place, &["check", "shop", "--repo", "main"]);
    let checks = checked["checks"].as_array().unwrap().iter();
    let trips: Vec<_> = checks
        .filter(|check| check["name"] == "round trip")
        .collect();
    assert_eq!(trips.len(), 2, "{checked}");
    let held = |trip: &&Value| trip.to_string().contains("locks hold");
    assert!(trips.iter().all(held), "{checked}");
    assert!(place.sets().is_empty());
    // Without a repository, nothing is written.
    let checked = done(&place, &["check", "shop", "--to", &place.arg("sets")]);
    assert!(!checked.to_string().contains("round trip"), "{checked}");
}

#[test]
fn a_repair_takes_the_sets_of_a_repository() {
    let place = configured();
    let gone = place.arg("no-cluster");
    let repair = ["repair", &gone, "--repo", "main", "--dry-run"];
    let output = run(&place, &repair);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no-cluster"), "{}", text(&output));
    let sets = place.arg("sets");
    let both = [&repair[..], &["--from", &sets]].concat();
    refused(&place, &both, "--from and --repo both say where");
}

//! Extracts tables from a set by their names.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::*;

/// Paths of all files below a directory.
fn files(root: &Path) -> BTreeSet<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let below = path.strip_prefix(root).unwrap();
                found.insert(below.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn a_relation_comes_with_its_indexes_and_long_values_and_nothing_else() {
    let place = Place::new();
    place.sql("CREATE TABLE \"Orders\" (i int PRIMARY KEY, t text)");
    place.sql(
        "INSERT INTO \"Orders\" SELECT i, repeat('x' || i, 3000) FROM generate_series(1, 99) i",
    );
    place.sql("CREATE INDEX ON \"Orders\" (i, t) WHERE i < 0");
    place.sql("VACUUM \"Orders\"");
    let set = place.back_up("set");
    let into = place.arg("out");
    let words = [
        "extract",
        &set,
        "--relation",
        "public.\"Orders\"",
        "--into",
        &into,
    ];
    let (code, report) = json(&words);
    assert_eq!(code, 0);
    let sql = "SELECT pg_relation_filepath(c.oid) FROM pg_class c LEFT JOIN pg_index i \
        ON indexrelid = c.oid, pg_class o WHERE o.relname = 'Orders' AND (c.oid = o.oid \
        OR indrelid IN (o.oid, o.reltoastrelid) OR c.oid = o.reltoastrelid)";
    let expected: BTreeSet<String> = place.sql(sql).lines().map(str::to_owned).collect();
    assert_eq!(
        expected.len(),
        5,
        "a table, two indexes, TOAST and its index"
    );
    let found = files(&place.path("out"));
    let main: BTreeSet<_> = found
        .iter()
        .filter(|path| !path.contains('_'))
        .cloned()
        .collect();
    assert_eq!(main, expected);
    assert_eq!(report["files"], found.len());
    for path in &found {
        let number = path.rsplit('/').next().unwrap().split('_').next().unwrap();
        assert!(
            expected
                .iter()
                .any(|main| main.ends_with(&format!("/{number}"))),
            "{path}"
        );
    }
    let heap = place.sql("SELECT pg_relation_filepath('\"Orders\"')");
    place.sql("CHECKPOINT");
    let ours = std::fs::read(place.path("out").join(&heap)).unwrap();
    assert_eq!(
        ours.len() as u64,
        place.server.data().join(&heap).metadata().unwrap().len()
    );
}

#[test]
fn a_name_that_means_nothing_or_too_much_is_refused() {
    let place = Place::new();
    place.sql("CREATE DATABASE other");
    for database in ["postgres", "other"] {
        place
            .server
            .sql(database, "CREATE TABLE twice AS SELECT 1 i");
    }
    let set = place.back_up("set");
    let into = place.arg("out");
    let extract = |name: &str| windlass(&["extract", &set, "--relation", name, "--into", &into]);
    for (name, code, words) in [
        ("public.nothing", 1, "no files of a relation public.nothing"),
        ("public.twice", 2, "public.twice is in several databases: "),
        ("twice", 2, "is not [DATABASE.]SCHEMA.RELATION"),
    ] {
        let output = extract(name);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(words), "{}", text(&output));
    }
    assert!(!place.path("out").exists(), "nothing was made");
    let output = extract("other.public.twice");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let path = place
        .server
        .sql("other", "SELECT pg_relation_filepath('twice')");
    assert!(place.path("out").join(path).is_file());
}

#[test]
fn the_list_of_files_has_names() {
    let place = Place::new();
    place.sql("CREATE TABLE shown AS SELECT 1 i");
    let set = place.back_up("set");
    let path = place.sql("SELECT pg_relation_filepath('shown')");
    let output = windlass(&["info", "--files", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let line = format!("{path}  postgres.public.shown");
    assert!(text(&output).contains(&line), "{}", text(&output));
    let (_, info) = json(&["info", "--files", &set]);
    let files = info["sets"][0]["files"].as_array().unwrap();
    let found = files.iter().find(|file| file["path"] == path).unwrap();
    assert_eq!(found["relation"], "postgres.public.shown");
}

//! `windlass verify --open` on sets of PostgreSQL clusters: it finds the damaged relations, whether
//! the set rotted or the database was already broken when it was backed up.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::FileExt;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::reforge::reforge;

use crate::clusters::{back_up, bytes, place};
use crate::open_postgres::{rot, set_with_words};
use crate::opening::{Opened, Scratch};
use crate::support::text;

/// A row that begins after the end of its page: offset 32767, 40 bytes, in use.
const ITEM_NOWHERE: [u8; 4] = [0xFF, 0xFF, 0x50, 0];
/// Its place in the file: the first item of block 5.
const ITEM_AT: u64 = 5 * 8192 + 24;

#[test]
fn verify_open_names_the_relations_that_are_damaged() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    let verify = |options: &[&str]| {
        let words = [&["verify", "--latest", "--open", "--json", &set], options].concat();
        let output = scratch.run(None, &words);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), report, complaints)
    };
    let (code, report, _) = verify(&[]);
    assert_eq!((code, &report["ok"]), (Some(0), &true.into()), "{report}");
    assert!(report["open"]["tables"].as_u64() > Some(100), "{report}");
    rot(&set);
    let hints = ["No other sound set", "`windlass verify` without --quick"];
    for (options, hint) in [&[][..], &["--quick"]].into_iter().zip(hints) {
        let (code, report, complaints) = verify(options);
        assert!(
            complaints.contains(&format!("hint: {hint}")),
            "{complaints}"
        );
        assert_eq!((code, &report["ok"]), (Some(4), &false.into()), "{report}");
        let damaged = report["open"]["damaged"].as_array().unwrap();
        let names: Vec<_> = damaged.iter().map(|finding| &finding["relation"]).collect();
        assert!(
            names.contains(&&"postgres: public.words".into()),
            "{report}"
        );
        assert!(
            !names.contains(&&"postgres: public.plain".into()),
            "{report}"
        );
    }
    scratch.assert_clean();
}

/// An undamaged set of a cluster with a broken table, and with one whose file is missing.
fn set_of_a_broken_table(place: &std::path::Path) -> String {
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE TABLE broken AS SELECT i FROM generate_series(1, 50000) i");
    sql("CREATE TABLE plain AS SELECT i FROM generate_series(1, 50000) i");
    sql("CREATE TABLE gone AS SELECT i FROM generate_series(1, 9) i");
    sql("CHECKPOINT");
    let path = |table: &str| {
        let below = sql(&format!("SELECT pg_relation_filepath('{table}')"));
        source.data().join(below)
    };
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path("broken"))
        .unwrap();
    file.write_all_at(&ITEM_NOWHERE, ITEM_AT).unwrap();
    std::fs::remove_file(path("gone")).unwrap();
    back_up(&source, place, &[])
}

#[test]
fn verify_open_prints_the_relations_that_were_damaged_before_the_backup() {
    let place = place();
    let set = set_of_a_broken_table(place.path());
    let scratch = Scratch::new();
    let verify = |options: &[&str]| {
        let words = [&["verify", "--latest", "--quiet", &set], options].concat();
        let output = scratch.run(None, &words);
        (output.status.code(), output)
    };
    let (code, output) = verify(&[]);
    assert_eq!(code, Some(0), "{}", text(&output));
    let (code, output) = verify(&["--open"]);
    let said = text(&output);
    assert_eq!(code, Some(4), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let damaged: Vec<_> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("damaged       "))
        .collect();
    assert_eq!(damaged.len(), 2, "{said}");
    let is_it = damaged[0].starts_with("postgres: public.broken: block 5, item 1: line pointer ");
    assert!(is_it, "{said}");
    let is_it = damaged[1].starts_with("postgres: public.gone: its file base/");
    assert!(is_it && damaged[1].ends_with(" is missing"), "{said}");
    assert!(!printed.contains("sound"), "{said}");
    let said = String::from_utf8_lossy(&output.stderr);
    let (error, hint) = said.trim_end().split_once('\n').unwrap();
    assert!(error.starts_with("error: the database in set "), "{said}");
    assert!(error.ends_with(" is damaged in 2 places"), "{said}");
    let hinted = hint.starts_with("hint: The set is what was backed up: ");
    assert!(hinted, "{said}");
    let (code, output) = verify(&["--open", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code, &report["ok"]), (Some(4), &false.into()), "{report}");
    assert_eq!(report["damage_count"], 0, "the set is sound: {report}");
    let found = &report["open"]["damaged"];
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(found[0]["relation"], "postgres: public.broken");
    assert!(
        found[0]["what"]
            .as_str()
            .unwrap()
            .starts_with("block 5, item 1")
    );
    scratch.assert_clean();
}

#[test]
fn a_set_that_is_too_damaged_to_be_opened_is_still_reported_on() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let (stripe, mut stored) = bytes(&set).remove(0);
    // No server starts without its settings, nor without its version, which is in the same frame.
    let settings = b"# PostgreSQL configuration file";
    let at = stored.windows(settings.len()).position(|it| it == settings);
    stored[at.unwrap()] ^= 1;
    std::fs::write(stripe, stored).unwrap();
    let scratch = Scratch::new();
    let output = scratch.run(None, &["verify", "--latest", "--open", "--json", &set]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["ok"], &report["damage_count"]),
        (&false.into(), &1.into())
    );
    let error = report["open"]["error"].as_str().unwrap();
    assert!(error.contains("PG_VERSION"), "{report}");
    assert!(
        said.contains(&format!("cannot be opened: {error}")),
        "{said}"
    );
    assert!(said.contains("is damaged in 1 place"), "{said}");
    // The command alone says what to do.
    let output = scratch.run(None, &["open", &set, "--", "true"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("hint: No other sound set of this database is in "),
        "{said}"
    );
    scratch.assert_clean();
}

/// Opens the set in both ways. Both must end with the code of damage and print `says`.
fn is_damaged(scratch: &Scratch, set: &str, says: &str) {
    let open = ["open", "--quiet", set, "--", "true"];
    let verify = ["verify", "--latest", "--quiet", "--open", set];
    for words in [&open[..], &verify] {
        let output = scratch.run(None, words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(!said.contains("--user"), "{words:?}: {said}");
    }
    let output = scratch.run(None, &[&verify[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    assert_eq!(
        (&report["ok"], &report["damage_count"]),
        (&false.into(), &0.into()),
        "the set is sound: {report}"
    );
    let of = |key: &str| report["open"][key].as_str().unwrap_or_default();
    assert!(of("error").contains(says), "{report}");
    assert!(of("hint").contains("in the source"), "{report}");
}

#[test]
fn a_cluster_whose_catalogs_were_damaged_before_the_backup_ends_with_the_code_of_damage() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    source.sql("postgres", "CHECKPOINT");
    let scratch = Scratch::new();
    for (number, name) in [
        (1260, "pg_authid"),
        (1262, "pg_database"),
        (2671, "pg_database_datname_index"),
    ] {
        // The server has the page in its memory and goes on.
        let path = source.data().join(format!("global/{number}"));
        let sound = std::fs::read(&path).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0; 8192], 0).unwrap();
        let set = back_up(&source, place.path(), &[]);
        file.write_all_at(&sound, 0).unwrap();
        is_damaged(&scratch, &set, &format!("global/{number} ({name})"));
        std::fs::remove_dir_all(&set).unwrap();
    }
    // A backup of this version refuses such a source, but sets of older versions exist.
    let set = back_up(&source, place.path(), &[]);
    let (stripe, _) = bytes(&set).remove(0);
    reforge(&stripe, |parts| {
        let mut files = parts.description.files.0.iter_mut();
        let segment = files.find(|file| file.path == b"pg_multixact/offsets/0000");
        segment.unwrap().path = b"pg_multixact/lost".to_vec();
    });
    is_damaged(&scratch, &set, "pg_multixact/offsets has lost its segments");
    // Beside a sound set, too.
    let conninfo = source.conninfo();
    scratch.run(None, &["backup", &conninfo, "--to", &set, "--quiet"]);
    let output = scratch.run(None, &["verify", "--open", "--quiet", &set]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.matches("cannot be opened: ").count(), 1, "{said}");
    assert!(said.contains("error: 1 of 2 sets damaged: "), "{said}");
    let output = scratch.run(None, &["verify", "--open", "--json", &set]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sets = report["sets"].as_array().unwrap();
    let unopened: Vec<_> = sets
        .iter()
        .filter(|it| !it["open"]["error"].is_null())
        .collect();
    assert_eq!(unopened.len(), 1, "{report}");
    assert_eq!(unopened[0]["ok"], false, "{report}");
    scratch.assert_clean();
}

#[test]
fn a_database_that_cannot_be_used_is_named_if_another_one_is_used_instead() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql("postgres", "CHECKPOINT");
    let path = source.sql("postgres", "SELECT pg_relation_filepath('pg_class')");
    // The server has the page in its memory and goes on.
    let path = source.data().join(path);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xA5; 8192], 0).unwrap();
    let set = back_up(&source, place.path(), &[]);
    let scratch = Scratch::new();
    let opened = Opened::start(&scratch, None, &[&set]);
    let document = opened.document.clone();
    assert_eq!(opened.end("TERM"), Some(0));
    assert_eq!(document["dbname"], "template1", "{document}");
    let warning = &document["warnings"][0];
    assert_eq!(warning["kind"], "database_unusable", "{document}");
    assert_eq!(warning["database"], "postgres", "{document}");
    assert!(
        warning["error"]
            .as_str()
            .is_some_and(|it| it.contains("pg_class") || it.contains("base/")),
        "{document}"
    );
    let output = scratch.run(None, &["open", &set, "--", "true"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("warning: database postgres cannot be used: "),
        "{said}"
    );
    assert!(said.contains("template1"), "{said}");
    scratch.assert_clean();
}

/// The server says only that a checkpoint failed, and refers to a log that is removed.
#[test]
fn a_full_scratch_directory_is_the_one_error_of_verify_open() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    let small = scratch.path().join("small");
    // Each size is full at another step; the largest may be enough.
    let mut full = 0;
    for kib in [64, 128, 192, 256, 384, 512, 768, 1024] {
        let size = &format!("size={kib}k");
        let script = "mount -t tmpfs -o \"$1,mode=1777\" tmpfs \"$2\" && \
                      exec \"$3\" verify --open --quick --latest \"$4\" --scratch \"$2\"";
        std::fs::create_dir_all(&small).unwrap();
        let mut unshare = scratch.command_of("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "sh", "-c", script, "sh", size]);
        unshare.arg(&small).arg(env!("CARGO_BIN_EXE_windlass"));
        let output = unshare.arg(&set).output().unwrap();
        let said = text(&output);
        if output.status.success() {
            continue;
        }
        full += 1;
        assert_eq!(output.status.code(), Some(1), "{size}: {said}");
        assert_eq!(said.matches("error:").count(), 1, "{size}: {said}");
        let is_named = said.contains("is full") || said.contains("No space left");
        assert!(is_named, "{size}: {said}");
        assert!(said.contains("--scratch"), "{size}: {said}");
        assert!(!said.contains("server log"), "{size}: {said}");
    }
    assert!(full >= 2, "{full} sizes were too small");
}

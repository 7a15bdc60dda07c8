//! Damage in an opened database: Windlass finds it wherever it is, and names the relation.

use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_postgres::{
    Inspection, PostgresError, Programs, RelationFault, Server, Warning, inspect,
};
use windlass_testkit::postgres::{ClusterOptions, DEFAULT_BIN, PrivateCluster, become_server_user};

use crate::open::Opened;
use crate::support::{Wish, restore_set, try_backup, verify_backup};

pub const PAGE: u64 = 8192;

/// A set of a cluster with a table and two kinds of indexes on it, and a function for their paths.
fn set_of(options: &ClusterOptions) -> (Opened, impl Fn(&str) -> PathBuf + use<>) {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(options);
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE TABLE \"Odd name\" AS SELECT i, i::text AS x FROM generate_series(1, 20000) i");
    sql("CREATE INDEX odd_btree ON \"Odd name\" (i)");
    sql("CREATE INDEX odd_hash ON \"Odd name\" USING hash (x)");
    sql("CREATE DATABASE other");
    source.sql("other", "CREATE TABLE t AS SELECT generate_series(1, 9) i");
    let relations = ["\"Odd name\"", "odd_btree", "odd_hash"];
    let paths = relations.map(|name| sql(&format!("SELECT pg_relation_filepath('{name}')")));
    let template = sql("SELECT oid FROM pg_database WHERE datname = 'template0'");
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(source.bin(), place);
    let view = opened.place.path().join("view");
    let path = move |name: &str| match relations.iter().position(|relation| *relation == name) {
        Some(index) => view.join(&paths[index]),
        None => view.join("base").join(&template).join(name),
    };
    (opened, path)
}

pub fn inspected(opened: &Opened) -> Inspection {
    inspected_by(opened, 15)
}

/// Inspects with a server of this version.
pub fn inspected_by(opened: &Opened, major: u32) -> Inspection {
    let server = Server::start(opened.request(major), &Cancel::new()).unwrap();
    let data = opened.place.path().join("view");
    inspect(&server, &data, 2, &Cancel::new()).unwrap()
}

fn change(path: &Path, offset: u64, change: impl Fn(&mut [u8])) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, offset).unwrap();
    change(&mut bytes);
    file.write_all_at(&bytes, offset).unwrap();
}

pub fn found<'a>(inspection: &'a Inspection, relation: &str) -> &'a str {
    let fault = inspection
        .faults
        .iter()
        .find(|fault| fault.relation == relation);
    &fault
        .unwrap_or_else(|| panic!("{relation} is not among {inspection:#?}"))
        .what
}

#[test]
fn a_sound_database_has_no_faults_and_all_of_it_was_looked_at() {
    let (opened, _) = set_of(&ClusterOptions::default().initdb("--data-checksums"));
    let inspection = inspected(&opened);
    assert_eq!(inspection.faults, []);
    assert_eq!(inspection.unchecked, []);
    assert_eq!(inspection.databases, 3, "postgres, template1, other");
    assert!(inspection.tables > 3 * 60, "{inspection:?}");
    assert!(inspection.indexes > 3 * 100, "{inspection:?}");
    assert!(
        inspection.pages > 4 * 700 && inspection.checksums,
        "{inspection:?}"
    );
}

#[test]
fn a_changed_byte_is_found_in_every_kind_of_file_by_its_checksum() {
    let (opened, path) = set_of(&ClusterOptions::default().initdb("--data-checksums"));
    let flip = |bytes: &mut [u8]| bytes[7] ^= 4;
    change(&path("\"Odd name\""), 5 * PAGE + 4000, flip);
    change(&path("odd_btree"), 3 * PAGE + 4000, flip);
    change(&path("odd_hash"), 2 * PAGE + 4000, flip);
    change(&path("1255"), 4000, flip);
    let inspection = inspected(&opened);
    for (relation, block) in [("public.\"Odd name\"", 5), ("public.odd_btree", 3)] {
        let what = found(&inspection, relation);
        assert!(
            what.contains(&format!("block {block}")),
            "{relation}: {what}"
        );
    }
    // Only Windlass checks these two: amcheck does not know hash indexes, and nobody can connect to
    // the database.
    assert!(
        found(&inspection, "public.odd_hash").contains("block 2"),
        "{inspection:#?}"
    );
    let unnamed = inspection
        .faults
        .iter()
        .find(|fault| fault.relation.ends_with("/1255"));
    assert!(unnamed.is_some_and(|fault| fault.what.contains("checksum mismatch")));
    let relations: std::collections::BTreeSet<_> = inspection
        .faults
        .iter()
        .map(|fault| &fault.relation)
        .collect();
    assert_eq!(relations.len(), 4, "{inspection:#?}");
}

#[test]
fn damage_that_no_checksum_shows_is_found_from_inside() {
    let (opened, path) = set_of(&ClusterOptions::default());
    // A row that begins behind the end of its page (at 32767, 40 bytes long, in use), and an index
    // page that lost everything.
    change(&path("\"Odd name\""), 5 * PAGE + 24, |bytes| {
        bytes[..4].copy_from_slice(&[0xFF, 0xFF, 0x50, 0]);
    });
    let index = path("odd_btree");
    (0..128).for_each(|part| change(&index, 3 * PAGE + part * 64, |bytes| bytes.fill(0)));
    let inspection = inspected(&opened);
    assert!(found(&inspection, "public.\"Odd name\"").contains("block 5, item 1"));
    assert!(found(&inspection, "public.odd_btree").contains("odd_btree"));
    assert!(!inspection.checksums);
}

/// The server says only that it could not open the file, and cannot check the relation. The pages
/// that remain are all sound.
#[test]
fn a_file_that_is_missing_is_a_fault_of_its_relation() {
    let (opened, path) = set_of(&ClusterOptions::default().initdb("--data-checksums"));
    for relation in ["\"Odd name\"", "odd_hash"] {
        std::fs::remove_file(path(relation)).unwrap();
    }
    let inspection = inspected(&opened);
    for relation in ["public.\"Odd name\"", "public.odd_hash"] {
        let what = found(&inspection, relation);
        assert!(
            what.starts_with("its file base/") && what.ends_with(" is missing"),
            "{relation}: {what}"
        );
    }
    let unchecked = |remark: &RelationFault| remark.relation == "public.\"Odd name\"";
    assert!(
        !inspection.unchecked.iter().any(unchecked),
        "{inspection:#?}"
    );
}

/// The server takes the gap for the end of the table, and shows nothing of what lies behind it.
#[test]
fn a_segment_behind_one_that_is_not_full_is_a_fault() {
    let (opened, path) = set_of(&ClusterOptions::default());
    let table = path("\"Odd name\"");
    let empty = PathBuf::from(format!("{}.1", path("odd_hash").display()));
    std::fs::write(empty, []).unwrap();
    let behind = PathBuf::from(format!("{}.2", table.display()));
    std::fs::copy(&table, &behind).unwrap();
    let inspection = inspected(&opened);
    let what = found(&inspection, "public.\"Odd name\"");
    assert!(what.contains("segment 0 is missing or not full"), "{what}");
    assert_eq!(inspection.faults.len(), 1, "{inspection:#?}");
}

/// A page that was written only in part, as a full disk or a broken copy leaves it.
#[test]
fn a_file_that_ends_within_a_page_is_a_warning_and_then_a_fault() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let mut source = PrivateCluster::start(&ClusterOptions::default());
    source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 1000) i",
    );
    let path = source.sql("postgres", "SELECT pg_relation_filepath('t')");
    source.stop("fast");
    let full = source.data().join(&path);
    let whole = std::fs::metadata(&full).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&full).unwrap();
    file.set_len(whole + 100).unwrap();
    source.run();
    let outcome = try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let warning = Warning::PartialPages {
        path: path.clone(),
        more: 0,
    };
    assert_eq!(outcome.facts.warnings, [warning]);
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    verify_backup(&source, &into);
    assert_eq!(
        std::fs::metadata(into.join(&path)).unwrap().len(),
        whole + 100
    );
    let opened = Opened::new(source.bin(), place);
    let inspection = inspected(&opened);
    let block = whole / PAGE;
    let what = format!("block {block} of {path}: the file ends after 100 of its 8192 bytes");
    assert_eq!(found(&inspection, "public.t"), what);
    assert_eq!(inspection.faults.len(), 1);
}

/// Debian's programs, in a copy of their directories that lacks amcheck.
fn programs_without_amcheck(place: &Path) -> PathBuf {
    let root = |path: &str| place.join(path.trim_start_matches('/'));
    let bin = root(DEFAULT_BIN);
    std::fs::create_dir_all(&bin).unwrap();
    // Copy the program, because a server finds its directories from the place where it really is.
    std::fs::copy(
        Path::new(DEFAULT_BIN).join("postgres"),
        bin.join("postgres"),
    )
    .unwrap();
    symlink(
        "/usr/lib/postgresql/15/lib",
        root("/usr/lib/postgresql/15/lib"),
    )
    .unwrap();
    let share = "/usr/share/postgresql/15";
    std::fs::create_dir_all(root(share).join("extension")).unwrap();
    for directory in ["", "extension"] {
        for entry in std::fs::read_dir(Path::new(share).join(directory)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "extension" && !name.starts_with("amcheck") {
                symlink(entry.path(), root(share).join(directory).join(name)).unwrap();
            }
        }
    }
    bin
}

#[test]
fn a_server_without_amcheck_says_what_is_missing() {
    let (opened, _) = set_of(&ClusterOptions::default());
    let bin = programs_without_amcheck(opened.place.path());
    let mut request = opened.request(15);
    request.programs = Programs::find(15, Some(&bin)).unwrap();
    let server = Server::start(request, &Cancel::new()).unwrap();
    let data = opened.place.path().join("view");
    let error = inspect(&server, &data, 2, &Cancel::new()).unwrap_err();
    assert!(matches!(error, PostgresError::Amcheck { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("ERROR: extension \"amcheck\" is not available (DETAIL: Could not open"),
        "{text}"
    );
    // The hint begins with the server's advice, and ours follows.
    let hint = error.hint().unwrap_or_default();
    assert!(
        hint.starts_with("The extension must first be installed"),
        "{hint}"
    );
    assert!(hint.contains("contrib"), "{hint}");
}

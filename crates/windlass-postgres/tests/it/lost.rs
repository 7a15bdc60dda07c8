//! Lost pages in an opened database: what no file shows by itself, other files show.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster, become_server_user};

use crate::inspect::{PAGE, found, inspected, inspected_by};
use crate::open::Opened;
use crate::support::{Wish, try_backup};
use crate::versions::versions;
use crate::windows::options_of;

/// Before this version every sequence was logged.
const UNLOGGED_SEQUENCES_SINCE: u32 = 15;

const KINDS: [&str; 11] = [
    "by_hash",
    "by_gist",
    "by_gin",
    "by_spgist",
    "by_brin",
    "cut",
    "cut_index",
    "mapped",
    "counter",
    "gone",
    "hollow",
];

/// A set that is opened, and the paths of some of its relations by their names.
type OpenedSet = (Opened, BTreeMap<&'static str, String>);

/// A set of a cluster in which `fill` has made relations, and the paths of those that are `named`.
fn set_of(bin: &Path, named: &[&'static str], fill: impl FnOnce(&PrivateCluster)) -> OpenedSet {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let options = options_of(bin).setting("max_prepared_transactions = 1");
    let source = PrivateCluster::start(&options);
    fill(&source);
    let path = |name| {
        source.sql(
            "postgres",
            &format!("SELECT pg_relation_filepath('{name}')"),
        )
    };
    let paths = named.iter().map(|name| (*name, path(name))).collect();
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    (Opened::new(source.bin(), place), paths)
}

/// A set of a cluster with every kind of relation, and the paths of those that are named above and
/// of the indexes that the tests change.
fn set_of_all_kinds(bin: &Path) -> OpenedSet {
    let others = ["hollow_index", "fleeting_index", "fleeting_i_seq"];
    set_of(bin, &[&KINDS[..], &others].concat(), make_all_kinds)
}

fn make_all_kinds(source: &PrivateCluster) {
    let sql = |text: &str| source.sql("postgres", text);
    sql(
        "CREATE TABLE rows AS SELECT i, i::text x, point(i, i) p, ARRAY[i] a \
        FROM generate_series(1, 60000) i",
    );
    for (name, how) in [
        ("by_btree", "btree (i)"),
        ("by_hash", "hash (x)"),
        ("by_gist", "gist (p)"),
        ("by_gin", "gin (a)"),
        ("by_spgist", "spgist (p)"),
        ("by_brin", "brin (i)"),
    ] {
        sql(&format!("CREATE INDEX {name} ON rows USING {how}"));
    }
    sql("CREATE TABLE cut AS SELECT i FROM generate_series(1, 60000) i");
    sql("CREATE INDEX cut_index ON cut (i)");
    // No index leads to its rows, but its map does.
    sql("CREATE TABLE mapped AS SELECT i FROM generate_series(1, 60000) i");
    sql("CREATE SEQUENCE counter");
    sql("CREATE SEQUENCE gone");
    sql("CREATE TABLE hollow AS SELECT i % 5 i FROM generate_series(1, 60000) i");
    sql("CREATE INDEX hollow_index ON hollow (i)");
    // An index that recovery met while it was being built.
    sql("CREATE UNLOGGED TABLE fleeting (i serial)");
    sql("CREATE INDEX fleeting_index ON fleeting (i)");
    sql(
        "UPDATE pg_index SET indisready = false, indisvalid = false \
         WHERE indexrelid = 'fleeting_index'::regclass",
    );
    sql("VACUUM ANALYZE");
}

#[test]
fn sound_relations_of_every_kind_and_version_have_no_lost_pages() {
    become_server_user();
    for (major, bin) in versions() {
        let (opened, paths) = set_of_all_kinds(&bin);
        let view = opened.place.path().join("view");
        // Recovery meets both so, if they were made in the log, and makes their files out of these.
        let first = |name: &str| view.join(format!("{}_init", paths[name]));
        std::fs::remove_file(first("fleeting_index")).unwrap();
        if major >= UNLOGGED_SEQUENCES_SINCE {
            std::fs::File::create(first("fleeting_i_seq")).unwrap();
        }
        let sound = inspected_by(&opened, major);
        assert_eq!(sound.faults, [], "PostgreSQL {major}");
    }
}

/// Pages of each kind of relation that are lost in ways that its files do not show by themselves.
#[test]
fn lost_pages_of_every_kind_of_relation_are_found() {
    let (opened, paths) = set_of_all_kinds(Path::new(DEFAULT_BIN));
    let view = opened.place.path().join("view");
    for name in KINDS.iter().filter(|name| **name != "cut_index") {
        let path = view.join(&paths[name]);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let pages = file.metadata().unwrap().len() / PAGE;
        let zero = |block: u64| file.write_all_at(&[0; 8192], block * PAGE).unwrap();
        match *name {
            "cut" | "mapped" => file.set_len((pages - 3) * PAGE).unwrap(),
            "gone" => file.set_len(0).unwrap(),
            "counter" | "by_gin" | "by_spgist" | "by_brin" => zero(0),
            "by_hash" => zero(5),
            // Every page but the first is one that another leads to.
            "by_gist" => zero(7),
            _ => zero(9),
        }
    }
    let inspection = inspected(&opened);
    let points = |by: &str| format!("missing or empty, but {by} points there");
    for name in KINDS.iter().filter(|name| **name != "cut_index") {
        let what = found(&inspection, &format!("public.{name}"));
        let expected = match *name {
            "cut" => &points(&paths["cut_index"]),
            "mapped" => &points(&format!("{}_vm", paths["mapped"])),
            "hollow" => &points(&paths["hollow_index"]),
            "by_hash" => "block 5 is missing or empty",
            "by_gist" => "block 7 is missing or empty",
            _ => "block 0 is missing or empty",
        };
        assert!(what.contains(expected), "{name}: {what}");
    }
    assert_eq!(
        inspection.faults.len(),
        KINDS.len() - 1,
        "{:#?}",
        inspection.faults
    );
}

/// As a CREATE INDEX CONCURRENTLY or a REINDEX CONCURRENTLY leaves them that fails while it builds
/// the index, or waits to build it.
const NOT_READY: [&str; 7] = [
    "failed_btree",
    "failed_hash",
    "failed_gist",
    "failed_gin",
    "failed_spgist",
    "failed_brin",
    "failed_part",
];

/// A set with all of these, the same of a TOAST table, and an index that is ready but not valid.
fn set_of_unfinished_indexes(bin: &Path) -> OpenedSet {
    let named = [&NOT_READY[..], &["incomplete"]].concat();
    set_of(bin, &named, make_unfinished_indexes)
}

fn make_unfinished_indexes(source: &PrivateCluster) {
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE TABLE rows AS SELECT i, repeat('x', 9) x FROM generate_series(0, 10) i");
    sql("CREATE TABLE parts (i int) PARTITION BY RANGE (i)");
    sql("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9)");
    sql("INSERT INTO parts VALUES (0)");
    for (name, how) in [
        ("failed_btree", "rows ((1 / i))"),
        ("failed_hash", "rows USING hash ((1 / i))"),
        ("failed_gist", "rows USING gist (point(1 / i, 1))"),
        ("failed_gin", "rows USING gin ((ARRAY[1 / i]))"),
        ("failed_spgist", "rows USING spgist (point(1 / i, 1))"),
        ("failed_brin", "rows USING brin ((1 / i))"),
        ("failed_part", "part ((1 / i))"),
    ] {
        let text = format!("CREATE INDEX CONCURRENTLY {name} ON {how}");
        assert!(!source.try_sql("postgres", &text).status.success());
    }
    sql("CREATE INDEX parts_index ON ONLY parts ((1 / i))");
    // The transaction keeps a lock on the TOAST table for which the new index waits.
    let toast = sql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'rows'");
    sql("ALTER TABLE rows ALTER x SET STORAGE EXTERNAL");
    sql("BEGIN; INSERT INTO rows VALUES (11, repeat('y', 9000)); PREPARE TRANSACTION 'holds'");
    let mut rebuild = source.tool("psql");
    rebuild.env("PGOPTIONS", "-c lock_timeout=1");
    let text = format!("REINDEX INDEX CONCURRENTLY {toast}_index");
    let rebuilt = rebuild.args(["-d", "postgres", "-c", &text]).output();
    assert!(!rebuilt.unwrap().status.success());
    sql("COMMIT PREPARED 'holds'");
    let unready = sql("SELECT count(*) FROM pg_index WHERE NOT indisready");
    assert_eq!(unready, (NOT_READY.len() + 1).to_string());
    sql("CREATE INDEX incomplete ON rows USING hash (i)");
    sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'incomplete'::regclass");
}

#[test]
fn an_index_that_is_not_ready_needs_no_pages() {
    become_server_user();
    for (major, bin) in versions() {
        let (opened, paths) = set_of_unfinished_indexes(&bin);
        let view = opened.place.path().join("view");
        // What a build writes is in the log only when the build ends. So a backup during the build
        // can have a later segment without all of the earlier one.
        let later = view.join(format!("{}.1", paths["failed_gin"]));
        std::fs::write(later, [0; 8192]).unwrap();
        let sound = inspected_by(&opened, major);
        assert_eq!(sound.faults, [], "PostgreSQL {major}");
        assert_eq!(sound.unchecked, [], "PostgreSQL {major}");
    }
}

#[test]
fn an_index_that_is_ready_but_not_valid_has_all_its_pages() {
    let (opened, paths) = set_of_unfinished_indexes(Path::new(DEFAULT_BIN));
    let path = opened.place.path().join("view").join(&paths["incomplete"]);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0; 8192], PAGE).unwrap();
    let inspection = inspected(&opened);
    let what = found(&inspection, "public.incomplete");
    assert!(what.contains("block 1 is missing or empty"), "{what}");
    assert_eq!(inspection.faults.len(), 1, "{:#?}", inspection.faults);
}

//! Data directories made by hand, to see which of their files the scan lists.

use std::fs;
use std::os::unix::fs::symlink;

use windlass_media::FileNo;
use windlass_testkit::sick::SickDirectory;

use super::*;
use crate::relations::catalog::Layout;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// An empty data directory `data`, with the directories that every cluster has.
    fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for name in [
            "base/5",
            "global",
            "pg_tblspc",
            "pg_wal",
            "pg_notify",
            "pg_stat",
        ] {
            fs::create_dir_all(place.data().join(name)).unwrap();
        }
        place
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn with(self, files: &[&str]) -> Self {
        files.iter().for_each(|file| self.put(file));
        self
    }

    fn put(&self, file: &str) {
        let path = self.data().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }

    fn rules(&self) -> ScanRules {
        ScanRules {
            root: self.data(),
            version_directory: b"PG_15_202209061".to_vec(),
            statistics_directory: Some(b"stat_elsewhere".to_vec()),
            summaries: false,
            expected: Vec::new(),
            catalogs: None,
        }
    }

    fn scan(&self) -> Scanned {
        scan(&self.rules()).unwrap()
    }

    /// Paths of the listed files. Directories end in '/', links in '@'.
    fn paths(&self) -> Vec<String> {
        let listing = self.scan().listing;
        let mark = |kind| match kind {
            FileKind::File => "",
            FileKind::Directory => "/",
            FileKind::Symlink => "@",
        };
        let mut paths: Vec<String> = listing
            .entries()
            .iter()
            .map(|entry| lossy(listing.path(entry)) + mark(entry.kind))
            .collect();
        paths.sort();
        paths
    }

    fn files(&self) -> Vec<String> {
        self.paths()
            .into_iter()
            .filter(|path| !path.ends_with('/'))
            .collect()
    }
}

#[test]
fn what_belongs_to_the_running_server_is_left_out_and_its_directories_stay() {
    let place = Place::new().with(&[
        "PG_VERSION",
        "postmaster.pid",
        "postmaster.opts",
        "backup_label",
        "backup_label.old",
        "tablespace_map",
        "backup_manifest",
        "recovery.signal",
        "standby.signal",
        "postgresql.auto.conf",
        "postgresql.auto.conf.tmp",
        "current_logfiles.tmp",
        "pg_notify/0000",
        "stat_elsewhere/x",
        "pg_stat/keep",
        "pg_wal/000000010000000000000001",
        "base/pgsql_tmp/pgsql_tmp1.0",
        "base/5/pg_internal.init",
        "base/5/pg_internal.init.99",
        "base/5/PG_VERSION",
        "base/5/t3_16384",
        "base/5/t3_16384_fsm",
        "base/5/backup_label",
        "global/pg_control",
        "global/pg_filenode.map",
    ]);
    let expected = [
        "PG_VERSION",
        "base/",
        "base/5/",
        "base/5/PG_VERSION",
        "base/5/backup_label",
        "global/",
        "global/pg_filenode.map",
        "pg_notify/",
        "pg_stat/",
        "pg_stat/keep",
        "pg_tblspc/",
        "pg_wal/",
        "pg_wal/archive_status/",
        "postgresql.auto.conf",
        "stat_elsewhere/",
    ];
    assert_eq!(place.paths(), expected);
}

#[test]
fn unlogged_relations_keep_only_their_init_forks() {
    let place = Place::new().with(&[
        "base/5/100",
        "base/5/100.1",
        "base/5/100_fsm",
        "base/5/100_vm",
        "base/5/100_init",
        "base/5/200",
        "base/5/200_fsm",
        "base/6/100",
        "global/100",
    ]);
    let expected = [
        "base/5/100_init",
        "base/5/200",
        "base/5/200_fsm",
        "base/6/100",
        "global/100",
    ];
    assert_eq!(place.files(), expected);
}

#[test]
fn an_init_fork_that_appears_during_the_walk_counts() {
    let place = Place::new().with(&["base/5/100", "base/5/200"]);
    let rules = place.rules();
    let mut scanner = Scanner::new(&rules).unwrap();
    scanner.walk().unwrap();
    place.put("base/5/100_init");
    scanner.read_again().unwrap();
    scanner.remove_unlogged();
    let listing = scanner.listing;
    let paths = listing
        .entries()
        .iter()
        .map(|entry| lossy(listing.path(entry)));
    let files: Vec<String> = paths.filter(|path| path.starts_with("base/5/")).collect();
    assert_eq!(files, ["base/5/200", "base/5/100_init"]);
}

#[test]
fn an_init_fork_that_vanishes_during_the_walk_counts_too() {
    let place = Place::new().with(&["base/5/100", "base/5/100_init"]);
    let rules = place.rules();
    let mut scanner = Scanner::new(&rules).unwrap();
    scanner.walk().unwrap();
    fs::remove_file(place.data().join("base/5/100_init")).unwrap();
    scanner.read_again().unwrap();
    scanner.remove_unlogged();
    let listing = scanner.listing;
    assert!(
        !listing
            .entries()
            .iter()
            .any(|entry| listing.path(entry) == b"base/5/100")
    );
}

#[test]
fn a_scan_that_finds_too_much_reads_no_further() {
    let place = Place::new().with(&["PG_VERSION", "base/5/1", "base/5/2"]);
    let at_most = |most| {
        let found = scan_at_most(&place.rules(), most).unwrap();
        found.map(|found| found.listing.len())
    };
    let count = place.scan().listing.len();
    assert_eq!(at_most(count), Some(count));
    assert_eq!(at_most(count - 1), None);
    // No scan gets past this one, if it comes there.
    let (file, space) = (
        place.data().join("PG_VERSION"),
        place.data().join("pg_tblspc/7"),
    );
    symlink(file, space).unwrap();
    scan(&place.rules()).unwrap_err();
    assert_eq!(at_most(0), None);
}

#[test]
fn a_database_that_vanishes_during_the_walk_is_no_error() {
    let place = Place::new().with(&["base/6/100"]);
    let rules = place.rules();
    let mut scanner = Scanner::new(&rules).unwrap();
    scanner.list_directory(&[]).unwrap();
    scanner.list_directory(b"base").unwrap();
    fs::remove_dir_all(place.data().join("base/6")).unwrap();
    scanner.walk().unwrap();
    scanner.read_again().unwrap();
}

#[test]
fn a_tablespace_is_a_link_and_only_this_versions_directory_behind_it() {
    let place = Place::new();
    let space = place.directory.path().join("space");
    for path in ["PG_15_202209061/5/100", "PG_14_202107181/5/100", "stray"] {
        let path = space.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    symlink(&space, place.data().join("pg_tblspc/16400")).unwrap();
    place.put("pg_tblspc/16401/PG_15_202209061/5/200");
    let expected = [
        "pg_tblspc/16400/PG_15_202209061/5/100",
        "pg_tblspc/16400@",
        "pg_tblspc/16401/PG_15_202209061/5/200",
    ];
    assert_eq!(place.files(), expected);
    let listing = place.scan().listing;
    let relations = listing
        .entries()
        .iter()
        .filter(|entry| entry.segment == Some(0))
        .count();
    assert_eq!(relations, 2, "relations in tablespaces are recognised");
}

#[test]
fn a_tablespace_inside_the_data_directory_is_listed_once() {
    let place = Place::new().with(&["inner/PG_15_202209061/5/100"]);
    symlink(
        place.data().join("inner"),
        place.data().join("pg_tblspc/16400"),
    )
    .unwrap();
    assert_eq!(
        place.files(),
        ["pg_tblspc/16400/PG_15_202209061/5/100", "pg_tblspc/16400@"]
    );
}

#[test]
fn links_are_followed_with_a_warning_and_pg_wal_becomes_a_directory() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    fs::create_dir_all(outside.join("wal")).unwrap();
    fs::create_dir_all(outside.join("logs")).unwrap();
    fs::write(outside.join("logs/today"), "x").unwrap();
    fs::write(outside.join("hba"), "x").unwrap();
    fs::remove_dir(place.data().join("pg_wal")).unwrap();
    symlink(outside.join("wal"), place.data().join("pg_wal")).unwrap();
    symlink("../outside/logs", place.data().join("log")).unwrap();
    symlink(outside.join("hba"), place.data().join("pg_hba.conf")).unwrap();
    symlink("/nonexistent", place.data().join("dangling")).unwrap();
    assert_eq!(place.files(), ["log/today", "pg_hba.conf"]);
    assert!(place.paths().contains(&"pg_wal/".to_owned()));
    let warnings = place.scan().warnings;
    let count = |wanted: fn(&Warning) -> bool| warnings.iter().filter(|one| wanted(one)).count();
    assert_eq!(count(|one| matches!(one, Warning::LinkFollowed { .. })), 2);
    assert_eq!(count(|one| matches!(one, Warning::LinkDangling { .. })), 1);
}

#[test]
fn a_link_to_a_link_is_followed_to_its_end() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    for path in [
        "wal/x",
        "logs/today",
        "space/PG_15_202209061/5/100",
        "other/5/200",
    ] {
        let path = outside.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let twice = |target: &str, at: &str| {
        let between = outside.join(format!("to-{}", target.replace('/', "-")));
        symlink(outside.join(target), &between).unwrap();
        symlink(between, place.data().join(at)).unwrap();
    };
    fs::remove_dir(place.data().join("pg_wal")).unwrap();
    twice("wal", "pg_wal");
    twice("logs", "log");
    twice("logs/today", "pg_hba.conf");
    twice("space", "pg_tblspc/16400");
    // Here the version's directory is itself a link.
    fs::create_dir(outside.join("linked")).unwrap();
    symlink(
        outside.join("other"),
        outside.join("linked/PG_15_202209061"),
    )
    .unwrap();
    twice("linked", "pg_tblspc/16401");
    symlink("circle", place.data().join("circle")).unwrap();
    let expected = [
        "log/today",
        "pg_hba.conf",
        "pg_tblspc/16400/PG_15_202209061/5/100",
        "pg_tblspc/16400@",
        "pg_tblspc/16401/PG_15_202209061/5/200",
        "pg_tblspc/16401@",
    ];
    assert_eq!(place.files(), expected);
    let scanned = place.scan();
    let dangling = Warning::LinkDangling {
        path: "circle".into(),
    };
    assert!(scanned.warnings.contains(&dangling));
    // PostgreSQL knows the tablespace by the path of the first link.
    let mut entries = scanned.listing.entries().iter();
    let space = entries
        .find(|entry| scanned.listing.path(entry) == b"pg_tblspc/16400")
        .unwrap();
    let made = scanned.listing.table_entry(FileNo(0), space).link_target;
    assert_eq!(
        made,
        outside.join("to-space").as_os_str().as_encoded_bytes()
    );
}

#[test]
fn links_back_are_refused() {
    let place = Place::new();
    let link = place.directory.path().join("link");
    symlink(place.directory.path(), &link).unwrap();
    let refused = |target: &Path, at: &str| {
        symlink(target, place.data().join(at)).unwrap();
        let error = scan(&place.rules()).unwrap_err();
        fs::remove_file(place.data().join(at)).unwrap();
        assert!(matches!(error, PostgresError::Link { .. }), "{at}: {error}");
    };
    refused(&link, "log");
    refused(&place.data().join("base"), "loop");
    refused(place.directory.path(), "above");
    // A directory outside, with a link to itself.
    let outside = place.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, outside.join("again")).unwrap();
    refused(&outside, "log");
}

/// A list that ends early looks as if the server had removed the files behind its end.
#[test]
fn what_one_list_of_a_directory_leaves_out_the_next_one_finds() {
    let place = Place::new().with(&["PG_VERSION", "base/5/16384", "base/5/16385", "base/6/1"]);
    let sound = place.paths();
    for left_out in ["16384", "6", "base"] {
        let leaves_out = move |read, name: &OsStr| read == 0 && name == left_out;
        let directory = match left_out {
            "16384" => "base/5",
            "6" => "base",
            _ => "",
        };
        let covered = place.data().join(directory);
        let _sick = SickDirectory::cover(&covered, Box::new(leaves_out));
        assert_eq!(place.paths(), sound, "without {left_out}");
    }
}

#[test]
fn a_file_that_no_list_names_is_an_error_if_the_cluster_must_have_it() {
    let place = Place::new().with(&[
        "PG_VERSION",
        "base/5/16384",
        "base/5/16384.1",
        "pg_xact/0000",
    ]);
    let mut rules = place.rules();
    rules.expected = vec![b"base/5".to_vec()];
    rules.catalogs = Some(CatalogForm {
        layout: Layout::new(15, 64),
        page_bytes: 4,
        segment_pages: 3,
    });
    assert!(scan(&rules).is_ok());
    for (directory, left_out) in [
        ("base", "5"),
        ("base/5", "16384"),
        ("base/5", "16384.1"),
        ("", "pg_xact"),
    ] {
        let leaves_out = move |_, name: &OsStr| name == left_out;
        let covered = place.data().join(directory);
        let _sick = SickDirectory::cover(&covered, Box::new(leaves_out));
        let error = scan(&rules).unwrap_err();
        let expected = covered.join(left_out);
        assert!(
            matches!(&error, PostgresError::Unlisted { path } if *path == expected),
            "{error}"
        );
    }
}

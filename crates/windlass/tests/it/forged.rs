//! Sets with right checksums around content that must not be used: every command that reads sets
//! refuses them.

use std::path::PathBuf;

use windlass_engine::media::{BackupType, FileEntry, FileFlags, FileKind, FileNo};
use windlass_testkit::reforge::{Parts, reforge};

use crate::support::*;

/// A change of a set.
type Lie = fn(&mut Parts);

/// A set of this database with a change in it.
fn forged(place: &Place, change: impl FnOnce(&mut Parts)) -> PathBuf {
    let set = place.back_up();
    reforge(&set, change);
    set
}

/// Runs every command that reads the content of a set. Each must end with this code and print
/// `says`.
fn refused_by_all(place: &Place, set: &PathBuf, code: i32, says: &str) {
    let (name, db) = (set.to_str().unwrap(), place.arg("shop.db"));
    let (into, files) = (place.arg("new.db"), place.arg("files"));
    let directory = place.arg("sets");
    for words in [
        &["verify", name][..],
        &["verify", "--quick", name],
        &["verify", "--open", name],
        &["verify", &directory],
        &["restore", name, "--into", &into],
        &["restore", &directory, "--into", &into],
        &["extract", name, "**", "--into", &files],
        &["diff", "--every-byte", name, &db],
        &[
            "open",
            name,
            "--",
            "sqlite3",
            "{}",
            "PRAGMA integrity_check",
        ],
    ] {
        let output = windlass(words);
        let printed = text(&output);
        let ended = output.status.code();
        // A program that meets damage on an opened set may end with any failure.
        let own = words[0] == "open" && code == 4;
        let well = ended == Some(code) || (own && ended != Some(0));
        assert!(well, "{words:?}: {ended:?} {printed}");
        assert!(printed.contains(says), "{words:?}: {printed}");
        assert!(!place.path("new.db").exists(), "{words:?}");
    }
    std::fs::remove_file(set).unwrap();
}

#[test]
fn sets_that_build_on_others_are_refused_by_every_reader_and_described_by_info() {
    let place = Place::new();
    std::fs::create_dir(place.path("mount")).unwrap();
    let kinds = [
        (
            BackupType::Diff,
            None,
            "a differential backup without a base",
        ),
        (
            BackupType::Incr,
            None,
            "an incremental backup without a base",
        ),
        (BackupType::Log, None, "a backup of the log"),
        (BackupType::Full, Some("00ff"), "builds on other sets"),
    ];
    for (kind, parent, says) in kinds {
        let set = forged(&place, |parts| {
            parts.description.facts.backup_type = kind;
            let parents = parent.into_iter().map(str::to_owned);
            parts.description.facts.parents = parents.collect();
        });
        let name = set.to_str().unwrap();
        let (code, document) = json(&["info", name]);
        assert_eq!(code, 0, "{document}");
        let output = windlass(&["mount", name, &place.arg("mount"), "-f"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("cannot make a database of it"));
        refused_by_all(&place, &set, 1, says);
    }
}

#[test]
fn an_index_directory_that_says_otherwise_than_its_blocks_is_damage_to_every_reader() {
    let place = Place::new();
    let lies: [Lie; 4] = [
        |parts| parts.entry.file_min = FileNo(7),
        |parts| parts.entry.file_max = FileNo(7),
        |parts| parts.entry.layer_max = 3,
        |parts| parts.entry.frame_count += 1,
    ];
    for lie in lies {
        let set = forged(&place, lie);
        refused_by_all(&place, &set, 4, "");
    }
}

#[test]
fn pieces_of_one_layer_that_overlap_are_damage_to_every_reader() {
    let place = Place::new();
    for layer in [0, 1] {
        let set = forged(&place, |parts| {
            for piece in &mut parts.block.pieces {
                piece.layer = layer;
            }
            parts.entry.layer_max = layer;
            // The hashes of the pages may stand before the pages.
            let pieces = parts.block.pieces.iter_mut();
            let mut pages = pieces.filter(|piece| piece.file == FileNo(0));
            let (first, second) = (pages.next().unwrap(), pages.next().unwrap());
            second.offset = first.offset;
        });
        refused_by_all(&place, &set, 4, "overlap");
    }
}

#[test]
fn a_file_with_layers_and_a_checksum_is_damage_to_every_reader() {
    let place = Place::new();
    std::fs::create_dir(place.path("mount")).unwrap();
    let set = forged(&place, |parts| {
        assert!(parts.description.files.0[0].flags.crc_known);
        let pieces = parts.block.pieces.iter_mut();
        pieces.for_each(|piece| piece.layer = 1);
        parts.entry.layer_max = 1;
    });
    let says = "has layers, and its entry states a checksum";
    let output = windlass(&["mount", set.to_str().unwrap(), &place.arg("mount"), "-f"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains(says), "{}", text(&output));
    refused_by_all(&place, &set, 4, says);
}

#[test]
fn an_index_block_with_the_number_of_another_is_damage_to_every_reader() {
    let place = Place::new();
    let set = forged(&place, |parts| parts.block.number = 5);
    refused_by_all(&place, &set, 4, "number of another index block");
}

/// Runs the commands that check a whole set or need the database in it. Each must end with this
/// code, print `says` and give a hint. Nothing may be left where a restore would put the database.
fn refused_as_a_database(place: &Place, set: &PathBuf, code: i32, says: &str) {
    let (name, into) = (set.to_str().unwrap(), place.arg("new.db"));
    let directory = place.arg("sets");
    for words in [
        &["verify", name][..],
        &["verify", "--quick", name],
        &["verify", "--open", name],
        &["verify", &directory],
        &["restore", name, "--into", &into],
        &["restore", name, "--into", &into, "--dry-run"],
        &["open", name, "--", "true"],
    ] {
        let output = windlass(words);
        let printed = text(&output);
        // A dry run lists what fails and is not itself about damage.
        let expected = if words.contains(&"--dry-run") {
            1
        } else {
            code
        };
        assert_eq!(output.status.code(), Some(expected), "{words:?}: {printed}");
        assert!(printed.contains(says), "{words:?}: {printed}");
        assert!(printed.contains("hint: "), "{words:?}: {printed}");
        assert!(!place.path("new.db").exists(), "{words:?}");
    }
    std::fs::remove_file(set).unwrap();
}

#[test]
fn facts_and_a_list_of_files_that_no_restore_accepts_are_damage_to_verify_too() {
    let place = Place::new();
    let lies: [(Lie, &str); 5] = [
        (
            |parts| parts.description.files.0[0].path = b"sub/a.db".to_vec(),
            "not a plain file at its root",
        ),
        (
            |parts| parts.description.facts.database["page_bytes"] = 1000.into(),
            "a page size that SQLite does not have",
        ),
        (
            |parts| parts.description.facts.database["page_bytes"] = "big".into(),
            "its facts are not those of a SQLite database",
        ),
        (
            |parts| parts.description.facts.database["kind"] = windlass_postgres::KIND.into(),
            "its facts are not those of a PostgreSQL cluster",
        ),
        (
            |parts| parts.description.facts.database["journal_mode"] = "none".into(),
            "its facts are not those of a SQLite database",
        ),
    ];
    for (lie, says) in lies {
        let set = forged(&place, lie);
        refused_as_a_database(&place, &set, 4, says);
    }
    let set = forged(&place, |parts| {
        parts.description.facts.database["kind"] = "oracle".into();
    });
    refused_as_a_database(&place, &set, 1, "a database of kind \"oracle\"");
}

#[test]
fn a_file_whose_own_checksum_is_wrong_is_damage_to_all_who_read_it_whole() {
    let place = Place::new();
    let set = forged(&place, |parts| {
        let file = &mut parts.description.files.0[0];
        assert!(file.flags.crc_known);
        file.crc32c ^= 1;
    });
    let name = set.to_str().unwrap();
    let (into, files) = (place.arg("new.db"), place.arg("files"));
    for words in [
        &["verify", name][..],
        &["verify", "--quick", name],
        &["restore", name, "--into", &into],
        &["extract", name, "**", "--into", &files],
    ] {
        let output = windlass(words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(4), "{words:?}: {printed}");
        assert!(printed.contains("checksum"), "{words:?}: {printed}");
        assert!(printed.contains("hint: "), "{words:?}: {printed}");
        assert!(!place.path("new.db").exists(), "{words:?}");
    }
    let left = std::fs::read_dir(&files).unwrap().count();
    assert_eq!(left, 0, "what is wrong is not kept");
}

/// What a set says about a small cluster.
fn cluster_facts() -> serde_json::Value {
    serde_json::json!({
        "kind": windlass_postgres::KIND, "version": "15.4", "version_number": 150_004,
        "system_identifier": "7000000000000000001", "timeline": 1, "start_lsn": "0/2000028",
        "stop_lsn": "0/2000100", "start_time": "2026-11-21T09:00:00Z",
        "stop_time": "2026-11-21T09:00:01Z", "wal": [], "wal_segment_bytes": 16 << 20,
        "block_bytes": 8192, "label": "", "standby": false, "tablespaces": [],
        "checksums": { "enabled": false, "verified": false, "pages_checked": 0, "pages_bad": 0,
            "files": [] },
        "owner": "postgres", "group_access": false, "data_directory": "/nonexistent",
        "configuration_outside": [], "warnings": [],
    })
}

/// Turns a set of a SQLite database into one of a cluster, whose content is nothing: the database
/// is its `base/1`.
fn as_cluster(parts: &mut Parts) {
    parts.description.facts.database = cluster_facts();
    let first = &mut parts.description.files.0[0];
    first.path = b"base/1".to_vec();
    first.flags.last = false;
    for name in ["PG_VERSION", "backup_label", "global/pg_control"] {
        add(parts, FileKind::File, name, "");
    }
}

fn add(parts: &mut Parts, kind: FileKind, path: &str, target: &str) {
    let files = &mut parts.description.files.0;
    files.push(FileEntry {
        // The number 1 is that of the hashes of the pages.
        file: FileNo(u32::try_from(files.len()).unwrap() + 1),
        kind,
        flags: FileFlags {
            last: path == "global/pg_control",
            crc_known: false,
        },
        mode: 0o600,
        bytes: 0,
        mtime_nanos: 0,
        crc32c: 0,
        path: path.into(),
        link_target: target.into(),
    });
}

#[test]
fn a_set_that_is_no_cluster_is_damage_to_verify_restore_and_open_alike() {
    let place = Place::new();
    let lies: [(Lie, &str); 9] = [
        (
            |parts| parts.description.facts.database["owner"] = "4294967295".into(),
            "its facts name an owner \"4294967295\", which no system has",
        ),
        (
            |parts| parts.description.facts.database["owner"] = "".into(),
            "its facts name an owner \"\", which no system has",
        ),
        (
            |parts| drop(parts.description.files.0.remove(1)),
            "it holds no PG_VERSION",
        ),
        (
            |parts| drop(parts.description.files.0.remove(2)),
            "it holds no backup_label",
        ),
        (
            |parts| drop(parts.description.files.0.remove(3)),
            "it holds no global/pg_control",
        ),
        (
            |parts| parts.description.files.0[3].flags.last = false,
            "not marked as the file",
        ),
        (
            |parts| add(parts, FileKind::Symlink, "pg_tblspc/7", "srv/space"),
            "its tablespace 7 lies in \"srv/space\"",
        ),
        (
            |parts| add(parts, FileKind::Symlink, "pg_tblspc/7", "/srv/../space"),
            "not an absolute path without '..'",
        ),
        (
            |parts| {
                add(parts, FileKind::Symlink, "pg_tblspc/7", "/srv/space");
                add(parts, FileKind::Symlink, "pg_tblspc/8", "/srv//space/");
            },
            "its tablespaces 7 and 8 lie in the same directory",
        ),
    ];
    for (lie, says) in lies {
        let set = forged(&place, |parts| {
            as_cluster(parts);
            lie(parts);
        });
        refused_as_a_database(&place, &set, 4, says);
    }
}

#[test]
fn a_mount_refuses_links_that_a_restore_would_refuse() {
    let place = Place::new();
    std::fs::create_dir(place.path("mount")).unwrap();
    for is_cluster in [false, true] {
        let set = forged(&place, |parts| {
            if is_cluster {
                as_cluster(parts);
            }
            add(parts, FileKind::Symlink, "link_etc", "/etc/passwd");
        });
        let output = windlass(&["mount", set.to_str().unwrap(), &place.arg("mount"), "-f"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(4), "{printed}");
        assert!(printed.contains("link_etc"), "{printed}");
        std::fs::remove_file(set).unwrap();
    }
}

//! Sets with right checksums around content that must not be used: every command that reads sets
//! refuses them.

use std::path::PathBuf;

use windlass_engine::media::{BackupType, FileNo};
use windlass_testkit::reforge::{Parts, reforge};

use crate::support::*;

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
        (BackupType::Diff, None, "a differential backup"),
        (BackupType::Incr, None, "an incremental backup"),
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
        assert!(text(&output).contains("full backups only"));
        refused_by_all(&place, &set, 1, says);
    }
}

#[test]
fn an_index_directory_that_says_otherwise_than_its_blocks_is_damage_to_every_reader() {
    let place = Place::new();
    let lies: [fn(&mut Parts); 4] = [
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
            parts.block.pieces[1].offset = parts.block.pieces[0].offset;
        });
        refused_by_all(&place, &set, 4, "overlap");
    }
}

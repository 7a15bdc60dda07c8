//! `backup --parity`, what reads such sets while devices are lost, and `repair-set`.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

/// A database, and four directories for the devices of its sets.
pub fn place() -> (Place, Vec<String>) {
    let place = Place::with_accounts(3000);
    let disks: Vec<_> = (1..=4)
        .map(|number| place.arg(&format!("d{number}")))
        .collect();
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    (place, disks)
}

/// Backs the database up with parity on the last of these devices.
pub fn back_up(place: &Place, disks: &[String], more: &[&str]) {
    let (database, _) = place.ends();
    let to = disks.join(",");
    let words = [
        "backup",
        &database,
        "--to",
        &to,
        "--parity",
        "1",
        "--compress",
        "none",
    ];
    let (code, document) = json(&[&words[..], more].concat());
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["parities"], 1);
}

/// The files of the devices, by directory.
pub fn devices(disks: &[String]) -> Vec<PathBuf> {
    let files = |disk: &String| {
        fs::read_dir(disk)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let mut found: Vec<_> = disks.iter().flat_map(files).collect();
    found.sort();
    found
}

/// Restores the newest set. Returns the exit code, the database, and what was said.
pub fn restored(place: &Place, disks: &[String]) -> (Option<i32>, Vec<u8>, String) {
    let into = place.arg("into.db");
    let mut words = vec!["restore"];
    words.extend(disks.iter().map(String::as_str));
    words.extend(["--into", &into]);
    let output = windlass(&words);
    let content = fs::read(&into).unwrap_or_default();
    fs::remove_file(&into).unwrap_or_default();
    (output.status.code(), content, text(&output))
}

#[test]
fn a_set_survives_the_loss_of_any_device_and_is_made_whole_again() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    assert_eq!(files.len(), 4);
    let (code, whole, said) = restored(&place, &disks);
    assert_eq!(code, Some(0), "{said}");
    for (number, file) in files.iter().enumerate() {
        let content = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let (code, found, said) = restored(&place, &disks);
        assert_eq!((code, found == whole), (Some(3), true), "{said}");
        assert!(said.contains(&format!("device {}", number + 1)), "{said}");
        let mut words = vec!["verify", "--latest"];
        words.extend(disks.iter().map(String::as_str));
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("repair-set"), "{}", text(&output));
        words = vec!["repair-set"];
        words.extend(disks.iter().map(String::as_str));
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        // If all parity is lost, its groups may be others than before.
        assert!(
            number == 3 || fs::read(file).unwrap() == content,
            "{file:?}"
        );
        let (code, found, said) = restored(&place, &disks);
        assert_eq!((code, found == whole), (Some(0), true), "{said}");
    }
    fs::remove_file(&files[0]).unwrap();
    fs::remove_file(&files[2]).unwrap();
    let (code, _, said) = restored(&place, &disks);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains(&disks[0]) && said.contains(&disks[2]),
        "{said}"
    );
}

#[test]
fn a_repair_that_is_killed_is_begun_again() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    let (_, whole, _) = restored(&place, &disks);
    for lost in [1, 3] {
        let others = |file: &&PathBuf| **file != files[lost];
        let good: Vec<_> = files
            .iter()
            .filter(others)
            .map(|file| fs::read(file).unwrap())
            .collect();
        for call in [
            "fsync",
            "rename,renameat2,link,linkat",
            "ftruncate",
            "pwrite64",
        ] {
            for number in 1..=2 {
                fs::remove_file(&files[lost]).unwrap();
                let mut words = vec!["repair-set"];
                words.extend(disks.iter().map(String::as_str));
                let killed = killed_at((call, number), &words);
                let now: Vec<_> = files
                    .iter()
                    .filter(others)
                    .map(|file| fs::read(file).unwrap())
                    .collect();
                assert!(now == good, "the good devices are as they were");
                let (code, found, said) = restored(&place, &disks);
                assert!(
                    code == Some(3) || code == Some(0),
                    "{call} {number} {killed}: {said}"
                );
                assert!(found == whole, "{said}");
                let output = windlass(&words);
                assert_eq!(output.status.code(), Some(0), "{}", text(&output));
                let (code, found, said) = restored(&place, &disks);
                assert_eq!((code, found == whole), (Some(0), true), "{said}");
            }
        }
    }
}

#[test]
fn a_link_of_a_chain_has_parity_and_what_expires_goes_whole() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    place.ledger.commit(21, 40);
    back_up(&place, &disks, &["--type", "diff"]);
    let (code, whole, said) = restored(&place, &disks);
    assert_eq!(code, Some(0), "{said}");
    for file in devices(&disks[1..2]) {
        fs::remove_file(file).unwrap();
    }
    let (code, found, said) = restored(&place, &disks);
    assert_eq!((code, found == whole), (Some(3), true), "{said}");
    back_up(&place, &disks, &[]);
    let mut words = vec!["expire", "--keep-full", "1"];
    words.extend(disks.iter().map(String::as_str));
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(devices(&disks).len(), 4, "{:?}", devices(&disks));
}

#[test]
fn parity_is_refused_where_it_cannot_be_read_back() {
    let (place, disks) = place();
    let (database, _) = place.ends();
    for to in ["nul,nul", "s3://bucket/a,s3://bucket/b"] {
        let output = windlass(&["backup", &database, "--to", to, "--parity", "1"]);
        assert_ne!(output.status.code(), Some(0), "{}", text(&output));
        assert!(text(&output).contains("hint:"), "{}", text(&output));
    }
    let output = windlass(&["backup", &database, "--to", &disks[0], "--parity", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("leaves none for data"),
        "{}",
        text(&output)
    );
}

/// The places of the devices of a set, as words of a command.
pub fn words<'a>(command: &[&'a str], disks: &'a [String]) -> Vec<&'a str> {
    let disks = disks.iter().map(String::as_str);
    command.iter().copied().chain(disks).collect()
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_and_the_sets_before_it_as_they_were() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let older = devices(&disks);
    let (_, whole, _) = restored(&place, &disks);
    let (database, _) = place.ends();
    let to = disks.join(",");
    let backup = ["backup", &database, "--to", &to, "--parity", "1"];
    let mut kills = 0;
    // Each step of the commit has a thread for each device, whose calls are counted for itself.
    let calls = [
        ("fsync", 1),
        ("fdatasync", 1),
        ("rename,renameat,renameat2", 1),
        ("link,linkat", 1),
        ("ftruncate", 1),
        ("pwrite64", 1),
        ("fallocate", 1),
        ("io_uring_enter", 1),
        ("io_uring_enter", 2),
        ("unlink,unlinkat", 1),
        ("flock", 2),
        ("flock", 4),
    ];
    for (call, number) in calls {
        let was_killed = killed_at((call, number), &backup);
        kills += u32::from(was_killed);
        let case = format!("{call} {number}");
        let (code, document) = json(&[&backup[..], &["--overwrite"]].concat());
        assert_eq!(code, 0, "{case}: {document}");
        let stripes = document["devices"].as_array().map(Vec::len);
        assert_eq!(stripes, Some(4), "{case}: {document}");
        let partial = |path: &PathBuf| path.to_string_lossy().ends_with(".partial");
        let files = devices(&disks);
        assert!(!files.iter().any(partial), "{case}: {files:?}");
        assert_eq!(files.len() % 4, 0, "{case}: whole sets only: {files:?}");
        for file in files.iter().filter(|file| !older.contains(file)) {
            fs::remove_file(file).unwrap();
        }
        let (code, found, said) = restored(&place, &disks);
        assert_eq!((code, found == whole), (Some(0), true), "{case}: {said}");
    }
    assert!(kills >= 4, "only {kills} kills");
}

#[test]
fn info_says_what_is_lost_and_that_parity_makes_up_for_it() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    let output = windlass(&words(&["info"], &disks));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let stripe = files[0].to_str().unwrap();
    let said = text(&windlass(&["info", stripe]));
    assert!(said.contains("parity        4 of 4"), "{said}");
    for lost in [1, 3] {
        let content = fs::read(&files[lost]).unwrap();
        fs::remove_file(&files[lost]).unwrap();
        let output = windlass(&words(&["info"], &disks));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("parity"), "{}", text(&output));
        let (code, document) = json(&["info", stripe]);
        let set = &document["sets"][0];
        assert_eq!((code, &set["restorable"]), (3, &true.into()), "{document}");
        let device = match lost {
            1 => &set["stripes"][1],
            _ => &set["parities"][0],
        };
        assert_eq!(device["location"], files[lost].to_str().unwrap());
        assert_eq!(device["fault"], "is missing");
        fs::write(&files[lost], content).unwrap();
    }
}

#[test]
fn a_set_is_replaced_by_the_next_one_at_the_same_files() {
    let (place, disks) = place();
    let (database, _) = place.ends();
    // The file with parity of the second night has the place of a stripe of the first.
    let file = |number: usize| format!("{}/set.windlass", disks[number]);
    let first = [file(0), file(1), file(2), file(3)].join(",");
    let second = [file(3), file(2), file(1), file(0)].join(",");
    let away = place.path("away");
    fs::create_dir(&away).unwrap();
    let away = |number: usize| away.join(number.to_string());
    for (night, to) in (1..).zip([&first, &second]) {
        place.ledger.commit(20 * night + 1, 20 * night + 20);
        let backup = ["backup", &database, "--to", to, "--parity", "2"];
        let output = windlass(&[&backup[..], &["--overwrite"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(devices(&disks).len(), 4);
        let lost = [0, 2];
        lost.iter()
            .for_each(|at| fs::rename(file(*at), away(*at)).unwrap());
        let (code, _, said) = restored(&place, &disks);
        assert_eq!(code, Some(3), "{said}");
        lost.iter()
            .for_each(|at| fs::rename(away(*at), file(*at)).unwrap());
        let output = windlass(&words(&["verify", "--latest"], &disks));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn the_documents_are_enough_to_rebuild_a_stripe() {
    let (place, disks) = place();
    let (database, _) = place.ends();
    let to = disks.join(",");
    let output = windlass(&["backup", &database, "--to", &to, "--parity", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let files = devices(&disks);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (number, left) in [("1", [1, 2, 3]), ("2", [0, 2, 3])] {
        let mut command = Command::new("python3");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(docs.join("parity_reader.py")).arg(number);
        let output = command.args(left.map(|at| &files[at])).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let lost = number.parse::<usize>().unwrap() - 1;
        assert!(output.stdout == fs::read(&files[lost]).unwrap(), "{said}");
    }
    // Both stripes are lost.
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let command = command.arg(docs.join("parity_reader.py")).arg("2");
    let output = command.args(&files[2..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout == fs::read(&files[1]).unwrap(), "{said}");
    // The other reader takes the stripes, without parity.
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let command = command.arg(docs.join("format-reader.py")).args(&files[..2]);
    let output = command.args(["--file", "shop.db"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !output.stdout.is_empty(),
        "{said}"
    );
}

/// The holds that lie in these directories.
fn holds(disks: &[String]) -> usize {
    let is_hold = |path: &PathBuf| path.extension().is_some_and(|end| end == "hold");
    devices(disks).iter().filter(|path| is_hold(path)).count()
}

#[test]
fn a_hold_lies_beside_parity_too_and_whoever_sees_only_that_keeps_the_set() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let held = devices(&disks);
    let output = windlass(&words(&["hold", "--reason", "before the upgrade"], &disks));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(holds(&disks), 4);
    back_up(&place, &disks, &[]);
    // Only the directory with parity: the others are not mounted.
    let away = place.arg("away");
    fs::create_dir(&away).unwrap();
    for disk in &disks[..3] {
        fs::rename(disk, format!("{away}/{}", &disk[disk.len() - 2..])).unwrap();
    }
    let rules = ["expire", "--keep-full", "1"];
    let output = windlass(&words(&rules, &disks[3..]));
    assert!(held[3].exists(), "{}", text(&output));
    for disk in &disks[..3] {
        fs::rename(format!("{away}/{}", &disk[disk.len() - 2..]), disk).unwrap();
    }
    // A hold of an older version lies beside stripes only.
    let beside_parity = devices(&disks[3..]);
    let hold = beside_parity
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "hold"));
    fs::remove_file(hold.unwrap()).unwrap();
    let (code, done) = json(&words(&rules, &disks[3..]));
    assert_eq!(done["removed"], serde_json::json!([]), "{code} {done}");
    assert!(held.iter().all(|path| path.exists()));
    let set = ["--set", &set_of(&held[0])];
    let release = words(&["hold", "--release", set[0], set[1]], &disks);
    let output = windlass(&release);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(holds(&disks), 0);
    let (code, done) = json(&words(&rules, &disks));
    assert_eq!((code, done["removed"].as_array().unwrap().len()), (0, 1));
    assert_eq!(devices(&disks).len(), 4);
}

/// The first digits of the id of a device's set.
fn set_of(device: &Path) -> String {
    let name = device.file_name().unwrap().to_str().unwrap();
    let id = name.rsplit('-').next().unwrap();
    id[..8].to_owned()
}

#[test]
fn a_hold_says_where_it_is_not_and_a_release_what_it_left() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let set = set_of(&devices(&disks)[0]);
    // One disk is lost, with its directory.
    let away = place.arg("away");
    fs::rename(&disks[3], &away).unwrap();
    let hold = words(&["hold", "--set", &set], &disks[..3]);
    let output = windlass(&hold);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&disks[3]), "{said}");
    assert_eq!(holds(&disks[..3]), 3);
    fs::rename(&away, &disks[3]).unwrap();
    assert_eq!(windlass(&hold).status.code(), Some(0));
    assert_eq!(holds(&disks), 4);
    // One of them cannot be removed; the others go all the same.
    let own = devices(&disks[1..2]);
    let own = own
        .iter()
        .find(|it| it.extension().is_some_and(|end| end == "hold"));
    let own = own.unwrap();
    fs::remove_file(own).unwrap();
    fs::create_dir(own).unwrap();
    fs::write(own.join("file"), "").unwrap();
    let release = words(&["hold", "--release", "--set", &set], &disks);
    let output = windlass(&release);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("still held in {}", disks[1])),
        "{said}"
    );
    assert!(!said.contains("the rules count for it again"), "{said}");
    assert_eq!(holds(&disks), 1);
    let (code, document) = json(&release);
    assert_eq!((code, &document["held"]), (1, &true.into()), "{document}");
    fs::remove_dir_all(own).unwrap();
    let output = windlass(&release);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    // What is held on a disk that is away stays held there.
    assert_eq!(windlass(&hold).status.code(), Some(0));
    fs::rename(&disks[3], &away).unwrap();
    let release = words(&["hold", "--release", "--set", &set], &disks[..3]);
    let said = text(&windlass(&release));
    assert!(said.contains("in the directories that are there"), "{said}");
    assert!(said.contains(&disks[3]), "{said}");
    fs::rename(&away, &disks[3]).unwrap();
    assert_eq!(holds(&disks), 1);
}

/// All parity of a set was lost, so it is computed anew from stripes that are proven right. That
/// needs the sets on which the set builds, which are in another directory by now.
#[test]
fn parity_is_computed_anew_although_the_base_was_moved() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let base = devices(&disks);
    place.ledger.commit(21, 40);
    back_up(&place, &disks, &["--type", "diff"]);
    let (code, whole, said) = restored(&place, &disks);
    assert_eq!(code, Some(0), "{said}");
    let old = place.arg("old");
    fs::create_dir(&old).unwrap();
    for file in &base {
        let name = file.file_name().unwrap().to_str().unwrap();
        fs::rename(file, format!("{old}/{name}")).unwrap();
    }
    let parity = devices(&disks[3..]);
    assert_eq!(parity.len(), 1);
    fs::remove_file(&parity[0]).unwrap();
    let mut places = disks.clone();
    places.push(old);
    let stripe = devices(&disks[..1]);
    let set = set_of(&stripe[0]);
    let repair = ["repair-set", "--set", &set];
    let output = windlass(&words(&repair, &places));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(parity[0].exists());
    fs::remove_file(&stripe[0]).unwrap();
    let (code, found, said) = restored(&place, &places);
    assert_eq!((code, found == whole), (Some(3), true), "{said}");
}

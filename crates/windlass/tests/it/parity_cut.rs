//! Repairs of sets with parity that are killed: what is left of them, what they must not forget,
//! and repairs that can do only a part.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use windlass_testkit::counted::{counted, drawn, killed};
use windlass_testkit::groups::{ParityParts, with_short_blocks};
use windlass_testkit::sets::flip;

use crate::parity::{back_up, devices, place, restored, words};
use crate::support::*;

/// Two pairs, whose private keys are 32 times the byte 42 and 43 (hexadecimal).
pub const IDENTITY: &str =
    "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
pub const RECIPIENT: &str = "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
pub const OTHER_IDENTITY: &str =
    "AGE-SECRET-KEY-1GDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDPSST380Y";
pub const OTHER_RECIPIENT: &str =
    "age:age1ehhas7p6jx6yveqw9c0e2kvakd0ysjsqwx7jrq4nkcxssykpp3cq0wk9nt";

/// So many calls of each repair are tried where not all are.
const FEW: usize = 16;
const SEED: u64 = 5;
/// What changes files.
const KINDS: &str = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,\
                     ftruncate,fallocate,pwrite64,write";

/// What a command says, which must end with this exit code.
pub fn ends(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

/// Writes an identity, and returns the word for it.
pub fn identity(place: &Place, name: &str, content: &str) -> String {
    let path = place.path(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    format!("identity-file:{}", path.display())
}

/// The files of a directory with their content, by name.
fn content(directory: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = devices(&[directory.to_owned()]).into_iter();
    files
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

fn empty(directory: &str) {
    let files = devices(&[directory.to_owned()]);
    files.iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn a_base_whose_devices_were_all_moved_is_rebuilt_from_its_parity() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let base = devices(&disks);
    back_up(&place, &disks, &["--type", "incr"]);
    let (code, whole, said) = restored(&place, &disks);
    assert_eq!(code, Some(0), "{said}");
    let moved: Vec<_> = disks.iter().map(|disk| format!("{disk}-moved")).collect();
    for (disk, to) in disks.iter().zip(&moved) {
        fs::rename(disk, to).unwrap();
    }
    let (code, _, said) = restored(&place, &moved);
    assert_eq!(code, Some(0), "{said}");
    let lost = base[1].file_name().unwrap();
    fs::remove_file(PathBuf::from(&moved[1]).join(lost)).unwrap();
    let (code, found, said) = restored(&place, &moved);
    assert_eq!(code, Some(3), "{said}");
    assert!(found == whole, "{said}");
}

#[test]
fn a_repair_that_is_killed_at_any_step_forgets_neither_hold_nor_keys() {
    let (place, disks) = place();
    let own = identity(&place, "id", IDENTITY);
    let other = identity(&place, "other", OTHER_IDENTITY);
    back_up(&place, &disks, &["--encrypt", RECIPIENT]);
    let hold = ["hold", "--reason", "for the auditors", "--key", &own];
    ends(&words(&hold, &disks), 0);
    let rotate = ["key", "rotate", "--key", &own, "--encrypt", OTHER_RECIPIENT];
    ends(&words(&rotate, &disks), 0);
    let repair = words(&["repair-set", "--key", &other], &disks);
    for (lost, files) in [(1, 3), (3, 3)] {
        let before = content(&disks[lost]);
        assert_eq!(before.len(), files, "{before:?}");
        empty(&disks[lost]);
        let mut command = command();
        command.args(&repair);
        let (output, calls) = counted(&command, KINDS, &place.path("trace"));
        assert!(output.status.success(), "{}", text(&output));
        let mut kills = 0;
        for call in drawn(calls, FEW, SEED) {
            empty(&disks[lost]);
            let output = killed(&command, &call);
            kills += u32::from(!output.status.success());
            ends(&repair, 0);
            let after = content(&disks[lost]);
            let names = |all: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
                all.iter().map(|(path, _)| path.clone()).collect()
            };
            assert_eq!(names(&after), names(&before), "{call}");
            // Parity that was all lost may have other groups than before.
            let is_same = |one: &(PathBuf, Vec<u8>), other: &(PathBuf, Vec<u8>)| {
                one == other || lost == 3 && one.0.extension().is_some_and(|it| it == "windlass")
            };
            let mut pairs = after.iter().zip(&before);
            assert!(pairs.all(|(one, other)| is_same(one, other)), "{call}");
        }
        assert!(kills > 5, "only {kills} kills");
    }
}

/// The stripes and the parity that a repair left under their temporary names.
fn partials(disks: &[String]) -> Vec<PathBuf> {
    let mut files = devices(disks);
    files.retain(|path| path.extension().is_some_and(|end| end == "partial"));
    files
}

#[test]
fn what_a_killed_repair_left_is_named_and_goes() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    let (database, _) = place.ends();
    let repair = words(&["repair-set"], &disks);
    for lost in [1, 3] {
        let whole = fs::read(&files[lost]).unwrap();
        fs::remove_file(&files[lost]).unwrap();
        assert!(killed_at(("ftruncate", 1), &repair));
        let left = partials(&disks);
        assert_eq!(left.len(), 1, "{left:?}");
        let name = left[0].to_str().unwrap();
        let said = ends(&words(&["info"], &disks), 3);
        let line = format!("unfinished    {name}  of a backup or a repair under way, or cut off");
        assert!(said.lines().any(|it| it == line), "{said}");
        for command in ["info", "verify"] {
            let (code, document) = json(&words(&[command], &disks));
            let unfinished = &document["unfinished"];
            assert_eq!(
                (code, unfinished),
                (3, &serde_json::json!([name])),
                "{document}"
            );
        }
        // A backup says what becomes of it: it has nothing that the next repair needs.
        let to = disks.join(",");
        let said = ends(&["backup", &database, "--to", &to], 0);
        assert!(said.contains(name), "{said}");
        for file in devices(&disks) {
            if !files.contains(&file) && file != left[0] {
                fs::remove_file(file).unwrap();
            }
        }
        // If the device comes back, nobody needs it.
        fs::write(&files[lost], &whole).unwrap();
        ends(&["backup", &database, "--to", &to], 0);
        for file in devices(&disks) {
            if !files.contains(&file) {
                fs::remove_file(file).unwrap();
            }
        }
        assert_eq!(devices(&disks), files);
    }
}

#[test]
fn a_repair_of_a_damaged_device_that_was_killed_leaves_nothing_behind() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    let repair = words(&["repair-set"], &disks);
    for damaged in [1, 3] {
        let middle = fs::metadata(&files[damaged]).unwrap().len() / 2;
        flip(&files[damaged], middle);
        for _ in 0..2 {
            assert!(killed_at(("ftruncate", 1), &repair));
        }
        ends(&repair, 0);
        assert_eq!(devices(&disks), files);
        assert_eq!(restored(&place, &disks).0, Some(0));
    }
}

#[test]
fn a_repair_that_could_do_only_a_part_says_what_is_left_and_fails() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let files = devices(&disks);
    let parity = with_short_blocks(&fs::read(&files[3]).unwrap(), 2);
    fs::write(&files[3], &parity).unwrap();
    ends(&words(&["repair-set"], &disks), 0);
    // A group block, a transfer that only this block describes, and a header.
    let parts = ParityParts::of(&parity);
    let block = parts.blocks.len() / 2;
    flip(&files[3], parts.blocks[block].0 + 80);
    let transfer = parts.members(block)[0];
    let stripe = usize::from(transfer.stripe);
    flip(
        &files[stripe],
        transfer.offset + u64::from(transfer.bytes) / 2,
    );
    flip(&files[stripe], 100);
    let damaged: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let (code, document) = json(&words(&["repair-set"], &disks));
    let numbers = |list: &str| -> Vec<_> {
        let list = document[list].as_array().unwrap().iter();
        list.map(|it| it["number"].as_u64().unwrap()).collect()
    };
    let number = stripe as u64 + 1;
    let done = (code, numbers("repaired"), numbers("left"));
    assert_eq!(done, (4, vec![number], vec![number, 4]), "{document}");
    for (file, damaged) in files.iter().zip(&damaged) {
        fs::write(file, damaged).unwrap();
    }
    let said = ends(&words(&["repair-set"], &disks), 4);
    let name = files[stripe].display();
    for line in [
        format!("error: not repaired: stripe, device {number}: {name}: has damaged parts"),
        format!(
            "error: not repaired: parity, device 4: {}",
            files[3].display()
        ),
        "2 of 4 devices could not be repaired".to_owned(),
        "hint: Make a new backup.".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    // Nothing more can be done.
    let said = ends(&words(&["repair-set"], &disks), 4);
    assert!(
        said.contains("error: ") && said.contains(&files[3].display().to_string()),
        "{said}"
    );
}

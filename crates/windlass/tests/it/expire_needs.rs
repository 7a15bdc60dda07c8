//! `windlass expire` and what sets that stay need: bases under another name, of sets that lack a
//! stripe, and of sets that cannot be read without their key.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;
use windlass_testkit::sqlite::run_once;

use crate::support::*;

const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const ENCRYPT: [&str; 2] = [
    "--encrypt",
    "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj",
];

fn back_up(place: &Place, of: &str, more: &[&str]) -> String {
    let count = place.ledger.check(&place.ledger.path);
    place.ledger.commit(count + 1, count + 3);
    let sets = place.arg("sets");
    let (code, document) = json(&[&["backup", of, "--to", &sets], more].concat());
    assert_eq!(code, 0, "{document}");
    document["set_id"].as_str().unwrap().to_owned()
}

fn expire(place: &Place, more: &[&str]) -> (i32, Value) {
    let words = ["expire", &place.arg("sets"), "--keep-full", "1"];
    json(&[&words, more].concat())
}

/// The rules that keep a set.
fn reasons(outcome: &Value, id: &str) -> Vec<String> {
    let databases = outcome["databases"].as_array().unwrap().iter();
    let mut sets = databases.flat_map(|one| one["sets"].as_array().unwrap());
    let set = sets.find(|set| set["set_id"] == id).unwrap();
    let reasons = set["reasons"].as_array().unwrap().iter();
    reasons
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

/// Lets sets expire: none goes, and this one stays as a base.
fn keeps_base(place: &Place, more: &[&str], base: &str) {
    let (code, done) = expire(place, more);
    assert_eq!((code, &done["removed"]), (0, &serde_json::json!([])));
    assert_eq!(reasons(&done, base), ["base"]);
}

/// The same while a disk is not mounted that has a set which needs the base.
fn keeps_base_without(place: &Place, disk: &str, base: &str) {
    let away = place.arg("away");
    std::fs::rename(disk, &away).unwrap();
    keeps_base(place, &[], base);
    std::fs::rename(&away, disk).unwrap();
}

/// The file was moved, so the sets say another database. One builds on the other all the same.
#[test]
fn a_set_of_another_database_keeps_its_base() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let first = back_up(&place, &shop, &[]);
    let moved = place.arg("moved.db");
    std::fs::copy(&shop, &moved).unwrap();
    let words = ["--type", "incr", "--base", &*first];
    let second = back_up(&place, &moved, &words);
    back_up(&place, &shop, &[]);
    for more in [&[][..], &["--database", "shop"]] {
        keeps_base(&place, more, &first);
    }
    let into = place.arg("again.db");
    let words = ["restore", &sets, "--set", &second, "--into", &into];
    assert_eq!(windlass(&words).status.code(), Some(0));
}

/// One of two disks was not mounted when sets expired.
#[test]
fn a_set_that_lacks_a_stripe_keeps_its_base() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let more = place.arg("more");
    std::fs::create_dir(&more).unwrap();
    let first = back_up(&place, &shop, &[]);
    let second = back_up(&place, &shop, &["--to", &more, "--type", "incr"]);
    back_up(&place, &shop, &[]);
    keeps_base_without(&place, &more, &first);
    let into = place.arg("again.db");
    let words = ["restore", &sets, &more, "--set", &second, "--into", &into];
    assert_eq!(windlass(&words).status.code(), Some(0));
    // Now it expires like any other.
    let (code, done) = expire(&place, &[&*more]);
    assert_eq!(
        (code, &done["removed"]),
        (0, &serde_json::json!([second, first]))
    );
}

/// The set between them is in another place, which nobody names, and then on a disk that is not
/// mounted.
#[test]
fn a_set_whose_base_is_elsewhere_keeps_what_is_below_that() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let more = place.arg("more");
    std::fs::create_dir(&more).unwrap();
    let first = back_up(&place, &shop, &[]);
    let middle = ["backup", &shop, "--to", &more, "--type", "incr"];
    let (code, middle) = json(&[&middle[..], &["--base", &sets]].concat());
    assert_eq!(code, 0, "{middle}");
    let last = back_up(&place, &shop, &["--type", "incr", "--base", &more]);
    let count = place.ledger.check(&place.ledger.path);
    back_up(&place, &shop, &[]);
    // It names the sets that it needs and that are not here.
    let (code, held) = json(&["hold", &sets, "--set", &last]);
    assert_eq!(code, 3, "{held}");
    keeps_base(&place, &[], &first);
    keeps_base_without(&place, &more, &first);
    let into = place.arg("again.db");
    let words = ["restore", &sets, &more, "--set", &last, "--into", &into];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(place.ledger.check(&place.path("again.db")), count);
}

/// Another disk is mounted nowhere: its directory is there and empty.
#[test]
fn an_empty_place_beside_another_may_be_a_disk_that_is_missing() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let (more, none) = (place.arg("more"), place.arg("none"));
    std::fs::create_dir_all(place.path("more/lost+found")).unwrap();
    back_up(&place, &shop, &[]);
    back_up(&place, &shop, &[]);
    for (other, words) in [(&more, "is empty: its disk may"), (&none, "there is no ")] {
        let output = windlass(&["expire", &sets, other, "--keep-full", "1"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.contains("hint: "), "{said}");
    }
    let output = windlass(&["expire", &none, "--keep-full", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    back_up(&place, &shop, &["--to", &more]);
    let (code, done) = expire(&place, &[&*more]);
    assert_eq!((code, done["removed"].as_array().unwrap().len()), (0, 2));
}

#[test]
fn an_encrypted_set_keeps_what_it_may_build_on_until_its_key_is_named() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let file = place.path("id");
    std::fs::write(&file, IDENTITY).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let key = format!("identity-file:{}", file.display());
    let first = back_up(&place, &shop, &[]);
    // A full set builds on nothing, and everybody sees that.
    let other = back_up(&place, &shop, &ENCRYPT);
    let last = back_up(&place, &shop, &[]);
    let (code, done) = expire(&place, &[]);
    assert_eq!((code, &done["removed"]), (0, &serde_json::json!([first])));
    let second = back_up(&place, &shop, &[&["--type", "incr"], &ENCRYPT[..]].concat());
    back_up(&place, &shop, &[]);
    let output = windlass(&["expire", &sets, "--keep-full", "1"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("what set {} may need stays", &second[..8])),
        "{said}"
    );
    assert!(
        said.contains("hint: Name the key: --key identity-file:PATH"),
        "{said}"
    );
    let (code, done) = expire(&place, &["--dry-run"]);
    assert_eq!(
        (code, reasons(&done, &last)),
        (3, vec!["unclear".to_owned()])
    );
    let withheld = &done["databases"][0]["withheld"];
    assert_eq!(withheld["sets"], serde_json::json!([last]));
    assert_eq!(withheld["because"][0]["set_id"], *second);
    let into = place.arg("again.db");
    let words = [
        "restore", &sets, "--set", &second, "--into", &into, "--key", &key,
    ];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let (code, done) = expire(&place, &["--key", &key]);
    assert_eq!(
        (code, &done["removed"]),
        (0, &serde_json::json!([second, other, last]))
    );
}

/// A set that goes while others are verified is neither damage nor a failure.
#[test]
fn a_verification_goes_on_when_a_set_expires_meanwhile() {
    let place = Place::with_accounts(200);
    let (shop, sets) = place.ends();
    let more = "CREATE TABLE more AS SELECT randomblob(300000) AS x";
    run_once(&place.ledger.path, more).unwrap();
    let ids = [(); 4].map(|()| back_up(&place, &shop, &[]));
    let mut command = command();
    command.args(["verify", &sets, "--max-rate", "100KiB"]);
    command.args(["--transfer-size", "64KiB"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = vec![lines.next().unwrap().unwrap()];
    // The first set is done, the second one takes its time, and the third one waits.
    signal(&child, "STOP");
    let (code, done) = expire(&place, &[]);
    signal(&child, "CONT");
    assert_eq!((code, done["removed"].as_array().unwrap().len()), (0, 3));
    said.extend(lines.map(Result::unwrap));
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said:?}");
    assert!(said[2].contains(&ids[2][..8]), "{said:?}");
    assert!(said[2].contains("was removed meanwhile"), "{said:?}");
    // The second one may have been open by then, or not.
    assert!(said[4].contains(" of 4 sets"), "{said:?}");
}

/// A full disk is the time to remove sets. What says so beforehand needs no room.
#[test]
fn sets_go_from_a_full_disk() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let script = r#"mount -t tmpfs -o size=4m none "$1" || exit 9
        for i in 1 2 3; do "$2" backup "$3" --to "$1" --quiet || exit 9; done
        cat /dev/zero > "$1/fill"
        "$2" expire "$1" --keep-full 1; code=$?
        ls "$1"; exit $code"#;
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", script, "sh", &sets]);
    unshare.args([env!("CARGO_BIN_EXE_windlass"), &shop]);
    unshare.env("WINDLASS_CONFIG", "/dev/null");
    let output = unshare.output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("removed       2 sets"), "{said}");
    assert_eq!(said.matches(".windlass\n").count(), 1, "{said}");
    assert!(!said.contains("removing\n"), "{said}");
}

/// A set that somebody has protected stays in the list: nothing of it was removed.
#[test]
fn a_set_of_which_nothing_can_be_removed_stays_as_it_was() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    back_up(&place, &shop, &[]);
    let stripe = place.path("sets").join(&place.sets()[0]);
    back_up(&place, &shop, &[]);
    let before = place.sets();
    let mut strace = std::process::Command::new("strace");
    strace.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=unlink,unlinkat",
    ]);
    strace.args(["-e", "inject=unlink,unlinkat:error=EPERM"]);
    strace
        .arg("-P")
        .arg(&stripe)
        .arg(env!("CARGO_BIN_EXE_windlass"));
    strace.args(["expire", &sets, "--keep-full", "1"]);
    let output = strace.env("WINDLASS_CONFIG", "/dev/null").output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&*stripe.to_string_lossy()), "{said}");
    assert_eq!(place.sets(), before);
    assert_eq!(expire(&place, &[]).0, 0);
    // Names of one second are in no order.
    let is_newer = |name: &&String| !stripe.ends_with(name);
    let newer: Vec<_> = before.iter().filter(is_newer).cloned().collect();
    assert_eq!(place.sets(), newer);
}

/// A hold lies beside the set. Nobody who expires another place sees it.
#[test]
fn a_hold_names_bases_that_it_does_not_reach() {
    let place = Place::new();
    let (shop, sets) = place.ends();
    let more = place.arg("more");
    std::fs::create_dir(&more).unwrap();
    let first = back_up(&place, &shop, &[]);
    let words = [
        "backup", &shop, "--to", &more, "--type", "incr", "--base", &sets,
    ];
    assert_eq!(json(&words).0, 0);
    let output = windlass(&["hold", &more]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let hint = format!("windlass hold {sets} --set {}", &first[..8]);
    assert!(said.contains(&hint), "{said}");
    assert_eq!(
        windlass(&["hold", &sets, "--set", &first]).status.code(),
        Some(0)
    );
    assert_eq!(
        windlass(&["hold", &more, "--release"]).status.code(),
        Some(0)
    );
    let long = "x".repeat(5000);
    let output = windlass(&["hold", &more, "--reason", &long]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

/// Sets that get their names, and sets that go, are never damaged for whoever lists the place.
#[test]
fn a_list_shows_no_damage_while_sets_come_and_go() {
    let place = Place::with_accounts(200);
    let (shop, sets) = place.ends();
    back_up(&place, &shop, &[]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let goes_on = || !is_over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..25 {
                windlass(&["backup", &shop, "--to", &sets, "--quiet"]);
                windlass(&["expire", &sets, "--keep-full", "1", "--quiet"]);
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while goes_on() {
            let output = windlass(&["info", &sets]);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        }
    });
}

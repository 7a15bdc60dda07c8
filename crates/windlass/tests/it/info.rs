//! What `info` says about a set: where its stripes are, what is wrong with each, and what is left.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use crate::support::*;
use crate::trouble::grow;

/// A set of two stripes in directories of their own.
fn two_places() -> (Place, String, String) {
    let place = Place::new();
    for name in ["disk1", "disk2"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let (a, b) = (place.arg("disk1/a.stripe"), place.arg("disk2/b.stripe"));
    let words = ["backup", &place.arg("shop.db"), "--to", &a, "--to", &b];
    let output = windlass(&[&words[..], &["--label", "before the move"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    (place, a, b)
}

/// Runs `info`, which must end with `code`. Returns its output.
fn info(set: &str, code: i32) -> String {
    info_with(&[set], code)
}

fn info_with(words: &[&str], code: i32) -> String {
    let output = windlass(&[&["info"], words].concat());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    text(&output)
}

fn cut(stripe: &str, bytes: u64) {
    let file = std::fs::File::options().write(true).open(stripe).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

#[test]
fn a_stripe_leads_to_the_others_wherever_they_lie() {
    let (_place, a, b) = two_places();
    let printed = info(&a, 0);
    for line in [
        format!("stripe        1 of 2  {a}  sealed"),
        format!("stripe        2 of 2  {b}  sealed"),
        "  label                  before the move".to_owned(),
    ] {
        assert!(printed.contains(&line), "{line}: {printed}");
    }
    let (code, document) = json(&["info", &b]);
    assert_eq!(code, 0);
    let set = &document["sets"][0];
    assert_eq!(set["facts"]["database"]["label"], "before the move");
    assert_eq!(set["stripes"][0]["location"], a);
    assert_eq!(set["stripes"][1]["index"], 1);
}

#[test]
fn what_is_left_of_a_set_is_said_stripe_by_stripe() {
    let (place, a, b) = two_places();
    cut(&a, 4096);
    let printed = info(&a, 4);
    assert!(
        printed.contains(&format!("1 of 2  {a}  damaged: ")),
        "{printed}"
    );
    assert!(
        printed.contains(&format!("2 of 2  {b}  sealed")),
        "{printed}"
    );
    // The copy of the description on the other stripe is just as good.
    assert!(printed.contains("content       1 file"), "{printed}");
    let left = "recoverable   1 of 2 stripes are sound; the file list is readable";
    assert!(printed.contains(left), "{printed}");
    let (code, document) = json(&["info", "--files", &a]);
    assert_eq!(code, 4);
    let set = &document["sets"][0];
    assert_eq!(set["restorable"], false);
    assert!(set["stripes"][0]["fault"].is_string(), "{set}");
    assert!(set["stripes"][1]["fault"].is_null(), "{set}");
    assert_eq!(set["files"][0]["path"], "shop.db");
    // Now the stripe is missing altogether.
    std::fs::remove_file(&b).unwrap();
    let printed = info(&a, 4);
    assert!(
        printed.contains(&format!("2 of 2  {b}  missing")),
        "{printed}"
    );
    assert!(printed.contains("0 of 2 stripes are sound"), "{printed}");
    assert!(
        printed.contains("the file list is not readable"),
        "{printed}"
    );
    drop(place);
}

/// The unfinished stripes that have a header.
fn begun(place: &Place) -> Vec<String> {
    let has_header = |name: &String| {
        let mut magic = [0; 7];
        let file = std::fs::File::open(place.path("sets").join(name)).unwrap();
        file.read_at(&mut magic, 0).unwrap() == 7 && &magic == b"WNDLASS"
    };
    let names = place.sets().into_iter();
    let partials = names.filter(|name| name.ends_with(".partial"));
    partials.filter(has_header).collect()
}

/// Begins a backup of a grown database to two stripes, and kills it when both have a header. It
/// would take a minute, so it has not ended then, also if nobody looks for a while.
pub fn cut_off(place: &Place) {
    let (db, sets) = place.ends();
    let mut command = command();
    command.args(["backup", &db, "--to", &sets, "--to", &sets]);
    command.args(["--max-rate", "64KiB", "--transfer-size", "64KiB"]);
    command.args(["--compress", "none", "--quiet"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while begun(place).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_backup_under_way_or_cut_off_is_no_set() {
    let place = Place::new();
    grow(&place);
    place.back_up();
    cut_off(&place);
    let printed = info(&place.arg("sets"), 0);
    assert_eq!(printed.matches("\nset ").count(), 0, "{printed}");
    assert_eq!(printed.matches("unfinished    ").count(), 2, "{printed}");
    let (code, document) = json(&["info", &place.arg("sets")]);
    assert_eq!(code, 0);
    assert_eq!(document["sets"].as_array().unwrap().len(), 1);
    assert_eq!(document["unfinished"].as_array().unwrap().len(), 2);
    // A user who names the file gets told what it is.
    let named = place.arg(&format!("sets/{}", begun(&place)[0]));
    assert!(info(&named, 4).contains("is not sealed"));
}

#[test]
fn two_copies_of_a_stripe_are_both_listed() {
    let (place, a, _) = two_places();
    std::fs::copy(&a, place.path("disk1/copy")).unwrap();
    let directory = Path::new(&a).parent().unwrap().to_str().unwrap();
    let printed = info_with(&["--long", directory], 4);
    assert!(printed.contains("is there twice"), "{printed}");
    assert_eq!(
        printed.matches("stripe        1 of 2  ").count(),
        2,
        "{printed}"
    );
}

#[test]
fn what_hangs_on_what_is_drawn_and_a_missing_base_is_named() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let full = place.back_up();
    for (number, kind) in [(1, "incr"), (2, "incr"), (3, "diff")] {
        place.ledger.commit(20 + number, 20 + number);
        let words = ["backup", &db, "--to", &sets, "--type", kind, "--strict"];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    let links = |code: i32| {
        let (found, document) = json(&["info", &sets]);
        assert_eq!(found, code, "{document}");
        let chains = document["chains"].as_array().unwrap();
        assert_eq!(chains.len(), 1, "{document}");
        assert_eq!(chains[0]["database"], "shop.db");
        (chains[0]["sets"].as_array().unwrap().clone(), document)
    };
    let shape = |links: &[serde_json::Value]| -> Vec<_> {
        let number = |link: &serde_json::Value, key: &str| link[key].as_u64().unwrap();
        let link = |link| (number(link, "depth"), number(link, "needed_by"));
        links.iter().map(link).collect()
    };
    let (all, _) = links(0);
    assert_eq!(shape(&all), [(0, 3), (1, 1), (2, 0), (1, 0)]);
    for link in &all {
        assert!(link["bytes_read"].as_u64() > Some(0), "{link}");
        assert!(link["stored_bytes"].as_u64() > Some(0), "{link}");
        assert!(link["fault"].is_null(), "{link}");
    }
    let printed = info(&sets, 0);
    assert_eq!(printed.matches("\nchain         ").count(), 5, "{printed}");
    assert!(printed.contains("  3 sets need it"), "{printed}");
    let second = &all[1]["set_id"].as_str().unwrap()[..8];
    assert!(printed.contains(&format!("  on {second}  ")), "{printed}");
    let metrics = |name: &str, rest: &str| {
        let printed = info_with(&["--metrics", &sets], 0);
        let key = place.key("shop.db");
        let series = format!("windlass_place_{name}{{database=\"shop.db\",key=\"{key}\"{rest}}} ");
        let line = printed.lines().find_map(|line| line.strip_prefix(&series));
        let line = line.unwrap_or_else(|| panic!("{series}: {printed}"));
        line.parse::<f64>().unwrap()
    };
    assert_eq!(metrics("sets", ",type=\"incr\""), 2.0);
    assert_eq!(metrics("unusable_sets", ""), 0.0);
    let newest = |kind: &str| metrics("newest_set_time_seconds", &format!(",type=\"{kind}\""));
    assert!(newest("full") <= newest("incr") && newest("incr") <= newest("diff"));
    // All that hangs on a set that is gone says so.
    let id = all[0]["set_id"].as_str().unwrap();
    std::fs::remove_file(&full).unwrap();
    let (left, document) = links(4);
    assert_eq!(shape(&left), [(0, 1), (1, 0), (0, 0)]);
    for link in &left {
        let fault = link["fault"].as_str().unwrap();
        assert!(
            fault.contains(&format!("builds on set {id}, which is missing")),
            "{fault}"
        );
    }
    for set in document["sets"].as_array().unwrap() {
        assert_eq!(set["restorable"], false, "{set}");
    }
    assert_eq!(metrics("unusable_sets", ""), 3.0);
    let printed = info(&sets, 4);
    assert_eq!(printed.matches("  no base: set ").count(), 3, "{printed}");
    assert_eq!(
        printed.matches("cannot be restored: ").count(),
        3,
        "{printed}"
    );
}

#[test]
fn a_line_break_in_a_path_is_shown_as_what_it_is() {
    let place = Place::new();
    let odd = place.path("odd\nname.db");
    std::fs::copy(place.path("shop.db"), &odd).unwrap();
    let (odd, set) = (odd.to_str().unwrap(), place.arg("one.stripe"));
    let output = windlass(&["backup", odd, "--to", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = info(&set, 0);
    let path = place.arg("odd\\u000aname.db");
    assert!(printed.contains(&path), "{printed}");
}

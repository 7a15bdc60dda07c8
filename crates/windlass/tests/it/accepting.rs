//! Warnings that come every night can be accepted by their names.

use crate::support::*;

#[test]
fn a_warning_shows_its_name_and_is_silent_when_it_is_accepted() {
    let place = Place::new();
    let (link, sets) = (place.arg("link.db"), place.arg("sets"));
    std::os::unix::fs::symlink(place.path("shop.db"), &link).unwrap();
    let run = |words: &[&str]| {
        let output = windlass(&[&["backup", &link, "--to", &sets][..], words].concat());
        (output.status.code(), text(&output))
    };
    let (code, said) = run(&["--quiet"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.starts_with("warning: ") && said.contains(" (symbolic-link)\n"),
        "{said}"
    );
    assert!(
        said.contains("hint: If it is meant to be so, add --accept symbolic-link"),
        "{said}"
    );
    let accept = ["--accept", "symbolic-link"];
    assert_eq!(
        run(&[&accept[..], &["--quiet"]].concat()),
        (Some(0), String::new())
    );
    let (code, said) = run(&[&accept[..], &["--details"]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("accepted: ") && !said.contains("warning: "),
        "{said}"
    );
    // JSON has every warning, and says whether it is accepted.
    let words = [&["backup", &link, "--to", &sets][..], &accept].concat();
    let (code, document) = json(&words);
    assert_eq!(
        (code, document["warnings"][0]["accepted"].as_bool()),
        (0, Some(true))
    );
    assert_eq!(document["warnings"][0]["name"], "symbolic-link");
    // The configuration accepts it, too.
    let config = place.arg("windlass.toml");
    #[allow(clippy::disallowed_methods, reason = "a fixture")]
    std::fs::write(&config, "[backup]\naccept = [\"symbolic-link\"]\n").unwrap();
    assert_eq!(
        run(&["--quiet", "--config", &config]),
        (Some(0), String::new())
    );
    // Something that happened, or damage, cannot be accepted.
    let (code, said) = run(&["--accept", "page-checksums"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_report_begins_with_where_the_set_is_and_how_to_restore_it() {
    let place = Place::new();
    let (db, new) = (place.arg("shop.db"), place.arg("a new place"));
    let output = windlass(&["backup", &db, "--to", &new]);
    let (out, err) = (
        String::from_utf8(output.stdout.clone()).unwrap(),
        String::from_utf8(output.stderr.clone()).unwrap(),
    );
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(
        err.contains(&format!("made the directory {new}\n")),
        "{err}"
    );
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("sealed        "), "{out}");
    let stripe = lines[2].strip_prefix("stripe        ").unwrap();
    assert!(
        stripe.starts_with(&new) && std::path::Path::new(stripe).is_file(),
        "{out}"
    );
    // The shown command can be typed as it is.
    let command = lines[3].strip_prefix("restore       ").unwrap();
    let command = command.strip_suffix("PATH").unwrap();
    let into = place.arg("restored.db");
    let typed = command.replacen("windlass", env!("CARGO_BIN_EXE_windlass"), 1);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{typed}{into} --config /dev/null")]);
    let restored = shell.output().unwrap();
    assert_eq!(restored.status.code(), Some(0), "{}", text(&restored));
    assert_eq!(place.ledger.check(std::path::Path::new(&into)), 20);
}

#[test]
fn a_run_that_cannot_begin_makes_no_directory() {
    let place = Place::new();
    let (db, new) = (place.arg("shop.db"), place.arg("typo"));
    let nobody = ["backup", "host=/nowhere", "--to", &new];
    assert_eq!(windlass(&nobody).status.code(), Some(1));
    let odd = ["backup", &db, "--to", &new, "--frame-size", "5000"];
    assert_eq!(windlass(&odd).status.code(), Some(2));
    let tune = ["tune", "host=/nowhere", "--to", &new];
    assert_eq!(windlass(&tune).status.code(), Some(1));
    assert!(!place.path("typo").exists());
}

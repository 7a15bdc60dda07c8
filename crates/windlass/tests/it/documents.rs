//! The page about JSON has every field that the commands print.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::*;

/// Fields whose content depends on the database, or is described elsewhere.
const DESCRIBED_ELSEWHERE: [&str; 4] = ["database", "options", "numbers", "used"];

fn page() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/json.md");
    let text = std::fs::read_to_string(path).unwrap();
    // Only what is written as code is a field.
    let code = text.split('`').skip(1).step_by(2);
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = code.flat_map(|part| part.split(move |letter| !is_part(letter)));
    words.map(ToOwned::to_owned).collect()
}

/// The names of all fields of a document, with their paths.
fn fields(document: &Value, path: &str, found: &mut BTreeSet<(String, String)>) {
    match document {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                let path = format!("{path}.{name}");
                found.insert((path.clone(), name.clone()));
                if !DESCRIBED_ELSEWHERE.contains(&&**name) {
                    fields(value, &path, found);
                }
            }
        }
        Value::Array(values) => {
            let path = format!("{path}[]");
            values.iter().for_each(|value| fields(value, &path, found));
        }
        _ => {}
    }
}

#[test]
fn every_field_of_every_command_is_on_the_page_about_json() {
    let place = Place::new();
    let (db, sets, events) = (place.arg("shop.db"), place.arg("sets"), place.arg("events"));
    let (into, out, mount) = (place.arg("new.db"), place.arg("out"), place.arg("mount"));
    for directory in ["mount", "probed"] {
        std::fs::create_dir(place.path(directory)).unwrap();
    }
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let one = |words: &[&str]| {
        let mut command = command();
        let state = place.path("state");
        command
            .env("WINDLASS_STATE_DIR", state)
            .env_remove("WINDLASS_NO_PREDICTION");
        let output = command.args(words).arg("--json").output().unwrap();
        let document = serde_json::from_slice::<Value>(&output.stdout);
        document.unwrap_or_else(|error| panic!("{words:?}: {error}: {}", text(&output)))
    };
    let probed = place.arg("probed");
    let emulated = [
        "--emulate",
        "source=rate:20MB/s",
        "--emulate",
        "target=rate:20MB/s",
    ];
    let commands: [&[&str]; 23] = [
        &[
            "lab",
            "probe",
            &probed,
            "--budget",
            "1s",
            "--scratch-bytes",
            "4MiB",
        ],
        &["backup", &db, "--to", &sets],
        &[&["backup", &db, "--to", &sets], &emulated[..]].concat(),
        &["backup", &db, "--to", "nul", "--compress", "auto"],
        &["backup", &db, "--to", &sets, "--dry-run"],
        &["check", &db, "--to", &sets],
        &["restore", &sets, "--into", &into],
        &["restore", &sets, "--into", &out, "--dry-run"],
        &["restore", "/nonexistent", "--into", &out],
        &["verify", set, "--events", &events],
        &["verify", set, "--quick"],
        &["verify", &sets],
        &["verify", &sets, "--open"],
        &["info", &sets],
        &["info", set, "--files"],
        &["extract", set, "*", "--into", &out],
        &["diff", &sets, &db],
        &["diff", &db, &into, "--pages"],
        &["events", &events],
        &[
            "plan",
            "--used-bytes",
            "1TB",
            "--source",
            "hdd",
            "--target",
            "nul",
        ],
        &[
            "plan",
            "--used-bytes",
            "1TB",
            "--source",
            "hdd",
            "--target",
            "s3",
            "--chain",
            "diff:2GB",
        ],
        &["plan", "--accuracy"],
        &["tune", &db, "--to", "nul", "--budget", "2s"],
    ];
    let (page, mut missing) = (page(), BTreeSet::new());
    let mut check = |document: &Value| {
        let mut found = BTreeSet::new();
        fields(document, "", &mut found);
        assert!(!found.is_empty());
        let unknown = found.into_iter().filter(|(_, name)| !page.contains(name));
        missing.extend(unknown.map(|(path, _)| path));
    };
    for words in commands {
        check(&one(words));
    }
    // A damaged set has fields that a sound one has not.
    let (_, whole) = (0, std::fs::read(set).unwrap());
    let mut bytes = whole;
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    windlass_engine::durable::write(set.as_ref(), &bytes, 0o600).unwrap();
    for words in [&["verify", set][..], &["verify", set, "--open"]] {
        check(&one(words));
    }
    check(&one(&["mount", &sets, &mount]));
    check(&one(&["status"]));
    let unmounted = std::process::Command::new("umount").arg(&mount).status();
    assert!(unmounted.unwrap().success());
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
}

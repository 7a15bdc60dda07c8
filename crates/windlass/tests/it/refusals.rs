//! Bad input: a clear error, a hint, the right exit code, and nothing lost.

use crate::support::*;
use crate::trouble::grow;

/// Runs a command. Asserts its exit code, an `error:` line with `says`, and a `hint:` line.
fn refused(words: &[&str], code: i32, says: &str) {
    let output = windlass(words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    assert!(
        printed.contains("error: ") && printed.contains(says),
        "{words:?}: {printed}"
    );
    assert!(printed.contains("hint: "), "{words:?}: {printed}");
}

/// A word is empty because a variable of a script is. No server that happens to run is meant.
#[test]
fn an_empty_word_names_nothing() {
    let place = Place::new();
    let (db, sets) = place.ends();
    for empty in ["", "  "] {
        for words in [
            &["backup", empty, "--to", &sets][..],
            &["backup", "--dry-run", empty, "--to", &sets],
            &["check", empty],
            &["plan", empty],
            &["tune", empty, "--to", &sets],
        ] {
            refused(words, 2, "the name of the database is empty");
        }
    }
    for words in [
        &["backup", &db, "--to", ""][..],
        &["restore", "", "--into", &sets],
        &["restore", &sets, "--into", ""],
        &["verify", ""],
        &["open", ""],
        &["info", ""],
        &["mount", "", &sets],
        &["diff", &sets, ""],
        &["extract", "", "x", "--into", &sets],
    ] {
        let output = windlass(words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            text(&output)
        );
    }
}

/// No other server is asked with half a password, and nobody sees it.
#[test]
fn whether_a_password_has_the_last_at_of_a_word_is_not_guessed() {
    let place = Place::new();
    let sets = place.arg("sets");
    for word in [
        "host=/nonexistent password=se@cret",
        "postgresql:///shop?host=/nonexistent&password=se@cret",
    ] {
        for words in [
            &["backup", word, "--to", &sets][..],
            &["open", word, "--", "true"],
            &["diff", word, &sets],
            &["snapshot", "revert", word, "--yes"],
        ] {
            refused(words, 2, "can be part of the password");
            let printed = text(&windlass(words));
            assert!(!printed.contains("cret"), "{words:?}: {printed}");
        }
    }
}

#[test]
fn sources_and_devices_that_are_none_are_named() {
    let place = Place::new();
    let (db, sets) = place.ends();
    refused(&["backup", "nowhere.db", "--to", &sets], 2, "nowhere.db");
    refused(&["backup", &sets, "--to", &sets], 2, "is a directory");
    refused(
        &["backup", &db, "--to", &place.arg("no/such/place")],
        1,
        "there is no directory",
    );
    refused(
        &["backup", &db, "--to", "s3:///shop"],
        2,
        "names a bucket after",
    );
    refused(&["backup", &db, "--to", &sets, "--to", "nul"], 2, "nul");
    let twice = place.arg("twice.stripe");
    refused(
        &["backup", &db, "--to", &twice, "--to", &twice],
        2,
        "named twice",
    );
    assert!(
        place.sets().is_empty(),
        "nothing was left behind: {:?}",
        place.sets()
    );
}

#[test]
fn options_out_of_range_are_named() {
    let place = Place::new();
    let db = place.arg("shop.db");
    let run = |option: &str, value: &str, says: &str| {
        refused(&["backup", &db, "--to", "nul", option, value], 2, says);
    };
    run("--compress", "zip", "--compress");
    run("--compress", "zstd:99", "--compress");
    run("--transfer-size", "100000", "--transfer-size");
    run("--transfer-size", "8MiB", "--transfer-size");
    run("--block-size", "1000", "--block-size");
    run("--buffers", "1", "--buffers");
    run("--max-memory", "1MiB", "above the limit");
    run("--frame-size", "700000", "write 512KiB or 1MiB");
    run("--frame-size", "1MiB", "or --transfer-size 2MiB");
}

#[test]
fn a_stripe_that_is_there_is_not_overwritten_unasked() {
    let place = Place::new();
    let (db, stripe) = (place.arg("shop.db"), place.arg("one.stripe"));
    assert_eq!(
        windlass(&["backup", &db, "--to", &stripe]).status.code(),
        Some(0)
    );
    let before = std::fs::read(place.path("one.stripe")).unwrap();
    refused(&["backup", &db, "--to", &stripe], 1, "already there");
    assert_eq!(std::fs::read(place.path("one.stripe")).unwrap(), before);
    place.ledger.commit(21, 22);
    let words = ["backup", &db, "--to", &stripe, "--overwrite"];
    assert_eq!(windlass(&words).status.code(), Some(0));
    assert_eq!(place.restored(&place.path("one.stripe")), 22);
}

#[test]
fn a_restore_touches_nothing_that_is_there() {
    let place = Place::new();
    let set = place.back_up();
    let db = place.arg("shop.db");
    let before = std::fs::read(place.path("shop.db")).unwrap();
    refused(
        &["restore", set.to_str().unwrap(), "--into", &db],
        1,
        "shop.db",
    );
    assert_eq!(std::fs::read(place.path("shop.db")).unwrap(), before);
}

#[test]
fn damage_has_an_exit_code_of_its_own_and_leaves_no_half_restore() {
    let place = Place::new();
    let set = place.back_up();
    let mut bytes = std::fs::read(&set).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    #[allow(clippy::disallowed_methods)]
    std::fs::write(&set, bytes).unwrap();
    let name = set.to_str().unwrap();
    refused(&["verify", name], 4, "is damaged in 1 place");
    let into = place.arg("restored.db");
    refused(&["restore", name, "--into", &into], 4, "at offset");
    let left: Vec<_> = std::fs::read_dir(place.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("restored"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_missing_stripe_is_named_with_its_place() {
    let place = Place::new();
    let (a, b) = (place.arg("a.stripe"), place.arg("b.stripe"));
    let words = ["backup", &place.arg("shop.db"), "--to", &a, "--to", &b];
    assert_eq!(windlass(&words).status.code(), Some(0));
    std::fs::remove_file(&b).unwrap();
    refused(&["verify", &a], 4, &b);
    let info = windlass(&["info", &a]);
    assert_eq!(info.status.code(), Some(4));
    assert!(
        text(&info).contains("recoverable   1 of 2 stripes are sound"),
        "{}",
        text(&info)
    );
}

/// Flips one bit in the middle of each of `count` equal parts of a stripe.
fn damage(stripe: &std::path::Path, count: usize) {
    let mut bytes = std::fs::read(stripe).unwrap();
    let step = bytes.len() / 2 / count;
    (0..count).for_each(|part| bytes[4096 + part * step] ^= 1);
    #[allow(clippy::disallowed_methods, reason = "a fixture")]
    std::fs::write(stripe, bytes).unwrap();
}

#[test]
fn verify_lists_all_damage_and_what_it_costs() {
    let place = Place::new();
    grow(&place);
    let stripe = place.arg("one.stripe");
    let db = place.arg("shop.db");
    let words = ["backup", &db, "--to", &stripe, "--compress", "none"];
    assert_eq!(windlass(&words).status.code(), Some(0));
    damage(&place.path("one.stripe"), 3);
    let output = windlass(&["verify", &stripe]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    let lines = |start: &str| {
        printed
            .lines()
            .filter(|line| line.starts_with(start))
            .count()
    };
    assert_eq!(lines("damage        stripe 1"), 3, "{printed}");
    assert_eq!(lines("lost          shop.db: "), 1, "{printed}");
    assert!(printed.contains("(pages "), "{printed}");
    assert!(printed.contains("is damaged in 3 places"), "{printed}");
    let output = windlass(&["verify", &stripe, "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["damage_count"], 3);
    assert_eq!(report["damage"].as_array().unwrap().len(), 3);
    assert_eq!(report["damage"][0]["stripe"], 1);
    assert_eq!(report["damage"][0]["part"], "frame");
    assert_eq!(report["damage"][0]["files"][0]["path"], "shop.db");
    assert_eq!(report["lost"][0]["path"], "shop.db");
    // What is left: `info` still describes the set, and commands refuse it.
    let info = windlass(&["info", &stripe]);
    assert!(
        text(&info).contains("restorable, as far as"),
        "{}",
        text(&info)
    );
}

#[test]
fn verify_names_a_missing_stripe_as_info_counts_it() {
    let place = Place::new();
    let (a, b) = (place.arg("a.stripe"), place.arg("b.stripe"));
    let words = ["backup", &place.arg("shop.db"), "--to", &a, "--to", &b];
    assert_eq!(windlass(&words).status.code(), Some(0));
    std::fs::remove_file(&a).unwrap();
    for words in [vec!["verify", &b], vec!["verify", "--quick", &b]] {
        let printed = text(&windlass(&words));
        let line = format!("damage        stripe 1  {a}  is missing");
        assert!(printed.contains(&line), "{printed}");
    }
    refused(
        &["restore", &b, "--into", &place.arg("x.db")],
        4,
        "stripe 1 of set",
    );
    let info = text(&windlass(&["info", &b]));
    assert!(
        info.contains("cannot be restored: stripe 1 of set"),
        "{info}"
    );
}

#[test]
fn a_copy_of_a_stripe_is_called_a_copy() {
    let place = Place::new();
    let set = place.back_up();
    std::fs::copy(&set, place.path("sets/copy")).unwrap();
    let says = "is there twice: in ";
    refused(&["verify", &place.arg("sets")], 4, says);
    refused(
        &["restore", &place.arg("sets"), "--into", &place.arg("x.db")],
        4,
        says,
    );
}

#[test]
fn what_only_a_backup_decides_is_not_offered_elsewhere() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    for option in ["--block-size", "--frame-size", "--readers"] {
        let into = place.arg("x.db");
        for words in [vec!["verify", set], vec!["restore", set, "--into", &into]] {
            let output = windlass(&[words, vec![option, "4096"]].concat());
            assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output));
        }
    }
}

/// A backup of the log makes no set, and an option that does nothing is not passed over in silence.
/// The environment is for backups of all types.
#[test]
fn what_means_nothing_for_a_backup_of_the_log_is_refused() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let (events, mirror) = (place.arg("events"), place.arg(""));
    let log = ["backup", &db, "--to", &sets, "--type", "log"];
    for (option, value) in [
        ("--parity", "1"),
        ("--base", sets.as_str()),
        ("--strict", ""),
        ("--pages", "off"),
        ("--no-frame-proof", ""),
        ("--overwrite", ""),
        ("--mirror", mirror.as_str()),
        ("--max-rate", "1MiB"),
        ("--max-device-rate", "1MiB"),
        ("--events", events.as_str()),
        ("--metrics", "127.0.0.1:0"),
    ] {
        let more = [option, value];
        let more = &more[..1 + usize::from(!value.is_empty())];
        let says = format!("{option} has no meaning for a backup of the log");
        refused(&[&log[..], more].concat(), 2, &says);
    }
    assert_eq!(place.sets(), [""; 0]);
    let mut copy = command();
    copy.env("WINDLASS_EVENTS", &events)
        .env("WINDLASS_MAX_RATE", "1MiB");
    let output = copy.args(log).output().unwrap();
    // The place has no set that leads to the log.
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(!place.path("events").exists());
}

#[test]
fn what_is_announced_is_what_runs() {
    let place = Place::new();
    let set = place.back_up();
    let verified = text(&windlass(&["verify", "-v", set.to_str().unwrap()]));
    assert!(verified.contains("decompressors, 1 writer\n"), "{verified}");
    let into = place.arg("x.db");
    let restored = text(&windlass(&[
        "restore",
        "-v",
        set.to_str().unwrap(),
        "--into",
        &into,
    ]));
    assert!(restored.contains("8 writers"), "{restored}");
}

#[test]
fn a_rate_or_an_amount_without_its_unit_is_asked_back() {
    let place = Place::new();
    let db = place.arg("shop.db");
    for (option, value, meant) in [
        ("--max-rate", "10", "did you mean 10MiB/s?"),
        ("--max-device-rate", "200", "did you mean 200MiB/s?"),
        ("--max-memory", "512", "did you mean 512MiB?"),
        ("--transfer-size", "1", "did you mean 1MiB?"),
        ("--events-limit", "64", "did you mean 64MiB?"),
        ("--max-rate", ".5MiB", "write it like 0.5MiB"),
    ] {
        let output = windlass(&["backup", &db, "--to", "nul", option, value]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{option}: {printed}");
        assert!(
            printed.contains(meant) && printed.contains(option),
            "{printed}"
        );
    }
}

#[test]
fn threads_that_the_system_refuses_are_named_with_their_option() {
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let set = place.back_up();
    let mut nobody_else = None;
    if rustix::process::geteuid().is_root() {
        // The limit counts all processes of a user, also of other containers, and does not bind
        // root.
        nobody_else = Some(30_000 + std::process::id() % 30_000);
        for path in [
            place.dir.path(),
            &place.path("shop.db"),
            &place.path("sets"),
            &set,
        ] {
            std::os::unix::fs::chown(path, nobody_else, nobody_else).unwrap();
        }
    }
    let (db, set) = (place.arg("shop.db"), set.to_str().unwrap());
    let many = [
        "--threads",
        "1000",
        "--buffers",
        "2000",
        "--transfer-size",
        "64KiB",
    ];
    for (words, option) in [
        (
            vec!["backup", &db, "--to", "nul", "--readers", "1000"],
            "--readers",
        ),
        (
            [&["backup", &db, "--to", "nul"][..], &many].concat(),
            "--threads",
        ),
        ([&["verify", set][..], &many].concat(), "--threads"),
    ] {
        let mut limited = std::process::Command::new("bash");
        limited.args(["-c", "ulimit -u 40 && exec timeout 600 \"$@\"", "bash"]);
        limited.arg(env!("CARGO_BIN_EXE_windlass")).args(&words);
        limited.args(["--config", "/dev/null"]);
        nobody_else.map(|user| limited.uid(user).gid(user));
        let output = limited.output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(
            printed.contains("error: cannot start one more "),
            "{printed}"
        );
        assert!(
            printed.contains(&format!("hint: Lower {option}, or raise")),
            "{printed}"
        );
    }
}

#[test]
fn a_set_of_a_day_to_come_or_of_no_day_is_refused() {
    let place = Place::new();
    place.back_up();
    let (sets, into) = (place.arg("sets"), place.arg("x.db"));
    let restore = |day: &str| {
        let output = windlass(&["restore", &sets, "--into", &into, "--set", day]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        text(&output)
    };
    assert!(restore("2099-01-01").contains("2099-01-01 23:59:59 is in the future"));
    assert!(restore("2026-11-31").contains("there is no day 2026-11-31"));
}

#[test]
fn a_source_that_is_gone_is_named_with_what_names_it_and_as_json() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let (gone, sets) = (place.arg("gone.db"), place.arg("sets"));
    let toml = format!("[database.shop]\nsource = {gone:?}\nto = [{sets:?}]\n");
    windlass_engine::durable::write(config.as_ref(), toml.as_bytes(), 0o644).unwrap();
    for command in ["backup", "check"] {
        let words = [command, "shop", "--config", &config];
        refused(&words, 1, &format!("the file {gone} does not exist"));
        let printed = text(&windlass(&words));
        assert!(printed.contains("[database.shop]"), "{printed}");
    }
    refused(&["backup", &gone, "--to", &sets], 1, "does not exist");
    for wrong in ["nowhere.db", &gone] {
        let output = windlass(&["backup", wrong, "--to", &sets, "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let code = output.status.code().map(i64::from);
        assert_eq!(document["exit_code"].as_i64(), code, "{document}");
    }
    let output = windlass(&["backup", "--nonsense", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], 2, "{document}");
}

#[test]
fn a_directory_that_is_missing_or_is_a_file_is_named_before_a_restore() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let missing = place.arg("nodir");
    let into = format!("{missing}/x.db");
    let says = format!("there is no directory {missing}");
    refused(&["restore", set, "--into", &into], 1, &says);
    let slash = format!("{}/", place.arg("shop.db"));
    let says = format!("there is no directory {slash}");
    refused(&["restore", set, "--into", &slash], 1, &says);
}

#[test]
fn a_usage_line_names_no_option_that_the_environment_sets() {
    let printed = text(&windlass(&["backup", "--nonsense"]));
    assert!(printed.contains("Usage: windlass backup"), "{printed}");
    assert!(!printed.contains("--config <FILE>"), "{printed}");
    for words in [&["version"][..], &["stop"], &["backup", "--stanza"]] {
        let printed = text(&windlass(words));
        assert!(!printed.contains("tip: "), "{words:?}: {printed}");
    }
    let printed = text(&windlass(&["restor"]));
    assert!(printed.contains("'restore'"), "{printed}");
}

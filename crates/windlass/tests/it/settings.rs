//! Settings that do not come from the command line but from the environment and from files.

use std::process::Output;

use crate::support::*;

fn with(variable: (&str, &str), words: &[&str]) -> Output {
    let mut command = command();
    command.env(variable.0, variable.1).args(words);
    command.output().unwrap()
}

/// The variables of a command's flags, found in its help: options without a value.
fn flags(command: &str) -> Vec<String> {
    let help = text(&windlass(&[command, "--help"]));
    let mut flags = Vec::new();
    let mut takes_value = true;
    for line in help.lines() {
        // This is the option's own line, not a line of its description.
        let start = line.trim_start();
        if start.starts_with("--") || start.split(", ").nth(1).is_some_and(is_long) {
            takes_value = line.contains('<');
        }
        let variable = line.trim().strip_prefix("[env: ");
        if let Some(variable) = variable.filter(|_| !takes_value) {
            let (name, _) = variable.split_once('=').unwrap();
            flags.push(name.to_owned());
        }
    }
    flags
}

fn is_long(word: &str) -> bool {
    word.starts_with("--")
}

#[test]
fn a_flag_of_the_environment_is_yes_or_no() {
    let place = Place::new();
    let (db, stripe) = (place.arg("shop.db"), place.arg("one.stripe"));
    let words = ["backup", &db, "--to", &stripe];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let flags = flags("backup");
    assert!(flags.len() > 5, "{flags:?}");
    for flag in &flags {
        for word in ["nein", "ja", "2", "", "falsch"] {
            let output = with((flag, word), &words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(2), "{flag}={word}: {printed}");
            assert!(printed.contains("true, yes, on or 1"), "{printed}");
        }
    }
    for (word, code) in [("no", 1), ("0", 1), ("off", 1), ("yes", 0), ("on", 0)] {
        let output = with(("WINDLASS_OVERWRITE", word), &words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{word}: {}",
            text(&output)
        );
    }
}

#[test]
fn a_name_that_no_option_has_is_refused_before_anything_is_done() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let words = ["backup", &db, "--to", &sets];
    let output = with(("WINDLASS_MAX_RAT", "1MiB"), &words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let says = "error: no option is called WINDLASS_MAX_RAT in the environment\n\
                hint: Did you mean WINDLASS_MAX_RATE?";
    assert!(printed.contains(says), "{printed}");
    assert!(place.sets().is_empty());
    // Variables of other commands, of tests and of hooks are fine, and so is help.
    for name in ["WINDLASS_INTO", "WINDLASS_TEST_X", "WINDLASS_HOOK_EVENT"] {
        let output = with((name, "x"), &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    let help = with(("WINDLASS_MAX_RAT", "1MiB"), &["backup", "--help"]);
    assert_eq!(help.status.code(), Some(0));
}

#[test]
fn a_value_of_the_environment_is_checked_whatever_command_runs() {
    for (name, value, says) in [
        ("WINDLASS_MAX_RATE", "fast", "invalid value 'fast'"),
        ("WINDLASS_METRICS", "zz", "is no address"),
        ("WINDLASS_EMULATE", "source=floppy", "storage model"),
        ("WINDLASS_TO", "", "has no name"),
        ("WINDLASS_COMPRESS", "lz5", "is no codec"),
        ("WINDLASS_BEFORE", "sh -c 'x", "quote without its end"),
        ("WINDLASS_OVERWRITE", "nein", "true, yes, on or 1"),
    ] {
        let output = with((name, value), &["status"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {printed}");
        let named = printed.contains(&format!("error: {name} in the environment: "));
        assert!(named && printed.contains(says), "{name}={value}: {printed}");
    }
    let right = with(("WINDLASS_EMULATE", "source=hdd target=s3"), &["status"]);
    assert_eq!(right.status.code(), Some(0), "{}", text(&right));
}

#[test]
fn a_configuration_that_never_ends_is_refused() {
    for path in ["/dev/full", "/dev/zero"] {
        let mut command = std::process::Command::new("timeout");
        command.args([
            "600",
            env!("CARGO_BIN_EXE_windlass"),
            "status",
            "--config",
            path,
        ]);
        let output = command.output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{path}: {printed}");
        assert!(
            printed.contains("larger than 1024 KiB"),
            "{path}: {printed}"
        );
    }
}

#[test]
fn other_files_that_never_end_are_refused_too() {
    let services = ("PGSERVICEFILE", "/dev/zero");
    let authorities = ("PGSSLROOTCERT", "/dev/zero");
    let tls = "postgresql://127.0.0.1:1/?sslmode=verify-ca";
    let runs = [
        (vec!["events", "/dev/zero"], ("PGUSER", "x")),
        (vec!["lab", "sweep", "--from", "/dev/zero"], ("PGUSER", "x")),
        (vec!["backup", "service=x", "--to", "nul"], services),
        (vec!["backup", tls, "--to", "nul"], authorities),
    ];
    for (words, (name, value)) in runs {
        let mut command = std::process::Command::new("timeout");
        command
            .args(["600", env!("CARGO_BIN_EXE_windlass")])
            .args(&words);
        command.env(name, value).env("WINDLASS_CONFIG", "/dev/null");
        let output = command.output().unwrap();
        let printed = text(&output);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{words:?}: {printed}"
        );
        // Some readers refuse the device at once, the others stop at their limit.
        let is_refused = printed.contains(" KiB") || printed.contains("not a regular file");
        assert!(is_refused, "{words:?}: {printed}");
    }
}

#[test]
fn a_mistake_in_the_configuration_is_shown_with_its_line() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let text_of = "[backup]\n# Not too much of the disk.\nmax-rat = \"5MiB\"\n";
    #[allow(clippy::disallowed_methods, reason = "a fixture")]
    std::fs::write(&config, text_of).unwrap();
    let output = windlass(&["status", "--config", &config]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "error: configuration {config}, line 3: no option of windlass backup is called max-rat\n\
         hint: Did you mean max-rate? `windlass backup --help` lists all.\n"
    );
    assert_eq!(text(&output), expected);
}

#[test]
fn a_configuration_can_come_from_a_pipe() {
    let place = Place::new();
    let script = "exec \"$0\" backup \"$1\" --to nul --config <(printf 'quiet = true\\n')";
    let mut shell = around("bash");
    let words = [
        "-c",
        script,
        env!("CARGO_BIN_EXE_windlass"),
        &place.arg("shop.db"),
    ];
    let output = shell.args(words).output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output)),
        (Some(0), String::new())
    );
}

#[test]
fn a_wrong_word_from_a_file_or_the_environment_is_refused_with_where_it_stands() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let text_of_config = "[backup]\naccept = [\"configuration-outsid\"]\n";
    windlass_engine::durable::write(config.as_ref(), text_of_config.as_bytes(), 0o600).unwrap();
    let output = windlass(&["info", &place.arg("sets"), "--config", &config]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let says = "hint: Did you mean configuration-outside? It takes";
    assert!(printed.contains(says), "{printed}");
    let set = |typed: &[&str]| {
        let mut command = command();
        command.env("WINDLASS_QUIET", "maybe");
        let output = command
            .args(["info", &place.arg("sets")])
            .args(typed)
            .output();
        text(&output.unwrap())
    };
    let printed = set(&[]);
    assert!(
        printed.contains("for 'WINDLASS_QUIET in the environment'"),
        "{printed}"
    );
}

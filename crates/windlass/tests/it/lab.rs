//! `windlass plan` and `windlass lab probe`, as their users see them.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::{Place, command, interrupted_at_its_first_line, text};

/// Runs the command with a state directory of its own.
fn run(state: &Path, words: &[&str]) -> Output {
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", state).args(words);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_plan_has_minutes_and_a_limit_for_every_alternative() {
    let place = Place::new();
    let words = "plan --used-bytes 1TB --ratio 2 --source gp2:1.5TB --target s3:100MB/s \
                 --files 1,4 --compress none,zstd --cores 8 --within 2h --json";
    let words: Vec<_> = words.split_whitespace().collect();
    let plan = json(&run(&place.path("state"), &words));
    let alternatives = plan["alternatives"].as_array().unwrap();
    let minutes = |index: usize| alternatives[index]["minutes"].as_f64().unwrap().round();
    let stage = |index: usize| alternatives[index]["limit"]["stage"].as_str().unwrap();
    assert_eq!([0, 1, 2, 3].map(minutes), [167.0, 64.0, 83.0, 64.0]);
    assert_eq!(
        [0, 1, 2, 3].map(stage),
        ["device", "source", "device", "source"]
    );
    // One compressed file ends within the window, and stores the fewest bytes.
    assert_eq!(plan["choice"]["index"], 2);
    assert_eq!(plan["choice"]["meets"], true);
}

#[test]
fn a_plan_in_which_nothing_fits_says_so_and_ends_with_exit_code_3() {
    let place = Place::new();
    let words = "plan --used-bytes 1TB --source hdd --target nul --within";
    let words: Vec<_> = words.split(' ').collect();
    for (within, code) in [("10m", 3), ("3h", 0)] {
        for format in [&[][..], &["--json"]] {
            let output = run(
                &place.path("state"),
                &[&words[..], &[within], format].concat(),
            );
            assert_eq!(output.status.code(), Some(code), "{}", text(&output));
            let said = String::from_utf8_lossy(&output.stderr);
            let warned = said.contains("warning: nothing here ends within 10 min");
            assert_eq!(warned, code == 3, "{said}");
            if !format.is_empty() {
                let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(plan["choice"]["meets"], code == 0);
            }
        }
    }
}

#[test]
fn a_time_of_less_than_a_second_is_too_short_to_predict() {
    let place = Place::new();
    let words = "plan --used-bytes 10MB --source nul --target rate:100MB/s";
    let words: Vec<_> = words.split(' ').collect();
    let output = run(&place.path("state"), &words);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("sure          too short to predict"),
        "{shown}"
    );
    assert!(shown.contains(" < 1 s "), "{shown}");
    let plan = json(&run(
        &place.path("state"),
        &[&words[..], &["--json"]].concat(),
    ));
    let one = &plan["alternatives"][0];
    assert_eq!(one["too_short"], true);
    for key in ["seconds", "minutes", "rate", "minutes_low", "minutes_high"] {
        assert!(one[key].is_null(), "{key}: {one}");
    }
}

#[test]
fn a_restore_is_planned_by_the_sizes_of_its_files() {
    let place = Place::new();
    let words = "plan --restore --used-bytes 100GB --file-bytes 200GB --source rate:1GB/s \
                 --target rate:100MB/s --compress none --cores 4 --json";
    let words: Vec<_> = words.split_whitespace().collect();
    let plan = json(&run(&place.path("state"), &words));
    let minutes = plan["alternatives"][0]["minutes"].as_f64().unwrap();
    assert!((minutes / (2000.0 / 60.0) - 1.0).abs() < 0.01, "{minutes}");
    assert_eq!(plan["alternatives"][0]["limit"]["stage"], "target");
}

#[test]
fn a_chain_is_planned_set_by_set() {
    let place = Place::new();
    let words = "plan --used-bytes 100GB --source nul --target rate:100MB/s --compress none \
                 --cores 4 --chain diff:10GBx6,log:1GBx24";
    let words: Vec<_> = words.split_whitespace().collect();
    let state = place.path("state");
    let shown = text(&run(&state, &words));
    assert!(shown.contains("whole chain"), "{shown}");
    let plan = json(&run(&state, &[&words[..], &["--json"]].concat()));
    let chain = &plan["alternatives"][0]["chain"];
    let minutes = chain["minutes"].as_f64().unwrap();
    assert!((minutes / (1840.0 / 60.0) - 1.0).abs() < 0.01, "{minutes}");
    assert_eq!(chain["sets"][1]["kind"], "log");
    for bad in ["full:1GB", "diff", "log:0", "log:1GBx", "diff:1GBx0"] {
        let output = run(&state, &["plan", "--used-bytes", "1GB", "--chain", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad}: {}", text(&output));
    }
}

#[test]
fn a_database_is_measured() {
    let place = Place::new();
    let database = place.arg("shop.db");
    let words = [
        "plan", &database, "--source", "hdd", "--target", "nul", "--json",
    ];
    let plan = json(&run(&place.path("state"), &words));
    let file = std::fs::metadata(place.path("shop.db")).unwrap().len();
    assert!(plan["used_bytes"].as_u64().unwrap() >= file);
    let stored = plan["alternatives"][0]["stored_bytes"].as_f64().unwrap();
    assert!(stored > 0.0 && stored < plan["used_bytes"].as_f64().unwrap());
    let sets = place.arg("sets");
    let words = [&words[..], &["--type", "diff", "--in", &sets]].concat();
    let plan = json(&run(&place.path("state"), &words));
    let note = plan["notes"][0].as_str().unwrap();
    assert!(
        note.starts_with("would be a full backup: there is no full"),
        "{note}"
    );
}

#[test]
fn what_cannot_be_planned_is_a_matter_of_usage() {
    let place = Place::new();
    for (words, says) in [
        ("plan --source hdd --target nul", "no size"),
        ("plan --used-bytes 1TB --target nul", "--source is missing"),
        (
            "plan shop.db --type diff --source hdd",
            "where the sets are",
        ),
        ("plan --used-bytes 1TB --type diff --in x", "no size"),
        (
            "plan --used-bytes 1TB --source gp9 --target nul",
            "no kind of storage",
        ),
        (
            "plan --used-bytes 1TB --source /var/tmp --target nul",
            "has not been probed",
        ),
        (
            "plan --used-bytes 1TB --source hdd --target nul --instance x",
            "not known",
        ),
    ] {
        let words: Vec<_> = words.split_whitespace().collect();
        let output = run(&place.path("state"), &words);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(says), "{}", text(&output));
    }
    assert!(!place.path("state").exists(), "a plan writes nothing");
}

#[test]
fn a_probe_is_kept_and_planned_with() {
    let place = Place::new();
    let (state, sets) = (place.path("state"), place.arg("sets"));
    let words = [
        "lab",
        "probe",
        &sets,
        "--budget",
        "1s",
        "--scratch-bytes",
        "16MiB",
        "--json",
    ];
    let found = json(&run(&state, &words));
    assert_eq!(found["kept"].as_array().unwrap().len(), 2);
    assert!(found["io"]["points"].as_array().unwrap().len() > 8);
    assert!(
        found["cpu"]["memory"]["crc32c_bytes_per_second"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(
        place.sets().is_empty(),
        "something was left: {:?}",
        place.sets()
    );
    let words = [
        "plan",
        "--used-bytes",
        "1TB",
        "--source",
        &sets,
        "--target",
        "nul",
        "--json",
    ];
    let plan = json(&run(&state, &words));
    assert!(
        plan["source"][0]
            .as_str()
            .unwrap()
            .starts_with("profile of ")
    );
    let accuracy = json(&run(&state, &["plan", "--accuracy", "--json"]));
    assert_eq!(accuracy["runs"], 0);
}

#[test]
fn an_interrupted_probe_leaves_nothing() {
    let place = Place::new();
    let (state, sets) = (place.path("state"), place.arg("sets"));
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", &state);
    command.args([
        "lab",
        "probe",
        &sets,
        "--budget",
        "10m",
        "--scratch-bytes",
        "16MiB",
    ]);
    let line = interrupted_at_its_first_line(&mut command);
    assert!(line.contains("probing"), "{line}");
    assert!(place.sets().is_empty());
    assert!(!state.exists(), "half a probe is no profile");
}

#[test]
fn a_rehearsal_stands_beside_its_plan_and_leaves_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("there")).unwrap();
    let there = place.arg("there");
    let words = [
        "lab",
        "rehearse",
        &there,
        "--bytes",
        "16MiB",
        "--only",
        "slow device",
        "--json",
    ];
    let found = json(&run(&place.path("state"), &words));
    let runs = found["runs"].as_array().unwrap();
    let of = |name: &str| -> Vec<&Value> {
        let own = runs.iter().filter(|run| run["setup"] == name);
        own.collect()
    };
    assert_eq!((of("slow device").len(), runs.len()), (2, 6));
    // Nothing is compressed here. So the plan does not depend on how fast this machine's cores are
    // at the moment, and 16 MiB need their time at 40 MB/s, in the plan and in the run.
    for run in of("slow device") {
        let seconds = |key: &str| run[key].as_f64().unwrap();
        assert!(seconds("predicted_seconds") > 0.41, "{run}");
        assert!(seconds("measured_seconds") > 0.41, "{run}");
        assert_eq!(run["predicted_limit"], "device");
    }
    // What binds the real runs, and the plans of those that compress, depends on what else the
    // machine does meanwhile.
    for run in runs {
        let words = |key: &str| run[key].as_str().unwrap().to_owned();
        assert!(!words("predicted_limit").is_empty() && !words("measured_limit").is_empty());
    }
    assert!(found["error_worst"].as_f64().unwrap() >= found["error_median"].as_f64().unwrap());
    let left = std::fs::read_dir(place.path("there")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn what_the_lab_cannot_use_is_named_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // Nobody runs the commands; nothing here belongs to nobody.
    for path in ["", "sets"] {
        std::fs::set_permissions(place.path(path), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let (sets, db, state) = (place.arg("sets"), place.arg("shop.db"), place.arg("state"));
    std::fs::create_dir(&state).unwrap();
    let nobody = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
        command.env("WINDLASS_CONFIG", "/dev/null");
        command.env("WINDLASS_STATE_DIR", &state).output().unwrap()
    };
    let small = ["--budget", "1s", "--scratch-bytes"];
    for (words, code, said) in [
        (
            &["lab", "probe", &sets, small[0], small[1], small[2], "16MiB"][..],
            1,
            "hint: Run the command as a user who",
        ),
        (
            &["lab", "probe", &sets, small[0], small[1], small[2], "1MiB"],
            2,
            "1 MiB is less than 16 MiB",
        ),
        (
            &[
                "lab", "probe", &sets, small[0], small[1], small[2], "1000TiB",
            ],
            1,
            "needs 1000 TiB of free space",
        ),
        (
            &["lab", "rehearse", &sets],
            1,
            "hint: Name a directory that can be written",
        ),
        (&["lab", "rehearse", &db], 2, "is not a directory"),
        (
            &["lab", "rehearse", "/nonexistent"],
            2,
            "is not a directory",
        ),
        (
            &["lab", "rehearse", &sets, "--bytes", "1000TiB"],
            1,
            "of free space",
        ),
        (
            &["lab", "rehearse", &sets, "--at-most", "0.1"],
            2,
            "--at-most takes two numbers",
        ),
        (&["events", &sets], 1, "hint: Name a file"),
        (&["events", "/nonexistent"], 1, "hint: Name a file"),
    ] {
        let output = nobody(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        assert!(text(&output).contains(said), "{words:?}: {}", text(&output));
        assert!(
            text(&output).contains("hint: "),
            "{words:?}: {}",
            text(&output)
        );
        assert!(place.sets().is_empty(), "{words:?}");
    }
    // A bound that does not hold is an error on standard error; the result is one JSON object.
    let words = [
        "--only",
        "latency of the device",
        "--at-most",
        "0,0",
        "--json",
    ];
    let words = [&["lab", "rehearse", &sets, "--bytes", "1MiB"][..], &words].concat();
    let output = run(&place.path("state"), &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
}

#[test]
fn each_row_of_a_rehearsal_is_printed_once() {
    let place = Place::new();
    let words = ["--bytes", "1MiB", "--only", "latency of the device"];
    let there = place.arg("sets");
    let words = [&["lab", "rehearse", &there][..], &words].concat();
    let shown = text(&run(&place.path("state"), &words));
    for row in [
        "latency of the device | backup |",
        "latency of the device | restore |",
    ] {
        assert_eq!(shown.matches(row).count(), 1, "{row}: {shown}");
    }
    assert!(shown.contains("1 of 1  latency of the device"), "{shown}");
}

#[test]
fn tuning_finds_a_setting_and_writes_it_where_backups_read_it() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let text = format!(
        "# Ours.\n[database.shop]\nsource = {:?}\nto = [{:?}]\n",
        place.arg("shop.db"),
        place.arg("sets")
    );
    windlass_engine::durable::write(Path::new(&config), text.as_bytes(), 0o600).unwrap();
    let state = place.path("state");
    let words = "tune shop --compress none,zstd:1 --write --emulate target=rate:4MB/s --json";
    let words = ["--config", &config].into_iter().chain(words.split(' '));
    let tuned = json(&run(&state, &words.collect::<Vec<_>>()));
    // Trials leave nothing behind on the device.
    let trials = tuned["trials"].as_array().unwrap();
    assert!(trials.len() >= 2 && place.sets().is_empty());
    let best = &tuned["best"]["setting"];
    assert_eq!(best["codec"], "zstd:1", "a slow device is spared bytes");
    let read = |value: &Value| value["bytes"].as_u64().unwrap();
    assert!(read(&tuned) >= trials.iter().map(read).sum());
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(
        written.starts_with("# Ours.\n[database.shop]\n"),
        "{written}"
    );
    // Every command that takes a database also takes the name of a configured one.
    let plan = "plan shop --source hdd --target nul --json";
    let plan = ["--config", &config].into_iter().chain(plan.split(' '));
    let plan = json(&run(&state, &plan.collect::<Vec<_>>()));
    assert!(plan["used_bytes"].as_u64().unwrap() > 0);
    let backup = json(&run(
        &state,
        &["--config", &config, "backup", "shop", "--json"],
    ));
    let advised = &tuned["advised"];
    assert_eq!(backup["buffers"], advised["buffers"]);
    assert_eq!(backup["transfer_bytes"], advised["transfer_bytes"]);
    assert_eq!(place.sets().len(), 1);
}

#[test]
fn tuning_never_changes_where_a_configured_database_is_backed_up_to() {
    let place = Place::new();
    let (config, state) = (place.arg("windlass.toml"), place.path("state"));
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    std::fs::create_dir(place.path("other")).unwrap();
    let text = format!("[database.shop]\nsource = {db:?}\nto = [{sets:?}]\n");
    windlass_engine::durable::write(Path::new(&config), text.as_bytes(), 0o600).unwrap();
    let tune = |words: &[&str]| {
        let words = [&["--config", &config, "tune"], words, &TUNE].concat();
        assert_eq!(run(&state, &words).status.code(), Some(0), "{words:?}");
        std::fs::read_to_string(&config).unwrap()
    };
    // The last one names the same database by its path; its name there is the file's.
    for (database, to) in [("shop", "nul"), ("shop", &place.arg("other")), (&db, "nul")] {
        let written = tune(&[database, "--to", to]);
        assert!(
            written.starts_with(&text),
            "{database} --to {to}: {written}"
        );
        assert!(written.contains("compress = \"none\""), "{written}");
    }
    // A new database gets an absolute source, and no device that keeps nothing.
    let written = tune(&[&db, "--name", "trial", "--to", "nul"]);
    let (_, new) = written.split_once("[database.trial]\n").unwrap();
    assert!(
        new.starts_with(&format!("source = {db:?}\ncompress")),
        "{new}"
    );
    let written = tune(&[&db, "--name", "kept", "--to", &sets]);
    let (_, new) = written.split_once("[database.kept]\n").unwrap();
    let expected = format!("source = {db:?}\nto = [{sets:?}]\ncompress");
    assert!(new.starts_with(&expected), "{new}");
}

/// Tunes for a moment, with few trials, and writes the result.
const TUNE: [&str; 7] = [
    "--write",
    "--compress",
    "none",
    "--trial-bytes",
    "1MiB",
    "--budget",
    "1s",
];

/// Without a database nobody knows whether its pages will be taken apart.
#[test]
fn a_plan_without_a_database_says_what_its_ratios_are_of() {
    let place = Place::new();
    let words = "plan --used-bytes 1TB --source hdd --target nul";
    let words: Vec<_> = words.split(' ').collect();
    let output = run(&place.path("state"), &words);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let note = "the ratio of each codec is that of TPC-H on one core of an AMD EPYC, with pages as \
                they are";
    assert!(shown.contains(note), "{shown}");
}

/// Without it the backup would not do what the trials did.
#[test]
fn tuning_names_the_way_of_pages_that_its_trials_had() {
    let place = Place::new();
    let tune = |config: &str, more: &[&str]| {
        let config = place.arg(config);
        let source = format!("[database.shop]\nsource = {:?}\n", place.arg("shop.db"));
        windlass_engine::durable::write(Path::new(&config), source.as_bytes(), 0o600).unwrap();
        let words = ["--config", &config, "tune", "shop", "--to", "nul"];
        let output = run(
            &place.path("state"),
            &[&words[..], more, &TUNE[..]].concat(),
        );
        let shown = text(&output);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        (shown, std::fs::read_to_string(&config).unwrap())
    };
    let (shown, written) = tune("usual.toml", &[]);
    assert!(!shown.contains("--pages"), "{shown}");
    assert!(!written.contains("pages"), "{written}");
    let (shown, written) = tune("asked.toml", &["--pages", "auto"]);
    let used = "use           --compress none --pages auto --buffers";
    assert!(shown.contains(used), "{shown}");
    assert!(written.contains("pages = \"auto\""), "{written}");
}

#[test]
fn tuning_creates_the_configuration_that_is_not_there_yet() {
    let place = Place::new();
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    // The paths are relative, and the backup may start anywhere.
    command.current_dir(place.path(""));
    command.args([
        "--config",
        "etc/new.toml",
        "tune",
        "shop.db",
        "--to",
        "sets",
    ]);
    let output = command.args(TUNE).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let config = place.path("etc/new.toml");
    assert_eq!(mode(&config), 0o644);
    let written = std::fs::read_to_string(&config).unwrap();
    let real = |name: &str| place.path(name).canonicalize().unwrap();
    let (db, sets) = (real("shop.db"), real("sets"));
    let whose = format!("[database.shop]\nsource = {db:?}\nto = [{sets:?}]\n");
    assert!(written.starts_with(&whose), "{written}");
    // Every other command still wants the file that it is told to read.
    let missing = place.arg("missing.toml");
    let words = ["--config", &missing, "tune", "shop", "--to", "nul"];
    assert_eq!(run(&place.path("state"), &words).status.code(), Some(2));
    let backup = ["--config", &place.arg("etc/new.toml"), "backup", "shop"];
    let output = run(&place.path("state"), &backup);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn tuning_leaves_the_configuration_to_its_owner_and_its_readers() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let place = Place::new();
    let (config, path) = (place.arg("windlass.toml"), place.path("windlass.toml"));
    for (rights, owner) in [(0o600, 0), (0o640, 65534), (0o666, 65534)] {
        windlass_engine::durable::write(&path, b"", 0o600).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(rights)).unwrap();
        let words = [
            "--config",
            &config,
            "tune",
            &place.arg("shop.db"),
            "--to",
            "nul",
        ];
        let output = run(&place.path("state"), &[&words[..], &TUNE].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let found = path.metadata().unwrap();
        assert_eq!(
            (mode(&path), found.uid(), found.gid()),
            (rights, owner, owner)
        );
    }
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777
}

#[test]
fn tuning_begins_with_the_setting_that_the_configuration_has() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let words = format!(
        "[backup]\nreaders = 1\n[database.shop]\nsource = {:?}\ncompress = \"lz4\"\nbuffers = 9\n",
        place.arg("shop.db")
    );
    windlass_engine::durable::write(Path::new(&config), words.as_bytes(), 0o600).unwrap();
    let tune = |more: &[&str]| {
        let words = ["--config", &config, "tune", "shop", "--to", "nul"];
        run(&place.path("state"), &[&words, &TUNE[1..], more].concat())
    };
    let tuned = json(&tune(&["--json"]));
    assert_eq!(tuned["first_is_configured"], true);
    let first = &tuned["first"]["setting"];
    assert_eq!(
        (&first["codec"], &first["buffers"], &first["readers"]),
        (&"lz4".into(), &9.into(), &1.into())
    );
    let (best, first) = (&tuned["best"]["rate"], &tuned["first"]["rate"]);
    assert!(best.as_f64() >= first.as_f64(), "{tuned}");
    let shown = text(&tune(&[]));
    assert!(shown.contains("present       lz4"), "{shown}");
}

#[test]
fn tuning_without_a_gain_leaves_the_present_setting_in_the_configuration() {
    let place = Place::new();
    let config = place.arg("windlass.toml");
    let source = place.arg("shop.db");
    let words = format!("[database.shop]\nsource = {source:?}\ncompress = \"lz4\"\n");
    windlass_engine::durable::write(Path::new(&config), words.as_bytes(), 0o600).unwrap();
    let tune = |more: &[&str]| {
        // So few bytes that there are too few trials to show anything.
        let few = ["--budget-bytes", "64KiB", "--write", "--to", "nul"];
        let words = [&["--config", &config, "tune", "shop"], &few[..], more].concat();
        run(&place.path("state"), &words)
    };
    let output = tune(&[]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let says = "written       nothing: the present setting stays";
    assert!(shown.contains(says), "{shown}");
    assert!(shown.contains("use           --compress lz4"), "{shown}");
    let tuned = json(&tune(&["--json"]));
    assert_eq!(tuned["written"], Value::Null);
    assert_eq!(tuned["advised"]["codec"], "lz4");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), words);
}

#[test]
fn tuning_without_devices_is_a_matter_of_usage() {
    let place = Place::new();
    let found = run(&place.path("state"), &["tune", &place.arg("shop.db")]);
    assert_eq!(found.status.code(), Some(2), "{}", text(&found));
}

#[test]
fn a_run_says_how_near_it_came_to_what_was_probed() {
    let place = Place::new();
    let (state, database, sets) = (place.path("state"), place.arg("shop.db"), place.arg("sets"));
    let backup = |extra: &[&str]| {
        let words = [
            "backup",
            &database,
            "--to",
            &sets,
            "--compress",
            "none",
            // Together smaller than the database, so that its storage has to show what it can do.
            "--transfer-size",
            "64KiB",
            "--json",
        ];
        json(&run(&state, &[&words, extra].concat()))
    };
    let before = backup(&[]);
    let probe = [
        "lab",
        "probe",
        &sets,
        "--budget",
        "2s",
        "--scratch-bytes",
        "64MiB",
        "--json",
    ];
    json(&run(&state, &probe));
    for (report, probed) in [(before, false), (backup(&[]), true)] {
        let stage = report["limit"]["stage"].as_str().unwrap();
        let on_storage = ["source", "device"].contains(&stage);
        let on_cores = ["compressor", "reader"].contains(&stage);
        let share = &report["limit"]["share_of_probed"];
        assert_eq!(
            share.is_number(),
            on_cores || (on_storage && probed),
            "{report}"
        );
        let says = report["verdict"]
            .as_str()
            .unwrap()
            .contains("probed, it can do");
        assert_eq!(says, on_storage && probed);
    }
    // Emulated storage is not the storage that was probed.
    let emulated = backup(&["--emulate", "target=rate:1MB/s"]);
    assert_eq!(emulated["limit"]["stage"], "device");
    assert!(emulated["limit"]["share_of_probed"].is_null());
}

fn rates_times(profile: &mut Value, factor: f64) {
    for point in profile["points"].as_array_mut().unwrap() {
        let rate = point["bytes_per_second"].as_f64().unwrap();
        point["bytes_per_second"] = (rate * factor).into();
    }
}

#[test]
fn a_probe_that_found_less_replaces_no_better_one_unless_told_to() {
    let place = Place::new();
    let state = place.path("state");
    let here = place.path("").display().to_string();
    let words = [
        "lab",
        "probe",
        &here,
        "--budget",
        "1s",
        "--scratch-bytes",
        "16MiB",
        "--json",
    ];
    let first = json(&run(&state, &words));
    assert!(first["io"]["knees"][0].get("spread").is_some(), "{first}");
    let kept = first["kept"].as_array().unwrap().iter();
    let file = kept
        .map(|path| path.as_str().unwrap())
        .find(|path| !path.ends_with("cpu.json"));
    let file = file.unwrap().to_owned();
    let mut better: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    rates_times(&mut better, 1000.0);
    let better = better.to_string();
    windlass_engine::durable::write(Path::new(&file), better.as_bytes(), 0o600).unwrap();
    let again = json(&run(&state, &words));
    let said = again["not_kept"].to_string();
    assert!(
        said.contains("sequential read") && said.contains("--replace"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), better);
    let replaced = json(&run(&state, &[&words[..], &["--replace"]].concat()));
    assert_eq!(replaced["not_kept"], serde_json::json!([]));
    assert_ne!(std::fs::read_to_string(&file).unwrap(), better);
}

#[test]
fn a_probe_of_what_is_not_there_names_it_and_keeps_nothing() {
    let place = Place::new();
    let state = place.path("state");
    let output = run(&state, &["lab", "probe", "/nonexistent/disk"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("cannot probe /nonexistent/disk: No such file"));
    assert!(!state.exists());
}

#[test]
fn what_cannot_be_understood_ends_with_exit_code_2_everywhere() {
    let place = Place::new();
    for (words, said) in [
        (
            "plan --used-bytes 1TB --source hdd --target s3 --within 2",
            "2 what? Give a unit, e.g. 2h",
        ),
        (
            "plan --used-bytes 1TB --source gp2:100TB --target s3",
            "from 1 GiB to 16 TiB",
        ),
        (
            "plan --used-bytes 1TB --source bla --target s3",
            "no kind of storage",
        ),
        (
            "plan --used-bytes 1TB --source /nonexistent --target s3",
            "/nonexistent: No such file",
        ),
        ("plan --used-bytes 1TB --target s3", "--source is missing"),
        (
            "plan --used-bytes 1TB --source hdd --target s3 --instance abacus",
            "not known",
        ),
        (
            "plan --used-bytes 1TB --source hdd --target s3 --compress tar",
            "no codec",
        ),
        (
            "plan --used-bytes 1TB --source hdd --target s3 --chain foo",
            "no KIND:SIZExCOUNT",
        ),
        (
            "plan --used-bytes 1TB --source hdd --target s3 --max-memory 1MiB",
            "above the limit",
        ),
        ("plan nonexistent --source hdd --target s3", "nonexistent"),
        ("tune nonexistent --to nul", "nonexistent"),
        ("tune /nonexistent --to nul --budget 3", "3 what?"),
        ("lab probe", "PATH"),
        ("lab probe /tmp --budget 5", "5 what? Give a unit"),
        ("lab probe /tmp --replace --no-keep", "cannot be used with"),
        ("lab sweep", "EXPERIMENT"),
        ("lab sweep tape", "possible values"),
        ("lab rehearse --only zzz", "no set-up"),
    ] {
        let words: Vec<_> = words.split_whitespace().collect();
        let output = run(&place.path("state"), &words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            text(&output)
        );
        assert!(text(&output).contains(said), "{words:?}: {}", text(&output));
    }
}

#[test]
fn what_tuning_finds_is_not_written_to_a_device_and_success_told() {
    let place = Place::new();
    let (state, db) = (place.path("state"), place.arg("shop.db"));
    let words = [
        "--config",
        "/dev/null",
        "tune",
        &db,
        "--name",
        "x",
        "--to",
        "nul",
    ];
    let output = run(&state, &[&words[..], &TUNE].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("/dev/null"), "{}", text(&output));
    assert!(!text(&output).contains("written"), "{}", text(&output));
}

#[test]
fn a_trial_on_a_disk_that_cannot_be_written_fails_as_a_backup_does() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    std::fs::create_dir_all(&sets).unwrap();
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let script = "mount -t tmpfs -o ro none \"$1\" && shift && exec \"$@\"";
    unshare.args(["--mount", "sh", "-c", script, "sh", &sets]);
    unshare.args([env!("CARGO_BIN_EXE_windlass"), "tune", &db, "--to", &sets]);
    unshare
        .args(["--budget", "1s"])
        .env("WINDLASS_CONFIG", "/dev/null");
    unshare.env("WINDLASS_STATE_DIR", place.path("state"));
    let output = unshare.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("remount,rw"), "{}", text(&output));
}

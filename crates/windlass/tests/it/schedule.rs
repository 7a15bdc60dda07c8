//! `windlass schedule`: units that systemd accepts, and that do what the configuration says.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::*;

/// A database with a schedule of its own, one with the common one, and a repository.
fn configured() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("units")).unwrap();
    write(
        &place,
        "full = \"Sun 02:00\"\ndiff = \"Mon..Sat 02:00\"\n",
        "",
    );
    place
}

/// Writes the configuration: what stands in `[schedule]`, and what follows.
fn write(place: &Place, common: &str, more: &str) {
    let text = format!(
        "[schedule]\n{common}\n[expire]\nkeep-full = 2\n\n[repository.main]\nto = [\"{}\"]\n\n\
         [database.shop]\nsource = \"{}\"\nrepo = \"main\"\n{more}",
        place.arg("sets"),
        place.arg("shop.db"),
    );
    std::fs::write(place.path("windlass.toml"), text).unwrap();
}

fn run(place: &Place, words: &[&str]) -> Output {
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    command.args(words).output().unwrap()
}

fn install(place: &Place, more: &[&str]) -> Output {
    let dir = place.arg("units");
    run(
        place,
        &[&["schedule", "install", "--dir", &dir], more].concat(),
    )
}

fn done(place: &Place, more: &[&str]) -> Value {
    let output = install(place, &[more, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(place: &Place, code: i32, says: &str) {
    let before = units(&place.path("units"));
    let output = install(place, &[]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(says), "{says}: {printed}");
    assert_eq!(units(&place.path("units")), before, "nothing was changed");
}

/// The files of a directory with their texts.
fn units(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let all = entries.map(|entry| entry.unwrap());
    let files = all.filter(|entry| entry.path().is_file());
    let named = files.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read_to_string(entry.path()).unwrap())
    });
    named.collect()
}

/// What became of each job, by the name of its units.
fn changes(document: &Value) -> BTreeMap<String, String> {
    let jobs = document["jobs"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    jobs.map(|job| (word(&job["unit"]), word(&job["change"])))
        .collect()
}

fn assert_changes(document: &Value, wanted: &[(&str, &str)]) {
    let wanted = wanted.iter();
    let wanted = wanted.map(|(unit, change)| ((*unit).to_owned(), (*change).to_owned()));
    assert_eq!(changes(document), wanted.collect(), "{document}");
}

/// Lets systemd judge what was written, as it will read it.
fn assert_judged(directory: &Path) {
    let files = units(directory).into_keys();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(files.map(|name| directory.join(name)))
        .output()
        .expect("systemd-analyze of Debian's package `systemd`");
    let printed = text(&output);
    let ours = printed.lines().filter(|line| line.contains("windlass-"));
    assert_eq!(ours.count(), 0, "{printed}");
    assert!(output.status.success(), "{printed}");
}

/// The line of a unit that begins with this key.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let lines: Vec<_> = unit.lines().collect();
    let found = lines.iter().find_map(|line| line.strip_prefix(key));
    found.unwrap_or_else(|| panic!("{key}: {unit}"))
}

/// The words that systemd would start a program with. A shell reads double quotes alike, once the
/// signs that only systemd knows are taken back.
fn words_of(service: &str) -> Vec<String> {
    let line = value(service, "ExecStart=")
        .replace("%%", "%")
        .replace("$$", "$");
    shlex::split(&line).unwrap()
}

#[test]
fn the_jobs_of_a_configuration_become_units_that_systemd_accepts() {
    let place = configured();
    let mail = "failure-unit = \"mail@%n.service\"\n";
    let all = "full = \"Sun 02:00\"\nincr = [\"Mon..Sat 02:00\", \"Mon..Sat 14:00\"]\n\
               log = \"*:0/5\"\ncheck = \"17:00\"\nverify = \"Sun 06:00\"\n\
               drill = \"*-*-01 08:00\"\nexpire = \"05:00\"\n";
    write(
        &place,
        &format!("{all}{mail}"),
        "\n[database.shop.schedule]\ncheck = \"off\"\ndelay = \"30m\"\n\n\
         [repository.main.schedule]\nverify = \"Sat 04:00\"\n",
    );
    let before = jiff::Timestamp::now();
    let document = done(&place, &[]);
    let names = [
        "shop-full",
        "shop-incr",
        "shop-log",
        "shop-verify",
        "shop-drill",
        "shop-expire",
    ];
    let names: Vec<_> = names.iter().chain(&["main-verify"]).collect();
    let names: Vec<_> = names
        .iter()
        .map(|name| format!("windlass-{name}"))
        .collect();
    let wanted: Vec<_> = names.iter().map(|name| (&**name, "new")).collect();
    assert_changes(&document, &wanted);
    assert_eq!(document["timers"], "untouched");
    assert_judged(&place.path("units"));
    let found = units(&place.path("units"));
    assert_eq!(found.len(), 2 * names.len());
    let timer = &found["windlass-shop-incr.timer"];
    let times: Vec<_> = timer
        .lines()
        .filter(|line| line.starts_with("OnCalendar="))
        .collect();
    let both = ["OnCalendar=Mon..Sat 02:00", "OnCalendar=Mon..Sat 14:00"];
    assert_eq!(times, both);
    for line in [
        "RandomizedDelaySec=1800",
        "FixedRandomDelay=yes",
        "Persistent=yes",
    ] {
        assert!(timer.lines().any(|one| one == line), "{line}: {timer}");
    }
    assert_eq!(
        value(&found["windlass-shop-log.timer"], "RandomizedDelaySec="),
        "30"
    );
    assert_eq!(
        value(&found["windlass-main-verify.timer"], "RandomizedDelaySec="),
        "600"
    );
    // What is due at the same time comes in this order, and a failure is told.
    let service = &found["windlass-shop-expire.service"];
    for earlier in ["full", "incr", "verify", "drill"] {
        let line = format!("After=windlass-shop-{earlier}.service");
        assert!(service.contains(&line), "{line}: {service}");
    }
    assert!(!service.contains("shop-log"), "{service}");
    assert!(!found["windlass-shop-full.service"].contains("After=windlass"));
    assert_eq!(value(service, "OnFailure="), "mail@%n.service");
    let next = document["jobs"][0]["next"].as_str().unwrap();
    let next: jiff::Timestamp = next.parse().unwrap();
    assert!(next > before, "{next}");
}

#[test]
fn what_a_unit_starts_does_the_job() {
    let place = configured();
    // Nothing in these paths means anything to systemd.
    let odd = place.path("100% of $HOME; x");
    std::fs::create_dir(&odd).unwrap();
    let config = odd.join("wind\"lass $$ \\ '.toml");
    write(
        &place,
        "full = \"hourly\"\nverify = \"daily\"\ndrill = \"weekly\"\nexpire = \"monthly\"\n",
        "",
    );
    std::fs::copy(place.path("windlass.toml"), &config).unwrap();
    let program = odd.join("windlass");
    if std::fs::hard_link(env!("CARGO_BIN_EXE_windlass"), &program).is_err() {
        // Not by this process: a test in another thread that starts a process would give it the
        // file open for writing, and nobody may start such a program.
        let mut copy = Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_windlass")).arg(&program);
        assert!(copied.status().unwrap().success());
    }
    let mut own = command();
    let environment: Vec<(_, _)> = own
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    own = Command::new(&program);
    for (name, value) in &environment {
        match value {
            Some(value) => own.env(name, value),
            None => own.env_remove(name),
        };
    }
    own.args([
        "schedule",
        "install",
        "--dir",
        &place.arg("units"),
        "--config",
    ]);
    let output = own.arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_judged(&place.path("units"));
    let found = units(&place.path("units"));
    for job in ["full", "full", "verify", "drill", "expire"] {
        let service = &found[&format!("windlass-shop-{job}.service")];
        let words = words_of(service);
        assert_eq!(words[0], program.to_str().unwrap());
        let config = config.to_str().unwrap().to_owned();
        assert!(words.contains(&config), "{words:?}");
        let mut started = command();
        let directory = value(service, "WorkingDirectory=");
        started.args(&words[1..]).current_dir(directory);
        let output = started.env_remove("WINDLASS_CONFIG").output().unwrap();
        assert_eq!(text(&output), "", "{job}");
        assert_eq!(output.status.code(), Some(0), "{job}");
    }
    assert_eq!(place.sets().len(), 2);
}

#[test]
fn installing_again_removes_what_is_gone_and_never_what_is_foreign() {
    let place = configured();
    let directory = place.path("units");
    let foreign = [
        (
            "windlass-other-full.service",
            "[Service]\nExecStart=/bin/true\n",
        ),
        ("windlass-mine.timer", "# mine\n"),
        ("windlass-shop-full.service.txt", "notes\n"),
    ];
    for (name, content) in foreign {
        std::fs::write(directory.join(name), content).unwrap();
    }
    let own = |name: &str| units(&directory).contains_key(name);
    let (full, diff) = ("windlass-shop-full", "windlass-shop-diff");
    assert_changes(&done(&place, &[]), &[(full, "new"), (diff, "new")]);
    let first = units(&directory);
    assert_changes(&done(&place, &[]), &[(full, "kept"), (diff, "kept")]);
    assert_eq!(units(&directory), first);
    // A dry run changes nothing, and says what would change.
    let incr = "windlass-shop-incr";
    write(&place, "full = \"Sat 03:00\"\nincr = \"daily\"\n", "");
    let wanted = [(full, "changed"), (diff, "gone"), (incr, "new")];
    assert_changes(&done(&place, &["--dry-run"]), &wanted);
    assert_eq!(units(&directory), first);
    let dry = text(&install(&place, &["--dry-run"]));
    assert!(
        dry.contains("OnCalendar=Sat 03:00") && dry.contains("ExecStart="),
        "{dry}"
    );
    assert_changes(&done(&place, &[]), &wanted);
    assert!(!own("windlass-shop-diff.timer") && !own("windlass-shop-diff.service"));
    let timer = &units(&directory)["windlass-shop-full.timer"];
    assert_eq!(value(timer, "OnCalendar="), "Sat 03:00");
    // Somebody has edited a unit: it becomes again what the configuration says.
    let edited = format!("{timer}# edited\n");
    std::fs::write(directory.join("windlass-shop-full.timer"), edited).unwrap();
    let dir = place.arg("units");
    let list = text(&run(&place, &["schedule", "list", "--dir", &dir]));
    assert!(
        list.contains("outdated") && list.contains("installed"),
        "{list}"
    );
    assert_changes(&done(&place, &[]), &[(full, "changed"), (incr, "kept")]);
    // The database is gone, and so is its schedule.
    std::fs::write(place.path("windlass.toml"), "quiet = false\n").unwrap();
    assert_changes(&done(&place, &[]), &[(full, "gone"), (incr, "gone")]);
    let left: Vec<_> = units(&directory).into_iter().collect();
    let kept = foreign.map(|(name, content)| (name.to_owned(), content.to_owned()));
    let mut kept = kept.to_vec();
    kept.sort();
    assert_eq!(left, kept);
    // Nothing is scheduled, and nothing is there: somebody expected more.
    refused(&place, 1, "nothing is scheduled");
}

#[test]
fn a_file_of_somebody_else_is_never_replaced() {
    let place = configured();
    let path = place.path("units").join("windlass-shop-diff.timer");
    std::fs::write(&path, "[Timer]\nOnCalendar=daily\n").unwrap();
    refused(&place, 1, "the schedule did not make it");
    std::fs::remove_file(&path).unwrap();
    // An administrator has masked it.
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    refused(&place, 1, "the schedule did not make it");
    std::fs::remove_file(&path).unwrap();
    done(&place, &[]);
    // Another configuration has a database of the same name.
    std::fs::copy(place.path("windlass.toml"), place.path("other.toml")).unwrap();
    let before = units(&place.path("units"));
    let (dir, other) = (place.arg("units"), place.arg("other.toml"));
    let words = ["schedule", "install", "--dir", &dir, "--config", &other];
    let output = run(&place, &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("another configuration"),
        "{}",
        text(&output)
    );
    // Its removal leaves the units of the first one.
    let words = ["schedule", "remove", "--dir", &dir, "--config", &other];
    let removed = run(&place, &words);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed));
    assert!(text(&removed).contains("nothing"), "{}", text(&removed));
    assert_eq!(units(&place.path("units")), before);
    let removed = run(&place, &["schedule", "remove", "--dir", &dir]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed));
    assert!(units(&place.path("units")).is_empty());
}

#[test]
fn a_schedule_that_could_not_work_is_refused_with_its_line() {
    let place = configured();
    let wrong = |common: &str, more: &str, says: &str| {
        write(&place, common, more);
        refused(&place, 2, says);
    };
    wrong(
        "full = \"Sun 25:00\"\n",
        "",
        "line 2: full: \"Sun 25:00\" is no time of systemd",
    );
    wrong("full = \"2020-01-01\"\n", "", "does not come again");
    wrong("fulll = \"daily\"\n", "", "Did you mean full?");
    wrong("differential = \"daily\"\n", "", "Did you mean diff?");
    wrong("full = 3\n", "", "is no time");
    wrong("full = [\"daily\", \"off\"]\n", "", "is no time");
    wrong("full = \"daily\\nOnCalendar=hourly\"\n", "", "is no time");
    wrong(
        "full = \"daily\"\nuser = \"nobody-of-that-name\"\n",
        "",
        "there is no user",
    );
    wrong("full = \"daily\"\nuser = \"a b\"\n", "", "user cannot be");
    wrong("full = \"daily\"\ndelay = \"2d\"\n", "", "delay cannot be");
    wrong(
        "full = \"daily\"\nfailure-unit = \"mail me\"\n",
        "",
        "failure-unit cannot be",
    );
    let of_repository = "[repository.main.schedule]\nfull = \"daily\"\n";
    wrong(
        "",
        of_repository,
        "the schedule of a repository has no key full",
    );
    wrong(
        "verify = \"daily\"\n",
        "[database.crm]\nsource = \"crm.db\"\n",
        "where its sets are",
    );
    let named_tmp = "[database.tmp]\nsource = \"/crm.db\"\nto = \"/x\"\n";
    wrong("verify = \"daily\"\n", named_tmp, "there is /tmp");
    let slash = "[database.\"a/b\"]\nsource = \"/crm.db\"\nto = \"/x\"\n";
    wrong(
        "drill = \"daily\"\n",
        slash,
        "a word with a slash is a path",
    );
    for (source, to) in [("crm.db", "/x"), ("/crm.db", "x")] {
        let relative = format!("[database.crm]\nsource = \"{source}\"\nto = \"{to}\"\n");
        wrong(
            "full = \"daily\"\n",
            &relative,
            "is relative, and jobs run in /",
        );
    }
    let two = "[database.crm]\nsource = \"/crm.db\"\nto = [\"/x\", \"/y\"]\n";
    let two = format!("{two}[database.crm.schedule]\nlog = \"daily\"\n");
    wrong("full = \"daily\"\n", &two, "a log goes to one place");
    let long = format!(
        "[database.{}]\nsource = \"/crm.db\"\nto = \"/x\"\n",
        "x".repeat(250)
    );
    wrong("full = \"daily\"\n", &long, "would have a name of");
    // Every command finds a mistake in the tables, whatever it is for.
    write(&place, "fulll = \"daily\"\n", "");
    assert_eq!(run(&place, &["status"]).status.code(), Some(2));
    // Without rules, nothing may be removed.
    let text = std::fs::read_to_string(place.path("windlass.toml")).unwrap();
    let text = text
        .replace("fulll", "expire")
        .replace("[expire]\nkeep-full = 2\n", "");
    std::fs::write(place.path("windlass.toml"), text).unwrap();
    refused(&place, 2, "no rule says what stays");
    // A pipe is gone when the first job begins.
    let config = [
        "schedule",
        "install",
        "--dir",
        &place.arg("units"),
        "--config",
        "/dev/null",
    ];
    assert_eq!(run(&place, &config).status.code(), Some(2));
}

#[test]
fn units_of_a_user_are_enabled_by_systemctl() {
    let place = configured();
    let configuration = place.path("xdg");
    let user = |words: &[&str]| {
        let mut command = command();
        command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
        command.env("XDG_CONFIG_HOME", &configuration);
        // No service manager of this user runs here.
        command.env("XDG_RUNTIME_DIR", place.path("none"));
        let output = command
            .args(words)
            .args(["--user", "--json"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let directory = configuration.join("systemd/user");
    let links = || -> Vec<PathBuf> {
        let wants = directory.join("timers.target.wants");
        let entries = std::fs::read_dir(wants).into_iter().flatten();
        let mut links: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        links.sort();
        links
    };
    let document = user(&["schedule", "install"]);
    assert_eq!(document["timers"], "enabled", "{document}");
    assert_eq!(units(&directory).len(), 4);
    assert_eq!(links().len(), 2);
    assert!(
        links()
            .iter()
            .all(|link| link.metadata().unwrap().is_file())
    );
    write(&place, "full = \"Sun 02:00\"\n", "");
    user(&["schedule", "install"]);
    assert_eq!((units(&directory).len(), links().len()), (2, 1));
    user(&["schedule", "remove"]);
    assert_eq!((units(&directory).len(), links().len()), (0, 0));
}

#[test]
fn the_log_of_a_database_may_go_to_a_bucket() {
    let place = configured();
    std::fs::copy(place.path("shop.db"), place.path("crm.db")).unwrap();
    let crm = format!(
        "[database.crm]\nsource = \"{}\"\nto = \"s3://backups/crm\"\n\
         [database.crm.schedule]\nlog = \"daily\"\n",
        place.arg("crm.db")
    );
    write(&place, "", &crm);
    done(&place, &[]);
    assert!(units(&place.path("units")).contains_key("windlass-crm-log.timer"));
}

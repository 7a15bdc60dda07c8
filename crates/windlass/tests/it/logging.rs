//! The log of runs: in a file, in syslog, in the journal.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use crate::support::*;

/// A line that has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(120);

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_run_is_logged_from_its_start_to_its_verdict_and_end() {
    let place = Place::new();
    let (db, sets, log) = (place.arg("shop.db"), place.arg("sets"), place.arg("log"));
    let words = ["backup", &db, "--to", &sets, "--log", &log, "--quiet"];
    let output = windlass(&words);
    assert_eq!(text(&output), "", "quiet stays quiet");
    let first = lines(&place.path("log"));
    for line in &first {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.len() == 24, "{line}");
        assert!(rest.starts_with("windlass["), "{line}");
    }
    let steps = [
        "] info: backup: started by user ",
        "] info: backup: settings: ",
        "] info: backup: phase: ",
        "] info: backup: verdict: ",
        "] info: backup: ended: exit code 0",
    ];
    let mut at = 0;
    for step in steps {
        let found = first[at..].iter().position(|line| line.contains(step));
        at += found.unwrap_or_else(|| panic!("{step} in {first:#?}"));
    }
    // A second run adds its lines after those of the first, and logs its failure.
    let words = ["backup", &db, "--to", &place.arg("no/such"), "--log", &log];
    assert_eq!(windlass(&words).status.code(), Some(1));
    let both = lines(&place.path("log"));
    assert_eq!(both[..first.len()], first);
    let text = both[first.len()..].join("\n");
    assert!(
        text.contains("] error: backup: there is no directory"),
        "{text}"
    );
    assert!(text.contains("] error: backup: hint: "), "{text}");
    assert!(
        text.ends_with("] error: backup: ended: exit code 1"),
        "{text}"
    );
}

#[test]
fn the_log_names_the_command_and_not_an_option_before_it() {
    let place = Place::new();
    let (db, log) = (place.arg("shop.db"), place.arg("log"));
    let before = ["--config", "/dev/null", "--log", &log, "--quiet"];
    let output = windlass(&[&before[..], &["backup", &db, "--to", "nul"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let logged = lines(&place.path("log"));
    let named = |line: &String| line.contains("] info: backup: ");
    assert!(
        !logged.is_empty() && logged.iter().all(named),
        "{logged:#?}"
    );
}

#[test]
fn levels_leave_out_what_was_not_asked_for() {
    let place = Place::new();
    let (db, log) = (place.arg("shop.db"), place.arg("log"));
    let words = [
        "backup",
        &db,
        "--to",
        "nul",
        "--log",
        &log,
        "--log-level",
        "error",
    ];
    assert_eq!(windlass(&words).status.code(), Some(0));
    assert_eq!(lines(&place.path("log")), Vec::<String>::new());
    let words = [&words[..5], &[&log, "--log-level", "debug"]].concat();
    assert_eq!(windlass(&words).status.code(), Some(0));
    let text = lines(&place.path("log")).join("\n");
    assert!(text.contains("] debug: "), "{text}");
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew_under_its_name() {
    let place = Place::with_accounts(40_000);
    let (db, log) = (place.arg("shop.db"), place.arg("log"));
    let mut command = command();
    command.args([
        "backup",
        &db,
        "--to",
        "nul",
        "--max-rate",
        "128KiB",
        "--log",
        &log,
    ]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("settings")) {
        std::thread::yield_now();
    }
    let inode = std::fs::metadata(&log).unwrap().ino();
    std::fs::rename(&log, place.path("log.1")).unwrap();
    interrupt(&mut child);
    assert_ne!(std::fs::metadata(&log).unwrap().ino(), inode);
    let new = lines(&place.path("log")).join("\n");
    assert!(new.ends_with("ended: exit code 130"), "{new}");
    assert!(
        lines(&place.path("log.1"))
            .join("\n")
            .contains("started by")
    );
}

#[test]
fn what_is_no_log_of_ours_is_never_appended_to() {
    let place = Place::new();
    let db = place.arg("shop.db");
    let set = place.back_up();
    std::fs::write(place.path("notes.txt"), "mine\n").unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    let kept = [
        "shop.db",
        "shop.db-wal",
        "notes.txt",
        set.to_str().unwrap(),
        "directory",
    ];
    for name in kept {
        let path = place.path(name);
        let before = std::fs::read(&path).unwrap_or_default();
        let words = [
            "backup",
            &db,
            "--to",
            "nul",
            "--log",
            path.to_str().unwrap(),
        ];
        let output = windlass(&words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {printed}");
        assert!(
            printed.contains("cannot append to the log"),
            "{name}: {printed}"
        );
        assert_eq!(std::fs::read(&path).unwrap_or_default(), before, "{name}");
    }
}

#[test]
fn no_password_is_logged() {
    let place = Place::new();
    let log = place.arg("log");
    for database in [
        "host=127.0.0.1 port=1 password=topsecret",
        "postgresql://me:topsecret@127.0.0.1:1/db",
    ] {
        let words = ["backup", database, "--to", "nul", "--log", &log];
        assert_eq!(windlass(&words).status.code(), Some(1));
    }
    let text = lines(&place.path("log")).join("\n");
    assert!(
        text.contains("127.0.0.1") && !text.contains("topsecret"),
        "{text}"
    );
}

fn received(name: &str) -> Vec<String> {
    let place = Place::new();
    let socket = place.path("socket");
    let receiver = UnixDatagram::bind(&socket).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    // A socket may hold as few as ten lines that nobody has read. The run would wait then.
    let reading = std::thread::spawn(move || {
        let mut all = Vec::<String>::new();
        let mut buffer = [0; 65536];
        while !all
            .last()
            .is_some_and(|line| line.contains("ended: exit code"))
        {
            let bytes = receiver.recv(&mut buffer).unwrap();
            all.push(String::from_utf8(buffer[..bytes].to_vec()).unwrap());
        }
        all
    });
    let to = format!("{name}:{}", socket.display());
    let words = ["backup", &place.arg("shop.db"), "--to", "nul", "--log", &to];
    assert_eq!(windlass(&words).status.code(), Some(0));
    reading.join().unwrap()
}

#[test]
fn the_journal_gets_fields_and_syslog_gets_priorities() {
    let journal = received("journal");
    assert!(journal.len() >= 4, "{journal:#?}");
    for entry in &journal {
        assert!(entry.starts_with("MESSAGE=backup: "), "{entry}");
        for field in [
            "\nPRIORITY=6\n",
            "\nSYSLOG_IDENTIFIER=windlass\n",
            "\nSYSLOG_PID=",
        ] {
            assert!(entry.contains(field), "{entry}");
        }
    }
    let syslog = received("syslog");
    // This is facility 3, severity 6.
    let first = &syslog[0];
    assert!(first.starts_with("<30>"), "{first}");
    assert!(
        first.contains(" windlass[") && first.contains("]: backup: started"),
        "{first}"
    );
}

/// No run fails for its log, and no question ends differently for it.
#[test]
fn a_log_that_cannot_be_opened_is_a_warning_of_a_run_and_a_note_of_a_question() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let missing = place.arg("no/such/log");
    for log in ["journal:/nowhere", "syslog:/nowhere", &missing] {
        let run = windlass(&["backup", &db, "--to", &sets, "--log", log]);
        assert_eq!(run.status.code(), Some(3), "{log}: {}", text(&run));
        assert!(text(&run).contains("warning: this run is not logged"));
        let asked = windlass(&["info", &sets, "--log", log]);
        assert_eq!(asked.status.code(), Some(0), "{log}: {}", text(&asked));
        assert!(text(&asked).contains("note: this command is not logged"));
        // A check says how the backup would end.
        let checked = windlass(&["check", &db, "--to", &sets, "--log", log]);
        assert_eq!(checked.status.code(), Some(3), "{log}: {}", text(&checked));
    }
}

#[test]
fn a_directory_that_a_backup_makes_is_told_and_logged_although_it_is_quiet() {
    let place = Place::new();
    let (db, new, log) = (place.arg("shop.db"), place.arg("new"), place.arg("log"));
    let words = ["backup", &db, "--to", &new, "--log", &log, "--quiet"];
    let told = format!("made the directory {new}\n");
    assert_eq!(text(&windlass(&words)), told);
    assert_eq!(text(&windlass(&words)), "", "the second run makes none");
    let logged = lines(&place.path("log")).join("\n");
    let line = format!("] info: backup: made the directory {new}");
    assert_eq!(logged.matches(&line).count(), 1, "{logged}");
}

#[test]
fn a_log_of_another_user_is_a_warning_of_a_run_and_a_note_of_a_question() {
    let place = Place::new();
    let log = place.path("log");
    std::fs::write(&log, "").unwrap();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(place.dir.path(), 0o755);
    mode(&log, 0o400);
    let run = |words: &[&str]| {
        let program = env!("CARGO_BIN_EXE_windlass");
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = std::process::Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
                command
            }
            false => std::process::Command::new(program),
        };
        command.args(words).env("WINDLASS_CONFIG", "/dev/null");
        command.env("WINDLASS_LOG", &log).output().unwrap()
    };
    let asked = run(&["status"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked));
    assert!(
        text(&asked).contains("this command is not logged"),
        "{}",
        text(&asked)
    );
    // A run goes on, too, but it warns.
    let run = run(&["verify", "/nonexistent"]);
    let printed = text(&run);
    assert!(
        printed.contains("warning: this run is not logged") && printed.contains("error: "),
        "{printed}"
    );
    assert!(
        printed.contains("which WINDLASS_LOG in the environment names"),
        "{printed}"
    );
}

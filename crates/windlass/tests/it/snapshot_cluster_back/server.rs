//! Reverts and the server: how it was started, and what becomes of it if the cluster does not go
//! back.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::subject::{Making, Subject};
use crate::opening::Scratch;
use crate::snapshot_hook::run;
use crate::support::text;
use windlass_testkit::postgres::{give_to_servers, succeed};
use windlass_testkit::volume::{Volume, VolumeKind};

const POLL: std::time::Duration = std::time::Duration::from_millis(10);

/// How a server with its configuration elsewhere is started.
#[derive(Clone, Copy, PartialEq)]
enum Started {
    /// With the directory of the configuration, which names the data directory.
    There,
    /// With the data directory and the file of the configuration, as Debian does it.
    WithFile,
}

fn goes_back_with_its_configuration_elsewhere(started: Started) {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    let elsewhere = subject.scratch.path().join("etc");
    std::fs::create_dir(&elsewhere).unwrap();
    give_to_servers(&elsewhere);
    subject.cluster.stop("fast");
    subject.cluster.move_configuration(&elsewhere);
    let file = elsewhere.join("postgresql.conf").display().to_string();
    if started == Started::WithFile {
        subject.cluster.start_in_data_directory();
        subject.cluster.option(&format!("-c config_file={file}"));
    }
    subject.cluster.run();
    let words = ["snapshot", "create", &conninfo, "then", "--method", "copy"];
    let accept = ["--accept", "configuration-outside"];
    subject.windlass(&[&words[..], &accept].concat());
    subject.change();
    let after = subject.rows();
    subject.windlass(&["snapshot", "revert", &format!("{conninfo}@then"), "--yes"]);
    assert_eq!(subject.rows(), before);
    assert_eq!(subject.sql("SHOW config_file"), file);
    subject.cluster.stop("fast");
    let told = subject.windlass(&["snapshot", "undo", &data, "--yes"]);
    assert!(told.contains(elsewhere.to_str().unwrap()), "{told}");
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
}

#[test]
fn a_server_that_is_started_with_the_directory_of_its_configuration_goes_back() {
    goes_back_with_its_configuration_elsewhere(Started::There);
}

#[test]
fn a_server_that_is_started_with_a_file_of_configuration_goes_back() {
    goes_back_with_its_configuration_elsewhere(Started::WithFile);
}

/// Its archive_command may need what is in it.
#[test]
fn a_server_has_its_own_environment_after_a_revert_and_not_that_of_the_caller() {
    let subject = Subject::new(None, false);
    let conninfo = subject.cluster.conninfo();
    let environment = || {
        let pid = std::fs::read_to_string(subject.cluster.data().join("postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap();
        let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let words = text.split_terminator('\0').map(str::to_owned);
        // pg_ctl says who started it, and its shell where.
        let of_pg_ctl = ["PG_GRANDPARENT_PID=", "PWD="];
        let words = words.filter(|word| !of_pg_ctl.iter().any(|name| word.starts_with(name)));
        (
            pid.to_owned(),
            words.collect::<std::collections::BTreeSet<_>>(),
        )
    };
    let (old, before) = environment();
    assert!(!before.is_empty());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let word = format!("{conninfo}@then");
    let words = ["snapshot", "revert", &word, "--yes"];
    let mut revert = subject.scratch.command_of(env!("CARGO_BIN_EXE_windlass"));
    let output = revert
        .args(words)
        .env("OF_THE_CALLER", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let (new, after) = environment();
    assert_ne!(new, old);
    assert_eq!(after, before);
}

fn first_process(subject: &Subject) -> String {
    let lock = subject.cluster.data().join("postmaster.pid");
    let text = std::fs::read_to_string(lock).unwrap();
    text.lines().next().unwrap().to_owned()
}

/// Soft and hard limit of open files, and the nice value.
fn inherited(process: &str) -> (Vec<String>, String) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let limits = read("limits");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let words = files.unwrap().split_whitespace().take(2);
    let stat = read("stat");
    let behind_name = stat.rsplit(") ").next().unwrap();
    let nice = behind_name.split(' ').nth(16).unwrap();
    (words.map(str::to_owned).collect(), nice.to_owned())
}

/// Whoever types the command may have other limits, and another priority.
#[test]
fn a_server_has_its_own_limits_and_priority_after_a_revert() {
    let subject = Subject::new(None, false);
    let conninfo = subject.cluster.conninfo();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let old = first_process(&subject);
    let of_the_caller = inherited(&old);
    // Root without CAP_SYS_RESOURCE, as in a container, may not do that to others.
    let owner = std::fs::metadata(format!("/proc/{old}")).unwrap();
    let mut tool = std::process::Command::new("prlimit");
    tool.uid(owner.uid()).gid(owner.gid());
    succeed(tool.args(["--pid", &old, "--nofile=700:900"]));
    // Everybody may be given less than the caller has.
    let more = |own: &str, by: i32| (own.parse::<i32>().unwrap() + by).to_string();
    let nice = more(&of_the_caller.1, 5);
    let mut tool = std::process::Command::new("renice");
    succeed(tool.args(["-n", &nice, "-p", &old]));
    let expected = inherited(&old);
    assert_eq!(expected.0, ["700", "900"]);
    assert_eq!(expected.1, nice);
    let word = format!("{conninfo}@then");
    subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    let new = first_process(&subject);
    assert_ne!(new, old);
    assert_eq!(inherited(&new), expected);
    // What it cannot be given is told.
    subject.change();
    let mut revert = subject.scratch.command_of("prlimit");
    let revert = revert.args(["--nofile=600:600", env!("CARGO_BIN_EXE_windlass")]);
    let output = revert
        .args(["snapshot", "revert", &word, "--yes"])
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("open files 600 (before: 700)"), "{said}");
    assert_eq!(inherited(&first_process(&subject)).0, ["600", "600"]);
}

#[test]
fn a_server_that_cannot_be_started_is_not_stopped() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    let after = subject.rows();
    subject.cluster.configure(&["no_such_setting = 1"]);
    for word in [format!("{conninfo}@then"), format!("{data}@then")] {
        let said = run(&subject.scratch, 1, &["snapshot", "revert", &word, "--yes"]);
        assert!(said.contains("no_such_setting"), "{said}");
        assert_eq!(subject.rows(), after);
    }
    let file = subject.cluster.data().join("postgresql.conf");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace("no_such_setting = 1", "")).unwrap();
    subject.cluster.stop("fast");
    subject.cluster.run();
}

/// A server that is told to stop does so, whatever its caller wants later.
#[test]
fn a_revert_that_is_interrupted_while_the_server_stops_starts_it_again() {
    let scratch = Scratch::new();
    let go = scratch.path().join("go");
    std::fs::write(&go, "").unwrap();
    // A server ends when its last segment is archived.
    let command = format!("while ! test -f {}; do sleep 0.01; done", go.display());
    let subject = Subject::of(&Making {
        settings: vec![format!("archive_command = '{command}'")],
        ..Making::default()
    });
    let conninfo = subject.cluster.conninfo();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    std::fs::remove_file(&go).unwrap();
    let word = format!("{conninfo}@then");
    let mut revert = subject
        .scratch
        .command(None, &["snapshot", "revert", &word, "--yes"]);
    let revert = revert.stdout(Stdio::piped()).stderr(Stdio::piped());
    let revert = revert.spawn().unwrap();
    let lock = subject.cluster.data().join("postmaster.pid");
    while !std::fs::read_to_string(&lock).unwrap().contains("stopping") {
        std::thread::sleep(POLL);
    }
    let process = nix::unistd::Pid::from_raw(revert.id().try_into().unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = format!("/proc/{process}/status");
    // A signal that waits for nobody has been handled, or its handler runs.
    let waits = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        text.contains("ShdPnd:") && !text.contains("ShdPnd:\t0000000000000000")
    };
    while waits() {
        std::thread::sleep(POLL);
    }
    std::fs::write(&go, "").unwrap();
    let output = revert.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert_eq!(subject.rows(), after);
}

#[test]
fn a_server_that_stays_stopped_is_named_with_its_state_and_the_next_command() {
    let mut subject = Subject::new(None, true);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    for (name, method) in [("copied", "copy"), ("hooked", "hook")] {
        subject.windlass(&["snapshot", "create", &conninfo, name, "--method", method]);
    }
    subject.cluster.stop("fast");
    let load = |list: &str| format!("shared_preload_libraries = '{list}'");
    subject.cluster.configure(&[load("")]);
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'unseen'");
    let after = subject.rows();
    subject.cluster.configure(&[load("no_such_library")]);
    let revert = |subject: &Subject, name: &str| {
        let word = format!("{conninfo}@{name}");
        run(&subject.scratch, 1, &["snapshot", "revert", &word, "--yes"])
    };
    let said = revert(&subject, "hooked");
    assert!(said.contains("was changed without the hook"), "{said}");
    // It is refused before anything is stopped.
    assert_eq!(subject.rows(), after);
    let said = revert(&subject, "copied");
    for part in [
        "is stopped, and the revert was cut off",
        "windlass snapshot list",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    subject.cluster.configure(&[load("")]);
    let listed = run(&subject.scratch, 3, &["snapshot", "list", &data]);
    assert!(listed.contains("finished a revert"), "{listed}");
    subject.cluster.run();
    assert_eq!(subject.rows(), before);
}

/// The revert fails before it has changed anything, and then the server does not start either.
#[test]
fn a_server_that_stays_stopped_after_a_revert_that_changed_nothing_is_named_with_its_state() {
    use std::os::unix::fs::PermissionsExt;
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    let load = |list: &str| format!("shared_preload_libraries = '{list}'");
    subject.cluster.configure(&[load("no_such_library")]);
    let snapshot = format!("{data}.windlass-snapshots/then");
    let allow = |mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&snapshot, mode).unwrap();
    };
    // What would be overwritten cannot be kept there.
    allow(0o500);
    let word = format!("{conninfo}@then");
    let said = run(&subject.scratch, 1, &["snapshot", "revert", &word, "--yes"]);
    for part in ["is stopped, and the cluster is as it was before", "pg_ctl"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    allow(0o700);
    subject.cluster.configure(&[load("")]);
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
    subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    assert_ne!(subject.rows(), after);
}

fn empty(directory: &std::path::Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// Somebody made the cluster anew, and the snapshots of the old one are still beside it.
#[test]
fn a_snapshot_of_the_cluster_that_was_there_before_is_shown_as_such_and_stops_no_server() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.cluster.stop("fast");
    let configuration = subject.cluster.data().join("postgresql.conf");
    let settings = std::fs::read(&configuration).unwrap();
    empty(subject.cluster.data());
    empty(&subject.scratch.path().join("archive"));
    let mut initdb = subject.cluster.tool("initdb");
    initdb.args(["--auth=trust", "--username=postgres", "--no-sync"]);
    initdb.args(["--data-checksums", "-D"]);
    succeed(initdb.arg(&data));
    std::fs::write(&configuration, settings).unwrap();
    subject.cluster.run();
    subject.windlass(&["snapshot", "create", &conninfo, "now", "--method", "copy"]);
    let listed = subject.windlass(&["snapshot", "list", &conninfo]);
    for (name, state) in [("then", "  kept, of another cluster"), ("now", "  kept")] {
        let line = listed.lines().find(|line| line.starts_with(name));
        assert!(line.unwrap().ends_with(state), "{name}: {listed}");
    }
    let server = first_process(&subject);
    let word = format!("{conninfo}@then");
    let ends: [&[&str]; 2] = [&[], &["--yes"]];
    for end in ends {
        let words = [&["snapshot", "revert", &word], end].concat();
        let said = run(&subject.scratch, 1, &words);
        assert!(said.contains("then is of another cluster"), "{said}");
        assert_eq!(first_process(&subject), server);
    }
}

/// Whoever opens a pipe waits for a writer.
#[test]
fn a_pipe_in_the_place_of_a_cloned_file_is_not_waited_for_and_stops_no_server() {
    let volume = Volume::new(VolumeKind::Xfs, 1500);
    let subject = Subject::new(Some(&volume), false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "clone"]);
    let files = std::fs::read_dir(format!("{data}.windlass-snapshots/then/data")).unwrap();
    let lengths = files.map(|entry| {
        let entry = entry.unwrap();
        (entry.metadata().unwrap().len(), entry.path())
    });
    // A segment of the log is longer.
    let relations = lengths.filter(|(bytes, _)| *bytes < 1 << 24);
    let (_, pipe) = relations.max().unwrap();
    std::fs::remove_file(&pipe).unwrap();
    succeed(std::process::Command::new("mkfifo").arg(&pipe));
    give_to_servers(&pipe);
    let server = first_process(&subject);
    let mut ended = subject.scratch.command_of("timeout");
    ended.args(["--signal=KILL", "300", env!("CARGO_BIN_EXE_windlass")]);
    ended.args(["snapshot", "revert", &format!("{conninfo}@then"), "--yes"]);
    let output = ended.output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    for part in [pipe.to_str().unwrap(), "not a regular file", "hint: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(first_process(&subject), server);
}

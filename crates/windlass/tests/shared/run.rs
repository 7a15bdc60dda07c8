//! Runs the command as its users do. Each test binary includes this file, because only a test
//! binary knows the path of the command.

#![allow(dead_code, reason = "not every binary of tests needs all of it")]

use std::process::{Command, Output};

/// The command, without this machine's configuration and what somebody probed on it, without what
/// the caller's environment says of databases and options, and nothing of tests in its state.
/// Signals that whoever started the tests ignores (`nohup`, or a job in the background of a script)
/// end the command as they do elsewhere.
pub fn command() -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args([
        "--default-signal=HUP,INT,TERM",
        env!("CARGO_BIN_EXE_windlass"),
    ]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("WINDLASS_") || text.starts_with("PG") || text.starts_with("LC_") {
            command.env_remove(&name);
        }
    }
    command.env("WINDLASS_CONFIG", "/dev/null");
    // Where storage was probed, a run that nobody could predict elsewhere has a prediction.
    command.env("WINDLASS_NO_PREDICTION", "1");
    // What was probed on this machine changes what is printed.
    command.env("WINDLASS_STATE_DIR", "/nonexistent/windlass");
    command.env("WINDLASS_NO_HISTORY", "1");
    command
}

/// Another program, which runs the command with the environment that [`command`] gives it.
pub fn around(program: &str) -> Command {
    let mut around = Command::new(program);
    for (name, value) in command().get_envs() {
        match value {
            Some(value) => around.env(name, value),
            None => around.env_remove(name),
        };
    }
    around
}

/// Runs the command to its end.
pub fn windlass(words: &[&str]) -> Output {
    command().args(words).output().unwrap()
}

/// The limit on core files of a process that opens this, as the kernel says it. 1 is what Linux
/// takes for no core file, also where a program receives core files. Where the machine allows none,
/// the limit is 0.
pub fn core_file_limit(opened: &[&str], configuration: &std::path::Path) -> String {
    let program = "grep -F 'Max core file size' /proc/$PPID/limits";
    let output = around("sh")
        .args(["-c", "ulimit -c $(ulimit -H -c); exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_windlass"), "open"])
        .args(opened)
        .args(["--", "sh", "-c", program])
        .env("WINDLASS_CONFIG", configuration)
        .output()
        .unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let limit = said.lines().find(|line| line.contains("core file"));
    let limit = limit.and_then(|line| line.split_whitespace().nth(4));
    limit.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// Everything that the command printed.
pub fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Runs the command with `--json`. Returns its exit code and its document.
pub fn json(words: &[&str]) -> (i32, serde_json::Value) {
    let output = windlass(&[words, &["--json"]].concat());
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    (output.status.code().unwrap(), document)
}

/// Removes the shared memory that the hook made for a server on a data directory, if there is one.
pub fn forget_memory(data: &std::path::Path) {
    std::fs::remove_file(memory_of(data)).unwrap_or_default();
}

/// Where that is.
pub fn memory_of(data: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(data).unwrap();
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    // Volumes of two tests have the same numbers of inodes.
    let device = major << 20 | minor;
    format!("/dev/shm/windlass-{device:08x}-{:016x}", found.ino()).into()
}

/// Interrupts it, as Ctrl-C does.
pub fn signal(child: &std::process::Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &id]).status();
    assert!(sent.unwrap().success());
}

/// Runs the command and kills it at the `number`th call of a system call. False if it ended by
/// itself.
pub fn killed_at((call, number): (&str, u32), words: &[&str]) -> bool {
    let plain = command();
    let mut traced = around("strace");
    let only = format!("trace={call}");
    let kill = format!("inject={call}:signal=KILL:when={number}");
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", &only, "-e", &kill]);
    traced.arg(plain.get_program()).args(plain.get_args());
    let output = traced.args(words).output().unwrap();
    match output.status.code() {
        Some(0) => false,
        None | Some(137) => true,
        other => panic!("{call} {number}: {other:?}: {}", text(&output)),
    }
}

//! System calls of a program, counted: it is killed at the entry of one, or stands still after one.
//!
//!   a whole run --strace--> its calls --drawn: a few, or all in `scripts/soak`--> one run for each
//!
//! strace counts for each thread and each kind on its own. So a call is a kind and a number, and
//! the thread that gets there first is meant.
//!
//! Never does: end a process that strace does not hold.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that cannot do its work ends its test"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Set by `scripts/soak`: then a test tries everything, and not a few.
const SOAK: &str = "WINDLASS_TEST_SOAK";
/// So many of each work are tried in a soak at most (0 for all), and by which they are drawn.
const CASES: &str = "WINDLASS_TEST_CASES";
const SEED: &str = "WINDLASS_TEST_SEED";
const POLL: Duration = Duration::from_millis(2);
/// So many calls of one kind are tried at most, spread over all of them, unless a soak asks for
/// all.
const OF_A_KIND_MAX: usize = 48;

/// A system call: the `number`th of its kind, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Which one.
    pub number: usize,
}

impl Call {
    /// The `number`th of this name.
    pub fn new(name: &str, number: usize) -> Self {
        Self {
            name: name.to_owned(),
            number,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, self.number)
    }
}

/// Whether everything is to be tried.
pub fn is_soak() -> bool {
    std::env::var_os(SOAK).is_some()
}

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Whether no call of any kind is to be left out.
fn takes_all() -> bool {
    is_soak() && asked(CASES) == Some(0)
}

/// All of these in a soak, or as many as it asks for; otherwise `few` of them. They are drawn by a
/// seed, and stay in their order.
pub fn drawn<T>(mut all: Vec<T>, few: usize, seed: u64) -> Vec<T> {
    let (few, mut state) = match is_soak() {
        true => (
            match asked(CASES) {
                None | Some(0) => usize::MAX,
                Some(cases) => usize::try_from(cases).unwrap(),
            },
            asked(SEED).unwrap_or(seed),
        ),
        false => (few, seed),
    };
    while all.len() > few {
        // The numbers of Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 33).unwrap() % all.len();
        all.remove(at);
    }
    all
}

/// Runs a command to its end, and returns all its calls of these kinds (`fsync,fdatasync`). Of a
/// kind with very many calls some are left out.
pub fn counted(command: &Command, kinds: &str, trace: &Path) -> (Output, Vec<Call>) {
    let mut strace = strace(trace, kinds);
    let output = traced(&mut strace, command).output().unwrap();
    (output, calls_in(trace))
}

/// Does something to its end, and returns the calls of these kinds of a running process meanwhile,
/// and of those that it forks.
pub fn counted_process(process: u32, kinds: &str, trace: &Path, work: &mut Command) -> Vec<Call> {
    let mut strace = strace(trace, kinds);
    let strace = strace.args(["-p", &process.to_string()]).spawn();
    let mut strace = strace.unwrap();
    while tracer(process) == 0 {
        std::thread::sleep(POLL);
    }
    let output = work.output().unwrap();
    assert!(output.status.success(), "{work:?}: {output:?}");
    kill("INT", strace.id());
    strace.wait().unwrap();
    calls_in(trace)
}

/// The calls that strace has written down, which it forgets.
fn calls_in(trace: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(trace).unwrap();
    std::fs::remove_file(trace).unwrap();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        // An interrupted call has a second line, which begins with "<...".
        if let Some((name, _)) = rest.split_once('(')
            && name
                .bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        {
            *counts.entry((name, thread)).or_default() += 1;
        }
    }
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for ((name, _), count) in counts {
        let known = most.entry(name).or_default();
        *known = count.max(*known);
    }
    let calls = most.into_iter().flat_map(|(name, count)| {
        let step = match takes_all() {
            true => 1,
            false => count.div_ceil(OF_A_KIND_MAX).max(1),
        };
        (1..=count)
            .step_by(step)
            .map(move |number| Call::new(name, number))
    });
    calls.collect()
}

/// Runs a command, and kills it at the entry of a call. It ends by itself if it never makes it.
pub fn killed(command: &Command, call: &Call) -> Output {
    let mut strace = strace(Path::new("/dev/null"), &call.name);
    strace.arg("-e");
    strace.arg(format!(
        "inject={}:signal=KILL:when={}",
        call.name, call.number
    ));
    traced(&mut strace, command).output().unwrap()
}

/// Runs a command until after a call, where it stands still. `None` if it ended by itself.
pub fn stopped(command: &Command, call: &Call, trace: &Path) -> Option<Stopped> {
    stopped_by(stopping(call, trace), command, trace)
}

/// The same, but only calls that name this path are counted.
pub fn stopped_at(
    command: &Command,
    (call, path): (&Call, &Path),
    trace: &Path,
) -> Option<Stopped> {
    let mut strace = stopping(call, trace);
    strace.arg("-P").arg(path);
    stopped_by(strace, command, trace)
}

fn stopped_by(mut strace: Command, command: &Command, trace: &Path) -> Option<Stopped> {
    traced(&mut strace, command);
    strace.stdout(Stdio::piped()).stderr(Stdio::piped());
    Stopped::wait(strace.spawn().unwrap(), trace)
}

/// Does something, until after a call of a running process, or of one that it forks meanwhile.
/// `None` if what was done ended before.
pub fn stopped_process(
    process: u32,
    call: &Call,
    trace: &Path,
    work: &mut Command,
) -> Option<Stopped> {
    let mut strace = stopping(call, trace);
    strace.args(["-p", &process.to_string()]);
    let strace = strace.spawn().unwrap();
    while tracer(process) == 0 {
        std::thread::sleep(POLL);
    }
    let mut work = work
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stopped = Stopped {
        strace,
        work: None,
        trace: trace.to_owned(),
    };
    loop {
        let has_ended = work.try_wait().unwrap().is_some();
        if stopped.is_there() {
            return Some(Stopped {
                work: Some(work),
                ..stopped
            });
        }
        if has_ended {
            stopped.let_go();
            return None;
        }
        std::thread::sleep(POLL);
    }
}

/// The process that traces another one; 0 for none.
fn tracer(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn strace(trace: &Path, kinds: &str) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-s", "0", "-e", "signal=STOP", "-o"]);
    strace.arg(trace).arg("-e").arg(format!("trace={kinds}"));
    strace
}

fn stopping(call: &Call, trace: &Path) -> Command {
    let mut strace = strace(trace, &call.name);
    strace.arg("-e");
    strace.arg(format!(
        "inject={}:signal=STOP:when={}",
        call.name, call.number
    ));
    strace
}

/// Has strace run a command, with the command's environment and directory.
fn traced<'a>(strace: &'a mut Command, command: &Command) -> &'a mut Command {
    strace.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        strace.current_dir(directory);
    }
    strace
}

/// A program that stands still.
pub struct Stopped {
    strace: Child,
    /// What made it get there.
    work: Option<Child>,
    trace: PathBuf,
}

impl Stopped {
    fn wait(strace: Child, trace: &Path) -> Option<Self> {
        let mut stopped = Self {
            strace,
            work: None,
            trace: trace.to_owned(),
        };
        loop {
            let has_ended = stopped.strace.try_wait().unwrap().is_some();
            if stopped.is_there() {
                return Some(stopped);
            }
            if has_ended {
                std::fs::remove_file(trace).unwrap();
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    fn is_there(&self) -> bool {
        self.stops() > 0
    }

    /// How often something of it was stopped.
    fn stops(&self) -> usize {
        let text = std::fs::read_to_string(&self.trace).unwrap_or_default();
        text.matches("stopped by SIGSTOP").count()
    }

    /// Sends a signal to every process that strace holds.
    fn signal(&self, signal: &str) {
        let tracer_of = self.strace.id();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.parse().ok());
            if process.is_some_and(|process: u32| tracer(process) == tracer_of) {
                kill(signal, process.unwrap_or_default());
            }
        }
    }

    /// Lets the command go on, and waits for its end.
    pub fn go_on(mut self) -> Output {
        let mut continued = 0;
        // Another thread may come to its own call of this number, which stops all of them again.
        while self.strace.try_wait().unwrap().is_none() {
            let stops = self.stops();
            if stops > continued {
                self.signal("CONT");
                continued = stops;
            }
            std::thread::sleep(POLL);
        }
        std::fs::remove_file(&self.trace).unwrap();
        self.strace.wait_with_output().unwrap()
    }

    /// Kills every process that strace holds.
    pub fn kill(mut self) {
        self.signal("KILL");
        if let Some(mut work) = self.work.take() {
            work.kill().unwrap();
            work.wait().unwrap();
        }
        self.let_go();
    }

    /// Ends strace, which lets its processes go on.
    fn let_go(mut self) {
        kill("INT", self.strace.id());
        self.strace.wait().unwrap();
        std::fs::remove_file(&self.trace).unwrap();
    }
}

fn kill(signal: &str, process: u32) {
    let mut kill = Command::new("kill");
    // It may have ended by itself.
    kill.args(["-s", signal, &process.to_string()])
        .output()
        .unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_stands_still_after_the_call_that_is_meant_or_ends() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("trace");
        let mut shell = Command::new("sh");
        let script = "mkdir one; mkdir two; mkdir three";
        shell.args(["-c", script]).current_dir(place.path());
        let (output, calls) = counted(&shell, "mkdir", &trace);
        assert!(output.status.success());
        // Each mkdir is a process of its own.
        assert_eq!(
            calls.iter().map(Call::to_string).collect::<Vec<_>>(),
            ["mkdir 1"]
        );
        for name in ["one", "two", "three"] {
            std::fs::remove_dir(place.path().join(name)).unwrap();
        }
        let stopped = stopped(&shell, &calls[0], &trace).unwrap();
        assert!(place.path().join("one").exists());
        assert!(!place.path().join("two").exists());
        stopped.kill();
        let never = Call::new("mkdir", 2);
        std::fs::remove_dir(place.path().join("one")).unwrap();
        assert!(self::stopped(&shell, &never, &trace).is_none());
        assert!(place.path().join("three").exists());
    }

    #[test]
    fn a_program_that_stands_still_goes_on_to_its_end() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("trace");
        let mut shell = Command::new("sh");
        let script = "mkdir one; echo made; mkdir two; exit 7";
        shell.args(["-c", script]).current_dir(place.path());
        let stopped = stopped(&shell, &Call::new("mkdir", 1), &trace).unwrap();
        assert!(!place.path().join("two").exists());
        let output = stopped.go_on();
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(output.stdout, b"made\n");
        assert!(place.path().join("two").exists());
    }

    #[test]
    fn a_program_stands_still_after_a_call_at_the_path_that_is_meant() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("trace");
        let [one, two, three] = ["one", "two", "three"].map(|name| place.path().join(name));
        let mut mkdir = Command::new("mkdir");
        mkdir.args([&one, &two, &three]);
        let call = Call::new("mkdir", 1);
        let stopped = stopped_at(&mkdir, (&call, &two), &trace).unwrap();
        assert!(one.exists() && two.exists() && !three.exists());
        assert!(stopped.go_on().status.success());
        assert!(three.exists());
    }

    #[test]
    fn a_few_are_drawn_and_always_the_same() {
        let few = drawn((0..100).collect(), 5, 7);
        assert!(is_soak() || few.len() == 5);
        assert_eq!(few, drawn((0..100).collect::<Vec<_>>(), 5, 7));
    }
}

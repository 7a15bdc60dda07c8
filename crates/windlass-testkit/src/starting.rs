//! Processes that tests start, and moments in which none is being started.
//!
//! A process has copies of all descriptors of the test until it runs its program. To the kernel, a
//! file that the test has closed is still open then. A restore asks the kernel whether anybody has
//! a database open for writing. So a test that restores over its own files must not ask while a
//! test in another thread starts a process. All processes of such a test binary are started here.

use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static STARTING: RwLock<()> = RwLock::new(());

/// As long as this lives, no process is being started here, and all that were run their programs.
/// The thread that holds it must not start one.
pub fn none_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes something that starts a process and returns when the process runs its program.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Starts a program.
pub fn start(command: &mut Command) -> io::Result<Child> {
    starting(|| command.spawn())
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    start(command)?.wait()
}

/// Runs a program to its end, and returns what it said.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
    start(piped.stderr(Stdio::piped()))?.wait_with_output()
}

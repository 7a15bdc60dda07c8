//! Goes into the background: the command starts itself again, waits until what it opens or mounts
//! is there, and ends. A fork would be shorter, but a process with threads cannot fork safely.
//!
//! The child prints everything through pipes. So a caller that waits for the end of the output does
//! not have to wait for the end of the child. When all is there, the child writes READY and
//! closes the pipes.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::exit::{Code, Failure};
use crate::output;

/// The mark at the end of what the child prints until all is there. No line of output contains
/// it. The code with which this command ends follows.
const READY: &str = "\0ready";

/// What to do if it cannot.
const IN_FRONT: &str = "Let it run in the foreground: mount --foreground, open without --keep.";

/// Starts the command again as a background process with these words at its end, and waits until
/// it calls [`leave`].
pub fn run(json: bool, words: &[&str]) -> Result<Code, Failure> {
    let fault = |error: std::io::Error| {
        let message = format!("cannot start in the background: {error}");
        Failure::new(Code::Failed, message, IN_FRONT)
    };
    let mut child = Command::new(std::env::current_exe().map_err(fault)?)
        .args(std::env::args_os().skip(1))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fault)?;
    let mut said = String::new();
    let errors = child.stderr.take();
    let forward = std::thread::spawn(move || {
        let mut errors = errors?;
        std::io::copy(&mut errors, &mut std::io::stderr()).ok()
    });
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut said).map_err(fault)?;
    }
    forward.join().unwrap_or_default();
    if let Some((words, code)) = said.rsplit_once(READY) {
        if !words.trim_end().is_empty() {
            output::line(words.trim_end());
        }
        let code = code.parse().ok().and_then(Code::of_number);
        return Ok(code.unwrap_or(Code::Done));
    }
    if json {
        output::line(said.trim_end());
    }
    // The child has printed the reason on standard error.
    let status = child.wait().map_err(fault)?;
    let number = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(number.and_then(Code::of_number).unwrap_or(Code::Failed))
}

/// Called in the child when all is there: nobody waits for it any more. `code` is that of the
/// command in the foreground.
pub fn leave(code: Code) -> Result<(), Failure> {
    let fault = |error: std::io::Error| {
        let message = format!("cannot leave the terminal: {error}");
        Failure::new(Code::Failed, message, IN_FRONT)
    };
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null");
    let nothing = nothing.map_err(fault)?;
    rustix::process::setsid().map_err(|errno| fault(errno.into()))?;
    std::env::set_current_dir("/").map_err(fault)?;
    let mut out = std::io::stdout();
    out.write_all(format!("{READY}{}", code.number()).as_bytes())
        .and_then(|()| out.flush())
        .map_err(fault)?;
    let redirected = rustix::stdio::dup2_stdin(&nothing)
        .and_then(|()| rustix::stdio::dup2_stdout(&nothing))
        .and_then(|()| rustix::stdio::dup2_stderr(&nothing));
    redirected.map_err(|errno| fault(errno.into()))
}

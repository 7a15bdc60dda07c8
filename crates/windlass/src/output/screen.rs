//! Writes to standard output and standard error, so that nothing controls the terminal and no line
//! is mixed with the line of progress.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::exit::{Code, Failure};
use crate::terminal::{self, Stream};

pub(super) const BOLD: &str = "\x1b[1m";
pub(super) const RED: &str = "\x1b[1;31m";
pub(super) const GREEN: &str = "\x1b[1;32m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
pub(super) const RESET: &str = "\x1b[0m";

/// The line of progress on the terminal. Other lines must not be mixed with it.
static BAR: Mutex<Bar> = Mutex::new(Bar {
    text: String::new(),
    columns: 0,
});

/// The first error of writing a result to standard output.
static FAILED: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Whether something beside the result failed: the log, or the metrics.
static DEGRADED: AtomicBool = AtomicBool::new(false);

struct Bar {
    text: String,
    /// The columns of the terminal when the line was drawn.
    columns: usize,
}

/// Prints the same, but does not write it to the log.
pub fn unlogged(text: &str) {
    let text = printable(text);
    let colors = [("error: ", RED), ("warning: ", YELLOW), ("hint: ", CYAN)];
    let found = colors.iter().find(|(word, _)| text.starts_with(word));
    match found.filter(|_| terminal::is_colored(Stream::Err)) {
        Some((word, color)) => {
            let rest = &text[word.len()..];
            print(
                Stream::Err,
                &format!("{color}{}{RESET} {rest}", word.trim_end()),
            );
        }
        None => print(Stream::Err, &text),
    }
}

/// Prints a warning about something beside the result. The command then ends with the exit code for
/// warnings. The log does not get it.
pub fn degrade(text: &str) {
    DEGRADED.store(true, Ordering::Relaxed);
    unlogged(&format!("warning: {text}"));
}

/// Does the same without a word, because the user was told before.
pub fn degrade_silently() {
    DEGRADED.store(true, Ordering::Relaxed);
}

/// Whether something went wrong beside the purpose of the command.
pub fn is_degraded() -> bool {
    DEGRADED.load(Ordering::Relaxed)
}

/// The exit code of a command that would end with `code`.
pub fn degraded(code: Code) -> Code {
    match code {
        Code::Done if is_degraded() => Code::Warnings,
        code => code,
    }
}

/// Draws the line of progress on a terminal with this width. Empty text removes the line.
pub fn bar(text: &str, columns: usize) {
    let mut bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = bar.gone();
    *bar = Bar {
        text: text.to_owned(),
        columns,
    };
    write(Stream::Err, &format!("{gone}{text}"));
}

impl Bar {
    /// The codes that remove the line. A terminal that became narrower shows it on several rows.
    fn gone(&self) -> String {
        let columns = terminal::columns(Stream::Err)
            .unwrap_or(self.columns)
            .max(1);
        match self.text.chars().count() {
            0 => String::new(),
            length if length <= columns => "\r\x1b[K".to_owned(),
            length => format!("\r\x1b[{}A\x1b[J", (length - 1) / columns),
        }
    }
}

/// Text in a form that is safe for a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.trim_end_matches('\n').chars() {
        match letter {
            '\n' => shown.push_str("\n    "),
            letter if is_hostile(letter) => {
                shown.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character controls a terminal or changes the direction of its text.
fn is_hostile(letter: char) -> bool {
    let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && letter != '\t')
}

pub(super) fn print(stream: Stream, text: &str) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    if bar.text.is_empty() {
        return write(stream, &format!("{text}\n"));
    }
    write(Stream::Err, &bar.gone());
    write(stream, &format!("{text}\n"));
    write(Stream::Err, &bar.text);
}

/// The failure of writing a result, if there was one.
pub fn failure() -> Option<Failure> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    let error = failed.as_ref()?;
    let message = format!("cannot write the result to standard output: {error}");
    let hint = "The command itself has ended; only its result is not there. See what standard \
                output leads to.";
    Some(Failure::new(Code::Failed, message, hint))
}

/// Prints a help text or the version, with its colours.
pub fn help(text: &clap::Error) {
    let written = match super::closed::error() {
        Some(error) => Err(error),
        None => text.print(),
    };
    written.unwrap_or_else(keep);
}

/// Keeps the first error of writing a result.
fn keep(error: std::io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
    }
}

pub(super) fn write(stream: Stream, text: &str) {
    match stream {
        Stream::Out => {
            let mut out = std::io::stdout().lock();
            let written = match super::closed::error() {
                Some(error) => Err(error),
                None => out.write_all(text.as_bytes()).and_then(|()| out.flush()),
            };
            written.unwrap_or_else(keep);
        }
        Stream::Err => std::io::stderr()
            .write_all(text.as_bytes())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_is_printed_raw() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u001b[2Jb");
        assert_eq!(printable("bell\u{7} \u{9b}31m"), "bell\\u0007 \\u009b31m");
        assert_eq!(printable("x\u{202e}gpj"), "x\\u202egpj");
        assert_eq!(printable("one\r\ntwo\n"), "one\\u000d\n    two");
        assert_eq!(printable("ünï\tcode"), "ünï\tcode");
        // Characters that JSON leaves as they are keep their meaning.
        let text = serde_json::json!({"a": "\u{7f}\u{9b}\u{1b}"}).to_string();
        let read: serde_json::Value = serde_json::from_str(&printable(&text)).unwrap();
        assert_eq!(read["a"], "\u{7f}\u{9b}\u{1b}");
    }
}

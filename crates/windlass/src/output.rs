//! Printing: all lines for a terminal, a file or a pipe go through this file.
//!
//! Invariants
//! - Text from a set, a server or a path never controls the terminal. Control characters are
//!   written as `\u001b`. Further lines of a text are indented, so that they cannot look like a
//!   line of Windlass. The meaning of JSON does not change, because this is JSON's own notation.
//! - If a result cannot be written, that is a failure, and [`failure`] returns it when the command
//!   has ended. So no backup is stopped in its middle because of it. If the reader of a pipe has
//!   gone, that is not a failure: the reader wanted no more (`windlass info | head`).

mod closed;
mod said;
pub(crate) mod screen;

use std::process::ExitCode;

use crate::exit::Failure;
use crate::log;
use crate::terminal::{self, Stream};
pub use said::{run_ended, so_far};
use screen::{BOLD, GREEN, RED, RESET, print, write};
pub use screen::{
    bar, degrade_silently, degraded, failure, help, is_degraded, printable, unlogged,
};
pub use windlass_engine::counted as count;

/// The column in which the text of an entry begins.
const LABEL_COLUMNS: usize = 14;
/// Text is never broken into shorter lines than this.
const TEXT_COLUMNS_MIN: usize = 40;
/// Lines longer than this are hard to read.
const COLUMNS_MAX: usize = 200;

/// The meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Just a fact.
    Plain,
    /// Something was done as it should be.
    Good,
    /// Something is wrong.
    Bad,
}

/// Prints a warning about something beside the result, like the metrics. It does not stop the
/// command, which then ends with the exit code for warnings.
pub fn degrade(text: &str) {
    said::keep(&format!("warning: {text}"));
    log::warn(text);
    screen::degrade(text);
}

/// Prints a line of the result, on standard output.
pub fn line(text: &str) {
    print(Stream::Out, &printable(text));
}

/// Prints text of several lines, on standard output.
pub fn text(text: &str) {
    write(Stream::Out, text);
}

/// Prints a line for the person who watches, on standard error.
pub fn note(text: &str) {
    said::keep(text);
    log::told(text);
    unlogged(text);
}

/// Prints a line of the result, with a label in front. On a terminal it is broken between words.
pub fn entry(label: &str, text: &str, tone: Tone) {
    let text = printable(text);
    let clever = terminal::is_clever(Stream::Out);
    let columns = terminal::columns(Stream::Out).filter(|_| clever);
    // The last column stays free, because some terminals begin a new row after it.
    let width = columns.map_or(usize::MAX, |columns| columns.min(COLUMNS_MAX) - 1);
    let color = match tone {
        Tone::Plain => BOLD,
        Tone::Good => GREEN,
        Tone::Bad => RED,
    };
    let mut first = format!("{:LABEL_COLUMNS$}", printable(label));
    if terminal::is_colored(Stream::Out) {
        first = format!("{color}{first}{RESET}");
    }
    for part in broken(
        &text,
        width.saturating_sub(LABEL_COLUMNS).max(TEXT_COLUMNS_MIN),
    ) {
        print(Stream::Out, &format!("{first}{part}"));
        first = " ".repeat(LABEL_COLUMNS);
    }
}

/// Prints a failure. Returns the exit code.
pub fn report(failure: &Failure, json: bool) -> ExitCode {
    let code = failure.code();
    if json {
        let document = serde_json::json!({
            "error": failure.message(),
            "hint": failure.hint(),
            "exit_code": code.number(),
        });
        line(&document.to_string());
    }
    note(&format!("error: {}", failure.message()));
    if let Some(hint) = failure.hint() {
        note(&format!("hint: {hint}"));
    }
    code.into()
}

/// Text in lines of at most `width` characters, as far as its words allow.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        let fits = last == 0 || last + 1 + word.chars().count() <= width;
        match lines.last_mut() {
            Some(line) if fits => {
                if last > 0 {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(broken("one two three", 8), ["one two", "three"]);
        assert_eq!(broken("/a/very/long/path b", 5), ["/a/very/long/path", "b"]);
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("two  spaces", 50), ["two  spaces"]);
    }
}

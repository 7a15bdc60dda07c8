//! Printing. A closed pipe ends no backup: what cannot be printed is not printed.

use std::io::{IsTerminal, Write};

/// A line of result, on standard output.
pub fn line(text: &str) {
    writeln!(std::io::stdout(), "{text}").unwrap_or_default();
}

/// A line for the person watching, on standard error.
pub fn note(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap_or_default();
}

/// True when a person is watching standard error.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A number with its noun: `1 device`, `4 devices`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

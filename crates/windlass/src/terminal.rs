//! What the terminal can do: whether it can move its cursor, whether it shows colours, and how wide
//! it is.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;
use rustix::fd::AsFd;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal that shows them, unless NO_COLOR is set
    #[default]
    Auto,
    /// Also into a file or a pipe
    Always,
    /// Not at all
    Never,
}

/// The stream that a line goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output: results.
    Out,
    /// Standard error: everything else.
    Err,
}

/// The value of `--color`, for the whole process: it has one terminal.
static COLOR: AtomicU8 = AtomicU8::new(Color::Auto as u8);

/// Sets the value of `--color`.
pub fn set_color(color: Color) {
    COLOR.store(color as u8, Ordering::Relaxed);
}

/// Whether lines to this stream are coloured.
pub fn is_colored(stream: Stream) -> bool {
    match COLOR.load(Ordering::Relaxed) {
        color if color == Color::Always as u8 => true,
        color if color == Color::Never as u8 => false,
        // See https://no-color.org: any value that is not empty counts.
        _ => !is_set("NO_COLOR") && is_clever(stream),
    }
}

/// Whether a person watches this stream on a terminal that can move its cursor.
pub fn is_clever(stream: Stream) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    is_terminal(stream) && !dumb
}

/// The width of the terminal behind this stream, if there is one that says it.
pub fn columns(stream: Stream) -> Option<usize> {
    let size = match stream {
        Stream::Out => rustix::termios::tcgetwinsize(std::io::stdout().as_fd()),
        Stream::Err => rustix::termios::tcgetwinsize(std::io::stderr().as_fd()),
    };
    let columns = usize::from(size.ok()?.ws_col);
    (columns > 0).then_some(columns)
}

fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Out => std::io::stdout().is_terminal(),
        Stream::Err => std::io::stderr().is_terminal(),
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

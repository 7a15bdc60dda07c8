//! Charts and reports: self-contained HTML with inline SVG, without a script.
//!
//!   data --> LineChart, BarChart --figure--> <figure> --> Page --html--> one file
//!
//! Every chart is drawn twice, wide and narrow, and the style sheet shows the one that fits: text
//! that shrinks with the drawing cannot be read on a telephone. Colours are names that the style
//! sheet gives a light and a dark meaning; the legend is HTML, which wraps.
//! `docs/decisions/0011-charts.md` says why this is not a library.
//!
//! Invariants
//! - All text is escaped. A page loads nothing from anywhere.
//! - The same data give the same bytes.
//! - A value that is no number is left out, not drawn somewhere.

mod axis;
mod bars;
mod frame;
mod lines;
mod page;
mod unit;

pub use axis::Scale;
pub use bars::{BarChart, BarLayout, Group};
pub use lines::{LineChart, Series};
pub use page::{Cell, PAGE, Page, Table};
pub use unit::Unit;

/// Colours there are; series beyond begin again.
const COLOURS: usize = 8;

/// Text as it may stand in HTML and SVG, in elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            letter => out.push(letter),
        }
    }
    out
}

/// Appends formatted text; writing into memory does not fail.
fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    std::fmt::Write::write_fmt(out, text).unwrap_or_default();
}

/// The class that gives series number `index` its colour.
fn colour(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

#[cfg(test)]
mod tests;

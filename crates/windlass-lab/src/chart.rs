//! Charts and reports: self-contained HTML with inline SVG and no script.
//!
//!   data --> LineChart, BarChart --figure--> <figure> --> Page --html--> one file
//!
//! Every chart is drawn twice, wide and narrow, and the style sheet shows the one that fits. One
//! drawing for both would shrink its text on a telephone until nobody can read it. Colours are
//! names; the style sheet gives each of them a light and a dark value. The legend is HTML because
//! HTML wraps.
//! `docs/decisions/0011-charts.md` says why this is not a library.
//!
//! Invariants
//! - All text is escaped. A page loads nothing from anywhere.
//! - The same data give the same bytes.
//! - A value that is not a number is left out. It is never drawn at an invented place.

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

/// The number of colours. After the last colour, the series begin again with the first.
const COLOURS: usize = 8;

/// Escapes text so that it can stand in HTML and SVG, in elements and attributes.
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

/// Appends formatted text. Writing into memory does not fail.
fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    std::fmt::Write::write_fmt(out, text).unwrap_or_default();
}

/// The class that gives series number `index` its colour.
fn colour(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

#[cfg(test)]
mod tests;

//! What all charts have in common: the figure with its title and legend, and the two drawings.

use super::{append, colour, escape};

/// One of the two drawings of a chart. Its units are CSS pixels at full size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing {
    pub(super) class: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Ticks that fit along the bottom.
    pub(super) ticks: usize,
    /// Points that a line may have.
    pub(super) points: usize,
}

/// For windows wider than 640 pixels.
pub(super) const WIDE: Drawing = Drawing {
    class: "wide",
    width: 880.0,
    height: 300.0,
    ticks: 9,
    points: 400,
};
/// For narrower windows.
pub(super) const NARROW: Drawing = Drawing {
    class: "narrow",
    width: 330.0,
    height: 230.0,
    // With one more tick the labels "150 ms" and "200 ms" would touch.
    ticks: 3,
    points: 140,
};

/// A figure: its title, a sentence that says what it shows, the legend, and both drawings.
pub(super) fn figure(
    (title, description): (&str, &str),
    legend: &[&str],
    draw: impl Fn(Drawing) -> (f64, String),
) -> String {
    let (title, description) = (escape(title), escape(description));
    let mut out = format!("<figure>\n<figcaption><h3>{title}</h3><p>{description}</p>");
    if legend.len() > 1 {
        out += "<ul class=\"legend\">";
        for (index, name) in legend.iter().enumerate() {
            let (class, name) = (colour(index), escape(name));
            append(
                &mut out,
                format_args!("<li><span class=\"key {class}\"></span>{name}</li>"),
            );
        }
        out += "</ul>";
    }
    out += "</figcaption>\n";
    for drawing in [WIDE, NARROW] {
        let (height, content) = draw(drawing);
        let Drawing { class, width, .. } = drawing;
        append(
            &mut out,
            format_args!(
                "<svg class=\"{class}\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" \
                 aria-label=\"{title}: {description}\"><title>{title}</title>\n{content}</svg>\n"
            ),
        );
    }
    out += "</figure>\n";
    out
}

/// A label; `anchor` is `start`, `middle` or `end`.
pub(super) fn label(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let text = escape(text);
    append(
        out,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"),
    );
}

/// As much of a text as a label of this width has room for. The whole text is in the bar's title.
pub(super) fn fitted(text: &str, width: f64) -> String {
    // Nearly all letters of a 12-pixel font are narrower than this.
    const LETTER: f64 = 7.2;
    let mut room = width / LETTER;
    let mut out = String::new();
    for letter in text.chars() {
        room -= 1.0;
        if room < 1.0 {
            return out + "…";
        }
        out.push(letter);
    }
    out
}

/// A line of the grid.
pub(super) fn rule(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
    append(
        out,
        format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ),
    );
}

//! Horizontal bars. The labels stand above the bars, so they can have any length on any screen.

use super::axis::{Axis, Scale};
use super::frame::{Drawing, figure, fitted, label, rule};
use super::unit::Unit;
use super::{append, colour, escape};

/// How the bars of a group are arranged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BarLayout {
    /// End to end: parts of a whole.
    #[default]
    Stacked,
    /// One below the other, for comparing.
    Grouped,
}

/// One label with its bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The text above the bars.
    pub label: String,
    /// One value for each series.
    pub values: Vec<f64>,
    /// The single measured values, if the first value is their summary; drawn as small dots.
    pub runs: Vec<f64>,
    /// Whether the bars are drawn as outlines.
    pub hollow: bool,
}

/// Bars with a common axis.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// What it shows, in a sentence.
    pub description: String,
    /// The values' unit.
    pub unit: Unit,
    /// Names of the series, for the legend.
    pub series: Vec<String>,
    /// The bars.
    pub groups: Vec<Group>,
    /// How the bars are arranged.
    pub layout: BarLayout,
    /// A value to compare with, drawn as a line; for speed-ups it is 1.
    pub reference: Option<f64>,
    /// The values that differ from the reference only by chance; drawn as a band.
    pub band: Option<(f64, f64)>,
}

const LEFT: f64 = 2.0;
const LABEL: f64 = 19.0;
const GAP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

impl BarChart {
    /// The chart as an HTML figure.
    pub fn figure(&self) -> String {
        let legend: Vec<_> = self.series.iter().map(String::as_str).collect();
        figure((&self.title, &self.description), &legend, |drawing| {
            self.draw(drawing)
        })
    }

    fn draw(&self, drawing: Drawing) -> (f64, String) {
        let grouped = self.layout == BarLayout::Grouped;
        let bar = if grouped { 16.0 } else { 22.0 };
        let rows = |group: &Group| if grouped { group.values.len() } else { 1 };
        #[expect(clippy::cast_precision_loss, reason = "a few bars")]
        let height_of = |group: &Group| LABEL + bar * rows(group) as f64 + GAP;
        let bottom: f64 = self.groups.iter().map(height_of).sum();
        // Grouped bars have their values written behind them, so there is less room for the bars.
        let right = drawing.width - if grouped { 70.0 } else { 30.0 };
        let values = self.groups.iter().flat_map(|group| self.extents(group));
        let values = values.chain(self.reference);
        let runs = self
            .groups
            .iter()
            .flat_map(|group| group.runs.iter().copied());
        let values = values.chain(runs).chain(self.band.map(|band| band.1));
        let axis = Axis::new(
            (Scale::Linear, self.unit),
            values,
            (LEFT, right),
            drawing.ticks.min(6),
        );
        let mut out = String::new();
        for tick in &axis.ticks {
            let Some(at) = axis.place(*tick) else {
                continue;
            };
            rule(&mut out, (at, 0.0), (at, bottom), "grid");
            let anchor = if at < 20.0 { "start" } else { "middle" };
            label(
                &mut out,
                (at, bottom + 16.0),
                anchor,
                &self.unit.show(*tick),
            );
        }
        self.noise(&mut out, &axis, bottom);
        // Words are drawn above the reference line, and the reference line above the bars.
        let (mut top, mut words) = (0.0, String::new());
        for group in &self.groups {
            let name = fitted(&group.label, drawing.width);
            label(&mut words, (LEFT, top + 14.0), "start", &name);
            self.bars((&mut out, &mut words), &axis, group, (top + LABEL, bar));
            top += height_of(group);
        }
        if let Some(at) = self.reference.and_then(|value| axis.place(value)) {
            rule(&mut out, (at, 0.0), (at, bottom), "reference");
        }
        out += &words;
        (bottom + BOTTOM, out)
    }

    /// Draws the noise as a band from the top of the chart to `bottom`.
    fn noise(&self, out: &mut String, axis: &Axis, bottom: f64) {
        let band = self
            .band
            .and_then(|(low, high)| axis.place(low).zip(axis.place(high)));
        if let Some((from, to)) = band {
            let width = to - from;
            append(
                out,
                format_args!(
                    "<rect class=\"noise\" x=\"{from:.1}\" y=\"0\" width=\"{width:.1}\" \
                     height=\"{bottom:.1}\"/>\n"
                ),
            );
        }
    }

    /// The values at which the bars of a group end.
    fn extents(&self, group: &Group) -> Vec<f64> {
        match self.layout {
            BarLayout::Grouped => group.values.clone(),
            BarLayout::Stacked => vec![group.values.iter().filter(|value| value.is_finite()).sum()],
        }
    }

    fn bars(
        &self,
        (out, words): (&mut String, &mut String),
        axis: &Axis,
        group: &Group,
        (top, bar): (f64, f64),
    ) {
        let (mut base, mut row) = (0.0, top);
        for (index, value) in group.values.iter().enumerate() {
            let (from, to) = (axis.place(base), axis.place(base + value));
            if let (Some(from), Some(to)) = (from, to) {
                let (class, width) = (colour(index), to - from);
                let hollow = if group.hollow { " hollow" } else { "" };
                let name = escape(self.series.get(index).map_or("", String::as_str));
                let (label_text, shown) = (escape(&group.label), self.unit.show(*value));
                let height = bar - 2.0;
                append(
                    out,
                    format_args!(
                        "<rect class=\"bar{hollow} {class}\" x=\"{from:.1}\" y=\"{row:.1}\" \
                         width=\"{width:.1}\" height=\"{height:.1}\">\
                         <title>{label_text}, {name}: {shown}</title></rect>\n"
                    ),
                );
                match self.layout {
                    BarLayout::Stacked => base += value,
                    BarLayout::Grouped => {
                        label(words, (to + 5.0, row + height - 3.0), "start", &shown);
                    }
                }
            }
            if self.layout == BarLayout::Grouped {
                row += bar;
            }
        }
        for run in &group.runs {
            let Some(at) = axis.place(*run) else { continue };
            let (middle, shown) = (top + bar / 2.0 - 1.0, self.unit.show(*run));
            append(
                out,
                format_args!(
                    "<circle class=\"run\" cx=\"{at:.1}\" cy=\"{middle:.1}\" r=\"1.8\">\
                     <title>one run: {shown}</title></circle>\n"
                ),
            );
        }
    }
}

//! Lines over an axis, or areas stacked on each other.

use super::axis::{Axis, Scale};
use super::frame::{Drawing, figure, label, rule};
use super::unit::Unit;
use super::{append, colour, escape};

/// One line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// The single measured values, if a point is their summary; drawn as small dots.
    pub runs: Vec<(f64, f64)>,
    /// How far a point may be off by chance: x, low, high. Drawn as a band.
    pub band: Vec<(f64, f64, f64)>,
    /// For each point, whether it is drawn as a ring instead of a dot. If this is empty, all are
    /// dots.
    pub hollow: Vec<bool>,
}

/// Lines that share both axes.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// What it shows, in a sentence.
    pub description: String,
    /// What the bottom axis shows, and its unit.
    pub x: (String, Unit),
    /// How values are spread along the bottom axis.
    pub x_scale: Scale,
    /// The names on the bottom axis when its scale is `Scale::Named`.
    pub x_names: Vec<String>,
    /// The unit of the vertical axis.
    pub y: Unit,
    /// The lines. When they are stacked, all of them have the same x values.
    pub series: Vec<Series>,
    /// Whether the lines are drawn as areas stacked on each other.
    pub stacked: bool,
    /// Whether each point is marked. This is for charts with few points that were all measured.
    pub marked: bool,
}

const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

impl LineChart {
    /// The chart as an HTML figure.
    pub fn figure(&self) -> String {
        let legend: Vec<_> = self
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        figure((&self.title, &self.description), &legend, |drawing| {
            (drawing.height, self.draw(drawing))
        })
    }

    fn draw(&self, drawing: Drawing) -> String {
        let layers = self.layers(drawing.points);
        let points = || layers.iter().flat_map(|layer| &layer.upper);
        let across = (LEFT, drawing.width - RIGHT);
        let up = (drawing.height - BOTTOM, TOP);
        let x = Axis::new(
            (self.x_scale, self.x.1),
            points().map(|point| point.0),
            across,
            drawing.ticks,
        );
        let runs = self.series.iter().flat_map(|series| &series.runs);
        let bands = self.series.iter().flat_map(|series| &series.band);
        let values = points().map(|point| point.1);
        let values = values
            .chain(runs.map(|run| run.1))
            .chain(bands.map(|band| band.2));
        let y = Axis::new((Scale::Linear, self.y), values, up, 5);
        let mut out = String::new();
        self.axes(&mut out, (&x, &y), drawing);
        // Bands are drawn below all lines.
        for (index, series) in self.series.iter().enumerate() {
            band(&mut out, (&x, &y), index, series);
        }
        for (index, layer) in layers.iter().enumerate() {
            self.layer(&mut out, (&x, &y), index, layer);
        }
        if points().next().is_none() {
            let middle = (f64::midpoint(across.0, across.1), f64::midpoint(up.0, up.1));
            label(&mut out, middle, "middle", "nothing was measured");
        }
        out
    }

    fn axes(&self, out: &mut String, (x, y): (&Axis, &Axis), drawing: Drawing) {
        let (right, bottom) = (drawing.width - RIGHT, drawing.height - BOTTOM);
        for tick in &y.ticks {
            let Some(at) = y.place(*tick) else { continue };
            rule(out, (LEFT, at), (right, at), "grid");
            label(out, (LEFT - 7.0, at + 4.0), "end", &self.y.show(*tick));
        }
        let last = x.ticks.last().copied();
        for tick in &x.ticks {
            let Some(at) = x.place(*tick).filter(|at| *at <= right + 0.5) else {
                continue;
            };
            rule(out, (at, bottom), (at, bottom + 4.0), "axis");
            let anchor = if Some(*tick) == last && right - at < 20.0 {
                "end"
            } else {
                "middle"
            };
            label(out, (at, bottom + 17.0), anchor, &self.x_shown(*tick));
        }
        rule(out, (LEFT, bottom), (right, bottom), "axis");
        let middle = f64::midpoint(LEFT, right);
        label(out, (middle, drawing.height - 6.0), "middle", &self.x.0);
    }

    /// A value of the bottom axis, in words.
    fn x_shown(&self, value: f64) -> String {
        if self.x_scale != Scale::Named {
            return self.x.1.show(value);
        }
        let same = |(index, _): &(usize, &String)| (index_value(*index) - value).abs() < 0.5;
        let name = self.x_names.iter().enumerate().find(same);
        name.map_or_else(String::new, |(_, name)| name.clone())
    }

    fn layer(&self, out: &mut String, (x, y): (&Axis, &Axis), index: usize, layer: &Layer) {
        let place = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
            let place = |(a, b): &(f64, f64)| x.place(*a).zip(y.place(*b));
            points.iter().filter_map(place).collect()
        };
        let (class, name) = (colour(index), escape(&self.series[index].name));
        let upper = place(&layer.upper);
        if self.stacked {
            let lower = place(&layer.lower).into_iter().rev();
            let path: Vec<_> = upper.iter().copied().chain(lower).collect();
            let path = path_of(&path);
            append(
                out,
                format_args!(
                    "<path class=\"area {class}\" d=\"{path}Z\"><title>{name}</title></path>\n"
                ),
            );
            return;
        }
        let path = path_of(&upper);
        append(
            out,
            format_args!(
                "<path class=\"line {class}\" d=\"{path}\"><title>{name}</title></path>\n"
            ),
        );
        self.runs(out, (x, y), index);
        // A single point makes no line, so it is marked.
        if self.marked || upper.len() == 1 {
            let rings = &self.series[index].hollow;
            for (number, ((px, py), (vx, vy))) in upper.iter().zip(&layer.upper).enumerate() {
                let (vx, vy) = (escape(&self.x_shown(*vx)), self.y.show(*vy));
                let is_ring = rings.len() == upper.len() && rings[number];
                let ring = if is_ring { " hollow" } else { "" };
                append(
                    out,
                    format_args!(
                        "<circle class=\"dot{ring} {class}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3.5\">\
                         <title>{name}, {vx}: {vy}</title></circle>\n"
                    ),
                );
            }
        }
    }

    /// Draws the runs that the points of a line summarise.
    fn runs(&self, out: &mut String, (x, y): (&Axis, &Axis), index: usize) {
        let (class, series) = (colour(index), &self.series[index]);
        let name = escape(&series.name);
        for (vx, vy) in &series.runs {
            let Some((px, py)) = x.place(*vx).zip(y.place(*vy)) else {
                continue;
            };
            let (vx, vy) = (escape(&self.x_shown(*vx)), self.y.show(*vy));
            append(
                out,
                format_args!(
                    "<circle class=\"run {class}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"1.8\">\
                     <title>{name}, {vx}, one run: {vy}</title></circle>\n"
                ),
            );
        }
    }

    fn layers(&self, points: usize) -> Vec<Layer> {
        let mut below: Vec<(f64, f64)> = Vec::new();
        let mut layers = Vec::new();
        for series in &self.series {
            let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
            let kept: Vec<_> = series.points.iter().filter(finite).copied().collect();
            let mut upper = fewer(&kept, points);
            let mut lower = Vec::new();
            if self.stacked {
                lower = upper.iter().map(|(x, _)| (*x, 0.0)).collect();
                for (index, base) in below.iter().enumerate().take(upper.len()) {
                    upper[index].1 += base.1;
                    lower[index].1 = base.1;
                }
                below.clone_from(&upper);
            }
            layers.push(Layer { upper, lower });
        }
        layers
    }
}

/// The band of a line: first along its upper edge, then back along its lower edge.
fn band(out: &mut String, (x, y): (&Axis, &Axis), index: usize, series: &Series) {
    let place = |at: f64, value: f64| x.place(at).zip(y.place(value));
    let upper = series
        .band
        .iter()
        .filter_map(|(at, _, high)| place(*at, *high));
    let lower = series.band.iter().rev();
    let lower = lower.filter_map(|(at, low, _)| place(*at, *low));
    let path: Vec<_> = upper.chain(lower).collect();
    if path.len() > 3 {
        let (class, path) = (colour(index), path_of(&path));
        append(
            out,
            format_args!("<path class=\"band {class}\" d=\"{path}Z\"/>\n"),
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful of names")]
fn index_value(index: usize) -> f64 {
    index as f64
}

/// The upper edge of a line; for an area, its lower edge too.
struct Layer {
    upper: Vec<(f64, f64)>,
    lower: Vec<(f64, f64)>,
}

/// At most `most` points. Neighbours are replaced by their mean.
fn fewer(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let chunk = points.len().div_ceil(most.max(1)).max(1);
    let mean = |points: &[(f64, f64)]| {
        let (x, y) = points
            .iter()
            .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        #[expect(clippy::cast_precision_loss, reason = "a few points")]
        let count = points.len() as f64;
        (x / count, y / count)
    };
    points.chunks(chunk).map(mean).collect()
}

fn path_of(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        append(&mut path, format_args!("{letter}{x:.1} {y:.1}"));
    }
    path
}

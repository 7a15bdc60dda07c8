//! What a chart shows, and what it leaves out.

use proptest::prelude::*;

use super::axis::{Axis, Scale};
use super::{BarChart, BarLayout, Group, LineChart, Page, Series, Unit};

fn lines(points: Vec<(f64, f64)>) -> LineChart {
    LineChart {
        title: "a < b & \"c\"".to_owned(),
        description: "of two".to_owned(),
        x: ("time".to_owned(), Unit::Seconds),
        x_scale: Scale::Linear,
        y: Unit::BytesPerSecond,
        series: vec![Series {
            name: "one".to_owned(),
            points,
            ..Series::default()
        }],
        marked: true,
        ..LineChart::default()
    }
}

#[test]
fn values_are_shown_in_the_unit_that_fits() {
    assert_eq!(Unit::Bytes.show(65536.0), "64 KiB");
    assert_eq!(Unit::Bytes.show(1.5 * 1024.0 * 1024.0), "1.5 MiB");
    assert_eq!(Unit::BytesPerSecond.show(2.5e9), "2.33 GiB/s");
    assert_eq!(Unit::Seconds.show(0.0), "0 s");
    assert_eq!(Unit::Seconds.show(0.000_25), "250 µs");
    assert_eq!(Unit::Seconds.show(300.0), "5 min");
    assert_eq!(Unit::Share.show(0.125), "12.5 %");
    assert_eq!(Unit::Factor.show(2.0), "2x");
    assert_eq!(Unit::Count.show(1000.0), "1000");
}

#[test]
fn sizes_are_doubled_along_the_bottom() {
    let sizes = (16..=22).map(|power| f64::from(1 << power));
    let axis = Axis::new((Scale::Log2, Unit::Bytes), sizes, (0.0, 60.0), 9);
    assert_eq!(axis.ticks.len(), 7);
    assert_eq!(axis.place(65536.0), Some(0.0));
    assert_eq!(axis.place(131_072.0).map(f64::round), Some(10.0));
    assert_eq!(axis.place(0.0), None);
}

#[test]
fn text_is_escaped_and_values_that_are_none_are_left_out() {
    let figure = lines(vec![
        (0.0, 1e6),
        (1.0, f64::NAN),
        (2.0, f64::INFINITY),
        (3.0, 2e6),
    ])
    .figure();
    assert!(figure.contains("a &lt; b &amp; &quot;c&quot;"));
    assert!(!figure.contains("NaN") && !figure.contains("inf"));
    // Two points in each of the two drawings.
    assert_eq!(figure.matches("<circle").count(), 4);
}

#[test]
fn a_chart_without_data_is_a_chart() {
    let figure = lines(vec![]).figure();
    assert_eq!(figure.matches("<svg").count(), 2);
    let mut page = Page::new("empty");
    page.chart(&figure);
    assert!(page.html().ends_with("</html>\n"));
}

#[test]
fn stacked_bars_lie_behind_each_other() {
    let chart = BarChart {
        title: "waits".to_owned(),
        description: "by stage".to_owned(),
        unit: Unit::Seconds,
        series: vec!["a".to_owned(), "b".to_owned()],
        groups: vec![Group {
            label: "reader".to_owned(),
            values: vec![1.0, 3.0],
            ..Group::default()
        }],
        layout: BarLayout::Stacked,
        reference: None,
        band: None,
    };
    let figure = chart.figure();
    let rect = |number: usize, key: &str| -> f64 {
        let rect = figure.split("<rect ").nth(number + 1).unwrap();
        let value = rect.split(&format!(" {key}=\"")).nth(1).unwrap();
        value.split('"').next().unwrap().parse().unwrap()
    };
    let end = rect(0, "x") + rect(0, "width");
    assert!((end - rect(1, "x")).abs() < 0.2);
    assert!((rect(1, "width") - 3.0 * rect(0, "width")).abs() < 0.5);
}

proptest! {
    #[test]
    fn ticks_enclose_the_values_in_equal_steps(
        values in prop::collection::vec(0.0..1e12f64, 1..40), count in 2usize..10,
    ) {
        for unit in [Unit::Count, Unit::Bytes, Unit::Seconds, Unit::BytesPerSecond] {
            let axis = Axis::new((Scale::Linear, unit), values.iter().copied(), (0.0, 1.0), count);
            let highest = values.iter().copied().fold(0.0, f64::max);
            let (first, last) = (axis.ticks[0], *axis.ticks.last().unwrap());
            prop_assert!(first <= 0.0 && last >= highest * (1.0 - 1e-6));
            prop_assert!(axis.ticks.len() <= count + 2, "{:?}", axis.ticks);
            let step = axis.ticks[1] - axis.ticks[0];
            for pair in axis.ticks.windows(2) {
                prop_assert!((pair[1] - pair[0] - step).abs() <= step * 1e-6);
            }
            for value in &values {
                let place = axis.place(*value).unwrap();
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&place));
            }
        }
    }
}

/// The relative luminance of `#rrggbb`, as WCAG 2 defines it.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
        let value = f64::from(value) / 255.0;
        if value <= 0.040_45 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

#[test]
fn colours_stand_out_from_the_paper_in_both_schemes() {
    let style = include_str!("style.css");
    for scheme in style.split(":root {").skip(1) {
        let colour = |name: &str| {
            let (_, rest) = scheme.split_once(&format!("--{name}: ")).unwrap();
            rest.split(';').next().unwrap()
        };
        let contrast = |name: &str| {
            let (one, other) = (luminance(colour(name)), luminance(colour("paper")));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        for name in ["ink", "quiet"] {
            assert!(contrast(name) >= 4.5, "{name}: {}", contrast(name));
        }
        for index in 0..super::COLOURS {
            let name = format!("c{index}");
            assert!(contrast(&name) >= 3.0, "{name}: {}", contrast(&name));
        }
    }
}

//! Units: how a value is written, and which steps of an axis are round in a unit.

use windlass_engine::{show_bytes, show_number, show_rate};

/// What a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    #[default]
    Count,
    /// Seconds.
    Seconds,
    /// Bytes, in KiB, MiB, GiB.
    Bytes,
    /// Bytes per second, in KiB/s, MiB/s, GiB/s.
    BytesPerSecond,
    /// A part of one, as a percentage.
    Share,
    /// A quotient of two values of the same kind: 1.5x.
    Factor,
}

impl Unit {
    /// A value in this unit, as short text.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => show_number(value),
            Self::Seconds => seconds(value),
            Self::Bytes => show_bytes(value),
            Self::BytesPerSecond => show_rate(value),
            Self::Share => format!("{} %", show_number(value * 100.0)),
            Self::Factor => format!("{}x", show_number(value)),
        }
    }

    /// The smallest round step that is at least `least`.
    pub(super) fn step(self, least: f64) -> f64 {
        match self {
            Self::Bytes | Self::BytesPerSecond if least >= 1.0 => least.log2().ceil().exp2(),
            Self::Seconds if least > 20.0 => {
                let round = [30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
                let fits = round.into_iter().find(|step| *step >= least);
                fits.unwrap_or_else(|| 3600.0 * decimal_step(least / 3600.0))
            }
            Self::Count => decimal_step(least).max(1.0),
            _ => decimal_step(least),
        }
    }
}

/// 1, 2 or 5 times a power of ten.
fn decimal_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0];
    // 2.0000001 powers count as 2: the difference is a rounding error.
    let fits = times
        .into_iter()
        .find(|times| times * power >= least * (1.0 - 1e-9));
    power * fits.unwrap_or(10.0)
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 1e-3 => format!("{} µs", show_number(value * 1e6)),
        size if size < 1.0 => format!("{} ms", show_number(value * 1e3)),
        size if size < 120.0 => format!("{} s", show_number(value)),
        size if size < 7200.0 => format!("{} min", show_number(value / 60.0)),
        _ => format!("{} h", show_number(value / 3600.0)),
    }
}

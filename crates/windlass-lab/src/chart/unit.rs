//! Units: how a value is written, and which steps of an axis are round in it.

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
    /// Bytes per second, in MB/s as storage is sold.
    BytesPerSecond,
    /// A part of one, as a percentage.
    Share,
    /// A quotient of two alike: 1.5x.
    Factor,
}

const BINARY: [(f64, &str); 4] = [
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
];

impl Unit {
    /// A value in this unit, short.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => number(value),
            Self::Seconds => seconds(value),
            Self::Bytes => {
                let fits = |(size, _): &&(f64, &str)| value.abs() >= *size;
                let unit = BINARY.iter().find(fits);
                unit.map_or(format!("{} B", number(value)), |(size, name)| {
                    format!("{} {name}", number(value / size))
                })
            }
            Self::BytesPerSecond if value.abs() >= 1e9 => format!("{} GB/s", number(value / 1e9)),
            Self::BytesPerSecond => format!("{} MB/s", number(value / 1e6)),
            Self::Share => format!("{} %", number(value * 100.0)),
            Self::Factor => format!("{}x", number(value)),
        }
    }

    /// The smallest round step that is at least `least`.
    pub(super) fn step(self, least: f64) -> f64 {
        match self {
            Self::Bytes if least >= 1.0 => least.log2().ceil().exp2(),
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
    // A step of 2.0000001 powers is one of 2.
    let fits = times
        .into_iter()
        .find(|times| times * power >= least * (1.0 - 1e-9));
    power * fits.unwrap_or(10.0)
}

/// Three digits, and no zeros after the point.
fn number(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 || size == 0.0 => return format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 1e-3 => format!("{} µs", number(value * 1e6)),
        size if size < 1.0 => format!("{} ms", number(value * 1e3)),
        size if size < 120.0 => format!("{} s", number(value)),
        size if size < 7200.0 => format!("{} min", number(value / 60.0)),
        _ => format!("{} h", number(value / 3600.0)),
    }
}

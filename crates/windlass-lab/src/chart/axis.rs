//! Axes: they turn values into places on the drawing, with ticks at round values.

use super::unit::Unit;

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// In equal steps, from zero.
    #[default]
    Linear,
    /// Every step doubles the value: for transfer sizes and numbers of buffers.
    Log2,
    /// Named things side by side; the first one is at 0.
    Named,
}

/// One axis of a drawing.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// The places of the low and the high end, in the drawing's units.
    from: f64,
    to: f64,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// An axis for `values`, with about `ticks` ticks.
    pub(super) fn new(
        (scale, unit): (Scale, Unit),
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
        ticks: usize,
    ) -> Self {
        let usable = |value: &f64| value.is_finite() && (scale != Scale::Log2 || *value > 0.0);
        let (low, high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high, ticks) = match scale {
            Scale::Linear => linear(unit, low, high, ticks),
            Scale::Log2 => doubling(low, high, ticks),
            Scale::Named => named(low, high, ticks),
        };
        Self {
            scale,
            low,
            high,
            from,
            to,
            ticks,
        }
    }

    /// The place of a value; `None` when it has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear | Scale::Named => (value - self.low) / (self.high - self.low),
            Scale::Log2 => (value / self.low).log2() / (self.high / self.low).log2(),
        };
        let place = self.from + share * (self.to - self.from);
        place.is_finite().then_some(place)
    }
}

fn linear(unit: Unit, low: f64, high: f64, count: usize) -> (f64, f64, Vec<f64>) {
    let low = if low.is_finite() { low.min(0.0) } else { 0.0 };
    let high = if high > low { high } else { low + 1.0 };
    let step = unit.step((high - low) / float(count.max(1)));
    let first = (low / step).floor();
    let last = (high / step - 1e-9).ceil();
    let mut ticks = Vec::new();
    let mut tick = first;
    while tick <= last {
        ticks.push(tick * step);
        tick += 1.0;
    }
    (first * step, last * step, ticks)
}

fn doubling(low: f64, high: f64, count: usize) -> (f64, f64, Vec<f64>) {
    let (low, high) = if low.is_finite() {
        (low, high)
    } else {
        (1.0, 2.0)
    };
    let (first, mut last) = (low.log2(), high.log2());
    if last - first < 1e-9 {
        last = first + 1.0;
    }
    // A tick at every power of two, or every second or fourth: as many as there is room for.
    let mut step = 1.0;
    while (last - first) / step > float(count.max(1)) {
        step *= 2.0;
    }
    let mut ticks = Vec::new();
    let mut tick = (first - 1e-9).ceil();
    while tick <= last + 1e-9 {
        ticks.push(tick.exp2());
        tick += step;
    }
    (first.exp2(), last.exp2(), ticks)
}

fn named(low: f64, high: f64, count: usize) -> (f64, f64, Vec<f64>) {
    let (low, high) = if low.is_finite() {
        (low, high)
    } else {
        (0.0, 0.0)
    };
    let step = ((high - low + 1.0) / float(count.max(1))).ceil();
    let mut ticks = Vec::new();
    let mut tick = low;
    while tick <= high {
        ticks.push(tick);
        tick += step;
    }
    // Half a step of space before the first and after the last name, as there is between two of
    // them.
    (low - 0.5, high + 0.5, ticks)
}

#[expect(clippy::cast_precision_loss, reason = "a handful of ticks")]
fn float(count: usize) -> f64 {
    count as f64
}

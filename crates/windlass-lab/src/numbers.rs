//! Counts as numbers to calculate with.

/// A count as a float: what is told of runs and plans needs no 53 bits.
#[expect(
    clippy::cast_precision_loss,
    reason = "nothing here is exact to 53 bits"
)]
pub fn to_f64(number: u64) -> f64 {
    number as f64
}

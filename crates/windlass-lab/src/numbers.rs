//! Counts as numbers to calculate with.

/// A count as a float. What is said about runs and plans needs less than the 53 bits of a float.
#[expect(
    clippy::cast_precision_loss,
    reason = "nothing here is exact to 53 bits"
)]
pub fn to_f64(number: u64) -> f64 {
    number as f64
}

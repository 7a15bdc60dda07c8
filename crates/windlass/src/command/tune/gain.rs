//! The words for what a search gained.

use windlass_lab::Difference;

/// What the trials prove about the gain, and nothing beyond that.
pub(super) fn gain_text(difference: &Difference, first: &str, is_first: bool) -> String {
    let Difference {
        ratio,
        needed,
        apart,
    } = difference;
    match (is_first, apart) {
        (true, _) => format!("none: no setting was better than the {first}"),
        (false, true) => {
            format!("{ratio:.3} times the {first}; chance alone can give up to {needed:.3} times")
        }
        (false, false) if needed.is_finite() => format!(
            "not shown: {ratio:.3} times the {first}, and chance alone can give up to {needed:.3} \
             times. As far as these trials tell, the {first} is as fast"
        ),
        (false, false) => format!(
            "not shown: {ratio:.3} times the {first}, but there are too few trials to tell chance \
             from gain"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_the_trials_do_not_show_is_not_claimed() {
        let text = |ratio, needed, apart| {
            let difference = Difference {
                ratio,
                needed,
                apart,
            };
            gain_text(&difference, "default", false)
        };
        assert!(text(1.5, 1.1, true).starts_with("1.500 times the default"));
        assert!(text(1.04, 1.12, false).starts_with("not shown: 1.040 times"));
        assert!(text(3.0, f64::INFINITY, false).contains("too few trials"));
    }
}

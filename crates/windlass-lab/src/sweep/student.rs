//! Student's t: how far the means of a few numbers may be apart by chance.

/// The value that |t| exceeds with probability `alpha` at these degrees of freedom.
pub(super) fn quantile(alpha: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    // The tail falls steadily, so bisection works. 80 halvings make the interval negligible.
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if tail(middle, freedom) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability that |t| exceeds this value. It is the regularised incomplete beta function
/// I(freedom / (freedom + t^2); freedom / 2, 1 / 2).
pub(super) fn tail(t: f64, freedom: f64) -> f64 {
    let x = freedom / t.mul_add(t, freedom);
    incomplete_beta(x, freedom / 2.0, 0.5)
}

fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    // The fraction converges quickly on one side only; the other side is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front.exp() * fraction(x, a, b) / a
    } else {
        1.0 - front.exp() * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function (NIST's DLMF, 8.17.22), evaluated from
/// the front by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut sum = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for part in [even, odd] {
            d = 1.0 / away(part.mul_add(d, 1.0));
            c = away(1.0 + part / c);
            change = c * d;
            sum *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    sum
}

/// The logarithm of the gamma function for multiples of 1/2, from 1/2 on. It uses the recurrence.
fn ln_gamma(z: f64) -> f64 {
    let half = z.fract() != 0.0;
    let mut at = if half { 0.5 } else { 1.0 };
    let mut sum = if half {
        f64::midpoint(0.0, std::f64::consts::PI.ln())
    } else {
        0.0
    };
    while at + 0.5 < z {
        sum += f64::ln(at);
        at += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (alpha, freedom, t) in [
            (0.05, 1.0, 12.706),
            (0.05, 2.0, 4.303),
            (0.05, 10.0, 2.228),
            (0.01, 4.0, 4.604),
            (0.05, 120.0, 1.980),
            (0.001, 30.0, 3.646),
        ] {
            let found = quantile(alpha, freedom);
            assert!((found - t).abs() < 0.001, "{alpha} {freedom}: {found}");
        }
    }

    #[test]
    fn the_tail_falls_from_one_to_nothing() {
        assert!((tail(0.0, 5.0) - 1.0).abs() < 1e-12);
        let tails = [0.5, 1.0, 2.0, 5.0, 50.0].map(|t| tail(t, 5.0));
        assert!(tails.windows(2).all(|pair| pair[0] > pair[1]), "{tails:?}");
    }
}

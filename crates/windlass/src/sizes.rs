//! Sizes and rates as people write them: `64KiB`, `1MiB`, `200MiB/s`, `4096`.

/// Reads a size: a number with an optional unit (B, KiB, MiB, GiB, TiB; K, M, G, T mean the same).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(format!("unit {unit:?} is none of KiB, MiB, GiB, TiB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| format!("{text} is too large"));
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a size"))?;
    #[expect(clippy::cast_precision_loss, reason = "the shift is at most 40")]
    let bytes = value * (1u64 << shift) as f64;
    if !(0.0..9e15).contains(&bytes) {
        return Err(format!("{text} is too large"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "just checked"
    )]
    Ok(bytes as u64)
}

/// Reads a rate: a size with an optional `/s`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = parse_size(text.trim().trim_end_matches("/s"))?;
    if rate == 0 {
        Err("a rate of zero would never end".to_owned())
    } else {
        Ok(rate)
    }
}

/// A size for people: `3.2 GiB`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 && value.fract() != 0.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("1 MiB"), Ok(1 << 20));
        assert_eq!(parse_size("1.5g"), Ok(3 << 29));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_rate("200MiB/s"), Ok(200 << 20));
        for wrong in ["", "MiB", "1XB", "-1", "99999999999999999999", "0/s"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_for_people() {
        assert_eq!(show_size(512), "512 B");
        assert_eq!(show_size(1 << 20), "1 MiB");
        assert_eq!(show_size((1 << 20) * 5 / 2), "2.5 MiB");
        assert_eq!(show_size(3_000_000_000), "2.8 GiB");
    }
}

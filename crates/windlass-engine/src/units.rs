//! Sizes and rates as people write and read them: `64KiB`, `1.5TB`, `200MiB/s`, `10Gbps`.
//!
//! This is the only parser and the only formatter of sizes and rates. Windlass shows binary units
//! (KiB, MiB, GiB, TiB), because buffers, transfers and pages are powers of two. It reads decimal
//! units too: storage and networks are sold in them, so `200MB/s` is 200,000,000 bytes a second.

use thiserror::Error;

/// Why a text is not a size, rate or time.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// There is no number at its beginning.
    #[error("{text:?} does not begin with a number")]
    NoNumber {
        /// What was given.
        text: String,
    },
    /// The unit is not known.
    #[error("unit {unit:?} is none of {known}")]
    Unknown {
        /// The unit given.
        unit: String,
        /// The known units.
        known: &'static str,
    },
    /// It is not clear whether the unit means bits or bytes.
    #[error("{unit:?} may mean bits or bytes: write {bytes} for bytes, {bits} for bits per second")]
    BitsOrBytes {
        /// The unit given.
        unit: String,
        /// The unit to write for bytes.
        bytes: &'static str,
        /// The unit to write for bits per second.
        bits: &'static str,
    },
    /// The size is larger than any size may be.
    #[error("{text:?} is too large")]
    TooLarge {
        /// What was given.
        text: String,
    },
    /// The number begins or ends with its point.
    #[error("{text:?} has a point without digits on both sides: write it like 0.5MiB")]
    Point {
        /// What was given.
        text: String,
    },
    /// There is a fraction, but no unit.
    #[error("{text:?} is no whole number of bytes: add a unit, as in 1.5MiB")]
    Fraction {
        /// What was given.
        text: String,
    },
    /// The value is smaller than any that makes sense. A unit is probably missing.
    #[error("{}", too_small_words(text, *bytes, *least, of))]
    TooSmall {
        /// What was given.
        text: String,
        /// What it means in bytes.
        bytes: u64,
        /// The smallest value that is accepted.
        least: u64,
        /// What comes after the unit: `/s`, or nothing.
        of: &'static str,
    },
    /// The value is zero, where zero makes no sense.
    #[error("{text:?} must be more than nothing")]
    Zero {
        /// What was given.
        text: String,
    },
}

const SIZES: &str = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
/// The lowest rate limit. With a lower one, a transfer of 1 MiB would take more than a minute.
pub const RATE_LIMIT_MIN: u64 = 16 << 10;
/// The smallest amount of memory, or of a file, that an option can be given.
pub const AMOUNT_MIN: u64 = 64 << 10;
/// About thirty years. A longer time is a mistake, and some clocks could not add it.
const SECONDS_MAX: f64 = 1e9;
const TIMES: &str = "us, ms, s, m, h, d";
/// From here on, a float cannot represent every number of bytes.
const EXACT_MAX: f64 = 9e15;

/// Reads a size in bytes: `4096`, `64KiB`, `1.5TB`; `K`, `M`, `G` and `T` mean powers of two.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text);
    let value = parse_number(number, text)?;
    let unit = size_unit(unit)?;
    if unit == 1 && number.contains('.') {
        let text = text.trim().to_owned();
        return Err(UnitError::Fraction { text });
    }
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(unit);
        return bytes.ok_or_else(|| too_large(text));
    }
    bytes(value * to_f64(unit), text)
}

/// Reads a rate in bytes per second: a size with or without `/s`, or `10Gbps`. Zero is an error.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    let rate = match bits(text) {
        Some((number, unit)) => bytes(parse_number(number, text)? * unit / 8.0, text)?,
        None => parse_size(text.trim().trim_end_matches("/s"))?,
    };
    match rate {
        0 => Err(UnitError::Zero {
            text: text.trim().to_owned(),
        }),
        rate => Ok(rate),
    }
}

/// Reads a rate that limits a run. `10` alone is 10 bytes a second, which nobody means.
pub fn parse_rate_limit(text: &str) -> Result<u64, UnitError> {
    at_least(RATE_LIMIT_MIN, text, parse_rate(text)?, "/s")
}

/// Reads an amount of memory or of a file. `512` alone is 512 bytes, which nobody means.
pub fn parse_amount(text: &str) -> Result<u64, UnitError> {
    at_least(AMOUNT_MIN, text, parse_size(text)?, "")
}

fn at_least(least: u64, text: &str, bytes: u64, of: &'static str) -> Result<u64, UnitError> {
    if bytes >= least {
        return Ok(bytes);
    }
    Err(UnitError::TooSmall {
        text: text.trim().to_owned(),
        bytes,
        least,
        of,
    })
}

/// Names the value with the unit that is probably missing.
fn too_small_words(text: &str, bytes: u64, least: u64, of: &str) -> String {
    let number = text.trim_end_matches("/s");
    let has_unit = number.parse::<u64>().is_err();
    let meant = match bytes {
        0 => String::new(),
        _ if has_unit => String::new(),
        _ => format!("; did you mean {number}MiB{of}?"),
    };
    let (found, least) = (show_size(bytes), show_size(least));
    format!("{text:?} means {found}{of}, and the least is {least}{of}{meant}")
}

/// Reads a time in seconds: `5ms`, `500us`, `2s`, `90m`, `2h`, `7d`.
pub fn parse_seconds(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = split(text);
    let value = parse_number(number, text)?;
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        other => return Err(unknown(other, TIMES)),
    };
    let seconds = value * unit;
    match seconds <= SECONDS_MAX {
        true => Ok(seconds),
        false => Err(too_large(text)),
    }
}

/// A number with its noun: `1 device`, `4 devices`, `2 indexes`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match number {
        1 => "",
        _ if noun.ends_with('x') => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

/// A size for people: `512 B`, `64 KiB`, `2.79 GiB`.
pub fn show_size(bytes: u64) -> String {
    show_bytes(to_f64(bytes))
}

/// A rate for people, from bytes per second: `97.4 MiB/s`.
pub fn show_rate(bytes_per_second: f64) -> String {
    format!("{}/s", show_bytes(bytes_per_second))
}

/// Like [`show_size`], for a calculated value.
pub fn show_bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, 0);
    // A value that would be rounded to 1024 is shown in the next unit.
    while value.abs() >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", show_number(value), UNITS[unit])
}

/// A number for people, with three digits and no zeros at the end of a fraction.
pub fn show_number(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 99.95 || size == 0.0 => return format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn size_unit(unit: &str) -> Result<u64, UnitError> {
    let ambiguous = |bytes, bits| UnitError::BitsOrBytes {
        unit: unit.to_owned(),
        bytes,
        bits,
    };
    match unit {
        "Mb" => return Err(ambiguous("MB", "Mbps")),
        "Gb" => return Err(ambiguous("GB", "Gbps")),
        _ => {}
    }
    Ok(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(unknown(unit, SIZES)),
    })
}

/// The number and the factor of the unit, for a rate in bits.
fn bits(text: &str) -> Option<(&str, f64)> {
    let (number, unit) = split(text);
    match unit {
        "kbps" => Some((number, 1e3)),
        "Mbps" => Some((number, 1e6)),
        "Gbps" => Some((number, 1e9)),
        _ => None,
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let other = |letter: char| !letter.is_ascii_digit() && letter != '.';
    let (number, unit) = text.split_at(text.find(other).unwrap_or(text.len()));
    (number, unit.trim())
}

fn parse_number(number: &str, text: &str) -> Result<f64, UnitError> {
    let text = text.trim().to_owned();
    let value = number.parse();
    match value {
        Ok(_) if number.starts_with('.') || number.ends_with('.') => Err(UnitError::Point { text }),
        Ok(value) => Ok(value),
        Err(_) => Err(UnitError::NoNumber { text }),
    }
}

/// Rounds to whole bytes: for a float, 97.2 times a million is a little less than 97,200,000.
fn bytes(value: f64, text: &str) -> Result<u64, UnitError> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "just checked, and no number here has a sign"
    )]
    match value < EXACT_MAX {
        true => Ok(value.round() as u64),
        false => Err(too_large(text)),
    }
}

fn too_large(text: &str) -> UnitError {
    UnitError::TooLarge {
        text: text.trim().to_owned(),
    }
}

fn unknown(unit: &str, known: &'static str) -> UnitError {
    UnitError::Unknown {
        unit: unit.to_owned(),
        known,
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nouns_are_counted_as_people_write_them() {
        for (number, noun, words) in [
            (0, "file", "0 files"),
            (1, "index", "1 index"),
            (2, "index", "2 indexes"),
            (3, "more range", "3 more ranges"),
        ] {
            assert_eq!(counted(number, noun), words);
        }
    }

    #[test]
    fn sizes_are_read_as_written_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64k", 65_536),
            (" 1 MiB ", 1 << 20),
            ("1.5g", 3 << 29),
            ("64kB", 64_000),
            ("1.5TB", 1_500_000_000_000),
            ("97.2MB", 97_200_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn rates_are_read_as_written_in_binary_and_decimal_units_and_in_bits() {
        for (text, bytes) in [
            ("200MB/s", 200_000_000),
            ("200MiB/s", 200 << 20),
            ("200 MiB / s", 0),
            ("1000", 1000),
            ("10Gbps", 1_250_000_000),
            ("800 Mbps", 100_000_000),
        ] {
            assert_eq!(parse_rate(text).unwrap_or(0), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_in_words() {
        for (text, words) in [
            ("", "does not begin with a number"),
            ("MiB", "does not begin with a number"),
            ("-1", "does not begin with a number"),
            ("1.2.3", "does not begin with a number"),
            ("1XB", "unit \"XB\" is none of B, KiB"),
            ("99999999999999999999", "is too large"),
            ("99999999TiB", "is too large"),
            ("0/s", "must be more than nothing"),
            ("0.2", "no whole number of bytes: add a unit"),
            (".5", "write it like 0.5MiB"),
            (".5MiB", "write it like 0.5MiB"),
            ("1.GiB", "write it like 0.5MiB"),
            ("200Mb/s", "write MB for bytes, Mbps for bits per second"),
        ] {
            let error = parse_rate(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_limit_without_its_unit_is_asked_back() {
        let rate = |text: &str| parse_rate_limit(text).map_err(|error| error.to_string());
        assert_eq!(rate("10MiB/s"), Ok(10 << 20));
        assert_eq!(rate("16KiB"), Ok(16 << 10));
        let meant = "\"10\" means 10 B/s, and the least is 16 KiB/s; did you mean 10MiB/s?";
        assert_eq!(rate("10"), Err(meant.to_owned()));
        assert!(rate("100/s").unwrap_err().contains("mean 100MiB/s?"));
        let small = "\"1KiB/s\" means 1 KiB/s, and the least is 16 KiB/s";
        assert_eq!(rate("1KiB/s"), Err(small.to_owned()));
        let amount = |text: &str| parse_amount(text).map_err(|error| error.to_string());
        assert_eq!(amount("64KiB"), Ok(64 << 10));
        assert!(amount("512").unwrap_err().contains("mean 512MiB?"));
        assert!(amount("0").unwrap_err().ends_with("the least is 64 KiB"));
    }

    #[test]
    fn sizes_and_rates_are_shown_in_binary_units() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(512), "512 B");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(1 << 20), "1 MiB");
        assert_eq!(show_size((1 << 20) - 1), "1 MiB");
        assert_eq!(show_size((1 << 20) * 5 / 2), "2.5 MiB");
        assert_eq!(show_size(3_000_000_000), "2.79 GiB");
        assert_eq!(show_size(100 << 40), "100 TiB");
        assert_eq!(show_rate(200e6), "191 MiB/s");
        assert_eq!(show_rate(14.3 * 1048576.0), "14.3 MiB/s");
        assert_eq!(show_rate(0.0), "0 B/s");
    }

    proptest! {
        /// Three digits are accurate to half a percent, whatever the size.
        #[test]
        fn what_is_shown_is_read_as_nearly_the_same(bytes in 0u64..1 << 52) {
            let read = parse_size(&show_size(bytes)).unwrap();
            prop_assert!(read.abs_diff(bytes) <= bytes / 180, "{bytes} {read}");
        }
    }
}

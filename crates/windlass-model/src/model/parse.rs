//! Models as text: `gp2:1.5TB`, `s3:4x90MB/s`, `gp3:1TB,iops=6000,throughput=500MB/s`, `hdd`.
//!
//!   KIND[:WHAT][,KEY=VALUE ...]
//!
//! WHAT is a volume's size (gp2, gp3, st1), its operations per second (io1, io2), streams and rate
//! of each (s3), or a rate (hdd, rate). Keys change what the kind says, or add to it. `MB` is a
//! million bytes, `MiB` is 2^20 of them.

use std::ops::RangeInclusive;

use windlass_engine::{UnitError, parse_rate, parse_seconds, parse_size, show_size};

use super::{Burst, Model, known};
use crate::error::ModelError;

impl Model {
    /// Reads a model. The error names the part that was not understood.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let words = Words::of(text).map_err(|what| fault(text, what))?;
        let model = words.model().map_err(|what| fault(text, what))?;
        Ok(Self {
            name: text.to_owned(),
            ..model
        })
    }

    /// Examples of all kinds that [`Model::parse`] knows.
    pub const EXAMPLES: &str = "gp2:1.5TB, gp3:1TB,iops=6000,throughput=500MB/s, io1:9000, \
                                io2:64000, st1:4TB, s3:4x90MB/s, hdd, \
                                rate:200MB/s,latency=5ms, nul";
}

fn fault(text: &str, what: String) -> ModelError {
    ModelError::Model {
        text: text.to_owned(),
        what,
    }
}

/// The parts of a model's text.
struct Words<'a> {
    kind: &'a str,
    what: Option<&'a str>,
    keys: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let (kind, mut what) = match first.split_once(':') {
            Some((kind, what)) => (kind, Some(what)),
            None => (first, None),
        };
        let mut keys = Vec::new();
        // The first word may already be a key, as in `gp3:iops=6000`.
        if let Some(pair) = what.and_then(|what| what.split_once('=')) {
            keys.push(pair);
            what = None;
        }
        for part in parts {
            let pair = part.split_once('=');
            keys.push(pair.ok_or_else(|| format!("{part:?} is no KEY=VALUE"))?);
        }
        Ok(Self { kind, what, keys })
    }

    fn model(&self) -> Result<Model, String> {
        let volumes = self.key("volumes", number)?.unwrap_or(1.0);
        if !(1.0..=64.0).contains(&volumes) {
            return Err("volumes: from 1 to 64".to_owned());
        }
        let mut model = self.kind(volumes)?;
        if volumes > 1.0 {
            multiply(&mut model, volumes);
        }
        self.change(&mut model)?;
        Ok(model)
    }

    /// The model of one of `volumes` volumes, as its kind says.
    fn kind(&self, volumes: f64) -> Result<Model, String> {
        let size = || {
            let size = self.what.ok_or("say its size, as in gp2:1.5TB")?;
            Ok::<_, String>(quantity(size)? / volumes)
        };
        let operations = || {
            let given = self.what.ok_or("say its IOPS, as in io1:9000")?;
            Ok::<_, String>(number(given)? / volumes)
        };
        let given_rate = || self.what.map(rate).transpose();
        Ok(match self.kind {
            "gp2" => known::gp2(within(size()?, &known::GP2_BYTES, "a gp2 volume", show)?),
            "gp3" => {
                // The size does not matter here, but the user may give it.
                let size = self.what.map(quantity).transpose()?;
                if let Some(size) = size {
                    within(size / volumes, &known::GP3_BYTES, "a gp3 volume", show)?;
                }
                self.gp3(volumes)?
            }
            "io1" => known::io1(iops(
                operations()?,
                &known::IO1_OPERATIONS,
                "an io1 volume",
            )?),
            "io2" => known::io2(iops(
                operations()?,
                &known::IO2_OPERATIONS,
                "an io2 volume",
            )?),
            "st1" => known::st1(within(size()?, &known::ST1_BYTES, "an st1 volume", show)?),
            "s3" => self.streams()?,
            "hdd" => known::hdd(given_rate()?),
            "rate" => {
                let mut model = Model::unlimited("rate");
                let rate = given_rate()?.ok_or("say a rate, as in rate:200MB/s")?;
                model.whole.bytes_per_second = Some(rate);
                model
            }
            "nul" => Model::unlimited("nul"),
            other => return Err(format!("{other:?} is no kind of storage")),
        })
    }

    /// One of `volumes` gp3 volumes, with an equal share of the operations and the rate that are
    /// paid for.
    fn gp3(&self, volumes: f64) -> Result<Model, String> {
        let share = |value: Option<f64>| value.map(|value| value / volumes);
        let operations = share(self.key("iops", number)?);
        let operations = operations
            .map(|given| iops(given, &known::GP3_OPERATIONS, "a gp3 volume"))
            .transpose()?;
        let rate = share(self.key("throughput", rate)?);
        let Some(rate) = rate else {
            return Ok(known::gp3(operations, None));
        };
        let show = |rate: f64| format!("{}/s", show(rate));
        within(rate, &known::GP3_RATES, "a gp3 volume", show)?;
        let paid = operations.unwrap_or(*known::GP3_OPERATIONS.start());
        let most = paid * known::GP3_BYTES_PER_OPERATION;
        if rate > most {
            let (rate, most) = (show(rate), show(most));
            return Err(format!(
                "a gp3 volume of {paid} IOPS has at most {most}, not {rate}: 0.25 MiB/s for each"
            ));
        }
        Ok(known::gp3(operations, Some(rate)))
    }

    /// `s3`, `s3:90MB/s`, `s3:4x90MB/s`.
    fn streams(&self) -> Result<Model, String> {
        let Some(what) = self.what else {
            return Ok(known::s3(None, known::S3_STREAM_BYTES_PER_SECOND));
        };
        match what.split_once('x') {
            Some((streams, each)) => {
                let streams = number(streams)?;
                Ok(known::s3(Some(streams.max(1.0)), rate(each)?))
            }
            None => Ok(known::s3(None, rate(what)?)),
        }
    }

    fn change(&self, model: &mut Model) -> Result<(), String> {
        for (key, value) in &self.keys {
            match *key {
                "volumes" => {}
                "iops" | "throughput" if self.kind == "gp3" => {}
                "iops" => model.whole.operations_per_second = Some(number(value)?),
                "throughput" => model.whole.bytes_per_second = Some(rate(value)?),
                "stream" => model.stream.bytes_per_second = Some(rate(value)?),
                "latency" => model.latency_seconds = seconds(value)?,
                "seek" => model.seek_seconds = seconds(value)?,
                "io" => model.io_bytes = whole(quantity(value)?)?,
                "credits" => {
                    let credits = number_or_zero(value)?;
                    let burst = model.whole.burst.as_mut();
                    burst.ok_or("credits: this model has no burst")?.credits = credits;
                }
                other => return Err(format!("{other:?} is no key of a model")),
            }
        }
        Ok(())
    }

    fn key<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let found = self.keys.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| read(value)).transpose()
    }
}

/// Makes several volumes into one.
fn multiply(model: &mut Model, volumes: f64) {
    let limits = &mut model.whole;
    for rate in [
        &mut limits.bytes_per_second,
        &mut limits.operations_per_second,
    ] {
        *rate = rate.map(|rate| rate * volumes);
    }
    limits.burst = limits.burst.map(|burst| Burst {
        operations_per_second: burst.operations_per_second * volumes,
        credits: burst.credits * volumes,
        credits_max: burst.credits_max * volumes,
    });
}

/// Checks that there are volumes with this value.
fn within(
    value: f64,
    limits: &RangeInclusive<f64>,
    what: &str,
    show: impl Fn(f64) -> String,
) -> Result<f64, String> {
    // Values of several volumes were divided, and terabytes are not tebibytes.
    let slack = 1.0 + 1e-9;
    if (limits.start() / slack..=limits.end() * slack).contains(&value) {
        return Ok(value);
    }
    let (least, most) = (show(*limits.start()), show(*limits.end()));
    let value = show(value);
    Err(format!("{what} has from {least} to {most}, not {value}"))
}

fn iops(value: f64, limits: &RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    within(value, limits, what, |value| format!("{value} IOPS"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes, and positive"
)]
fn show(bytes: f64) -> String {
    show_size(bytes as u64)
}

fn quantity(text: &str) -> Result<f64, String> {
    positive(to_f64(parse_size(text).map_err(words)?), text)
}

fn rate(text: &str) -> Result<f64, String> {
    parse_rate(text).map(to_f64).map_err(words)
}

fn seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text).map_err(words)
}

fn words(error: UnitError) -> String {
    error.to_string()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a model is not exact to 53 bits"
)]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

fn number(text: &str) -> Result<f64, String> {
    positive(number_or_zero(text)?, text)
}

fn number_or_zero(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(value) if (0.0..1e18).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is no number")),
    }
}

fn positive(value: f64, text: &str) -> Result<f64, String> {
    if value > 0.0 && value < 1e18 {
        Ok(value)
    } else {
        Err(format!("{text:?} must be more than nothing"))
    }
}

fn whole(value: f64) -> Result<u64, String> {
    if !(512.0..=1e9).contains(&value) {
        return Err("io: from 512 bytes to 1 GB".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "just checked"
    )]
    Ok(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1048576.0;

    fn sustained(text: &str) -> f64 {
        Model::parse(text).unwrap().sustained(4) / MIB
    }

    #[test]
    fn published_limits_come_out_as_published() {
        for (text, mebibytes) in [
            ("gp2:1.5TB", 250.0),
            ("gp2:100GiB", 75.0), // 300 operations of 256 KiB, once the credit is spent
            ("gp2:1.5TB,volumes=4", 1000.0),
            ("gp3:1TB", 125.0),
            ("gp3:1TB,iops=6000,throughput=500MiB/s", 500.0),
            ("gp3:1TB,iops=3000,throughput=750MiB/s", 750.0), // 0.25 MiB/s for each operation
            ("io1:9000", 500.0),
            ("io1:30000", 500.0),
            ("io1:35000", 546.875), // 16 KiB for each operation
            ("io1:64000", 1000.0),
            ("io2:64000", 4000.0),
            ("io2:4000", 1000.0), // 256 KiB for each operation
            ("st1:2TiB", 80.0),
            ("s3:4x90MB/s", 360e6 / MIB),
            ("s3", 360e6 / MIB),
            ("rate:200MB/s", 200e6 / MIB),
        ] {
            let found = sustained(text);
            assert!((found - mebibytes).abs() < 0.01, "{text}: {found}");
        }
        assert_eq!(sustained("nul"), f64::INFINITY);
    }

    #[test]
    fn small_volumes_have_credit_and_large_ones_need_none() {
        let burst = |text| Model::parse(text).unwrap().whole.burst;
        let credit = burst("gp2:100GiB").unwrap();
        assert_eq!(
            (credit.operations_per_second, credit.credits),
            (3000.0, 5.4e6)
        );
        assert_eq!(burst("gp2:1.5TB"), None);
        assert_eq!(burst("gp2:100GiB,credits=0").unwrap().credits, 0.0);
        assert_eq!(burst("st1:1TiB").unwrap().credits, 1048576.0);
        assert_eq!(burst("st1:16TiB"), None);
    }

    #[test]
    fn keys_change_what_the_kind_says() {
        let model = Model::parse("hdd:150MB/s,seek=5ms,latency=100us,stream=80MB/s").unwrap();
        assert_eq!(
            model.name,
            "hdd:150MB/s,seek=5ms,latency=100us,stream=80MB/s"
        );
        assert_eq!(
            (model.seek_seconds, model.latency_seconds),
            (0.005, 100.0 * 1e-6)
        );
        assert_eq!(model.stream.bytes_per_second, Some(80e6));
    }

    #[test]
    fn what_is_no_model_is_refused_in_words() {
        for (text, words) in [
            ("gp9:1TB", "no kind of storage"),
            ("gp2", "say its size"),
            ("io1", "say its IOPS"),
            ("rate", "say a rate"),
            ("gp2:1XB", "unit \"XB\""),
            ("gp2:0TB", "more than nothing"),
            ("hdd,colour=red", "no key"),
            ("hdd,seek", "no KEY=VALUE"),
            ("hdd,credits=3", "no burst"),
            ("gp2:1TB,volumes=100", "from 1 to 64"),
            ("hdd,latency=5days", "unit \"days\""),
            ("s3:axb", "number"),
        ] {
            let error = Model::parse(text).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn what_no_vendor_sells_is_refused_with_the_limit() {
        for (text, limit) in [
            ("gp2:20TiB", "from 1 GiB to 16 TiB, not 20 TiB"),
            ("gp2:512MiB", "from 1 GiB to 16 TiB"),
            ("gp3:100TiB", "from 1 GiB to 64 TiB"),
            (
                "gp3:1TB,iops=90000",
                "from 3000 IOPS to 80000 IOPS, not 90000 IOPS",
            ),
            ("gp3:1TB,iops=200", "from 3000 IOPS"),
            ("gp3:1TB,iops=80000,throughput=3000MiB/s", "to 1.95 GiB/s"),
            (
                "gp3:1TB,throughput=1000MiB/s",
                "a gp3 volume of 3000 IOPS has at most 750 MiB/s",
            ),
            ("io1:900000", "from 100 IOPS to 64000 IOPS"),
            ("io1:50", "from 100 IOPS"),
            ("io2:300000", "from 100 IOPS to 256000 IOPS"),
            ("st1:100GiB", "from 125 GiB to 16 TiB"),
        ] {
            let error = Model::parse(text).unwrap_err().to_string();
            assert!(error.contains(limit) && error.contains(text), "{error}");
        }
        // The error is about each of the four volumes.
        for text in ["gp2:64TiB,volumes=4", "io1:256000,volumes=4"] {
            Model::parse(text).unwrap();
        }
    }

    #[test]
    fn instances_have_what_their_vendor_says() {
        use super::super::Instance;
        let instance = Instance::named("db.r5.8xlarge").unwrap();
        assert_eq!(instance.storage_bytes_per_second, 850e6);
        assert_eq!(
            Instance::named("r5.24xlarge")
                .unwrap()
                .storage_bytes_per_second,
            2375e6
        );
        assert_eq!(
            Instance::named("r5b.8xlarge")
                .unwrap()
                .storage_bytes_per_second,
            2500e6
        );
        assert!(Instance::named("r9.huge").is_none());
    }
}

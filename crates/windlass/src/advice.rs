//! What would make a run faster, in the words of the command line.
//!
//! The lab says what other settings would have brought ([`windlass_lab::advise`]). Only this file
//! knows which option a setting belongs to.

use windlass_engine::RunReport;
use windlass_engine::media::Codec;
use windlass_lab::{Advice, Advised};

use crate::words::duration;

/// `--compress lz4: up to 31 % less time (0.95 s instead of 1.38 s), if ...`.
pub fn words(advised: &Advised, report: &RunReport) -> String {
    let what = match advised.advice {
        Advice::Codec(codec) => format!("--compress {codec}"),
        Advice::MoreDevices => "another --to, on a device of its own as fast as these".to_owned(),
        Advice::Buffers(count) => format!("--buffers {count}"),
        Advice::NoReadRate => "without --max-rate".to_owned(),
        Advice::NoWriteRate => "without --max-device-rate".to_owned(),
        Advice::Cores(count) => format!("no option helps; {count} cores"),
        Advice::FasterDatabase => {
            "no option helps; storage of the database twice as fast".to_owned()
        }
        Advice::FasterDevices => "no option helps; devices twice as fast".to_owned(),
    };
    let least = report.seconds - report.data_seconds;
    let (then, now) = (
        duration(advised.seconds + least.max(0.0)),
        duration(report.seconds),
    );
    let given = match (advised.ratio, advised.advice) {
        (Some(ratio), Advice::Codec(codec)) if codec != Codec::None => {
            format!(", if {codec} compresses these data {ratio:.1} to 1")
        }
        _ => String::new(),
    };
    let limit = advised.limit.words();
    format!("{what}: as little as {then} instead of {now}{given}; then {limit} would bind")
}

//! What a run did, once its threads have ended.

use super::BackupRun;
use super::parity::ParityWriter;
use super::writer::StripeWriter;
use crate::activity::Activity;
use crate::process::process_cpu_seconds;
use crate::report::{Ended, RunReport};

impl BackupRun {
    /// What the run did, in which data moved for `data_seconds`.
    pub(super) fn report(
        &self,
        (stripes, parities): (&[StripeWriter], &[ParityWriter]),
        data_seconds: f64,
    ) -> RunReport {
        let stripes = stripes.iter().map(|stripe| &stripe.output);
        let outputs = stripes.chain(parities.iter().map(|parity| &parity.output));
        let mut activity = Activity::new(&self.shared.progress, &self.options.plan, data_seconds);
        activity.buffers_peak = self.shared.pool.peak();
        let compression = self.adaptive.as_ref().map(|watch| watch.report());
        let most = compression.as_ref().and_then(|report| report.used.first());
        let codec = most.map_or(self.options.codec, |most| most.codec);
        activity.codec = codec.to_string();
        let pages = self.page_counts.report();
        activity.takes_apart = pages.is_some_and(|pages| pages.apart_bytes > 0);
        activity.source_rate = self.options.source_rate;
        activity.device_rate = self.options.device_rate;
        let devices = outputs.clone().map(|output| output.report(data_seconds));
        let ended = Ended {
            set_id: self.set_id,
            elapsed: self.began.elapsed(),
            cpu_seconds: process_cpu_seconds() - self.cpu_began,
            data_seconds,
            bytes_read: activity.reader.bytes.saturating_sub(self.beside_bytes),
            bytes_written: outputs.map(|output| output.offset).sum(),
            devices: devices.collect(),
        };
        RunReport {
            compression,
            pages,
            ..RunReport::of_backup(ended, &activity)
        }
    }
}

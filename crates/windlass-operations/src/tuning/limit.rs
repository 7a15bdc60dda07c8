//! The predicted limit of a search: what storage and cores can do, as far as it is known.

use std::path::{Path, PathBuf};

use windlass_engine::TRANSFER_BYTES_DEFAULT;
use windlass_engine::media::Codec;
use windlass_lab::{Operation, Profile, Speeds, to_f64};
use windlass_model::Emulation;

use crate::devices::DeviceName;
use crate::error::OperationError;
use crate::probed;
use crate::settings::Rates;

/// The rates of the two ends, if a model or a profile says them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    source: Option<f64>,
    devices: Option<f64>,
}

impl Known {
    pub(super) fn of(
        emulation: &Emulation,
        state: Option<&Path>,
        files: &[PathBuf],
        devices: &[DeviceName],
    ) -> Result<Self, OperationError> {
        // 64 streams, more than the readers will have: so the limit is never too low.
        let source = match (&emulation.source, state, files.first()) {
            (Some(model), ..) => finite(model.sustained(64)),
            (None, Some(state), Some(file)) => Profile::for_path(state, file)?
                .and_then(|it| it.best_at(Operation::Read, TRANSFER_BYTES_DEFAULT as u64)),
            _ => None,
        };
        let places: Vec<_> = devices.iter().filter_map(DeviceName::directory).collect();
        let kept = match (&emulation.target, state) {
            (Some(model), _) => finite(model.sustained(devices.len())),
            (None, Some(state)) if places.len() == devices.len() => probed::sum(
                state,
                &places,
                Operation::Write,
                TRANSFER_BYTES_DEFAULT as u64,
            ),
            _ => None,
        };
        Ok(Self {
            source,
            devices: kept,
        })
    }

    /// Bytes of the database per second that no setting will exceed.
    pub(super) fn limit(
        &self,
        speeds: &Speeds,
        codecs: &[Codec],
        threads: usize,
        rates: &Rates,
    ) -> f64 {
        let source = lowest(self.source, rates.read.map(to_f64));
        let devices = lowest(self.devices, rates.write.map(to_f64));
        // If no storage is known, the cores are no limit: copies and caches bind before them.
        if source.is_infinite() && devices.is_infinite() {
            return f64::INFINITY;
        }
        let of = |codec: &Codec| {
            let speed = speeds.of(*codec);
            let cores = speed.compress_bytes_per_second * to_f64(threads as u64);
            source.min(devices * speed.ratio).min(cores)
        };
        codecs.iter().map(of).fold(0.0, f64::max)
    }
}

fn finite(rate: f64) -> Option<f64> {
    rate.is_finite().then_some(rate)
}

fn lowest(one: Option<f64>, other: Option<f64>) -> f64 {
    let rates = [one, other].into_iter().flatten();
    rates.fold(f64::INFINITY, f64::min)
}

//! How near a run came to what its limit was probed to do.
//!
//! The engine knows what a run did; what storage can do is in the profiles that `lab probe` left.
//! Storage that is emulated has no profile: what was probed is not what the run met.

use std::path::{Path, PathBuf};

use windlass_engine::{Emulation, RunReport, megabytes};
use windlass_lab::{DeviceId, Operation, Profile};

/// Where the ends of a run lie.
#[derive(Debug)]
pub struct Ends<'a> {
    /// The state directory of whoever probed.
    pub state: Option<PathBuf>,
    /// The database: read by a backup, written by a restore; a verification has none.
    pub database: Option<&'a Path>,
    /// Where the stripes are.
    pub stripes: Vec<&'a Path>,
    /// Stripes are written, the database is read.
    pub is_backup: bool,
    /// Which ends are emulated.
    pub emulation: &'a Emulation,
}

impl Ends<'_> {
    /// Fills in the share of what was probed, and says it in the verdict; changes nothing where
    /// nothing was probed, or the limit is none of storage.
    pub fn judge(&self, report: &mut RunReport) {
        let Some((rate, probed)) = self.rates(report) else {
            return;
        };
        let share = rate / probed.max(1e-9);
        report.limit.share_of_probed = Some(share);
        report.verdict += &format!(
            "; probed, it can do {}: {:.0} % of that was used",
            megabytes(probed),
            share * 100.0
        );
    }

    /// Bytes per second that the storage which bound the run moved, and was probed to move.
    fn rates(&self, report: &RunReport) -> Option<(f64, f64)> {
        let state = self.state.as_deref()?;
        let (read, written) = (report.bytes_read, report.bytes_written);
        let (bytes, places, operation, emulated) = match (report.limit.stage, self.is_backup) {
            ("source", true) => (
                read,
                vec![self.database?],
                Operation::Read,
                self.emulation.source.is_some(),
            ),
            ("target", false) => (
                written,
                vec![self.database?],
                Operation::Write,
                self.emulation.source.is_some(),
            ),
            ("device", backup) => (
                if backup { written } else { read },
                self.stripes.clone(),
                if backup {
                    Operation::Write
                } else {
                    Operation::Read
                },
                self.emulation.target.is_some(),
            ),
            _ => return None,
        };
        if emulated || self.emulation.instance.is_some() {
            return None;
        }
        let probed = sum(state, &places, operation, report.transfer_bytes as u64)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
        let rate = bytes as f64 / report.data_seconds.max(1e-9);
        Some((rate, probed))
    }
}

/// What the devices that hold these places can do together, each counted once; `None` unless all of
/// them were probed.
pub fn sum(state: &Path, places: &[&Path], operation: Operation, block: u64) -> Option<f64> {
    let mut seen: Vec<DeviceId> = Vec::new();
    let mut sum = 0.0;
    for place in places {
        // A profile that cannot be read is one that is not there: the run itself was right.
        let profile = Profile::for_path(state, place).ok().flatten()?;
        if !seen.contains(&profile.device) {
            sum += profile.best_at(operation, block)?;
            seen.push(profile.device);
        }
    }
    (sum > 0.0).then_some(sum)
}

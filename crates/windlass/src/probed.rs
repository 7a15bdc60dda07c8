//! How near a run came to what its limit was probed to do.
//!
//! The engine knows what a run did; what storage can do is in the profiles that `lab probe` left.
//! Storage that is emulated has no profile: what was probed is not what the run met.

use std::path::Path;

use windlass_engine::{Emulation, RunReport, show_rate};
use windlass_lab::{Operation, Profile, to_f64};

/// Where the ends of a run lie.
#[derive(Debug)]
pub struct Ends<'a> {
    /// The database's places: read by a backup, written by a restore; a verification has none.
    pub database: Vec<&'a Path>,
    /// Where the stripes are.
    pub stripes: Vec<&'a Path>,
    /// Stripes are written, the database is read.
    pub is_backup: bool,
    /// Which ends are emulated.
    pub emulation: &'a Emulation,
}

impl Ends<'_> {
    /// Fills in the share of what was probed, and says it in the verdict; changes nothing where
    /// nothing was probed, or the limit is none of storage. `state` is the state directory of
    /// whoever probed.
    pub fn judge(&self, state: Option<&Path>, report: &mut RunReport) {
        let Some((rate, probed)) = state.and_then(|state| self.rates(state, report)) else {
            return;
        };
        let share = rate / probed.max(1e-9);
        report.limit.share_of_probed = Some(share);
        // The run's rate counts bytes of the database, a device's what is stored of them.
        let of = match report.limit.stage {
            "device" => " of stored bytes",
            _ => "",
        };
        report.verdict += &format!(
            "; probed, it can do {}{of}: {:.0} % of that was used",
            show_rate(probed),
            share * 100.0
        );
    }

    /// Bytes of the database that the run moved, and of the stripes.
    pub fn amounts(&self, report: &RunReport) -> (u64, u64) {
        match self.is_backup {
            true => (report.bytes_read, report.bytes_written),
            false => (report.bytes_written, report.bytes_read),
        }
    }

    /// What was done at the database, and at the stripes.
    pub fn operations(&self) -> (Operation, Operation) {
        match self.is_backup {
            true => (Operation::Read, Operation::Write),
            false => (Operation::Write, Operation::Read),
        }
    }

    /// Bytes per second that the storage which bound the run moved, and was probed to move.
    fn rates(&self, state: &Path, report: &RunReport) -> Option<(f64, f64)> {
        let (at_database, at_stripes) = self.operations();
        let (rate, places, operation, model) = match (report.limit.stage, self.is_backup) {
            // The database's end moves the bytes that the verdict's rate counts, in the same time:
            // what is made durable is written then.
            ("source", true) | ("target", false) => (
                report.limit.rate,
                &self.database,
                at_database,
                &self.emulation.source,
            ),
            ("device", _) => (
                to_f64(self.amounts(report).1) / report.data_seconds.max(1e-9),
                &self.stripes,
                at_stripes,
                &self.emulation.target,
            ),
            _ => return None,
        };
        if model.is_some() || self.emulation.instance.is_some() {
            return None;
        }
        let probed = sum(state, places, operation, report.transfer_bytes as u64)?;
        Some((rate, probed))
    }
}

/// What the devices that hold these places can do together, each counted once; `None` unless all of
/// them were probed.
pub fn sum(state: &Path, places: &[&Path], operation: Operation, block: u64) -> Option<f64> {
    let rates = profiles(state, places)?;
    let rates = rates.iter().map(|one| one.best_at(operation, block));
    let sum = rates.sum::<Option<f64>>()?;
    (sum > 0.0).then_some(sum)
}

/// The profiles of the devices that hold these places, each once; `None` unless all of them were
/// probed.
pub fn profiles(state: &Path, places: &[&Path]) -> Option<Vec<Profile>> {
    let mut found: Vec<Profile> = Vec::new();
    for place in places {
        // A profile that cannot be read is one that is not there: the run itself was right.
        let profile = Profile::for_path(state, place).ok().flatten()?;
        if found.iter().all(|other| other.device != profile.device) {
            found.push(profile);
        }
    }
    Some(found)
}

//! How close a run came to the probed speed of what limited it.
//!
//! The engine knows what a run did. The profiles of `lab probe` say what storage can do. Emulated
//! storage has no profile, because a probe measures the real storage and the run did not meet that.

use std::path::Path;

use windlass_engine::{Resource, RunReport, show_rate};
use windlass_lab::{DeviceId, LabError, Operation, Profile, to_f64};
use windlass_model::Emulation;
use windlass_object::Location;

/// The two ends of a run.
#[derive(Debug)]
pub struct Ends<'a> {
    /// The places of the database. A backup reads them, a restore writes them; a verification has
    /// none.
    pub database: Vec<&'a Path>,
    /// The places of the stripes.
    pub stripes: Vec<&'a Path>,
    /// Whether the run writes stripes and reads the database.
    pub is_backup: bool,
    /// Which ends are emulated.
    pub emulation: &'a Emulation,
}

impl Ends<'_> {
    /// Adds the share of the probed speed to the report, and to its verdict. It changes nothing if
    /// nothing was probed, if storage was not the limit, or if nobody can say what was. `state` is
    /// the state directory of the user who probed.
    pub fn judge(&self, state: Option<&Path>, report: &mut RunReport) {
        // So few bytes moved that the storage had no chance to show what it can do.
        if !report.limit.conclusive {
            return;
        }
        let Some((rate, probed)) = state.and_then(|state| self.rates(state, report)) else {
            return;
        };
        let share = rate / probed.max(1e-9);
        report.limit.share_of_probed = Some(share);
        // A run's rate counts bytes of the database, a device's rate counts stored bytes.
        let of = match report.limit.stage {
            Resource::Device => " of stored bytes",
            _ => "",
        };
        report.verdict += &format!(
            "; probed, it can do {}{of}: {:.0} % of that was used",
            show_rate(probed),
            share * 100.0
        );
    }

    /// Bytes of the database that the run moved; then bytes of the stripes.
    pub fn amounts(&self, report: &RunReport) -> (u64, u64) {
        match self.is_backup {
            true => (report.bytes_read, report.bytes_written),
            false => (report.bytes_written, report.bytes_read),
        }
    }

    /// The operation at the database, and the operation at the stripes.
    pub fn operations(&self) -> (Operation, Operation) {
        match self.is_backup {
            true => (Operation::Read, Operation::Write),
            false => (Operation::Write, Operation::Read),
        }
    }

    /// Bytes per second that the limiting storage moved, and the probed rate of that storage.
    fn rates(&self, state: &Path, report: &RunReport) -> Option<(f64, f64)> {
        let (at_database, at_stripes) = self.operations();
        let (rate, places, operation, model) = match (report.limit.stage, self.is_backup) {
            // At the database's end, the bytes moved are those that the verdict's rate counts. The
            // time is the same too, because making them durable happens in it.
            (Resource::Source, true) | (Resource::Target, false) => (
                report.limit.rate,
                &self.database,
                at_database,
                &self.emulation.source,
            ),
            (Resource::Device, _) => (
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

/// The rate that the devices of these places can reach together. Each device counts once, a bucket
/// with as many stripes as it has of these; `None` unless all of them were probed.
pub fn sum(state: &Path, places: &[&Path], operation: Operation, block: u64) -> Option<f64> {
    let rates = counted(state, places)?;
    let rates = rates
        .iter()
        .map(|(one, places)| one.best_of(operation, block, *places));
    let sum = rates.sum::<Option<f64>>()?;
    (sum > 0.0).then_some(sum)
}

/// The profile of the device, or of the bucket, that has a place; `None` if it was never probed.
pub fn profile(state: &Path, place: &Path) -> Result<Option<Profile>, LabError> {
    match Location::parse(place) {
        Ok(at) => Profile::for_device(state, &DeviceId::of_bucket(&at.bucket_name())),
        Err(_) => Profile::for_path(state, place),
    }
}

/// The profiles of the devices of these places, without duplicates; `None` unless all of them were
/// probed.
pub fn profiles(state: &Path, places: &[&Path]) -> Option<Vec<Profile>> {
    let found = counted(state, places)?.into_iter();
    Some(found.map(|(profile, _)| profile).collect())
}

/// These profiles, and how many of the places each has.
fn counted(state: &Path, places: &[&Path]) -> Option<Vec<(Profile, usize)>> {
    let mut found: Vec<(Profile, usize)> = Vec::new();
    for place in places {
        // An unreadable profile counts as missing, because the run itself succeeded.
        let profile = profile(state, place).ok().flatten()?;
        let same = found
            .iter_mut()
            .find(|(one, _)| one.device == profile.device);
        match same {
            Some((_, places)) => *places += 1,
            None => found.push((profile, 1)),
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use windlass_lab::{Pattern, Point};

    use super::*;

    #[test]
    fn a_bucket_gives_each_stripe_the_rate_of_its_requests_and_all_at_most_the_best() {
        let state = tempfile::tempdir().unwrap();
        let bucket = DeviceId::of_bucket("s3://shop");
        let at = "2026-01-01T00:00:00Z".to_owned();
        let mut profile = Profile::new(bucket, Path::new("s3://shop/night"), at, 1 << 30);
        let point = |depth: usize, rate: f64| Point {
            pattern: Pattern::Sequential,
            operation: Operation::Write,
            direct: true,
            block_bytes: 8 << 20,
            depth,
            bytes_per_second: rate,
            operations_per_second: rate / 8e6,
            latency_micros_p50: 100.0,
            latency_micros_p99: 200.0,
            spread: None,
        };
        profile.points = vec![point(1, 30e6), point(4, 100e6), point(16, 350e6)];
        profile.save(state.path()).unwrap();
        let stripes: Vec<_> = (1..=4)
            .map(|number| format!("s3://shop/night/a.{number}of4.windlass"))
            .collect();
        let stripes: Vec<_> = stripes.iter().map(Path::new).collect();
        let sum = |count: usize| sum(state.path(), &stripes[..count], Operation::Write, 1 << 20);
        assert_eq!(sum(1), Some(100e6));
        assert_eq!(sum(3), Some(300e6));
        assert_eq!(sum(4), Some(350e6));
        assert_eq!(
            super::sum(state.path(), &stripes, Operation::Read, 1 << 20),
            None
        );
    }
}

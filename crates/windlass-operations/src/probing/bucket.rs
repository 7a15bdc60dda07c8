//! Measures a bucket: what its requests and their bytes cost is told before the first one.

use std::path::Path;
use std::time::Duration;

use windlass_engine::media::SetId;
use windlass_engine::{Cancel, EngineError};
use windlass_lab::{
    DeviceId, LabError, LabFault, LabSetting, Operation, Pattern, Point, Profile, to_f64,
    with_knees,
};
use windlass_object::{
    Location, MeasureKind, MeasurePlan, Measured, ObjectError, PART_BYTES_DEFAULT, Spent,
    is_stripe_name,
};

use crate::caller::Caller;
use crate::error::{DeviceError, OperationError};
use crate::notice::Notice;
use crate::stored::buckets;

/// A place in a bucket that is to be measured.
pub(super) struct BucketProbe<'a> {
    place: &'a Path,
    device: DeviceId,
    plan: MeasurePlan,
    scratch_bytes: u64,
}

impl<'a> BucketProbe<'a> {
    /// For an object of at most so many bytes. Asks the server nothing. The name of a stripe means
    /// the place that it lies in: only there would a clean-up find what a killed probe leaves.
    pub(super) fn new(place: &'a Path, scratch_bytes: u64) -> Result<Self, OperationError> {
        let location = Location::parse(place).map_err(DeviceError::from)?;
        let asked = buckets().settings().of(&location).part_bytes;
        let part_bytes = asked.unwrap_or(PART_BYTES_DEFAULT);
        let plan = MeasurePlan::new(part_bytes, scratch_bytes).ok_or(LabError::Setting {
            setting: LabSetting::ScratchSize,
            fault: LabFault::TooSmall {
                asked_bytes: scratch_bytes,
                least_bytes: MeasurePlan::least_bytes(part_bytes),
            },
        })?;
        let is_stripe = is_stripe_name(place) && !location.key.is_empty();
        let parent = place.parent().filter(|_| is_stripe);
        Ok(Self {
            place: parent.unwrap_or(place),
            device: DeviceId::of_bucket(&location.bucket_name()),
            plan,
            scratch_bytes,
        })
    }

    /// Measures it. Says what that has cost.
    pub(super) fn measure(
        self,
        caller: &Caller,
        budget: Duration,
        (at, cancel): (String, &Cancel),
    ) -> Result<(Profile, Spent), OperationError> {
        caller.tell(&Notice::ProbingBucket {
            place: self.place,
            bound: self.plan.bound(),
            budget,
        });
        let mut profile = Profile::new(self.device, self.place, at, self.scratch_bytes);
        let mut each = |index: usize, count: usize, measured: &Measured| {
            let point = point_of(measured);
            caller.tell(&Notice::Probed {
                index,
                count,
                point: &point,
            });
            profile.points.push(point);
        };
        let id = SetId(*uuid::Uuid::new_v4().as_bytes());
        let spent = buckets().measure(self.place, (&self.plan, id), budget, cancel, &mut each);
        let spent = spent.map_err(|error| match error {
            ObjectError::Cancelled => EngineError::Cancelled.into(),
            error => OperationError::from(DeviceError::from(error)),
        })?;
        Ok((with_knees(profile), spent))
    }
}

/// What was measured, as a point. There is no page cache on the way.
fn point_of(measured: &Measured) -> Point {
    let (pattern, operation) = match measured.kind {
        MeasureKind::Parts => (Pattern::Sequential, Operation::Write),
        MeasureKind::Ranges => (Pattern::Sequential, Operation::Read),
        MeasureKind::Places => (Pattern::Random, Operation::Read),
    };
    let latencies = &measured.latencies;
    let seconds = measured.elapsed.as_secs_f64().max(1e-9);
    let rate = to_f64(latencies.len() as u64) / seconds;
    let micros = |percent: usize| {
        let found = latencies.get(latencies.len() * percent / 100);
        found.map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    Point {
        pattern,
        operation,
        direct: true,
        block_bytes: measured.block_bytes,
        depth: measured.depth,
        bytes_per_second: rate * to_f64(measured.block_bytes),
        operations_per_second: rate,
        latency_micros_p50: micros(50),
        latency_micros_p99: micros(99),
        spread: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_all_requests_and_latencies_are_those_of_one() {
        let measured = Measured {
            kind: MeasureKind::Ranges,
            block_bytes: 1_000_000,
            depth: 2,
            elapsed: Duration::from_secs(2),
            latencies: (1..=4).map(Duration::from_secs).collect(),
        };
        let point = point_of(&measured);
        assert!(point.is(Pattern::Sequential, Operation::Read));
        assert!((point.bytes_per_second - 2e6).abs() < 1.0);
        assert!((point.latency_micros_p50 - 3e6).abs() < 1.0);
        assert!((point.latency_micros_p99 - 4e6).abs() < 1.0);
    }
}

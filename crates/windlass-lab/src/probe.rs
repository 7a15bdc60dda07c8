//! The probe: it measures what an I/O path and a core can do.
//!
//!   scratch file (nameless) --fill--> points: pattern x operation x block x depth x way --> knees
//!
//! The scratch file has no name, so it disappears when the probe ends, even if the probe is killed.
//!
//! Invariants
//! - Nothing is written outside the scratch file.
//! - Bytes in flight never exceed [`FLIGHT_BYTES_MAX`]. The file never leaves too little free
//!   space.

mod cpu;
mod point;
mod scratch;

use std::path::Path;
use std::time::{Duration, Instant};

use windlass_engine::Cancel;
use windlass_engine::media::fitted;

use crate::error::LabError;
use crate::points::{Knee, Operation, Pattern, Point};
use crate::profile::{DeviceId, Profile};

pub use cpu::{CODECS, measure_codecs, measure_memory};
pub(crate) use scratch::check_space;

use point::PointPlan;
use scratch::Scratch;

/// The most bytes in flight at a time. This bounds the probe's memory too.
pub const FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// Block sizes that the probe tries.
const BLOCKS: [u64; 6] = [8 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20];
/// Depths that the probe tries.
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Depths that the probe tries with block sizes other than the default transfer size.
const DEPTHS_FEW: [usize; 3] = [1, 8, 64];
/// A rate of at least this share of the best rate counts as equally good.
const KNEE_SHARE: f64 = 0.95;
/// The part of the time in which the scratch file may be filled.
const FILL_SHARE: f64 = 0.25;

/// What to probe, and at what cost.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// How long it may take.
    pub budget: Duration,
    /// Bytes of the scratch file.
    pub scratch_bytes: u64,
    /// When, for the profile: RFC 3339.
    pub at: String,
}

/// Probes the file system that holds `directory`. The probe calls `progress` with each point's
/// number, the number of all points, and what was measured.
pub fn probe(
    directory: &Path,
    request: &ProbeRequest,
    cancel: &Cancel,
    progress: &mut dyn FnMut(usize, usize, &Point),
) -> Result<Profile, LabError> {
    let device = DeviceId::of_path(directory)?;
    let began = Instant::now();
    let fill = request.budget.mul_f64(FILL_SHARE);
    let scratch = Scratch::create(directory, request.scratch_bytes, fill, cancel)?;
    let mut profile = Profile::new(device, directory, request.at.clone(), scratch.bytes());
    let plans = plans(scratch.is_direct());
    for (index, plan) in plans.iter().enumerate() {
        let left = request.budget.saturating_sub(began.elapsed());
        let share = left / fitted(plans.len() - index);
        let found = point::measure(&scratch, plan, share, cancel)?;
        progress(index + 1, plans.len(), &found);
        profile.points.push(found);
    }
    Ok(with_knees(profile))
}

/// A profile whose points somebody measured, with their knees.
pub fn with_knees(mut profile: Profile) -> Profile {
    profile.knees = knees(&profile.points);
    profile
}

/// All combinations: every depth with the default transfer size, and a few depths with every block
/// size. Through the page cache, only the smallest block and the default transfer size at depth 1.
fn plans(can_direct: bool) -> Vec<PointPlan> {
    let mut plans = Vec::new();
    for direct in [true, false] {
        if direct && !can_direct {
            continue;
        }
        for (pattern, operation) in KINDS {
            for block_bytes in BLOCKS {
                for depth in DEPTHS {
                    let some = DEPTHS_FEW.contains(&depth) || block_bytes == 1 << 20;
                    let cached = depth == 1 && [8 << 10, 1 << 20].contains(&block_bytes);
                    let fits = block_bytes * depth as u64 <= FLIGHT_BYTES_MAX;
                    if fits && (if direct { some } else { cached }) {
                        plans.push(PointPlan {
                            pattern,
                            operation,
                            direct,
                            block_bytes,
                            depth,
                        });
                    }
                }
            }
        }
    }
    plans
}

const KINDS: [(Pattern, Operation); 4] = [
    (Pattern::Sequential, Operation::Read),
    (Pattern::Random, Operation::Read),
    (Pattern::Sequential, Operation::Write),
    (Pattern::Random, Operation::Write),
];

/// The knee of each kind of point.
fn knees(points: &[Point]) -> Vec<Knee> {
    let kinds = [true, false]
        .into_iter()
        .flat_map(|direct| KINDS.map(|(pattern, operation)| (direct, pattern, operation)));
    kinds
        .filter_map(|(direct, pattern, operation)| {
            let of = |point: &&Point| point.direct == direct && point.is(pattern, operation);
            knee(&points.iter().filter(of).collect::<Vec<_>>())
        })
        .collect()
}

/// The knee of these points. Of all points that are as good as the best, it is the one with the
/// fewest bytes in flight; if several have these, the one with the smallest block.
fn knee(points: &[&Point]) -> Option<Knee> {
    let rate = |point: &&&Point| point.bytes_per_second;
    let fastest = points
        .iter()
        .max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let best = fastest.bytes_per_second;
    let good = |point: &&&Point| point.bytes_per_second >= KNEE_SHARE * best;
    let first = points
        .iter()
        .filter(good)
        .min_by_key(|point| (point.block_bytes * point.depth as u64, point.block_bytes))?;
    Some(Knee {
        pattern: first.pattern,
        operation: first.operation,
        direct: first.direct,
        block_bytes: first.block_bytes,
        depth: first.depth,
        bytes_per_second: first.bytes_per_second,
        best_bytes_per_second: best,
        spread: fastest.spread,
    })
}

#[cfg(test)]
mod tests;

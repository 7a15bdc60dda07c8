//! Measures one combination: keeps blocks in flight until the time is up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use windlass_engine::media::fitted;
use windlass_engine::{Buffer, Cancel, Pool, Ring, Role};

use super::scratch::{Scratch, randomise};
use crate::error::LabError;
use crate::points::{Operation, Pattern, Point};
use crate::sample::next;

/// With fewer operations a rate says nothing, even if there is little time.
const OPERATIONS_MIN: u64 = 8;

/// The number of parts of the time whose rates are compared; then the blocks that each part needs
/// for a rate.
const PARTS: usize = 4;
const PART_OPERATIONS_MIN: u64 = 8;

/// A combination to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PointPlan {
    pub(super) pattern: Pattern,
    pub(super) operation: Operation,
    pub(super) direct: bool,
    pub(super) block_bytes: u64,
    pub(super) depth: usize,
}

/// Measures one combination for about `time`.
pub(super) fn measure(
    scratch: &Scratch,
    plan: &PointPlan,
    time: Duration,
    cancel: &Cancel,
) -> Result<Point, LabError> {
    scratch.forget().map_err(fault)?;
    let block = fitted(plan.block_bytes);
    let pool = Pool::new(plan.depth, 0, block)?;
    if plan.operation == Operation::Write {
        fill(&pool, block);
    }
    let mut run = Measuring {
        file: Arc::clone(scratch.file(plan.direct)),
        plan: *plan,
        places: Places::new(plan, scratch.bytes()),
        latency: histogram(),
        operations: 0,
        began: Instant::now(),
        part: time / fitted(PARTS),
        parts: [0; PARTS],
    };
    let began = run.began;
    let is_over = |operations| operations >= OPERATIONS_MIN && began.elapsed() >= time;
    match Ring::new(plan.depth) {
        Ok(ring) if plan.depth > 1 => run.deep(ring, &pool, &is_over, cancel)?,
        _ => run.shallow(&pool, &is_over, cancel)?,
    }
    if plan.operation == Operation::Write && !plan.direct {
        // Bytes that are only in memory do not count as written.
        run.file.sync_data().map_err(fault)?;
    }
    Ok(run.point(began.elapsed()))
}

struct Measuring {
    file: Arc<File>,
    plan: PointPlan,
    places: Places,
    latency: Histogram<u64>,
    operations: u64,
    began: Instant,
    /// The length of one part of the time, and the number of blocks done in each part.
    part: Duration,
    parts: [u64; PARTS],
}

impl Measuring {
    /// Keeps several blocks in flight, through a ring.
    fn deep(
        &mut self,
        mut ring: Ring,
        pool: &Arc<Pool>,
        is_over: &dyn Fn(u64) -> bool,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        let mut started = 0;
        loop {
            cancel.check()?;
            while !ring.is_full() && !is_over(started) {
                let Some(buffer) = self.buffer(pool) else {
                    break;
                };
                let (offset, length) = (self.places.next(), buffer.len());
                match self.plan.operation {
                    Operation::Read => ring.read(&self.file, offset, buffer, (0, length), offset),
                    Operation::Write => ring.write(&self.file, offset, buffer, offset),
                }
                .map_err(fault)?;
                started += 1;
            }
            let Some(done) = ring.wait().map_err(fault)? else {
                return Ok(());
            };
            self.count(done.result.map_err(fault)?, done.elapsed)?;
        }
    }

    /// One block after the other, with plain calls.
    fn shallow(
        &mut self,
        pool: &Arc<Pool>,
        is_over: &dyn Fn(u64) -> bool,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        while !is_over(self.operations) {
            cancel.check()?;
            let Some(mut buffer) = self.buffer(pool) else {
                break;
            };
            let offset = self.places.next();
            let began = Instant::now();
            let bytes = match self.plan.operation {
                Operation::Read => self.file.read_at(&mut buffer, offset),
                Operation::Write => self.file.write_at(&buffer, offset),
            };
            self.count(bytes.map_err(fault)?, began.elapsed())?;
        }
        Ok(())
    }

    fn buffer(&self, pool: &Arc<Pool>) -> Option<Buffer> {
        let mut buffer = pool.try_take(Role::Input)?;
        buffer.set_len(buffer.capacity());
        Some(buffer)
    }

    fn count(&mut self, bytes: usize, time: Duration) -> Result<(), LabError> {
        if bytes as u64 != self.plan.block_bytes {
            return Err(fault(std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.operations += 1;
        let part = self.began.elapsed().as_nanos() / self.part.as_nanos().max(1);
        let part = usize::try_from(part)
            .ok()
            .and_then(|part| self.parts.get_mut(part));
        if let Some(part) = part {
            *part += 1;
        }
        let nanos = fitted(time.as_nanos());
        self.latency.saturating_record(nanos);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "a speed needs no 53 bits")]
    fn point(&self, elapsed: Duration) -> Point {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let rate = self.operations as f64 / seconds;
        let micros = |share| self.latency.value_at_quantile(share) as f64 / 1e3;
        let plan = self.plan;
        Point {
            pattern: plan.pattern,
            operation: plan.operation,
            direct: plan.direct,
            block_bytes: plan.block_bytes,
            depth: plan.depth,
            bytes_per_second: rate * plan.block_bytes as f64,
            operations_per_second: rate,
            latency_micros_p50: micros(0.5),
            latency_micros_p99: micros(0.99),
            spread: spread(&self.parts),
        }
    }
}

/// The largest count less the smallest, as a share of the mean.
#[expect(clippy::cast_precision_loss, reason = "numbers of blocks")]
pub(super) fn spread(parts: &[u64]) -> Option<f64> {
    let (least, most) = (*parts.iter().min()?, *parts.iter().max()?);
    let mean = parts.iter().sum::<u64>() as f64 / parts.len() as f64;
    (mean >= PART_OPERATIONS_MIN as f64).then(|| (most - least) as f64 / mean)
}

/// Chooses the place of the next block.
struct Places {
    pattern: Pattern,
    block_bytes: u64,
    blocks: u64,
    state: u64,
}

impl Places {
    fn new(plan: &PointPlan, bytes: u64) -> Self {
        Self {
            pattern: plan.pattern,
            block_bytes: plan.block_bytes,
            blocks: (bytes / plan.block_bytes).max(1),
            state: 0,
        }
    }

    fn next(&mut self) -> u64 {
        let block = match self.pattern {
            Pattern::Sequential => self.state,
            Pattern::Random => next(self.state),
        };
        self.state = self.state.wrapping_add(1);
        block % self.blocks * self.block_bytes
    }
}

/// Fills every buffer of the pool. The pool lends buffers with what is in them.
fn fill(pool: &Arc<Pool>, block: usize) {
    let mut buffers = Vec::new();
    while let Some(mut buffer) = pool.try_take(Role::Input) {
        randomise(&mut buffer.space()[..block], buffers.len() as u64 + 2);
        buffers.push(buffer);
    }
}

/// From a nanosecond to an hour, with two significant digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 2).expect("these bounds make a histogram")
}

fn fault(error: std::io::Error) -> LabError {
    LabError::io("probe", "(scratch file)")(error)
}

//! Measures what a bucket can do: uploads in parts and reads of ranges, by requests in flight.
//!
//!   marker --> one upload, more and more parts in flight --> its object --> ranges --> removed
//!
//! Invariants
//! - All bytes are in one object, whose key has a new id. Nothing else in the bucket is touched.
//! - The object is removed however this ends. If that fails, the error says so. What is left then,
//!   or by a killed process, the next clean-up of the place finds by its marker, as it finds what a
//!   killed backup leaves.
//! - Requests and bytes have a bound that is known before the first one ([`MeasurePlan::bound`]).
//!   Only a request that failed and is tried again comes on top.

mod scratch;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_engine::Cancel;
use windlass_engine::media::{SetId, fitted};

use crate::bytes::{RANGE_BYTES_MAX, RANGE_BYTES_MIN};
use crate::client::Bucket;
use crate::clock::Spent;
use crate::error::{ObjectError, Removal};
use crate::layout::{BEGUN, PROBE, below};
use crate::location::Location;
use crate::probe::remove;
use crate::settings::{PARTS_IN_FLIGHT, PARTS_MAX};
use crate::storage::Buckets;

use scratch::Scratch;

/// How many parts, or ranges one after the other, are in flight.
const DEPTHS: [usize; 5] = [1, 2, 4, 8, 16];
/// So many of them are always tried: a stripe has four parts on their way.
const DEPTHS_LEAST: usize = 3;
/// How many ranges anywhere are in flight, and how many are read for each of these.
const PLACES_DEPTHS: [usize; 3] = [1, 8, 32];
const PLACES_EACH: usize = 8;
/// The requests besides parts and ranges: markers, the begin and end of the upload, removal.
const OTHER_REQUESTS: u64 = 40;
/// The bytes of these, besides what the request that ends the upload says of each part.
const OTHER_BYTES: u64 = 256 * 1024;
/// What that is at most: its number, its tag, and perhaps its checksum.
const PART_NAME_BYTES: u64 = 256;

/// What requests were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    /// Parts of an upload.
    Parts,
    /// Ranges one after the other, as a restore reads them.
    Ranges,
    /// Small ranges anywhere, as a query reads them.
    Places,
}

/// What was measured with so many requests in flight.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What requests.
    pub kind: MeasureKind,
    /// Bytes of one of them.
    pub block_bytes: u64,
    /// How many were in flight.
    pub depth: usize,
    /// How long all of them took.
    pub elapsed: Duration,
    /// How long each one took, the shortest first.
    pub latencies: Vec<Duration>,
}

/// One step of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    kind: MeasureKind,
    block_bytes: u64,
    depth: usize,
    /// How many requests, at most.
    count: u64,
    /// The number of the first block: no step reads what another one has read, because a server may
    /// have kept that.
    first: u64,
}

impl Step {
    /// Whether no further request begins. Each one that may be in flight is made once, however long
    /// that takes.
    fn is_over(&self, started: u64, (begin, time): (Instant, Duration)) -> bool {
        let is_late = started >= self.depth as u64 && begin.elapsed() >= time;
        started >= self.count || is_late
    }

    /// Whether it is left out: at the rate of fewer in flight, it would take longer than there is
    /// time for. On a slow link, many at once make each other so late that they are sent again.
    fn is_left_out(&self, last: Option<&Measured>, left: Duration) -> bool {
        let is_extra = self.depth > PARTS_IN_FLIGHT && self.kind != MeasureKind::Places;
        let Some(last) = last.filter(|last| is_extra && last.kind == self.kind) else {
            return false;
        };
        let (depth, done): (u32, u32) = (fitted(self.depth), fitted(last.latencies.len()));
        last.elapsed * depth / done.max(1) > left
    }
}

/// What will be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurePlan {
    part_bytes: u64,
    steps: Vec<Step>,
}

impl MeasurePlan {
    /// The smallest object that can be measured with parts of this size.
    pub fn least_bytes(part_bytes: u64) -> u64 {
        let parts: usize = DEPTHS[..DEPTHS_LEAST].iter().sum();
        part_bytes * parts as u64
    }

    /// A plan for an object of at most so many bytes. None if it is too small.
    pub fn new(part_bytes: u64, object_bytes: u64) -> Option<Self> {
        if object_bytes < Self::least_bytes(part_bytes) {
            return None;
        }
        let parts = (object_bytes / part_bytes).min(PARTS_MAX);
        let mut steps = steps_of(MeasureKind::Parts, part_bytes, parts);
        let uploaded: u64 = steps.iter().map(|step| step.count * part_bytes).sum();
        let ranges = uploaded / RANGE_BYTES_MAX;
        let places = PLACES_DEPTHS.map(|depth| Step {
            kind: MeasureKind::Places,
            block_bytes: RANGE_BYTES_MIN,
            depth,
            count: (depth * PLACES_EACH) as u64,
            first: 0,
        });
        steps.extend(steps_of(MeasureKind::Ranges, RANGE_BYTES_MAX, ranges));
        steps.extend(places);
        Some(Self { part_bytes, steps })
    }

    /// The most that it spends.
    pub fn bound(&self) -> Spent {
        let mut bound = Spent {
            requests: OTHER_REQUESTS,
            sent_bytes: OTHER_BYTES,
            received_bytes: OTHER_BYTES,
        };
        for step in &self.steps {
            let bytes = step.count * step.block_bytes;
            bound.requests += step.count;
            match step.kind {
                MeasureKind::Parts => bound.sent_bytes += bytes + step.count * PART_NAME_BYTES,
                MeasureKind::Ranges | MeasureKind::Places => bound.received_bytes += bytes,
            }
        }
        bound
    }
}

/// Shares blocks out: twice as many in flight get twice as many. No depth has fewer than it needs.
fn steps_of(kind: MeasureKind, block_bytes: u64, blocks: u64) -> Vec<Step> {
    let mut depths = Vec::new();
    let mut sum = 0;
    for depth in DEPTHS {
        if sum + depth as u64 <= blocks {
            sum += depth as u64;
            depths.push(depth);
        }
    }
    let mut first = 0;
    let step = |depth: usize| {
        let step = Step {
            kind,
            block_bytes,
            depth,
            count: blocks * depth as u64 / sum,
            first,
        };
        first += step.count;
        step
    };
    depths.into_iter().map(step).collect()
}

impl Buckets {
    /// Measures a place in a bucket for about `budget`. It calls `each` with the number of each
    /// step, that of all steps, and what was measured. Returns what it spent.
    pub fn measure(
        &self,
        place: &Path,
        (plan, id): (&MeasurePlan, SetId),
        budget: Duration,
        cancel: &Cancel,
        each: &mut dyn FnMut(usize, usize, &Measured),
    ) -> Result<Spent, ObjectError> {
        let at = Location::parse(place)?;
        let bucket = self.bucket(&at)?;
        let before = bucket.clock.spent();
        can_remove(&bucket, &at, id)?;
        let mut scratch = Scratch::begin(&bucket, &at, id, plan.part_bytes)?;
        let measured = run(&mut scratch, plan, budget, cancel, each);
        match (measured, scratch.remove()) {
            (Ok(()), removed) => removed.map(|_| bucket.clock.spent().since(before)),
            (Err(error), Ok(true)) => Err(error),
            (Err(error), removed) => Err(ObjectError::Left {
                place: at.to_string(),
                cause: Box::new(error),
                why: removed.map_or_else(
                    |why| why.to_string(),
                    |_| "the server never said that its upload is gone".to_owned(),
                ),
            }),
        }
    }
}

/// Fails if what is written to a place stays there: so much is not left behind.
fn can_remove(bucket: &Bucket, place: &Location, id: SetId) -> Result<(), ObjectError> {
    let key = below(place, &format!("{BEGUN}/{PROBE}{id}"));
    let bytes = Bytes::from(id.to_string().into_bytes());
    let kept = bucket.clock.kept();
    bucket.wait(bucket.create(&key, &bytes))?;
    match remove(bucket, &key, kept)? {
        Removal::Gone => Ok(()),
        removal => Err(ObjectError::Stays {
            place: place.to_string(),
            removal,
        }),
    }
}

fn run(
    scratch: &mut Scratch,
    plan: &MeasurePlan,
    budget: Duration,
    cancel: &Cancel,
    each: &mut dyn FnMut(usize, usize, &Measured),
) -> Result<(), ObjectError> {
    let (begin, count) = (Instant::now(), plan.steps.len());
    let mut last: Option<Measured> = None;
    for (index, step) in plan.steps.iter().enumerate() {
        let left = budget.saturating_sub(begin.elapsed());
        if step.is_left_out(last.as_ref(), left) {
            continue;
        }
        let time = left / fitted(count - index);
        let mut measured = match step.kind {
            MeasureKind::Parts => scratch.upload(step, time, cancel)?,
            MeasureKind::Ranges | MeasureKind::Places => {
                scratch.complete(cancel)?;
                scratch.read(step, time, cancel)?
            }
        };
        measured.latencies.sort_unstable();
        each(index + 1, count, &measured);
        last = Some(measured);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use tokio::runtime::Runtime;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Reads a request: its method, and its body.
    fn request(client: &TcpStream) -> (String, Vec<u8>) {
        let mut reader = BufReader::new(client);
        let (mut method, mut length) = (String::new(), 0_usize);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap_or_default();
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().unwrap();
            }
            if method.is_empty() {
                method = line.split(' ').next().unwrap().to_owned();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap_or_default();
        (method, body)
    }

    /// The endpoint of a server with one object at most, which it says is like this.
    fn server(header: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut object: Option<Vec<u8>> = None;
            for client in listener.incoming() {
                let client = client.unwrap();
                let (method, body) = request(&client);
                let deleted = "<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>";
                if method == "put" {
                    object = Some(body);
                }
                let (status, body) = match (method.as_str(), &object) {
                    ("put", _) => ("200 OK", Vec::new()),
                    ("get", Some(object)) => ("200 OK", object.clone()),
                    ("get", None) => ("404 Not Found", Vec::new()),
                    _ => ("200 OK", deleted.as_bytes().to_vec()),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"1\"\r\n\
                     Last-Modified: Fri, 27 Nov 2026 07:00:00 GMT\r\n{header}\
                     Connection: close\r\n\r\n"
                );
                let answer = [head.into_bytes(), body].concat();
                (&client).write_all(&answer).unwrap_or_default();
            }
        });
        endpoint
    }

    #[test]
    fn a_bucket_that_keeps_removed_objects_under_a_lock_is_not_measured() {
        let runtime = Runtime::new().unwrap();
        let until = "x-amz-object-lock-retain-until-date: 2099-01-01T00:00:00.000Z\r\n";
        for (header, stays) in [(until, Some(Removal::Locked)), ("", None)] {
            let bucket = Bucket::unsigned(&runtime, server(header));
            let place = Location::parse(Path::new("s3://shop/night")).unwrap();
            let found = can_remove(&bucket, &place, SetId([7; 16]));
            let said = match found {
                Err(ObjectError::Stays { removal, .. }) => Some(removal),
                found => found.map(|()| None).unwrap(),
            };
            assert_eq!(said, stays);
        }
    }

    #[test]
    fn what_is_planned_stays_below_its_bound_and_within_the_object() {
        for (part, object) in [(5, 35), (5, 64), (8, 1024), (256, 4096), (5, 1 << 20)] {
            let plan = MeasurePlan::new(part * MIB, object * MIB).unwrap();
            let bytes = |kind: MeasureKind| -> u64 {
                let steps = plan.steps.iter().filter(|step| step.kind == kind);
                steps.map(|step| step.count * step.block_bytes).sum()
            };
            let sent = bytes(MeasureKind::Parts);
            assert!(sent <= object * MIB && sent <= PARTS_MAX * part * MIB);
            assert!(bytes(MeasureKind::Ranges) <= sent);
            let ranges = plan
                .steps
                .iter()
                .filter(|step| step.kind == MeasureKind::Ranges);
            let ends = ranges.clone().map(|step| step.first + step.count);
            let begins = ranges.skip(1).map(|step| step.first);
            assert!(ends.zip(begins).all(|(end, begin)| end == begin));
            let steps = plan.steps.iter();
            assert!(steps.clone().all(|step| step.count >= step.depth as u64));
            let count: u64 = steps.map(|step| step.count).sum();
            let bound = plan.bound();
            assert_eq!(bound.requests, count + OTHER_REQUESTS);
            // A part of an S3 upload, with a checksum, in the words of the request that ends it.
            let name = "<Part><ETag>&quot;00000000000000000000000000000000&quot;</ETag>\
                        <PartNumber>10000</PartNumber><ChecksumSHA256>\
                        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=</ChecksumSHA256></Part>";
            let parts = sent / (part * MIB);
            assert!(bound.sent_bytes - sent > 64 * 1024 + parts * name.len() as u64);
        }
    }

    #[test]
    fn more_in_flight_than_a_stripe_has_is_left_out_if_there_is_no_time_for_it() {
        let step = |kind: MeasureKind, depth: usize| Step {
            kind,
            block_bytes: 5 * MIB,
            depth,
            count: depth as u64,
            first: 0,
        };
        // Two seconds for each part.
        let last = Measured {
            kind: MeasureKind::Parts,
            block_bytes: 5 * MIB,
            depth: 4,
            elapsed: Duration::from_secs(16),
            latencies: vec![Duration::from_secs(8); 8],
        };
        let out = |step: Step, seconds| step.is_left_out(Some(&last), Duration::from_secs(seconds));
        assert!(out(step(MeasureKind::Parts, 8), 15));
        assert!(!out(step(MeasureKind::Parts, 8), 16));
        assert!(!out(step(MeasureKind::Parts, 4), 0));
        assert!(!out(step(MeasureKind::Ranges, 8), 0));
        assert!(!out(step(MeasureKind::Places, 32), 0));
        assert!(!step(MeasureKind::Parts, 8).is_left_out(None, Duration::ZERO));
    }

    #[test]
    fn an_object_that_is_too_small_for_a_stripe_s_parts_is_refused() {
        assert_eq!(MeasurePlan::least_bytes(8 * MIB), 56 * MIB);
        assert_eq!(MeasurePlan::new(8 * MIB, 56 * MIB - 1), None);
        let plan = MeasurePlan::new(8 * MIB, 56 * MIB).unwrap();
        let parts = plan
            .steps
            .iter()
            .filter(|step| step.kind == MeasureKind::Parts);
        let depths: Vec<_> = parts.map(|step| (step.depth, step.count)).collect();
        assert_eq!(depths, [(1, 1), (2, 2), (4, 4)]);
    }
}

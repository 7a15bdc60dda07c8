//! The object that is measured: uploaded in parts, read in ranges, and removed.
//!
//! It has the keys of a stripe that is never sealed, and the markers of one. So no command takes it
//! for a set, and what a killed process leaves is cleaned up like a stripe that was cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use windlass_engine::Cancel;
use windlass_engine::media::{SetId, fitted};

use super::{DEPTHS, MeasureKind, Measured, Step};
use crate::client::Bucket;
use crate::error::ObjectError;
use crate::layout::{StripeKeys, below};
use crate::location::Location;
use crate::marker::{Marker, Writer};
use crate::request::random;
use crate::upload::{Upload, abort};

/// How often a wait looks whether the run was cancelled.
const LOOK: Duration = Duration::from_millis(100);
/// By how much the bytes of a part are turned against those of the one before.
const TURN_BYTES: u64 = 4099;

/// The object.
pub(super) struct Scratch {
    bucket: Arc<Bucket>,
    place: Location,
    keys: StripeKeys,
    upload: Option<Upload>,
    is_complete: bool,
    is_removed: bool,
    /// The bytes of a part.
    content: Bytes,
    /// How many parts were begun.
    parts: u64,
}

impl Scratch {
    /// Writes the markers, and begins the upload.
    pub(super) fn begin(
        bucket: &Arc<Bucket>,
        place: &Location,
        id: SetId,
        part_bytes: u64,
    ) -> Result<Self, ObjectError> {
        let mut scratch = Self {
            bucket: Arc::clone(bucket),
            place: place.clone(),
            keys: StripeKeys::new(&id, 0),
            upload: None,
            is_complete: false,
            is_removed: false,
            content: noise(part_bytes),
            parts: 0,
        };
        let mut marker = Marker {
            set: id.to_string(),
            stripe: 0,
            name: format!("measured-{id}"),
            upload: None,
            writer: Writer::own(),
        };
        scratch.mark(&scratch.keys.marker, &marker)?;
        let upload = Upload::begin(bucket, &scratch.data(), DEPTHS[DEPTHS.len() - 1])?;
        marker.upload = Some(upload.id().to_owned());
        scratch.upload = Some(upload);
        scratch.mark(&scratch.keys.parts, &marker)?;
        Ok(scratch)
    }

    fn mark(&self, key: &str, marker: &Marker) -> Result<(), ObjectError> {
        let key = below(&self.place, key);
        let bytes = Bytes::from(marker.encode());
        self.bucket.wait(self.bucket.create(&key, &bytes))
    }

    /// The key of its data in the bucket.
    fn data(&self) -> String {
        below(&self.place, &self.keys.data)
    }

    /// The next part. All parts have the same bytes, each in another order, so that a server which
    /// looks for equal parts finds none.
    fn part(&mut self) -> Vec<Bytes> {
        self.parts += 1;
        let turn = self.parts * TURN_BYTES % self.content.len() as u64;
        let turn: usize = fitted(turn);
        let pieces = [self.content.slice(turn..), self.content.slice(..turn)];
        let pieces = pieces.into_iter();
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    /// Uploads parts, so many at a time.
    pub(super) fn upload(
        &mut self,
        step: &Step,
        time: Duration,
        cancel: &Cancel,
    ) -> Result<Measured, ObjectError> {
        let begin = Instant::now();
        let (mut started, mut latencies) = (0, Vec::new());
        loop {
            while self.in_flight() < step.depth && !step.is_over(started, (begin, time)) {
                let part = self.part();
                if let Some(upload) = &mut self.upload {
                    upload.part(part, cancel)?;
                }
                started += 1;
            }
            let done = match &mut self.upload {
                Some(upload) => upload.reap(cancel)?,
                None => None,
            };
            match done {
                Some(done) => latencies.push(done.elapsed),
                None => return Ok(measured(step, begin, latencies)),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.upload.as_ref().map_or(0, Upload::in_flight)
    }

    /// Makes one object of the parts, once.
    pub(super) fn complete(&mut self, cancel: &Cancel) -> Result<(), ObjectError> {
        if let Some(upload) = self.upload.as_mut().filter(|_| !self.is_complete) {
            upload.complete(cancel)?;
            self.is_complete = true;
        }
        Ok(())
    }

    /// Reads ranges of the object, so many at a time.
    pub(super) fn read(
        &self,
        step: &Step,
        time: Duration,
        cancel: &Cancel,
    ) -> Result<Measured, ObjectError> {
        let begin = Instant::now();
        let key = self.data();
        let (bucket, key, block_bytes) = (&self.bucket, &key, step.block_bytes);
        let bytes = self.parts * self.content.len() as u64;
        let blocks = (bytes / block_bytes).max(1);
        let numbers = (0..step.count).take_while(|number| !step.is_over(*number, (begin, time)));
        let get = |number: u64| {
            let block = match step.kind {
                MeasureKind::Places => random(),
                MeasureKind::Parts | MeasureKind::Ranges => step.first + number,
            };
            let from = block % blocks * block_bytes;
            async move {
                let asked = Instant::now();
                bucket.get_range(key, from, from + block_bytes).await?;
                Ok::<_, ObjectError>(asked.elapsed())
            }
        };
        let mut latencies = Vec::new();
        bucket.wait(async {
            let reads = futures_util::stream::iter(numbers).map(get);
            let mut reads = reads.buffer_unordered(step.depth);
            loop {
                cancel.check().map_err(|_| ObjectError::Cancelled)?;
                match tokio::time::timeout(LOOK, reads.next()).await {
                    Ok(Some(done)) => latencies.push(done?),
                    Ok(None) => return Ok::<_, ObjectError>(()),
                    Err(_) => {}
                }
            }
        })?;
        Ok(measured(step, begin, latencies))
    }

    /// Removes all of it. The markers go last, and stay as long as parts may be there: then it is
    /// false.
    pub(super) fn remove(&mut self) -> Result<bool, ObjectError> {
        self.is_removed = true;
        let bucket = self.bucket.hurried();
        let data = self.data();
        let mut is_gone = true;
        if let Some(upload) = self.upload.as_mut().filter(|_| !self.is_complete) {
            upload.give_up();
            is_gone = bucket.wait(abort(&bucket, &data, upload.id()))?;
        }
        let markers = [&self.keys.marker, &self.keys.parts];
        let markers = markers.into_iter().filter(|_| is_gone);
        let markers = markers.map(|key| below(&self.place, key));
        for key in std::iter::once(data).chain(markers) {
            bucket.wait(bucket.delete(&key))?;
        }
        Ok(is_gone)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_removed {
            // What cannot be removed now, the next clean-up of the place removes.
            drop(self.remove());
        }
    }
}

fn measured(step: &Step, begin: Instant, latencies: Vec<Duration>) -> Measured {
    Measured {
        kind: step.kind,
        block_bytes: step.block_bytes,
        depth: step.depth,
        elapsed: begin.elapsed(),
        latencies,
    }
}

/// Bytes that nothing can compress.
fn noise(bytes: u64) -> Bytes {
    let mut state = random() | 1;
    let length: usize = fitted(bytes);
    let mut content = Vec::with_capacity(length + 8);
    while content.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(length);
    Bytes::from(content)
}

//! The upload of one object in parts, several on their way at once.
//!
//! Invariants
//! - At most `in_flight_max` parts are on their way. A part's memory is released before its end is
//!   told, so whoever waits for buffers gets them.
//! - Parts that are given up are aborted, so that they cost nothing. One that comes late keeps the
//!   upload, so it is aborted until the server knows no such upload.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::{MultipartId, PutPayload};
use tokio::task::JoinSet;
use windlass_engine::{Cancel, WriteDone};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError};
use crate::location::Service;
use crate::request::path;

/// How often a wait looks whether the run was cancelled.
const LOOK: Duration = Duration::from_millis(100);
/// How often an upload is aborted, at most.
const ABORTS_MAX: u32 = 7;
/// How long parts that are on their way have to come to their end when an upload is given up.
const ENDING: Duration = Duration::from_secs(2);
/// The wait before the third time. Each further one is twice as long.
const ABORT_AGAIN: Duration = Duration::from_millis(100);

/// A part that came to its end.
struct PartDone {
    number: usize,
    bytes: u64,
    elapsed: Duration,
    result: Result<PartId, ObjectError>,
}

/// An upload that has begun.
pub(crate) struct Upload {
    bucket: Arc<Bucket>,
    key: String,
    id: MultipartId,
    parts: Vec<Option<PartId>>,
    bytes: u64,
    in_flight_max: usize,
    in_flight: usize,
    ended: VecDeque<WriteDone>,
    channel: (Sender<PartDone>, Receiver<PartDone>),
    tasks: JoinSet<()>,
}

impl Upload {
    /// Begins the upload of an object.
    pub(crate) fn begin(
        bucket: &Arc<Bucket>,
        key: &str,
        in_flight_max: usize,
    ) -> Result<Self, ObjectError> {
        let path = path(key);
        let begin = || bucket.client.create_multipart(&path);
        let id = bucket.wait(bucket.send(("begin the upload of", key), begin))?;
        Ok(Self {
            bucket: Arc::clone(bucket),
            key: key.to_owned(),
            id,
            parts: Vec::new(),
            bytes: 0,
            in_flight_max,
            in_flight: 0,
            ended: VecDeque::new(),
            channel: channel(),
            tasks: JoinSet::new(),
        })
    }

    /// The server's name of the upload.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Parts that are on their way, or ended without being told.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight + self.ended.len()
    }

    /// Sends a part, after waiting for room.
    pub(crate) fn part(&mut self, pieces: Vec<Bytes>, cancel: &Cancel) -> Result<(), ObjectError> {
        while self.in_flight >= self.in_flight_max {
            let done = self.receive(cancel)?;
            self.ended.push_back(done);
        }
        let payload = PutPayload::from_iter(pieces);
        let bytes = payload.content_length() as u64;
        let number = self.parts.len();
        self.parts.push(None);
        self.bytes += bytes;
        self.in_flight += 1;
        let (bucket, key, id) = (Arc::clone(&self.bucket), self.key.clone(), self.id.clone());
        let sender = self.channel.0.clone();
        let task = async move {
            let begin = Instant::now();
            let path = path(&key);
            let put = || bucket.client.put_part(&path, &id, number, payload.clone());
            let result = bucket.send(("upload a part of", &key), put).await;
            drop(payload);
            let done = PartDone {
                number,
                bytes,
                elapsed: begin.elapsed(),
                result,
            };
            // Nobody listens any more when the run has failed.
            drop(sender.send(done));
        };
        self.tasks.spawn_on(task, &self.bucket.runtime);
        Ok(())
    }

    /// A part that ended; waits for one if all are on their way. None if there is none.
    pub(crate) fn reap(&mut self, cancel: &Cancel) -> Result<Option<WriteDone>, ObjectError> {
        if let Some(done) = self.ended.pop_front() {
            return Ok(Some(done));
        }
        match self.in_flight {
            0 => Ok(None),
            _ => self.receive(cancel).map(Some),
        }
    }

    /// A part that ended already.
    pub(crate) fn ended(&mut self) -> Option<WriteDone> {
        self.ended.pop_front()
    }

    fn receive(&mut self, cancel: &Cancel) -> Result<WriteDone, ObjectError> {
        let done = loop {
            cancel.check().map_err(|_| ObjectError::Cancelled)?;
            match self.channel.1.recv_timeout(LOOK) {
                Ok(done) => break done,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ObjectError::Cancelled),
            }
        };
        self.in_flight -= 1;
        self.parts[done.number] = Some(done.result?);
        Ok(WriteDone {
            bytes: done.bytes,
            elapsed: done.elapsed,
        })
    }

    /// Makes one object of the parts, and looks that it is as long as they are.
    pub(crate) fn complete(&mut self, cancel: &Cancel) -> Result<(), ObjectError> {
        while self.in_flight > 0 {
            let done = self.receive(cancel)?;
            self.ended.push_back(done);
        }
        let parts: Vec<_> = self.parts.iter().flatten().cloned().collect();
        self.bucket.wait(self.completed(parts))
    }

    async fn completed(&self, parts: Vec<PartId>) -> Result<(), ObjectError> {
        let (bucket, key) = (&self.bucket, self.key.as_str());
        let path = path(key);
        let complete = || {
            bucket
                .client
                .complete_multipart(&path, &self.id, parts.clone())
        };
        let result = bucket.send(("complete the upload of", key), complete).await;
        // An answer may have been lost, and then the upload is not there any more. What lies there
        // says more than the answer.
        let found = match &result {
            Ok(_) => bucket.head_written(key).await?,
            Err(_) => bucket.head(key).await?,
        };
        match (found, result) {
            (Some(meta), _) if meta.size == self.bytes => Ok(()),
            (Some(meta), _) => Err(ObjectError::Length {
                object: bucket.named(key),
                found: meta.size,
                expected: self.bytes,
            }),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(ObjectError::Request {
                operation: "complete the upload of",
                object: bucket.named(key),
                fault: Fault::Missing,
                cause: "the server says that it is complete, and then that it is not there"
                    .to_owned(),
                tries: 1,
                elapsed: Duration::ZERO,
            }),
        }
    }

    /// Ends the parts that are on their way. None of them is sent any more when this returns. A
    /// server goes on with a part whose connection is cut, perhaps after it was told to abort the
    /// upload: so each has a moment to come to its end.
    pub(crate) fn give_up(&mut self) {
        let bucket = Arc::clone(&self.bucket);
        let tasks = &mut self.tasks;
        bucket.wait(async {
            let ended = async { while tasks.join_next().await.is_some() {} };
            tokio::time::timeout(ENDING, ended)
                .await
                .unwrap_or_default();
            tasks.shutdown().await;
        });
    }
}

/// Gives up an upload that this or another process began. A part that is on its way may come after
/// a try and keep the upload, so it is aborted until the server knows no such upload. False if the
/// server never said that: something of the upload may be left.
pub(crate) async fn abort(bucket: &Bucket, key: &str, id: &str) -> Result<bool, ObjectError> {
    let (path, id) = (path(key), id.to_owned());
    let request = || bucket.client.abort_multipart(&path, &id);
    let mut wait = ABORT_AGAIN;
    for tries in 0..ABORTS_MAX {
        if tries > 1 {
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        match bucket.send(("abort the upload of", key), request).await {
            Err(error) if error.is_missing() => return Ok(true),
            result => result?,
        }
        // Azure has no uploads: it forgets blocks that no object uses.
        if bucket.location.service == Service::Azure {
            return Ok(true);
        }
    }
    Ok(false)
}

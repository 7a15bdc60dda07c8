//! Notes of readers: which sets of a place are being read, and by whom. No server locks objects, so
//! whoever reads a set says so beside it, again and again, and whoever removes sets looks there.
//!
//!   open --> note --> [renewed every few minutes] --> closed: the note goes
//!                          |
//!                          +--> killed: the note is old after an hour and counts no more
//!
//! Invariants
//! - A note is there before the reader looks whether the set is being removed, and whoever removes
//!   it looks for notes after it has said so. One of the two sees the other.
//! - A note is never replaced: some buckets protect what is new. It is written anew under another
//!   name, and the old one goes.
//! - A reader without the right to write leaves no note, and reads all the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::{ObjectMeta, PutPayload};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use windlass_engine::media::SetId;
use windlass_engine::{Keep, Kept};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError};
use crate::layout::{READERS, below};
use crate::location::Location;
use crate::marker::Writer;
use crate::request::random;
use crate::storage::{Buckets, nanos};

/// How often a reader says again that it reads.
const RENEWED_EVERY: Duration = Duration::from_secs(5 * 60);
/// How soon it tries again if it could not.
const TRIED_AGAIN: Duration = Duration::from_secs(30);
/// How long a note counts.
const COUNTS: Duration = Duration::from_secs(3600);
/// How ids in the notes of receivers of log begin. No set has such an id.
pub const RECEIVER: [u8; 4] = *b"recv";
/// How long the note of a receiver counts: one that was killed, in a container that is gone, must
/// not keep the next one waiting while the server's disk fills.
const RECEIVER_COUNTS: Duration = Duration::from_secs(7 * 60);
/// Longest note that is read: that of a long chain.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// What a note says, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// The sets.
    sets: Vec<String>,
    /// Who reads them.
    reader: Writer,
}

/// A note that is kept up to date while this lives.
#[derive(Debug)]
struct Reading {
    bucket: Bucket,
    current: Arc<Mutex<String>>,
    renewing: JoinHandle<()>,
}

impl Keep for Reading {}

impl Drop for Reading {
    fn drop(&mut self) {
        self.renewing.abort();
        let key = current(&self.current);
        // A note that stays counts for an hour at most.
        let removed = self.bucket.wait(self.bucket.delete(&key));
        removed.unwrap_or_default();
    }
}

fn current(key: &Mutex<String>) -> String {
    key.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Buckets {
    /// Leaves a note in a place that these sets are read.
    pub(crate) fn leave_note(
        &self,
        place: &Path,
        sets: &BTreeSet<SetId>,
    ) -> Result<Kept, ObjectError> {
        let at = Location::parse(place)?;
        let bucket = self.bucket(&at)?;
        let note = Note {
            sets: sets.iter().map(ToString::to_string).collect(),
            reader: Writer::own(),
        };
        let text = Bytes::from(serde_json::json!(note).to_string().into_bytes());
        let name = below(&at, &format!("{READERS}/{}", random_name()));
        let first = format!("{name}.0");
        let written = bucket.wait(bucket.put(&first, PutPayload::from(text.clone())));
        match written {
            Ok(()) => {}
            Err(error) if is_refused(&error) => return Ok(Box::new(())),
            Err(error) => return Err(error),
        }
        let current = Arc::new(Mutex::new(first));
        let renewing = renew((*bucket).clone(), name, text, Arc::clone(&current));
        Ok(Box::new(Reading {
            renewing: bucket.runtime.spawn(renewing),
            bucket: bucket.impatient(),
            current,
        }))
    }

    /// The sets of a place that somebody reads. Removes notes of those who do so no more.
    pub(crate) fn read_now(&self, place: &Path) -> Result<BTreeSet<SetId>, ObjectError> {
        let at = Location::parse(place)?;
        let bucket = self.bucket(&at)?;
        let folder = below(&at, READERS);
        let notes = bucket.wait(bucket.list(&folder))?.objects;
        let mut read = BTreeSet::new();
        for meta in notes {
            read.extend(sets_of(&bucket, &meta)?);
        }
        Ok(read)
    }
}

/// The sets that a note names, if it still counts.
fn sets_of(bucket: &Bucket, meta: &ObjectMeta) -> Result<Vec<SetId>, ObjectError> {
    let key = meta.location.to_string();
    let age = bucket.clock.now_nanos().saturating_sub(nanos(meta));
    let is_old = i128::from(age) > COUNTS.as_nanos() as i128;
    let got = match is_old {
        true => None,
        false => bucket.wait(bucket.get(&key, NOTE_BYTES_MAX))?,
    };
    if let Some(got) = &got {
        let note: Note = serde_json::from_slice(&got.bytes).map_err(|_| ObjectError::Note {
            object: bucket.named(&key),
        })?;
        let sets: Vec<_> = note.sets.iter().filter_map(|id| SetId::parse(id)).collect();
        let is_receiver = sets.iter().any(|set| set.0.starts_with(&RECEIVER));
        let is_late = is_receiver && i128::from(age) > RECEIVER_COUNTS.as_nanos() as i128;
        if note.reader.is_gone() != Some(true) && !is_late {
            return Ok(sets);
        }
    }
    // It counts no more, whether it goes or not.
    let removed = bucket.wait(bucket.delete(&key));
    removed.unwrap_or_default();
    Ok(Vec::new())
}

/// Writes a note anew, as long as it is read.
async fn renew(bucket: Bucket, name: String, text: Bytes, current: Arc<Mutex<String>>) {
    let mut wait = RENEWED_EVERY;
    for number in 1_u64.. {
        tokio::time::sleep(wait).await;
        let next = format!("{name}.{number}");
        let written = bucket.put(&next, PutPayload::from(text.clone())).await;
        if written.is_err() {
            wait = TRIED_AGAIN;
            continue;
        }
        wait = RENEWED_EVERY;
        let old = {
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        bucket.delete(&old).await.unwrap_or_default();
    }
}

/// Whether this user may not write there.
fn is_refused(error: &ObjectError) -> bool {
    matches!(error.fault(), Some(Fault::Denied | Fault::Refused))
}

/// A name that no other note has.
fn random_name() -> String {
    format!("{:016x}{:016x}", random(), random())
}

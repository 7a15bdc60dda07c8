//! Notes of readers: which sets of a place are being read, and by whom. No server locks objects, so
//! whoever reads a set says so beside it, again and again, and whoever removes sets looks there.
//!
//!   open --> note --> [renewed every few minutes] --> closed: the note goes
//!                          |
//!                          +--> killed: the note is old after an hour and counts no more
//!                          +--> asleep, a receiver: its note is old, and another one may be there
//!
//! Invariants
//! - A note is there before the reader looks whether the set is being removed, and whoever removes
//!   it looks for notes after it has said so. One of the two sees the other.
//! - A note is never replaced: some buckets protect what is new. It is written anew under another
//!   name, and the old one goes.
//! - A reader without the right to write leaves no note, and reads all the same.
//! - The note of a receiver is not written anew if it is gone: whoever found it too old may receive
//!   now. The receiver asks before each object that it stores.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// Where the part of such an id begins that each receiver has for itself.
const RECEIVER_OWN_AT: usize = 12;
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
    current: Arc<Mutex<Current>>,
    renewing: JoinHandle<()>,
}

/// A note as it was written last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Current {
    key: String,
    /// Whether it was found to be gone, or another receiver to be there.
    has_lapsed: bool,
}

impl Keep for Reading {
    fn has_kept(&self) -> io::Result<bool> {
        loop {
            let asked = current(&self.current).clone();
            if asked.has_lapsed {
                return Ok(false);
            }
            let found = self.bucket.wait(self.bucket.head(&asked.key))?;
            if found.is_some() {
                return Ok(true);
            }
            // It may have been written anew meanwhile.
            if *current(&self.current) == asked {
                return Ok(false);
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.renewing.abort();
        let key = current(&self.current).key.clone();
        let bucket = self.bucket.impatient();
        // A note that stays counts for an hour at most.
        let removed = bucket.wait(bucket.delete(&key));
        removed.unwrap_or_default();
    }
}

fn current(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether two notes are of receivers of the same log.
pub fn is_of_same_log(one: &SetId, other: &SetId) -> bool {
    one.0[..RECEIVER_OWN_AT] == other.0[..RECEIVER_OWN_AT]
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
        let current = Arc::new(Mutex::new(Current {
            key: first,
            has_lapsed: false,
        }));
        let renewed = Renewed {
            receiver: sets.iter().find(|id| id.0.starts_with(&RECEIVER)).copied(),
            bucket: (*bucket).clone(),
            text,
            current: Arc::clone(&current),
        };
        Ok(Box::new(Reading {
            renewing: bucket.runtime.spawn(renewed.again_and_again(name)),
            bucket: (*bucket).clone(),
            current,
        }))
    }

    /// The sets of a place that somebody reads. Removes notes of those who do so no more.
    pub(crate) fn read_now(&self, place: &Path) -> Result<BTreeSet<SetId>, ObjectError> {
        let at = Location::parse(place)?;
        let bucket = self.bucket(&at)?;
        let folder = below(&at, READERS);
        bucket.wait(async {
            let mut read = BTreeSet::new();
            for meta in bucket.list(&folder).await?.objects {
                read.extend(sets_of(&bucket, &meta).await?);
            }
            Ok::<_, ObjectError>(read)
        })
    }
}

/// The sets that a note names, if it still counts.
async fn sets_of(bucket: &Bucket, meta: &ObjectMeta) -> Result<Vec<SetId>, ObjectError> {
    let key = meta.location.to_string();
    let age = bucket.clock.now_nanos().saturating_sub(nanos(meta));
    let is_old = i128::from(age) > COUNTS.as_nanos() as i128;
    let got = match is_old {
        true => None,
        false => bucket.get(&key, NOTE_BYTES_MAX).await?,
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
    bucket.delete(&key).await.unwrap_or_default();
    Ok(Vec::new())
}

/// A note that is written anew, as long as it is read.
struct Renewed {
    bucket: Bucket,
    text: Bytes,
    current: Arc<Mutex<Current>>,
    /// The id in the note, if it is that of a receiver.
    receiver: Option<SetId>,
}

impl Renewed {
    async fn again_and_again(self, name: String) {
        let mut wait = RENEWED_EVERY;
        for number in 1_u64.. {
            tokio::time::sleep(wait).await;
            wait = match self.renew(format!("{name}.{number}")).await {
                Ok(true) => RENEWED_EVERY,
                Ok(false) => {
                    current(&self.current).has_lapsed = true;
                    return;
                }
                Err(_) => TRIED_AGAIN,
            };
        }
    }

    /// Writes the note under the next name. False if another receiver may have begun: this process
    /// may have slept for so long that its note counted no more.
    async fn renew(&self, next: String) -> Result<bool, ObjectError> {
        if !self.is_alone().await? {
            return Ok(false);
        }
        let payload = PutPayload::from(self.text.clone());
        self.bucket.put(&next, payload).await?;
        let old = std::mem::replace(&mut current(&self.current).key, next);
        // Who looked before this note was there has left one of its own before that.
        let is_alone = self.is_alone().await;
        self.bucket.delete(&old).await.unwrap_or_default();
        is_alone
    }

    /// Whether the note of a receiver is there, and no other one of the same log. Readers may be
    /// many.
    async fn is_alone(&self) -> Result<bool, ObjectError> {
        let Some(own) = self.receiver else {
            return Ok(true);
        };
        let key = current(&self.current).key.clone();
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut is_there = false;
        for meta in self.bucket.list(folder).await?.objects {
            if meta.location.to_string() == key {
                is_there = true;
                continue;
            }
            let sets = sets_of(&self.bucket, &meta).await?;
            let is_other = |one: &SetId| is_of_same_log(one, &own) && *one != own;
            if sets.iter().any(is_other) {
                return Ok(false);
            }
        }
        Ok(is_there)
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

//! Cleaning up after runs that were cut off, in a place of a bucket.
//!
//!   marker --> [its writer] --> still there, or nobody can tell yet: passed over
//!                          +--> gone --> [its seal, and those of the other stripes]
//!                                          +--> one is not there: the set never was; removed
//!                                          +--> all are there: the set exists; it gets its name
//!                                          +--> one cannot be seen: left alone, and said so
//!
//! Invariants
//! - Nothing is removed while its writer may live: a process of this machine is looked for, and a
//!   process elsewhere has a week, by the server's clock. What a probe tries out is a day old then.
//! - The markers go last. Whatever stops a clean-up, the next one goes on.
//! - What a bucket keeps (Object Lock, keys that may not delete) stays, and stops nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::ObjectMeta;
use windlass_engine::media::{
    NAME_TAIL_BYTES_MAX, NameObject, SEAL_BYTES, Seal, StripeHeader, fitted,
};
use windlass_engine::{CleanedUp, EngineError, Files, PlaceFile, Storage, partial_path};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError};
use crate::layout::{BEGUN, PARTS, PROBE, StripeKeys, below};
use crate::location::{Location, is_in_bucket};
use crate::marker::Marker;
use crate::storage::{Buckets, READS_MAX, nanos, read_fault};
use crate::upload::abort;

/// How long a writer whose process cannot be seen from here is taken to live.
pub const FOREIGN_WRITER_LIVES: Duration = Duration::from_secs(7 * 24 * 3600);
/// A writer elsewhere that began so long ago is worth a word.
const FOREIGN_WRITER_TOLD: Duration = Duration::from_secs(24 * 3600);
/// No part of an upload comes later than this. Some servers never say that an upload is gone.
const PARTS_COME: Duration = Duration::from_secs(24 * 3600);
/// How long the object of a check or of a measurement may be needed, wherever it runs.
const PROBE_LIVES: Duration = Duration::from_secs(24 * 3600);
/// Longest marker.
const MARKER_BYTES_MAX: u64 = 64 * 1024;
/// How much of a stripe's head is read at once.
const HEAD_BYTES: u64 = 64 * 1024;

/// What is known of one stripe of a set that has no names yet.
enum Stripe {
    Sealed,
    /// It never was sealed, so the set never was.
    Unsealed,
    Unknown(String),
}

impl Buckets {
    /// Cleans up what interrupted runs left in a place. A writer that cannot be seen from here is
    /// taken to be gone after `lives`.
    pub fn clean_up(&self, place: &Path, lives: Duration) -> Result<Vec<CleanedUp>, EngineError> {
        let fault = |error| read_fault(place, error);
        let at = Location::parse(place).map_err(fault)?;
        let bucket = self.bucket(&at).map_err(fault)?;
        let cleaner = Cleaner {
            buckets: self,
            bucket,
            place: at,
        };
        let mut done = Vec::new();
        let (probes, markers) = cleaner.listed().map_err(fault)?;
        for (meta, marker) in cleaner.markers(markers).map_err(fault)? {
            done.extend(cleaner.one(&meta, &marker, lives).map_err(fault)?);
        }
        cleaner.remove_probes(&probes).map_err(fault)?;
        Ok(done)
    }
}

impl Buckets {
    /// The stripes of a place that were begun, and have no name yet: a run is writing them, or was
    /// cut off. They are where their files would be until they are complete.
    pub(crate) fn begun(&self, at: &Location) -> Result<Vec<PlaceFile>, ObjectError> {
        let cleaner = Cleaner {
            buckets: self,
            bucket: self.bucket(at)?,
            place: at.clone(),
        };
        let (_, markers) = cleaner.listed()?;
        let markers = cleaner.markers(markers)?.into_iter();
        let begun = markers.map(|(meta, marker)| PlaceFile {
            location: partial_path(&at.join(&marker.name).path()),
            bytes: 0,
            modified_nanos: nanos(&meta),
        });
        Ok(begun.collect())
    }
}

/// Markers that can be read, and the keys of those that cannot.
type MarkersRead = (Vec<(ObjectMeta, Marker)>, BTreeSet<String>);

struct Cleaner<'a> {
    buckets: &'a Buckets,
    bucket: Arc<Bucket>,
    place: Location,
}

impl Cleaner<'_> {
    /// What was begun: the objects of probes, and the markers.
    fn listed(&self) -> Result<(Vec<ObjectMeta>, Vec<ObjectMeta>), ObjectError> {
        let key = below(&self.place, BEGUN);
        let listed = self.bucket.wait(self.bucket.list(&key))?.objects;
        let is_probe = |meta: &ObjectMeta| {
            let name = meta.location.filename().unwrap_or_default();
            name.starts_with(PROBE)
        };
        Ok(listed.into_iter().partition(is_probe))
    }

    /// Removes what killed checks and measurements have written to try the server out.
    fn remove_probes(&self, probes: &[ObjectMeta]) -> Result<(), ObjectError> {
        for probe in probes {
            if self.age(probe) < PROBE_LIVES {
                continue;
            }
            let key = probe.location.to_string();
            match self.bucket.wait(self.bucket.delete(&key)) {
                // Nor can the others be removed.
                Err(error) if error.fault() == Some(Fault::Denied) => return Ok(()),
                removed => removed?,
            }
        }
        Ok(())
    }

    /// The markers, one for each stripe: of two, the one that names the upload of parts, unless it
    /// cannot be read.
    fn markers(&self, listed: Vec<ObjectMeta>) -> Result<Vec<(ObjectMeta, Marker)>, ObjectError> {
        let key_of = |meta: &ObjectMeta| meta.location.to_string();
        let keys: BTreeSet<_> = listed.iter().map(key_of).collect();
        let has_second = |meta: &ObjectMeta| keys.contains(&(key_of(meta) + PARTS));
        let (mut firsts, rest): (Vec<_>, Vec<_>) = listed.into_iter().partition(has_second);
        let (mut markers, unread) = self.bucket.wait(self.read(rest))?;
        firsts.retain(|meta| unread.contains(&(key_of(meta) + PARTS)));
        markers.extend(self.bucket.wait(self.read(firsts))?.0);
        Ok(markers)
    }

    /// Reads markers, many at once: where nothing may be removed, those of all runs are there.
    /// Returns those that can be read, and the keys of the others.
    async fn read(&self, found: Vec<ObjectMeta>) -> Result<MarkersRead, ObjectError> {
        let bucket = &self.bucket;
        let get = |meta: ObjectMeta| async move {
            let key = meta.location.to_string();
            let got = bucket.get(&key, MARKER_BYTES_MAX).await?;
            Ok::<_, ObjectError>((key, meta, got))
        };
        let mut reads = futures_util::stream::iter(found)
            .map(get)
            .buffered(READS_MAX);
        let (mut markers, mut unread) = (Vec::new(), BTreeSet::new());
        while let Some(next) = reads.next().await {
            let (key, meta, got) = next?;
            match got.and_then(|got| self.own_marker(&key, &got.bytes)) {
                Some(marker) => markers.push((meta, marker)),
                None => {
                    unread.insert(key);
                }
            }
        }
        Ok((markers, unread))
    }

    /// The marker with this key. Somebody may have copied a marker: one that has the name of
    /// another is none of ours.
    fn own_marker(&self, key: &str, bytes: &[u8]) -> Option<Marker> {
        let marker = Marker::decode(bytes)?;
        let own = StripeKeys::new(&marker.set, marker.stripe);
        let mut own = [&own.marker, &own.parts].into_iter();
        own.any(|own| below(&self.place, own) == key)
            .then_some(marker)
    }

    fn one(
        &self,
        meta: &ObjectMeta,
        marker: &Marker,
        lives: Duration,
    ) -> Result<Option<CleanedUp>, ObjectError> {
        let keys = StripeKeys::new(&marker.set, marker.stripe);
        let age = self.age(meta);
        match marker.writer.is_gone() {
            Some(true) => {}
            Some(false) => return Ok(None),
            None if age >= lives => {}
            None if age < FOREIGN_WRITER_TOLD => return Ok(None),
            None => {
                let why = format!("{} may still be writing it", marker.writer.host);
                let name = self.place.join(&marker.name).path();
                return Ok(Some(CleanedUp::Left(name, why)));
            }
        }
        let name = || self.place.join(&marker.name).path();
        match self.settle((marker, age), &keys) {
            Err(error) if error.fault() == Some(Fault::Denied) => {
                let why = format!("its backup was cut off, and {error}");
                Ok(Some(CleanedUp::Left(name(), why)))
            }
            settled => settled,
        }
    }

    /// Does what the seals prove to be right.
    fn settle(
        &self,
        (marker, age): (&Marker, Duration),
        keys: &StripeKeys,
    ) -> Result<Option<CleanedUp>, ObjectError> {
        let name = self.place.join(&marker.name);
        if is_named(&self.bucket, &name.key, keys)? {
            return match self.delete_markers(keys) {
                // It costs nothing, and its set is whole.
                Err(error) if error.fault() == Some(Fault::Denied) => Ok(None),
                done => done.map(|()| None),
            };
        }
        let seal = below(&self.place, &keys.seal);
        let seal = self
            .bucket
            .wait(self.bucket.get(&seal, NAME_TAIL_BYTES_MAX as u64))?;
        let Some(seal) = seal.map(|got| got.bytes) else {
            return self.remove((marker, age), keys).map(Some);
        };
        let header = match self.header(keys)? {
            Ok(header) => header,
            Err(why) => return Ok(Some(CleanedUp::Left(name.path(), why))),
        };
        let mut unknown = None;
        for (index, location) in (0..).zip(&header.locations) {
            if index == marker.stripe {
                continue;
            }
            match self.sibling(&marker.set, index, location)? {
                Stripe::Sealed => {}
                Stripe::Unsealed => return self.remove((marker, age), keys).map(Some),
                Stripe::Unknown(why) => unknown = Some(why),
            }
        }
        match unknown {
            Some(why) => Ok(Some(CleanedUp::Left(name.path(), why))),
            None => self.publish(&name, keys, &seal).map(Some),
        }
    }

    /// The header of the stripe, or why it cannot be told.
    fn header(&self, keys: &StripeKeys) -> Result<Result<StripeHeader, String>, ObjectError> {
        let head = self.head(&below(&self.place, &keys.data))?;
        Ok(head.and_then(|(head, _)| {
            let bytes = StripeHeader::encoded_bytes(&head).map_err(|error| error.to_string())?;
            let bytes = head.get(..bytes as usize).unwrap_or(&head);
            StripeHeader::decode(bytes).map_err(|error| error.to_string())
        }))
    }

    /// The first bytes of the data, and how many there are.
    fn head(&self, key: &str) -> Result<Result<(Bytes, u64), String>, ObjectError> {
        let Some(meta) = self.bucket.wait(self.bucket.head(key))? else {
            return Ok(Err("it is sealed, and its data are not there".to_owned()));
        };
        let to = meta.size.min(HEAD_BYTES);
        let head = self.bucket.wait(self.bucket.get_range(key, 0, to))?;
        Ok(Ok((head, meta.size)))
    }

    /// What is known of another stripe of the set.
    fn sibling(&self, set: &str, index: u16, location: &[u8]) -> Result<Stripe, ObjectError> {
        let location = PathBuf::from(String::from_utf8_lossy(location).into_owned());
        if !is_in_bucket(&location) {
            return Ok(of_file(&location, set));
        }
        let at = Location::parse(&location)?;
        let (place, _) = at.split();
        let bucket = self.buckets.bucket(&at)?;
        let keys = StripeKeys::new(&set, index);
        if is_named(&bucket, &at.key, &keys)? {
            return Ok(Stripe::Sealed);
        }
        let seal = below(&place, &keys.seal);
        Ok(match bucket.wait(bucket.head(&seal))? {
            Some(_) => Stripe::Sealed,
            None => Stripe::Unsealed,
        })
    }

    /// Gives a sealed stripe its name.
    fn publish(
        &self,
        name: &Location,
        keys: &StripeKeys,
        seal: &Bytes,
    ) -> Result<CleanedUp, ObjectError> {
        let left = |why: String| Ok(CleanedUp::Left(name.path(), why));
        let (head, data_bytes) = match self.head(&below(&self.place, &keys.data))? {
            Ok(found) => found,
            Err(why) => return left(why),
        };
        let stripe_bytes = data_bytes + seal.len() as u64;
        let at = seal.len().saturating_sub(SEAL_BYTES);
        if let Err(fault) = Seal::decode(&seal[at..], stripe_bytes) {
            return left(fault.to_string());
        }
        let header = StripeHeader::encoded_bytes(&head).map_or(0, |bytes| bytes as usize);
        let object = NameObject {
            key: keys.data.clone(),
            data_bytes,
            stripe_bytes,
            head: head[..header.min(head.len())].to_vec(),
            tail: seal.to_vec(),
        };
        let bytes = object.encode().map_err(|source| ObjectError::Format {
            object: name.to_string(),
            source,
        })?;
        let bytes = Bytes::from(bytes);
        match self.bucket.wait(self.bucket.create(&name.key, &bytes)) {
            Ok(()) => {}
            Err(ObjectError::Taken { .. }) => {
                return left("its set is complete, and something else has its name".to_owned());
            }
            Err(error) => return Err(error),
        }
        match self.delete_markers(keys) {
            Err(error) if error.fault() != Some(Fault::Denied) => Err(error),
            _ => Ok(CleanedUp::Published(name.path())),
        }
    }

    /// Removes what a stripe has in the bucket. If parts of its upload may be left, its markers
    /// stay.
    fn remove(
        &self,
        (marker, age): (&Marker, Duration),
        keys: &StripeKeys,
    ) -> Result<CleanedUp, ObjectError> {
        let name = self.place.join(&marker.name).path();
        let mut left = None;
        if let Some(upload) = self.upload_of(marker, keys)? {
            let key = below(&self.place, &keys.data);
            let is_gone = self.bucket.wait(abort(&self.bucket, &key, &upload))?;
            left = (!is_gone && age < PARTS_COME).then_some(upload);
        }
        self.delete(&keys.seal)?;
        self.delete(&keys.data)?;
        if let Some(upload) = left {
            let why = format!(
                "its backup was cut off, and parts of its upload {upload} may be left: the server \
                 never said that it is gone"
            );
            return Ok(CleanedUp::Left(name, why));
        }
        self.delete_markers(keys)?;
        Ok(CleanedUp::Removed(name))
    }

    /// How old an object is, by the server's clock: one of this machine that runs ahead would take
    /// a writer that lives for one that is gone.
    fn age(&self, meta: &ObjectMeta) -> Duration {
        let age = self.bucket.clock.now_nanos().saturating_sub(nanos(meta));
        Duration::from_nanos(fitted(age.max(0)))
    }

    /// The upload of the data. It may have begun after the markers were listed.
    fn upload_of(&self, marker: &Marker, keys: &StripeKeys) -> Result<Option<String>, ObjectError> {
        if marker.upload.is_some() {
            return Ok(marker.upload.clone());
        }
        let key = below(&self.place, &keys.parts);
        let got = self.bucket.wait(self.bucket.get(&key, MARKER_BYTES_MAX))?;
        Ok(got.and_then(|got| Marker::decode(&got.bytes)?.upload))
    }

    /// The one that names an upload goes last.
    fn delete_markers(&self, keys: &StripeKeys) -> Result<(), ObjectError> {
        self.delete(&keys.marker)?;
        self.delete(&keys.parts)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let key = below(&self.place, key);
        self.bucket.wait(self.bucket.delete(&key))
    }
}

/// Whether a stripe has its name already. Something else may have it.
fn is_named(bucket: &Bucket, name: &str, keys: &StripeKeys) -> Result<bool, ObjectError> {
    let limit = windlass_engine::media::NAME_OBJECT_BYTES_MAX as u64;
    let got = bucket.wait(bucket.get(name, limit))?;
    let found = got.and_then(|got| NameObject::decode(&got.bytes).ok());
    Ok(found.is_some_and(|found| found.key == keys.data))
}

/// What is known of a stripe that is a file of this machine.
fn of_file(location: &Path, set: &str) -> Stripe {
    let unseen =
        |path: &Path| Stripe::Unknown(format!("its stripe {} cannot be seen", path.display()));
    if location.is_file() {
        return Stripe::Sealed;
    }
    let partial = partial_path(location);
    let Ok(file) = Files.open(&partial) else {
        return unseen(location);
    };
    let Ok(length) = file.length() else {
        return unseen(&partial);
    };
    let mut record = vec![0; SEAL_BYTES];
    let at = length.saturating_sub(SEAL_BYTES as u64);
    if length < SEAL_BYTES as u64 {
        return Stripe::Unsealed;
    }
    match file.read_at(at, &mut record) {
        Ok(read) if read == SEAL_BYTES => {}
        _ => return unseen(&partial),
    }
    match Seal::decode(&record, length) {
        Ok(seal) if seal.set_id.to_string() == set => Stripe::Sealed,
        Ok(_) => unseen(&partial),
        Err(windlass_engine::media::FormatError::Magic(_)) => Stripe::Unsealed,
        Err(fault) => Stripe::Unknown(fault.to_string()),
    }
}

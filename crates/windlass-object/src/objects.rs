//! Buckets as a storage of named objects, such as archived log. Each is one object of the bucket.
//!
//! Invariants
//! - What is written is in memory until it has its name: a bucket takes objects only whole.
//! - An object that is there is never replaced, unless the caller found it damaged.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectMeta;
use windlass_engine::{ListedObject, Listing, Naming, NewObject, Objects, ReadAt, Reading};

use crate::bytes::StripeBytes;
use crate::client::Bucket;
use crate::document::Document;
use crate::error::ObjectError;
use crate::location::Location;
use crate::storage::{Buckets, missing};

/// The longest object that is read with one request. A segment of usual size fits.
const WHOLE_BYTES_MAX: u64 = 36 << 20;
/// How much is read of the end of an object of which only the ends are wanted.
const TAIL_BYTES: u64 = 16 << 10;

impl Buckets {
    fn listed(
        &self,
        folder: &Path,
        listing: Listing<'_>,
    ) -> Result<Vec<ListedObject>, ObjectError> {
        let at = Location::parse(folder)?;
        let bucket = self.bucket(&at)?;
        let found = bucket.wait(async {
            match listing {
                Listing::Own => Ok(bucket.list(&at.key).await?.objects),
                Listing::Below => bucket.list_below(&at.key).await,
                Listing::From(first) => bucket.list_from(&at.key, &at.join(first).key).await,
            }
        })?;
        let depth = if listing == Listing::Below { 2 } else { 1 };
        let own = |meta: ObjectMeta| {
            let key = meta.location.to_string();
            let below = key.strip_prefix(&at.key)?.trim_start_matches('/');
            (below.split('/').count() == depth).then(|| ListedObject {
                location: at.join(below).path(),
                bytes: Some(meta.size),
            })
        };
        Ok(found.into_iter().filter_map(own).collect())
    }

    fn folders_of(&self, folder: &Path) -> Result<Vec<String>, ObjectError> {
        let at = Location::parse(folder)?;
        let bucket = self.bucket(&at)?;
        let listed = bucket.wait(bucket.list(&at.key))?;
        let names = listed.folders.iter().filter_map(|one| one.filename());
        Ok(names.map(str::to_owned).collect())
    }

    fn open_object(
        &self,
        location: &Path,
        bytes: Option<u64>,
        reading: Reading,
    ) -> Result<Arc<dyn ReadAt>, ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        let mut bytes = bytes;
        if reading == Reading::Whole && bytes.is_none_or(|bytes| bytes <= WHOLE_BYTES_MAX) {
            let got = bucket.wait(bucket.get(&at.key, WHOLE_BYTES_MAX))?;
            let got = got.ok_or_else(|| missing(&at))?;
            if got.bytes.len() as u64 == got.meta.size {
                return Ok(Arc::new(Document {
                    location: location.to_owned(),
                    length: got.meta.size,
                    bytes: got.bytes,
                }));
            }
            bytes = Some(got.meta.size);
        }
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let found = bucket.wait(bucket.head(&at.key))?;
                found.ok_or_else(|| missing(&at))?.size
            }
        };
        let from = bytes.saturating_sub(TAIL_BYTES);
        let tail = match bytes {
            0 => Bytes::new(),
            _ => bucket.wait(bucket.get_range(&at.key, from, bytes))?,
        };
        let of = (location.to_owned(), bucket, at.key);
        Ok(Arc::new(StripeBytes::of_object(of, bytes, &tail)))
    }
}

impl Objects for Buckets {
    /// A bucket that is not there says so when it is used.
    fn find(&self, place: &Path) -> io::Result<()> {
        Ok(Location::parse(place).map(drop)?)
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        Ok(self.folders_of(folder)?)
    }

    fn objects(&self, folder: &Path, listing: Listing<'_>) -> io::Result<Vec<ListedObject>> {
        Ok(self.listed(folder, listing)?)
    }

    fn open(
        &self,
        location: &Path,
        bytes: Option<u64>,
        reading: Reading,
    ) -> io::Result<Arc<dyn ReadAt>> {
        Ok(self.open_object(location, bytes, reading)?)
    }

    fn create(&self, _place: &Path, location: &Path) -> io::Result<Box<dyn NewObject>> {
        let at = Location::parse(location)?;
        Ok(Box::new(NewInBucket {
            bucket: self.bucket(&at)?,
            key: at.key,
            bytes: Vec::new(),
        }))
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        Ok(bucket.wait(bucket.delete(&at.key))?)
    }

    /// What is in a bucket is durable.
    fn settle(&self, _place: &Path, _location: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of an object that is not there yet.
struct NewInBucket {
    bucket: Arc<Bucket>,
    key: String,
    bytes: Vec<u8>,
}

impl NewInBucket {
    fn put(self, hash_bytes: usize, is_over: bool) -> Result<bool, ObjectError> {
        let bytes = Bytes::from(self.bytes);
        let bucket = &self.bucket;
        bucket.wait(bucket.create_hashed(&self.key, &bytes, (hash_bytes, is_over)))
    }
}

impl Write for NewInBucket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewObject for NewInBucket {
    fn name(self: Box<Self>, hash_bytes: usize) -> io::Result<Naming> {
        Ok(match self.put(hash_bytes, false)? {
            true => Naming::Named,
            false => Naming::Taken,
        })
    }

    fn name_over(self: Box<Self>, hash_bytes: usize) -> io::Result<()> {
        Ok(self.put(hash_bytes, true).map(drop)?)
    }
}

//! Proves that a place in a bucket can be written and read back, and asks whether the server heeds
//! conditions and removes what it is told to. It leaves nothing behind where it may remove.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::client::Bucket;
use crate::error::{Fault, ObjectError, Removal};
use crate::layout::{BEGUN, PROBE, below};
use crate::location::Location;
use crate::storage::Buckets;

/// What a place in a bucket can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Whether an object is kept when another one is to be created in its place. If not, two runs
    /// that give one name at the same moment may both think that they have it.
    pub heeds_conditions: bool,
    /// What became of the object that was removed. If it is not gone, sets are as good, and nothing
    /// ever goes.
    pub removal: Removal,
}

impl Buckets {
    /// Writes a small object, reads it back, finds it in a list, and removes it.
    pub fn probe(&self, place: &Path) -> Result<Probed, ObjectError> {
        let at = Location::parse(place)?;
        let bucket = self.bucket(&at)?.hurried();
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = nanos.unwrap_or_default().as_nanos();
        let name = format!("{PROBE}{}-{nanos}", std::process::id());
        let key = below(&at, &format!("{BEGUN}/{name}"));
        let bytes = Bytes::from(name.clone().into_bytes());
        let kept = bucket.clock.kept();
        bucket.wait(bucket.create(&key, &bytes))?;
        let probed = bucket.wait(async {
            let other = Bytes::from_static(b"another object");
            let heeds_conditions = match bucket.create_once(&key, other.clone()).await {
                Ok(()) => false,
                // A server that protects its objects may refuse this before it looks at conditions.
                Err(error) if matches!(error.fault(), Some(Fault::Exists | Fault::Denied)) => true,
                Err(error) => return Err(error),
            };
            let expected = if heeds_conditions { bytes } else { other };
            let got = bucket.get(&key, 1024).await?;
            let object = bucket.named(&key);
            if got.is_none_or(|got| got.bytes != expected) {
                return Err(ObjectError::ReadBack { object });
            }
            let listed = bucket.list(&below(&at, BEGUN)).await?.objects;
            let is_it = |found: &object_store::ObjectMeta| found.location.filename() == Some(&name);
            match listed.iter().any(is_it) {
                true => Ok(heeds_conditions),
                false => Err(ObjectError::NotListed { object }),
            }
        });
        let removal = remove(&bucket, &key, kept);
        Ok(Probed {
            heeds_conditions: probed?,
            removal: removal?,
        })
    }
}

/// Removes an object that was written and read since the server had told of so many locked ones
/// (`kept`), and says what became of it.
///
/// S3 has Object Lock only in buckets that keep versions. Such a bucket "removes" an object that is
/// locked, and keeps it as an old version. It says so when the object is read.
pub(crate) fn remove(bucket: &Bucket, key: &str, kept: u64) -> Result<Removal, ObjectError> {
    let is_locked = bucket.clock.kept() > kept;
    match bucket.wait(bucket.delete(key)) {
        Err(error) if error.fault() == Some(Fault::Denied) => {
            Ok(Removal::Refused(error.to_string()))
        }
        Ok(()) if is_locked => Ok(Removal::Locked),
        removed => removed.map(|()| Removal::Gone),
    }
}

//! Removes a sealed set from a place: its data, then its seals and names, then what lies beside it.
//!
//! The caller has marked the set, so nobody takes what is left for a damaged one. What is removed
//! is found by a list of the set's own folder. So the next run finds whatever one that was cut off
//! has left, even if no name leads there any more.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::StreamExt;
use object_store::path::Path;
use windlass_engine::{Going, NotRemoved};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError, cause, fault_of};
use crate::layout::{SETS, StripeKeys, below};
use crate::location::Location;
use crate::request::{Backoff, path};
use crate::storage::Buckets;

impl Buckets {
    /// Removes what a place has of a set.
    pub(crate) fn remove_all(&self, going: &Going<'_>) -> Result<(), NotRemoved> {
        let of_place = |error: ObjectError| NotRemoved {
            location: going.place.to_owned(),
            source: error.into(),
            is_begun: false,
        };
        let at = Location::parse(going.place).map_err(of_place)?;
        let bucket = self.bucket(&at).map_err(of_place)?;
        let own = own_objects(&bucket, &at, going).map_err(of_place)?;
        let (data, seals): (Vec<_>, Vec<_>) =
            own.into_iter().partition(|key| key.ends_with(".data"));
        // Those who protect a set protect its data. If nothing of them goes, the rest stays, too.
        bucket.remove_many(&data)?;
        let key = |location: &PathBuf| Location::parse(location).map(|one| one.key);
        let names = going.stripes.iter().map(key);
        let mut names = names.collect::<Result<Vec<_>, _>>().map_err(of_place)?;
        // The markers of a stripe may have stayed, and would lead nowhere.
        let stripes = data.iter().chain(&seals).filter_map(|key| index_of(key));
        let stripes: BTreeSet<_> = stripes.collect();
        names.extend(seals);
        let keys = stripes.into_iter();
        let keys = keys.map(|index| StripeKeys::new(&going.set, index));
        let markers = keys.flat_map(|keys| [keys.marker, keys.parts]);
        names.extend(markers.map(|marker| below(&at, &marker)));
        let begun = |not| NotRemoved {
            is_begun: true,
            ..not
        };
        bucket.remove_many(&names).map_err(begun)?;
        let beside = going.beside.iter().map(key);
        let beside = beside.collect::<Result<Vec<_>, _>>().map_err(of_place)?;
        match bucket.remove_many(&beside) {
            // Some buckets protect what is new. A document without its set says nothing.
            Err(not) if not.source.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            removed => removed.map_err(begun),
        }
    }
}

/// The number of the stripe whose data or seal this is.
fn index_of(key: &str) -> Option<u16> {
    let (_, name) = key.rsplit_once('/')?;
    let (index, _) = name.split_once('.')?;
    index.parse().ok()
}

/// The keys of a set's data and seals.
fn own_objects(
    bucket: &Bucket,
    at: &Location,
    going: &Going<'_>,
) -> Result<Vec<String>, ObjectError> {
    let folder = below(at, &format!("{SETS}/{}", going.set));
    let found = bucket.wait(bucket.list(&folder))?.objects;
    Ok(found.iter().map(|one| one.location.to_string()).collect())
}

impl Bucket {
    /// Removes objects in as few requests as the service allows, with retries of what passes. They
    /// may be gone already.
    fn remove_many(&self, keys: &[String]) -> Result<(), NotRemoved> {
        let (begin, deadline) = (Instant::now(), self.settings.deadline());
        let mut backoff = Backoff::new();
        let mut left: Vec<Path> = keys.iter().map(|key| path(key)).collect();
        for tries in 1.. {
            let Some(error) = self.wait(self.remove_once(&mut left)) else {
                return Ok(());
            };
            let wait = backoff.next();
            let fault = fault_of(&error);
            if fault == Fault::Passing && begin.elapsed() + wait < deadline {
                // A timer can be made inside of the runtime only.
                self.wait(async { tokio::time::sleep(wait).await });
                continue;
            }
            let object = self.named(left.first().map_or("", |path| path.as_ref()));
            let is_begun = left.len() < keys.len();
            let error = ObjectError::Request {
                operation: "remove",
                object: object.clone(),
                fault,
                cause: cause(&error),
                tries,
                elapsed: begin.elapsed(),
            };
            return Err(NotRemoved {
                location: object.into(),
                source: error.into(),
                is_begun,
            });
        }
        Ok(())
    }

    /// One try. Takes out what is gone, and returns why the first of the rest is not.
    async fn remove_once(&self, left: &mut Vec<Path>) -> Option<object_store::Error> {
        let asked: Vec<_> = left.iter().cloned().map(Ok).collect();
        let mut done = self
            .client
            .delete_stream(futures_util::stream::iter(asked).boxed());
        // The answers come in the order of what was asked. A request that fails as a whole has one.
        let (mut stay, mut first) = (Vec::new(), None);
        let mut each = std::mem::take(left).into_iter();
        while let Some(done) = done.next().await {
            let Some(path) = each.next() else { break };
            match done {
                Ok(_) => {}
                Err(error) if fault_of(&error) == Fault::Missing => {}
                Err(error) => {
                    stay.push(path);
                    first.get_or_insert(error);
                }
            }
        }
        stay.extend(each);
        *left = stay;
        first
    }
}

//! Requests: tried again with jitter until a deadline, each with a signature of its own.
//!
//! Invariants
//! - A request that the server refuses for good is not tried again.
//! - An object is created without replacing another one. An answer that was lost is not taken for
//!   somebody else's object, nor a conflict for an object that is there. Nor is the refusal of a
//!   bucket that protects its objects taken for a failure. What lies there is read and compared.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, PutMode, PutPayload};

use crate::client::Bucket;
use crate::error::{Fault, ObjectError, cause, fault_of};
use crate::location::Location;

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// The waits between tries: each up to three times the one before, and never the same for two
/// writers.
pub(crate) struct Backoff {
    last: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        let last = BACKOFF_FIRST;
        Self { last }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let share = f64::from(u32::try_from(random() % 1024).unwrap_or(512)) / 1024.0;
        let most = self.last.mul_f64(3.0).min(BACKOFF_MOST);
        let wait = BACKOFF_FIRST + most.saturating_sub(BACKOFF_FIRST).mul_f64(share);
        self.last = wait.max(BACKOFF_FIRST);
        wait
    }
}

/// A number that nobody foresees. The keys of each RandomState are random.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The path of a key.
pub(crate) fn path(key: &str) -> Path {
    // A location has only keys that are paths; see `location.rs`.
    Path::parse(key).unwrap_or_else(|_| Path::from(key))
}

impl Bucket {
    /// Runs requests to their end on this thread.
    pub(crate) fn wait<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime.block_on(request)
    }

    /// Sends a request until it succeeds, is refused, or the deadline has passed.
    pub(crate) async fn send<T, F>(
        &self,
        (operation, key): (&'static str, &str),
        request: impl Fn() -> F,
    ) -> Result<T, ObjectError>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let (begin, deadline) = (Instant::now(), self.settings.deadline());
        let mut backoff = Backoff::new();
        for tries in 1.. {
            let error = match request().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let fault = fault_of(&error);
            let wait = backoff.next();
            if fault != Fault::Passing || begin.elapsed() + wait >= deadline {
                return Err(ObjectError::Request {
                    operation,
                    object: self.named(key),
                    fault,
                    cause: cause(&error),
                    tries,
                    elapsed: begin.elapsed(),
                });
            }
            tokio::time::sleep(wait).await;
        }
        Err(ObjectError::Cancelled)
    }

    /// A key, as messages name it.
    pub(crate) fn named(&self, key: &str) -> String {
        let location = Location {
            key: key.to_owned(),
            ..self.location.clone()
        };
        location.to_string()
    }

    /// Writes an object whose key nobody else uses.
    pub(crate) async fn put(&self, key: &str, payload: PutPayload) -> Result<(), ObjectError> {
        let path = path(key);
        let put = || {
            let options = PutMode::Overwrite.into();
            self.client.put_opts(&path, payload.clone(), options)
        };
        self.send(("write", key), put).await.map(drop)
    }

    /// Reads a whole object of at most `limit` bytes. None if it is not there.
    pub(crate) async fn get(&self, key: &str, limit: u64) -> Result<Option<Got>, ObjectError> {
        let path = path(key);
        let get = || async {
            let got = self.client.get_opts(&path, GetOptions::default()).await?;
            let meta = got.meta.clone();
            if meta.size > limit {
                return Ok(Got {
                    meta,
                    bytes: Bytes::new(),
                });
            }
            let bytes = got.bytes().await?;
            Ok(Got { meta, bytes })
        };
        missing_is_none(self.send(("read", key), get).await)
    }

    /// What is known of an object that was just written. A server may not show it at once, so it is
    /// asked until the deadline has passed. None if the object is not there even then.
    pub(crate) async fn head_written(&self, key: &str) -> Result<Option<ObjectMeta>, ObjectError> {
        let (begin, deadline) = (Instant::now(), self.settings.deadline());
        let mut backoff = Backoff::new();
        loop {
            let found = self.head(key).await?;
            let wait = backoff.next();
            if found.is_some() || begin.elapsed() + wait >= deadline {
                return Ok(found);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads a part of an object.
    pub(crate) async fn get_range(
        &self,
        key: &str,
        from: u64,
        to: u64,
    ) -> Result<Bytes, ObjectError> {
        let (_, bytes) = self.range(key, from, to).await?;
        match bytes.len() as u64 == to - from {
            true => Ok(bytes),
            false => Err(ObjectError::Length {
                object: self.named(key),
                found: from + bytes.len() as u64,
                expected: to,
            }),
        }
    }

    /// The length of an object, and those of these bytes that it has. An answer that lacks some of
    /// them is asked for again.
    async fn range(&self, key: &str, from: u64, to: u64) -> Result<(u64, Bytes), ObjectError> {
        let path = path(key);
        let get = || async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(from..to)),
                ..GetOptions::default()
            };
            let got = self.client.get_opts(&path, options).await?;
            let size = got.meta.size;
            let bytes = got.bytes().await?;
            match (bytes.len() as u64) < size.min(to).saturating_sub(from) {
                true => Err(short(key)),
                false => Ok((size, bytes)),
            }
        };
        self.send(("read", key), get).await
    }

    /// What is known of an object. None if it is not there.
    pub(crate) async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, ObjectError> {
        let path = path(key);
        let head = || async {
            let options = GetOptions {
                head: true,
                ..GetOptions::default()
            };
            Ok(self.client.get_opts(&path, options).await?.meta)
        };
        missing_is_none(self.send(("look at", key), head).await)
    }

    /// Removes an object. It may be gone already.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), ObjectError> {
        use futures_util::StreamExt;
        let path = path(key);
        let delete = || async {
            let one = futures_util::stream::iter([Ok(path.clone())]).boxed();
            let mut done = self.client.delete_stream(one);
            while let Some(done) = done.next().await {
                done?;
            }
            Ok(())
        };
        missing_is_none(self.send(("remove", key), delete).await).map(drop)
    }

    /// Creates an object, unless another one has its key. It was read back when this returns.
    pub(crate) async fn create(&self, key: &str, bytes: &Bytes) -> Result<(), ObjectError> {
        let (begin, deadline) = (Instant::now(), self.settings.deadline());
        let mut backoff = Backoff::new();
        let (mut last, mut was_other) = (None, false);
        loop {
            // What lies there decides, before (some servers ignore conditions) and after: the
            // answer may have been lost when a try succeeded, or two tries may have conflicted.
            match self.get(key, bytes.len() as u64).await? {
                Some(got) if got.bytes == *bytes => return Ok(()),
                // An answer may be cut or damaged on its way, and a second one is not so likely to
                // be.
                Some(_) if !was_other => {
                    was_other = true;
                    tokio::time::sleep(backoff.next()).await;
                    continue;
                }
                Some(_) => {
                    let object = self.named(key);
                    return Err(ObjectError::Taken { object });
                }
                None if begin.elapsed() >= deadline => {
                    let object = self.named(key);
                    return Err(last.unwrap_or(ObjectError::ReadBack { object }));
                }
                None => {}
            }
            match self.create_once(key, bytes.clone()).await {
                Ok(()) => {}
                Err(error) if error.fault() == Some(Fault::Exists) => {
                    last = Some(error);
                    tokio::time::sleep(backoff.next()).await;
                }
                // A bucket that protects its objects refuses to replace our own, too.
                Err(error) if error.fault() == Some(Fault::Denied) => {
                    let got = self.get(key, bytes.len() as u64).await;
                    let is_own = got.is_ok_and(|got| got.is_some_and(|got| got.bytes == *bytes));
                    return if is_own { Ok(()) } else { Err(error) };
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates an object whose last bytes have a hash of all others, unless another one has its
    /// key; `is_over` replaces what is there. Length and end were read back when this returns.
    /// False if another object has the key.
    pub(crate) async fn create_hashed(
        &self,
        key: &str,
        bytes: &Bytes,
        (hash_bytes, is_over): (usize, bool),
    ) -> Result<bool, ObjectError> {
        let (begin, deadline) = (Instant::now(), self.settings.deadline());
        let mut backoff = Backoff::new();
        loop {
            let created = match is_over {
                true => self.put(key, PutPayload::from(bytes.clone())).await,
                false => self.create_once(key, bytes.clone()).await,
            };
            let refused = match created {
                Ok(()) => None,
                Err(error) if error.fault() == Some(Fault::Exists) => Some(error),
                // A bucket that protects its objects refuses to replace our own, too.
                Err(error) if error.fault() == Some(Fault::Denied) => {
                    let found = self.ends_in(key, bytes, hash_bytes).await;
                    return match found {
                        Ok(Some(is_own)) if is_own || !is_over => Ok(is_own),
                        _ => Err(error),
                    };
                }
                Err(error) => return Err(error),
            };
            // What lies there decides. An answer may have been lost, so it may be our own object;
            // and of two tries that met, neither may have got the key.
            let object = self.named(key);
            match self.ends_in(key, bytes, hash_bytes).await? {
                Some(true) => return Ok(true),
                Some(false) if is_over => return Err(ObjectError::ReadBack { object }),
                Some(false) => return Ok(false),
                None if begin.elapsed() >= deadline => {
                    return Err(refused.unwrap_or(ObjectError::ReadBack { object }));
                }
                None => tokio::time::sleep(backoff.next()).await,
            }
        }
    }

    /// Whether an object has this length and this end. None if it is not there.
    async fn ends_in(
        &self,
        key: &str,
        bytes: &Bytes,
        hash_bytes: usize,
    ) -> Result<Option<bool>, ObjectError> {
        let length = bytes.len() as u64;
        let from = length.saturating_sub(hash_bytes as u64);
        match missing_is_none(self.range(key, from, length).await) {
            Ok(None) => Ok(None),
            Ok(Some((size, end))) => Ok(Some(size == length && bytes.ends_with(&end))),
            // A shorter object has no such range.
            Err(error) if error.fault() == Some(Fault::Refused) => match self.head(key).await? {
                Some(found) if found.size < length => Ok(Some(false)),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// One try to create an object, with retries of what passes.
    pub(crate) async fn create_once(&self, key: &str, bytes: Bytes) -> Result<(), ObjectError> {
        let path = path(key);
        let create = || {
            let payload = PutPayload::from(bytes.clone());
            self.client.put_opts(&path, payload, PutMode::Create.into())
        };
        self.send(("create", key), create).await.map(drop)
    }
}

/// An object, and what is known of it. Without bytes if it is longer than was asked for.
pub(crate) struct Got {
    pub(crate) meta: ObjectMeta,
    pub(crate) bytes: Bytes,
}

/// The error of an answer that is too short. It passes.
fn short(key: &str) -> object_store::Error {
    let source = format!("the answer for {key} ends too early");
    object_store::Error::Generic {
        store: "bucket",
        source: source.into(),
    }
}

fn missing_is_none<T>(result: Result<T, ObjectError>) -> Result<Option<T>, ObjectError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

//! Buckets as a storage: lists stripes, and opens them for reading.
//!
//! A stripe is found by its name object. What such an object says is kept for a while, because
//! whoever lists a place opens each of its stripes next.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use object_store::ObjectMeta;
use tokio::runtime::Runtime;
use windlass_engine::media::{NAME_OBJECT_BYTES_MAX, NameObject, SetId};
use windlass_engine::{
    Cancel, EngineError, Going, Kept, Lies, NotRemoved, PARTIAL_SUFFIX, PlaceFile, ReadAt, Storage,
};

use crate::bytes::StripeBytes;
use crate::client::Bucket;
use crate::device::{ObjectDevice, ObjectStripe};
use crate::document::is_document;
use crate::error::ObjectError;
use crate::layout::below;
use crate::location::{Location, is_stripe_name};
use crate::request::Got;
use crate::settings::ObjectSettings;

/// How many small objects are read at once.
pub(crate) const READS_MAX: usize = 48;
/// How many bytes of name objects are kept.
const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// All buckets, each with its client.
pub struct Buckets {
    settings: Mutex<ObjectSettings>,
    runtime: Mutex<Option<Runtime>>,
    clients: Mutex<HashMap<String, Arc<Bucket>>>,
    names: Mutex<Names>,
}

/// Name objects that were read, with the version that was read.
#[derive(Default)]
struct Names {
    bytes: usize,
    kept: HashMap<PathBuf, Known>,
}

/// A name object, as it was when it was read.
#[derive(Clone)]
struct Known {
    version: Option<String>,
    modified_nanos: i64,
    content: Arc<NameObject>,
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buckets")
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self::new()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buckets {
    /// Buckets as the environment describes them. No thread runs before one is used.
    pub fn new() -> Self {
        Self {
            settings: Mutex::default(),
            runtime: Mutex::new(None),
            clients: Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// Takes the settings of the configuration, for buckets that have not been used yet.
    pub fn configure(&self, settings: ObjectSettings) {
        *lock(&self.settings) = settings;
    }

    /// The settings.
    pub fn settings(&self) -> ObjectSettings {
        lock(&self.settings).clone()
    }

    /// The client of a location's bucket.
    pub(crate) fn bucket(&self, location: &Location) -> Result<Arc<Bucket>, ObjectError> {
        let mut clients = lock(&self.clients);
        let name = location.bucket_name();
        if let Some(bucket) = clients.get(&name) {
            return Ok(Arc::clone(bucket));
        }
        let settings = lock(&self.settings).of(location);
        let bucket = Bucket::new(location, settings, self.runtime()?)?;
        let bucket = Arc::new(bucket);
        clients.insert(name, Arc::clone(&bucket));
        Ok(bucket)
    }

    fn runtime(&self) -> Result<tokio::runtime::Handle, ObjectError> {
        let mut runtime = lock(&self.runtime);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let made = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("windlass-object")
            .enable_all()
            .build()
            .map_err(ObjectError::Threads)?;
        let handle = made.handle().clone();
        *runtime = Some(made);
        Ok(handle)
    }

    /// Begins a stripe. Says whether the server heeds conditions: if not, two writers that give one
    /// name at the same moment may both think that they have it.
    pub fn create(
        &self,
        stripe: ObjectStripe,
        cancel: Cancel,
    ) -> Result<(ObjectDevice, bool), EngineError> {
        let bucket = self.bucket(&stripe.location);
        let bucket = bucket.map_err(|error| read_fault(&stripe.location.path(), error))?;
        ObjectDevice::create(bucket, stripe, cancel)
    }

    /// The name object of a stripe.
    fn known(&self, location: &Path) -> Result<(Arc<Bucket>, Location, Known), ObjectError> {
        let at = Location::parse(location)?;
        let bucket = self.bucket(&at)?;
        if let Some(known) = lock(&self.names).kept.get(location) {
            return Ok((bucket, at, known.clone()));
        }
        let got = bucket.wait(bucket.get(&at.key, NAME_OBJECT_BYTES_MAX as u64))?;
        let got = got.ok_or_else(|| missing(&at))?;
        let known = decoded(&at, got)?;
        Ok((bucket, at, known))
    }

    /// Reads the name objects of a list, many at once, and hands them over in its order.
    async fn names(
        &self,
        bucket: &Bucket,
        place: &Location,
        found: Vec<ObjectMeta>,
        mut each: impl FnMut(PlaceFile),
    ) -> Result<(), ObjectError> {
        let read = |meta: ObjectMeta| async move {
            let name = meta.location.filename().unwrap_or_default();
            let location = place.join(name);
            let path = location.path();
            if is_document(&path) {
                return Ok(Some((path, meta, None)));
            }
            let kept = lock(&self.names).kept.get(&path).cloned();
            if let Some(known) =
                kept.filter(|known| known.version.is_some() && known.version == meta.e_tag)
            {
                return Ok(Some((path, meta, Some(known))));
            }
            let got = bucket
                .get(&location.key, NAME_OBJECT_BYTES_MAX as u64)
                .await?;
            // It may have gone since it was listed.
            let Some(got) = got else { return Ok(None) };
            // What is no name object is handed over as well. It may have been one.
            let known = decoded(&location, got).ok();
            Ok::<_, ObjectError>(Some((path, meta, known)))
        };
        let mut names = futures_util::stream::iter(found)
            .map(read)
            .buffered(READS_MAX);
        while let Some(next) = names.next().await {
            let Some((location, meta, known)) = next? else {
                continue;
            };
            let bytes = known.as_ref().map(|known| known.content.stripe_bytes);
            if let Some(known) = known {
                lock(&self.names).keep(location.clone(), known);
            }
            each(PlaceFile {
                location,
                bytes: bytes.unwrap_or(meta.size),
                modified_nanos: nanos(&meta),
            });
        }
        Ok(())
    }
}

impl Names {
    fn keep(&mut self, location: PathBuf, known: Known) {
        let weight = |known: &Known| known.content.head.len() + known.content.tail.len() + 256;
        self.bytes += weight(&known);
        if let Some(old) = self.kept.insert(location, known) {
            self.bytes -= weight(&old);
        }
        if self.bytes > NAMES_BYTES_MAX {
            self.kept.clear();
            self.bytes = 0;
        }
    }
}

fn decoded(location: &Location, got: Got) -> Result<Known, ObjectError> {
    let object = location.to_string();
    let content = NameObject::decode(&got.bytes);
    let content = content.map_err(|source| ObjectError::Format { object, source })?;
    Ok(Known {
        modified_nanos: nanos(&got.meta),
        version: got.meta.e_tag,
        content: Arc::new(content),
    })
}

pub(crate) fn nanos(meta: &ObjectMeta) -> i64 {
    meta.last_modified.timestamp_nanos_opt().unwrap_or_default()
}

pub(crate) fn missing(location: &Location) -> ObjectError {
    ObjectError::Request {
        operation: "read",
        object: location.to_string(),
        fault: crate::error::Fault::Missing,
        cause: "it is not there".to_owned(),
        tries: 1,
        elapsed: std::time::Duration::ZERO,
    }
}

/// Whether it is the name that a stripe has in a directory until it is complete. In a bucket a
/// stripe has no name until then, and nothing that could be read.
fn is_partial(location: &Path) -> bool {
    let name = location.as_os_str().to_string_lossy();
    name.ends_with(PARTIAL_SUFFIX)
}

pub(crate) fn read_fault(location: &Path, error: ObjectError) -> EngineError {
    EngineError::DeviceIo {
        operation: windlass_engine::DeviceOperation::Read,
        device: location.to_string_lossy().into_owned(),
        offset: 0,
        source: error.into(),
    }
}

impl Storage for Buckets {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        if is_partial(location) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if is_document(location) {
            return Ok(self.look_at_document(location)?);
        }
        if !is_stripe_name(location) {
            Location::parse(location)?;
            return Ok(Lies::Place);
        }
        let (_, _, known) = self.known(location)?;
        Ok(Lies::File {
            bytes: known.content.stripe_bytes,
            modified_nanos: known.modified_nanos,
        })
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        if is_partial(location) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if is_document(location) {
            return Ok(Arc::new(self.open_document(location)?));
        }
        let (bucket, at, known) = self.known(location)?;
        let (place, _) = at.split();
        let key = below(&place, &known.content.key);
        let bytes = StripeBytes::new(location.to_owned(), bucket, key, known.content);
        Ok(Arc::new(bytes))
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        let fault = |error| read_fault(place, error);
        let at = Location::parse(place).map_err(fault)?;
        let bucket = self.bucket(&at).map_err(fault)?;
        let listed = bucket.wait(async {
            let mut found = bucket.list(&at.key).await?.objects;
            found.retain(|meta| {
                let name = at.join(meta.location.filename().unwrap_or_default());
                is_stripe_name(&name.path()) || is_document(&name.path())
            });
            Ok(found)
        });
        // The callback opens stripes, which waits for requests. So it is called on this thread, and
        // outside of the runtime.
        let found: Vec<ObjectMeta> = listed.map_err(fault)?;
        let mut begun = self.begun(&at).map_err(fault)?;
        begun.retain(|file| {
            let name = file.location.with_extension("");
            let has_name =
                |meta: &ObjectMeta| name.file_name() == meta.location.filename().map(OsStr::new);
            !found.iter().any(has_name)
        });
        begun.into_iter().for_each(&mut *each);
        for some in found.chunks(READS_MAX * 8) {
            let mut files = Vec::with_capacity(some.len());
            let read = self.names(&bucket, &at, some.to_vec(), |file| files.push(file));
            bucket.wait(read).map_err(fault)?;
            files.into_iter().for_each(&mut *each);
        }
        Ok(())
    }

    fn write(&self, location: &Path, content: &[u8]) -> io::Result<()> {
        match is_document(location) {
            true => Ok(self.write_document(location, content)?),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        match is_document(location) {
            true => Ok(self.remove_document(location)?),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Nothing can be locked. Who removes a set looks for notes of readers instead.
    fn reserve(&self, _location: &Path) -> io::Result<Option<Kept>> {
        Ok(Some(Box::new(())))
    }

    fn hides(&self, _location: &Path) -> bool {
        true
    }

    fn note(&self, place: &Path, sets: &BTreeSet<SetId>) -> io::Result<Kept> {
        Ok(self.leave_note(place, sets)?)
    }

    fn noted(&self, place: &Path) -> io::Result<BTreeSet<SetId>> {
        Ok(self.read_now(place)?)
    }

    fn now_nanos(&self, place: &Path) -> i64 {
        let bucket = Location::parse(place).and_then(|at| self.bucket(&at));
        bucket.map_or(i64::MIN, |bucket| bucket.clock.now_nanos())
    }

    fn remove_set(&self, going: &Going<'_>) -> Result<(), NotRemoved> {
        self.remove_all(going)
    }
}

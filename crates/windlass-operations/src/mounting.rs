//! A set as files, until it is unmounted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use windlass_engine::media::{Facts, SetId};
use windlass_engine::{Cancel, Outputs};
use windlass_image::{Image, Overlay, SetImage, SetImageOptions, View};
use windlass_mount::{DamageHook, Mount, MountOptions, Unmounted};
use windlass_postgres::DatabaseFacts;

use crate::caller::Caller;
use crate::error::OperationError;
use crate::held::Held;
use crate::notice::{Notice, Observer};
use crate::places::{self, LocatedSet, SetRequest};
use crate::recovered::{ChosenMoment, MomentRequest, RecoveredImage};
use crate::snapshots::SnapshotImage;
use crate::status::Operation;
use crate::{outputs, privilege};

/// The pause between two looks at the signals.
const LOOK: Duration = Duration::from_millis(100);
/// The most messages that others can see.
const MESSAGES_MAX: usize = 20;

/// Messages from the time of the mount; the newest is last.
type Messages = Arc<Mutex<Vec<String>>>;

/// What to mount, where, and how.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The set.
    pub set: SetRequest,
    /// A moment in the log of a cluster; without it that of the set.
    pub at_moment: Option<MomentRequest>,
    /// The directory that shows the files.
    pub at: PathBuf,
    /// The directory that keeps changes. Without it nothing can be written.
    pub overlay: Option<PathBuf>,
    /// Memory for decoded frames, in bytes.
    pub cache_bytes: Option<u64>,
    /// Threads that answer; without it, one for each core.
    pub threads: Option<usize>,
    /// Whether other users see the files, too.
    pub allow_other: bool,
    /// Whether the kernel caches nothing of the files.
    pub direct_io: bool,
}

/// A mounted set or snapshot.
pub struct MountedSet {
    /// What people call it.
    pub title: String,
    /// The id of the set; none if it is a snapshot that is no set.
    pub id: Option<SetId>,
    /// The set, to say which one to use instead if damage is found.
    found: Option<LocatedSet>,
    /// Shows the mount to others. It is dropped before the mount.
    operation: Operation,
    mount: Arc<Mount>,
    overlay: Option<Arc<Overlay>>,
    observer: Arc<dyn Observer>,
    /// What recovery wrote, which is removed after the mount.
    _recovered: Option<RecoveredImage>,
}

/// What is mounted.
struct Mountable {
    title: String,
    /// What mount(8) shows.
    name: String,
    id: Option<SetId>,
    found: Option<LocatedSet>,
    image: Arc<dyn Image>,
    /// The set, which counts what is read of it.
    set: Option<Arc<SetImage>>,
    owner: Option<(u32, u32)>,
    outputs: Outputs,
    recovered: Option<RecoveredImage>,
}

/// Mounts a set or a snapshot.
pub fn mount(
    caller: &Caller,
    request: &MountRequest,
    cancel: &Cancel,
) -> Result<MountedSet, OperationError> {
    let defaults = SetImageOptions::default();
    let image_options = SetImageOptions {
        frame_cache_bytes: request.cache_bytes.unwrap_or(defaults.frame_cache_bytes),
        ..defaults
    };
    let what = match &request.at_moment {
        Some(moment) => {
            let chosen = ChosenMoment::find(caller, &request.set, &moment.recovery)?;
            // Nobody waits for a recovery to hear that nothing can be mounted there.
            Mount::place(&request.at)?;
            Mountable::recovered(chosen.recover(caller, &moment.settings, cancel)?)
        }
        None => Mountable::find(caller, &request.set, &image_options)?,
    };
    let messages = Messages::default();
    let options = MountOptions {
        threads: request.threads,
        cache_bytes: image_options.frame_cache_bytes,
        owner: what.owner,
        allow_other: request.allow_other,
        direct_io: request.direct_io,
        name: what.name,
        on_damage: Some(tell_damage(&caller.observer, &messages)),
    };
    // This comes before the overlay is made, because a failure would leave the overlay behind.
    let at = Mount::place(&request.at)?;
    options.check_room()?;
    if let Some(overlay) = &request.overlay {
        what.outputs.check(overlay)?;
    }
    let overlay = overlay(&what.image, request.overlay.as_deref(), &at)?;
    let mount = Arc::new(match &overlay {
        Some(overlay) => Mount::overlay(Arc::clone(overlay), &at, &options)?,
        None => Mount::image(what.image, &at, &options)?,
    });
    let shown = Shown {
        mount: Arc::downgrade(&mount),
        set: what.set,
        overlay: overlay.as_ref().map(Arc::downgrade),
        messages,
    };
    Ok(MountedSet {
        operation: shown.begin(&what.title, mount.at()),
        title: what.title,
        id: what.id,
        found: what.found,
        mount,
        overlay,
        observer: Arc::clone(&caller.observer),
        _recovered: what.recovered,
    })
}

impl Mountable {
    fn find(
        caller: &Caller,
        request: &SetRequest,
        options: &SetImageOptions,
    ) -> Result<Self, OperationError> {
        match SnapshotImage::of_request(caller, request)? {
            Some(snapshot) => Self::snapshot(&snapshot),
            None => Self::set(caller, request, options),
        }
    }

    fn recovered(mut recovered: RecoveredImage) -> Self {
        Self {
            title: recovered.title.clone(),
            name: format!("windlass:{}", recovered.title),
            id: None,
            found: recovered.found.take(),
            image: Arc::clone(&recovered.image),
            set: None,
            owner: owner(&recovered.facts),
            outputs: outputs::outputs(),
            recovered: Some(recovered),
        }
    }

    fn set(
        caller: &Caller,
        request: &SetRequest,
        options: &SetImageOptions,
    ) -> Result<Self, OperationError> {
        let found = places::find(caller, request)?;
        let set = Arc::new(found.open()?);
        Held::check_links(&set.description().files)?;
        let image = SetImage::open(Arc::clone(&set), options);
        let image = Arc::new(image.map_err(|error| found.advised(error.into()))?);
        Ok(Self {
            title: format!("set {}", set.set_id()),
            name: format!("windlass:{}", set.set_id()),
            id: Some(set.set_id()),
            found: Some(found),
            image: Arc::clone(&image) as Arc<dyn Image>,
            set: Some(image),
            owner: owner(&set.description().facts),
            outputs: outputs::of_set(&set)?,
            recovered: None,
        })
    }

    fn snapshot(snapshot: &SnapshotImage) -> Result<Self, OperationError> {
        Held::check_links(snapshot.files())?;
        Ok(Self {
            title: snapshot.title(),
            name: format!("windlass:{}", snapshot.snapshot().record().name),
            id: None,
            found: None,
            image: Arc::clone(snapshot.image()),
            set: None,
            owner: owner(snapshot.facts()),
            outputs: outputs::outputs(),
            recovered: None,
        })
    }
}

impl MountedSet {
    /// Where the files are.
    pub fn at(&self) -> &Path {
        self.mount.at()
    }

    /// Serves the files until somebody unmounts them or the caller asks for the end. Returns the
    /// set if damage of it was found.
    pub fn serve(self, cancel: &Cancel) -> Result<Option<LocatedSet>, OperationError> {
        let ended = self.wait(cancel);
        drop(self.operation);
        ended?;
        if let Some(overlay) = self.overlay {
            overlay.sync()?;
        }
        let is_damaged = self.mount.statistics().damaged > 0;
        Ok(self.found.filter(|_| is_damaged))
    }

    fn wait(&self, cancel: &Cancel) -> Result<(), OperationError> {
        while !self.mount.wait_for(LOOK) {
            if cancel.is_cancelled() {
                if self.mount.detach()? == Unmounted::Detached {
                    self.observer.notice(&Notice::MountInUse(self.at()));
                }
                break;
            }
        }
        Ok(self.mount.wait()?)
    }
}

/// The owner of the files: the source's owner if this process is root and knows that user;
/// otherwise `None`, which means the user of this process.
fn owner(facts: &Facts) -> Option<(u32, u32)> {
    if !privilege::is_root() {
        return None;
    }
    let facts = DatabaseFacts::of_set(&facts.database).ok()?;
    privilege::user_ids(&facts.owner)
}

/// Tells of damage, and keeps the message for those who ask for the state of the mount.
fn tell_damage(observer: &Arc<dyn Observer>, messages: &Messages) -> DamageHook {
    let (observer, messages) = (Arc::clone(observer), Arc::clone(messages));
    DamageHook::new(move |error| {
        observer.notice(&Notice::OfMount(error));
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MESSAGES_MAX {
            messages.remove(0);
        }
        messages.push(error.to_string());
    })
}

/// The overlay in a directory: the existing one, or a new one.
fn overlay(
    image: &Arc<dyn Image>,
    at: Option<&Path>,
    mount: &Path,
) -> Result<Option<Arc<Overlay>>, OperationError> {
    let Some(at) = at else {
        return Ok(None);
    };
    if lies_below(at, mount) {
        return Err(OperationError::OverlayBelow {
            overlay: at.to_owned(),
            mount: mount.to_owned(),
        });
    }
    let image = Arc::clone(image);
    let overlay = if Overlay::is_at(at) {
        Overlay::open(image, at)?
    } else {
        Overlay::create(image, at)?
    };
    Ok(Some(Arc::new(overlay)))
}

/// Whether a path lies in a directory. The path itself need not exist.
fn lies_below(path: &Path, directory: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.ancestors().find_map(|part| part.canonicalize().ok());
    real.is_some_and(|real| real.starts_with(directory))
}

/// What others can see of a mount.
struct Shown {
    mount: Weak<Mount>,
    set: Option<Arc<SetImage>>,
    overlay: Option<Weak<Overlay>>,
    messages: Messages,
}

impl Shown {
    fn begin(self, title: &str, at: &Path) -> Operation {
        let title = format!("{title} on {}", at.display());
        Operation::begin("mount", &title, move || {
            ("mounted".to_owned(), self.numbers())
        })
    }

    fn numbers(&self) -> serde_json::Value {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = serde_json::json!({
            "mount": self.mount.upgrade().map(|mount| mount.statistics()),
            "damage": *messages,
        });
        // A snapshot whose files are kept one by one is read without a cache of frames.
        if let Some(set) = &self.set {
            numbers["image"] = serde_json::json!(set.statistics());
        }
        if let Some(overlay) = self.overlay.as_ref().and_then(Weak::upgrade) {
            numbers["overlay"] = serde_json::json!(overlay.statistics());
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_set_shows_no_cache_of_frames() {
        let shown = Shown {
            mount: Weak::new(),
            set: None,
            overlay: None,
            messages: Messages::default(),
        };
        assert_eq!(shown.numbers().get("image"), None);
    }
}

//! `windlass mount`: shows a set as files until it is unmounted.
//!
//!   windlass mount ...  --detach--> windlass mount ... --foreground
//!     waits, prints what it says      mounts, says so, serves in the background from then on

mod detach;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use windlass_engine::{Cancel, OpenSet};
use windlass_image::{Image, Overlay, SetImage, SetImageOptions, View};
use windlass_mount::{DamageHook, Mount, MountOptions, Unmounted};
use windlass_postgres::DatabaseFacts;

use crate::cli::{Global, MountSet};
use crate::damage;
use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs;
use crate::places;
use crate::privilege;
use crate::requests;
use crate::signals;
use crate::status::Operation;
use windlass_operations::Held;

/// The pause between two looks at the signals.
const LOOK: Duration = Duration::from_millis(100);
/// The most messages that `windlass status` shows.
const MESSAGES_MAX: usize = 20;

/// Messages from the time of the mount; the newest is last.
type Messages = Arc<Mutex<Vec<String>>>;

pub fn run(global: &Global, arguments: &MountSet) -> Result<Code, Failure> {
    if !arguments.foreground {
        return detach::run(global.json);
    }
    let cancel = signals::cancel_on_signals()?;
    let words = std::slice::from_ref(&arguments.set);
    let caller = requests::quiet_caller(global);
    let found = places::find(&caller, &requests::sets(global, words, &arguments.choice))?;
    let set = Arc::new(found.open()?);
    Held::check_links(set.description())?;
    let defaults = SetImageOptions::default();
    let options = SetImageOptions {
        frame_cache_bytes: arguments.cache.unwrap_or(defaults.frame_cache_bytes),
        ..defaults
    };
    let image = SetImage::open(Arc::clone(&set), &options);
    let image = Arc::new(image.map_err(|error| found.advised(error.into()))?);
    let messages = Messages::default();
    let options = MountOptions {
        threads: arguments.threads,
        owner: owner(&set),
        allow_other: arguments.allow_other,
        direct_io: arguments.direct_io,
        name: format!("windlass:{}", set.set_id()),
        on_damage: Some(tell_damage(&messages)),
    };
    // This comes before the overlay is made, because a failure would leave the overlay behind.
    let at = Mount::place(&arguments.at)?;
    if let Some(overlay) = &arguments.overlay {
        outputs::of_set(&set)?.check(overlay)?;
    }
    let overlay = overlay(&image, arguments.overlay.as_deref(), &at)?;
    let mount = Arc::new(match &overlay {
        Some(overlay) => Mount::overlay(Arc::clone(overlay), &at, &options)?,
        None => Mount::image(Arc::clone(&image) as Arc<dyn Image>, &at, &options)?,
    });
    let shown = Shown {
        mount: Arc::downgrade(&mount),
        image,
        overlay: overlay.as_ref().map(Arc::downgrade),
        messages,
    };
    let operation = shown.begin(&set, mount.at());
    say_mounted(global, &set, mount.at());
    if arguments.detached {
        detach::leave(output::degraded(Code::Done))?;
    }
    let ended = serve(&mount, &cancel);
    drop(operation);
    ended?;
    if let Some(overlay) = overlay {
        overlay.sync()?;
    }
    if mount.statistics().damaged == 0 {
        return Ok(Code::Done);
    }
    damage::say_advice(&found);
    Ok(Code::Damage)
}

/// The owner of the files: the source's owner if this process is root and knows that user;
/// otherwise `None`, which means the user of this process.
fn owner(set: &OpenSet) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let facts = DatabaseFacts::of_set(&set.description().facts.database).ok()?;
    privilege::user_ids(&facts.owner)
}

/// Reports damage on standard error, and keeps the message for `windlass status`.
fn tell_damage(messages: &Messages) -> DamageHook {
    let messages = Arc::clone(messages);
    DamageHook::new(move |error| {
        let text = error.to_string();
        let what = if error.is_of_set() { "damage" } else { "error" };
        output::note(&format!("{what}: {text}"));
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MESSAGES_MAX {
            messages.remove(0);
        }
        messages.push(text);
    })
}

/// The overlay in a directory: the existing one, or a new one.
fn overlay(
    image: &Arc<SetImage>,
    at: Option<&Path>,
    mount: &Path,
) -> Result<Option<Arc<Overlay>>, Failure> {
    let Some(at) = at else {
        return Ok(None);
    };
    if lies_below(at, mount) {
        let (at, mount) = (at.display(), mount.display());
        return Err(Failure::usage(
            format!("the overlay {at} would disappear below the mount on {mount}"),
            "Name a directory elsewhere with --overlay.",
        ));
    }
    let image = Arc::clone(image) as Arc<dyn Image>;
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

/// What `windlass status` shows of a mount.
struct Shown {
    mount: Weak<Mount>,
    image: Arc<SetImage>,
    overlay: Option<Weak<Overlay>>,
    messages: Messages,
}

impl Shown {
    fn begin(self, set: &OpenSet, at: &Path) -> Operation {
        let title = format!("set {} on {}", set.set_id(), at.display());
        Operation::begin("mount", &title, move || {
            ("mounted".to_owned(), self.numbers())
        })
    }

    fn numbers(&self) -> serde_json::Value {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = serde_json::json!({
            "mount": self.mount.upgrade().map(|mount| mount.statistics()),
            "image": self.image.statistics(),
            "damage": *messages,
        });
        if let Some(overlay) = self.overlay.as_ref().and_then(Weak::upgrade) {
            numbers["overlay"] = serde_json::json!(overlay.statistics());
        }
        numbers
    }
}

fn say_mounted(global: &Global, set: &OpenSet, at: &Path) {
    let (id, at) = (set.set_id(), at.display());
    if global.json {
        let document = serde_json::json!({
            "set_id": id.to_string(),
            "at": at.to_string(),
            "pid": std::process::id(),
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        output::line(&format!("mounted       set {id} on {at}"));
    }
}

/// Serves the files until somebody unmounts them or a signal asks for the end.
fn serve(mount: &Mount, cancel: &Cancel) -> Result<(), Failure> {
    while !mount.wait_for(LOOK) {
        if cancel.is_cancelled() {
            if mount.detach()? == Unmounted::Detached {
                let at = mount.at().display();
                output::note(&format!(
                    "{at} is in use: it is detached, and ends when the last file of it is closed; \
                     a second signal ends it now"
                ));
            }
            break;
        }
    }
    Ok(mount.wait()?)
}

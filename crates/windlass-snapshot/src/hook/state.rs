//! What has become of a snapshot: whether it can be read, and what it costs.

use std::path::{Path, PathBuf};

use windlass_image::layout::hook::{Cause, Fault, FileKey, Phase, Snapshot, lose_numbered};

use super::control::Control;
use super::durable;
use super::error::HookError;
use super::limits::HookLimits;
use super::record::Document;
use super::remove::{control_of, why_gone};
use super::seen::Seen;
use super::store::PreservedPages;
use super::untouched;

/// The state of a snapshot by the hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookState {
    /// Why it can no longer be read; `None` if it can.
    pub lost: Option<String>,
    /// How many pages were preserved into it. Older snapshots may need some of them too.
    pub pages: u64,
    /// How many bytes these are.
    pub pages_bytes: u64,
    /// How many bytes were preserved since it was made, into it and into newer snapshots.
    pub grown_bytes: u64,
    /// When it ends.
    pub limits: HookLimits,
    /// How much room the pages of all snapshots of the database take on disk, in bytes.
    pub store_bytes: u64,
}

/// The state of the snapshot in a directory.
pub fn state(directory: &Path) -> Result<HookState, HookError> {
    look(directory, None).map(|looked| looked.state)
}

/// What one look at a snapshot by the hook tells. Its document may be long, so nobody reads it
/// twice for this.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// What has become of it.
    pub(crate) state: HookState,
    /// The data directory of its server; `None` if nothing says which it is.
    pub(crate) data: Option<PathBuf>,
}

/// Looks at the snapshot in a directory, if its record has this checksum of its document.
pub(crate) fn look(directory: &Path, recorded: Option<u32>) -> Result<Looked, HookError> {
    let document = Document::read_of(directory, recorded)?;
    let state = match &document {
        Some(document) => state_of(document, directory)?,
        None => gone("it was never completed"),
    };
    let data = document.map(|document| document.data);
    Ok(Looked { state, data })
}

/// The state of one that is lost, and takes nothing.
fn gone(why: &str) -> HookState {
    HookState {
        lost: Some(why.into()),
        pages: 0,
        pages_bytes: 0,
        grown_bytes: 0,
        limits: HookLimits::default(),
        store_bytes: 0,
    }
}

fn state_of(document: &Document, directory: &Path) -> Result<HookState, HookError> {
    let Some(control) = control_of(document)? else {
        return Ok(gone(&why_gone(document)));
    };
    let memory = control.memory();
    HookLimits::end_by_age(&control, document.number);
    let snapshot = Snapshot::numbered(memory, document.number);
    let bytes = |pages: u64| pages.saturating_mul(u64::from(document.page_bytes));
    let grown = memory.preserved_since(document.number);
    let limits = snapshot.map_or(HookLimits::default(), |it| {
        HookLimits::of(&it.limits(), document.page_bytes)
    });
    let pages = snapshot.map_or(0, |snapshot| u64::from(snapshot.preserved()));
    let store = PreservedPages::path_of(memory).filter(|path| path.exists());
    Ok(HookState {
        lost: why_lost(&control, document.number, |wanted| {
            document.name_of(directory, wanted)
        }),
        pages_bytes: bytes(pages),
        pages,
        grown_bytes: bytes(grown),
        limits,
        store_bytes: store.map_or(Ok(0), |path| PreservedPages::room(&path))?,
    })
}

/// Gives a snapshot up, with all older ones: they cannot be read from now on, and cost nothing
/// more.
pub fn give_up(directory: &Path) -> Result<(), HookError> {
    let Some(document) = Document::read(directory)? else {
        return Ok(());
    };
    if let Some(control) = control_of(&document)? {
        let locked = control.lock()?;
        let (cause, errno) = (Cause::Limit, 0);
        let fault = Fault { cause, errno };
        let snapshot = Snapshot::numbered(locked.memory(), document.number);
        let snapshot = snapshot.filter(|it| it.state() == Phase::Active);
        durable::forget_from(control.data(), snapshot)?;
        lose_numbered(locked.memory(), document.number, fault, |index| {
            durable::forget(control.data(), index);
        });
    }
    Ok(())
}

/// Why a snapshot can no longer be read; `None` if it can. `name` knows the first of some files in
/// it, by its name in the data directory.
pub(crate) fn why_lost(
    control: &Control,
    number: u32,
    name: impl Fn(&dyn Fn(FileKey) -> bool) -> Option<String>,
) -> Option<String> {
    let Some(snapshot) = Snapshot::numbered(control.memory(), number) else {
        return Some(PAGES_GONE.into());
    };
    match snapshot.state() {
        Phase::Active if !Seen::of(control).holds(control) => Some(words((Cause::Unseen, 0))),
        Phase::Active if !PreservedPages::is_there(control.memory()) => Some(PAGES_GONE.into()),
        Phase::Active => untouched::changed(control).map(|changed| changed.words(name)),
        Phase::Lost => Some(words(snapshot.cause())),
        // It reached a limit.
        _ if snapshot.cause().0 != Cause::Unknown => Some(words(snapshot.cause())),
        _ => Some("it is being dropped".into()),
    }
}

/// Whether these are the words about a snapshot that reached a limit of its own.
pub fn is_limit(why: &str) -> bool {
    let limits = [Cause::Size, Cause::Age, Cause::Free].into_iter();
    limits
        .map(|cause| words((cause, 0)))
        .any(|limit| limit == why)
}

/// Somebody removed the store. Or the server has forgotten the snapshot because of that.
const PAGES_GONE: &str = "the file with its pages was removed, or replaced by another one";

fn words((cause, errno): (Cause, i32)) -> String {
    let what = match cause {
        Cause::StoreFull => "the server could not keep a page, because the store was full",
        Cause::Store => "the server could not keep a page in the store",
        Cause::Source => "the server could not read a page that it was about to overwrite",
        Cause::Lock => "the server could not lock a page that it was about to overwrite",
        Cause::Unseen => "the data directory was changed without the hook",
        Cause::Limit => "it was given up",
        Cause::Size => "it grew beyond its limit",
        Cause::Age => "it became as old as it was to become",
        Cause::Free => "the disk of its store had less free space than was to be kept",
        Cause::Name => "the server removed a file that could not be kept",
        Cause::Changed => "the files of the data directory were changed while no server ran",
        Cause::Unknown => "the cause is not known",
    };
    match errno {
        0 => what.to_owned(),
        errno => format!("{what}: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

//! Takes snapshots out of the chain, and finishes what a killed controller began.
//!
//!   drain --grace--> merge --> unlink --grace of writers and readers--> free pages, memory, links

use std::collections::BTreeSet;
use std::path::Path;

use windlass_image::layout::hook::{
    Busy, Cause, Moved, Phase, Reading, Snapshot, drain, grace, merge, release, unlink,
};

use super::control::{Control, Patience};
use super::durable;
use super::error::HookError;
use super::locked::{Extent, Locked};
use super::record::{Document, boot};
use super::store::PreservedPages;
use super::{graves, journal, links};

/// So many pages are looked at together for neighbours.
const FREED_AT_ONCE: usize = 1 << 16;

/// Removes the snapshot in a directory: its pages, its memory, its links. The directory itself
/// stays, without its document's meaning. Whatever is gone already does not matter.
pub fn remove(directory: &Path) -> Result<(), HookError> {
    let Some(document) = Document::read(directory)? else {
        return Ok(());
    };
    if let Some(control) = control_of(&document)? {
        let locked = control.lock()?;
        take_out(&locked, document.number)?;
        finish(&locked, &document.data)?;
    } else if let Some(durable) = &document.durable {
        durable.forget(&document.data)?;
    }
    remove_links(&document)?;
    graves::sweep_these(&document.graves, &document.data)?;
    match Control::open_any(&document.data)? {
        Some(_) => Ok(()),
        None => durable::move_stamp(&document.data),
    }
}

/// Removes the links of a snapshot that is in no memory any more. A later memory gives its number
/// again, and the links of a snapshot are named after that.
fn remove_links(document: &Document) -> Result<(), HookError> {
    let control = Control::open_any(&document.data)?;
    let locked = control.as_ref().map(Control::lock).transpose()?;
    let has_number = |locked: &Locked<'_>| {
        let mut snapshots = locked.snapshots();
        snapshots.any(|snapshot| snapshot.number() == document.number)
    };
    if locked.as_ref().is_some_and(has_number) {
        return Ok(());
    }
    document.links.iter().try_for_each(|it| links::remove(it))
}

/// The memory that a snapshot is in, if it is still there. That of a durable snapshot may be a
/// later one.
pub(crate) fn control_of(document: &Document) -> Result<Option<Control>, HookError> {
    if document.durable.is_none() && document.boot != boot()? {
        return Ok(None);
    }
    let Some(control) = Control::open_any(&document.data)? else {
        return Ok(None);
    };
    let is_own = match &document.durable {
        Some(durable) => durable.is_in(control.memory(), document.number),
        None => control.inode()? == document.control_inode,
    };
    Ok(is_own.then_some(control))
}

/// Why a snapshot cannot be read whose memory is not there.
pub(crate) fn why_gone(document: &Document) -> String {
    let Some(durable) = &document.durable else {
        let is_same_system = boot().is_ok_and(|boot| boot == document.boot);
        let why = match is_same_system {
            true => {
                "the data directory was moved or made anew since, the memory of the hook in \
                 /dev/shm was removed, or the server loaded the hook of another version"
            }
            false => "the system has started again since",
        };
        return why.to_owned();
    };
    match durable.is_saved(&document.data) {
        true => "it is there again when the server starts with the hook".to_owned(),
        false => "not everything of it was as it had been left when the server started".to_owned(),
    }
}

/// Takes a snapshot out of the chain and frees what it has.
pub(crate) fn take_out(locked: &Locked<'_>, number: u32) -> Result<(), HookError> {
    let Some(snapshot) = Snapshot::numbered(locked.memory(), number) else {
        return Ok(());
    };
    if snapshot.state() == Phase::Building {
        return free(locked, &snapshot);
    }
    if snapshot.is_durable() {
        // Before anything of it is freed, or a power cut would bring it back without that.
        durable::removed(locked.control().data(), snapshot.index())?;
    }
    let memory = locked.memory();
    drain(&snapshot);
    waited(grace(memory, &mut Patience::default()))?;
    for record in snapshot.files() {
        merge(memory, &snapshot, &record, |_| ());
    }
    unlink(memory, &snapshot);
    waited(grace(memory, &mut Patience::default()))?;
    waited(Reading::grace(memory, &mut Patience::default()))?;
    free_pages(locked, &snapshot)?;
    free(locked, &snapshot)
}

pub(crate) fn waited(waited: Result<(), Busy>) -> Result<(), HookError> {
    waited.map_err(|Busy { pid }| HookError::Busy { pid })
}

/// Frees the pages that no older snapshot has. Nobody can see the snapshot any more. Those of the
/// last one go with the store.
fn free_pages(locked: &Locked<'_>, snapshot: &Snapshot<'_>) -> Result<(), HookError> {
    let memory = locked.memory();
    if locked
        .snapshots()
        .all(|it| it.number() == snapshot.number())
    {
        return Ok(());
    }
    let Some(store) = PreservedPages::open_to_free(memory)? else {
        return Ok(());
    };
    let mut unneeded = Vec::with_capacity(FREED_AT_ONCE);
    let mut freed = Ok(());
    for record in snapshot.files() {
        merge(memory, snapshot, &record, |moved| {
            if let Moved::Unneeded(slot) = moved {
                unneeded.push(slot);
            }
            if unneeded.len() == FREED_AT_ONCE {
                let more = store.free(&mut unneeded);
                freed = std::mem::replace(&mut freed, Ok(())).and(more);
            }
        });
    }
    freed.and(store.free(&mut unneeded))
}

/// Frees the memory of a snapshot that is not in the chain. The last one takes the store with it.
fn free(locked: &Locked<'_>, snapshot: &Snapshot<'_>) -> Result<(), HookError> {
    let extents = snapshot.extents();
    release(snapshot);
    for (at, words) in extents {
        let words = words.next_multiple_of(1024);
        locked.free(Extent {
            at,
            words: if at == 0 { 0 } else { words },
        })?;
    }
    free_store(locked)
}

/// Removes the store if there are no snapshots.
fn free_store(locked: &Locked<'_>) -> Result<(), HookError> {
    let memory = locked.memory();
    if locked.snapshots().next().is_none() && PreservedPages::path_of(memory).is_some() {
        PreservedPages::remove(memory)?;
        memory.set_store(b"");
    }
    Ok(())
}

/// Whether somebody began to drop it. One that reached a limit stays, so that a list can say why.
fn is_half_dropped(snapshot: &Snapshot<'_>) -> bool {
    let is_ended = snapshot.cause().0 != Cause::Unknown;
    match snapshot.state() {
        Phase::Building => true,
        Phase::Draining => !is_ended,
        _ => false,
    }
}

/// Finishes what a killed controller began: creations are undone, removals are completed.
pub(crate) fn finish(locked: &Locked<'_>, data: &Path) -> Result<(), HookError> {
    journal::finish(locked)?;
    let unfinished: Vec<_> = locked
        .snapshots()
        .filter(|it| !it.is_complete() || is_half_dropped(it))
        .map(|snapshot| snapshot.number())
        .collect();
    for number in unfinished {
        take_out(locked, number)?;
    }
    // Nobody knows where it is once the memory has gone.
    free_store(locked)?;
    let numbers: BTreeSet<_> = locked.snapshots().map(|it| it.number()).collect();
    durable::sweep(locked)?;
    links::sweep(data, &numbers)?;
    graves::sweep(locked, data)
}

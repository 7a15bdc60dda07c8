//! Makes a snapshot of the backup API visible to the hook, between its checkpoint and its end.
//!
//!   files have links    publish --grace--> nobody is inside who has not seen it
//!   they have none      PAUSE: names that are gone, publish
//!
//! A file that loses its name before the checkpoint is removed by replay, too, so the snapshot is
//! complete without it. But its index must not have the file: the next one may get its number.
//!
//! Never does: take what came since the files were listed. Replay makes that, and the end of the
//! window knows only what was listed.

use std::path::Path;

use windlass_image::layout::hook::{Snapshot, grace, publish};
use windlass_postgres::Bracket;

use super::control::Patience;
use super::create::HookRequest;
use super::error::HookError;
use super::index::Filled;
use super::journal::Journal;
use super::locked::Locked;
use super::pauses::Pauses;
use super::remove::waited;
use super::renewed::Roll;
use super::taken::{Into, Taken};

/// A snapshot that the hook sees.
pub(super) struct Published<'a> {
    pub(super) snapshot: Snapshot<'a>,
    /// How many names were looked at while the server stood still.
    pub(super) files_in_pause: u64,
}

/// What was taken, and of what.
pub(super) struct Window<'a, 'l> {
    bracket: &'a Bracket,
    taken: &'a mut Taken,
    into: &'a mut Into<'l>,
}

/// Publishes a snapshot whose files have links. Nobody has to wait.
pub(super) fn publish_at_once<'a>(
    locked: &Locked<'a>,
    request: &HookRequest<'_>,
    filled: Filled<'a>,
) -> Result<Published<'a>, HookError> {
    request.progress.set_phase("waiting for writers");
    let snapshot = publish(locked.memory(), filled.built());
    waited(grace(locked.memory(), &mut Patience::default()))?;
    Ok(Published {
        snapshot,
        files_in_pause: 0,
    })
}

/// Publishes a snapshot whose files have no links.
pub(super) fn publish_in_pause<'a>(
    (locked, journal, number): (&Locked<'a>, Journal<'_, '_>, u32),
    (request, pauses): (&HookRequest<'_>, &Pauses),
    mut window: Window<'_, '_>,
    mut filled: Filled<'a>,
) -> Result<Published<'a>, HookError> {
    let step = |name| request.progress.set_phase(name);
    let roll = Roll::of(window.taken);
    step("waiting for writers");
    let (snapshot, files_in_pause) = pauses.during(locked, number, || {
        step("looking at what changed");
        let looked_at = window.renew(&journal, &roll, &mut filled)?;
        step("flipping the map");
        Ok((publish(locked.memory(), filled.built()), looked_at))
    })?;
    Ok(Published {
        snapshot,
        files_in_pause,
    })
}

impl<'a, 'l> Window<'a, 'l> {
    pub(super) fn new(bracket: &'a Bracket, taken: &'a mut Taken, into: &'a mut Into<'l>) -> Self {
        Self {
            bracket,
            taken,
            into,
        }
    }

    /// Forgets names that are gone. Returns how many names were looked at.
    fn renew(
        &mut self,
        journal: &Journal<'_, '_>,
        roll: &Roll,
        filled: &mut Filled<'_>,
    ) -> Result<u64, HookError> {
        let changed = match journal.read() {
            Some(changes) => {
                let paths = changes.paths.iter().map(Vec::as_slice);
                self.bracket.list_changed(paths)?
            }
            None => None,
        };
        let paths = match changed {
            Some(changed) => changed.paths,
            // Nobody knows which, so all are looked at.
            None => roll.paths(),
        };
        let data: &Path = &self.bracket.cluster().data_directory;
        let mut new = self
            .taken
            .renew_names(roll, &paths, (data, &mut *self.into))?;
        if filled.amend(&new).is_err() {
            new.extend(&self.taken.tracked);
            filled.refill(&new)?;
        }
        Ok(paths.len() as u64)
    }
}

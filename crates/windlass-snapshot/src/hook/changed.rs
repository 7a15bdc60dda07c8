//! The map of changes of a server that writes through the hook: what a backup must read that builds
//! on an earlier one.
//!
//!   backup    begin a generation --> its number goes into the set
//!   next one  the generation of its base --> the blocks that were written since
//!
//! windlass-layout has the map (`hook/changed`), docs/decisions/0025-map-of-changes.md the reasons.
//!
//! Invariants
//! - A generation is begun only while every process of the server writes through the hook, and
//!   nobody is inside a call of an older generation when `begin` returns.
//! - What cannot be known counts as changed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_image::layout::hook::{
    MapMark, MapShape, begin_map, end_map, forget_map, grace, has_other_clock, is_blind,
    is_changed, is_of_map, map_extent, next_generation,
};
use windlass_postgres::{ChangeMark, ChangeWitness};

use super::control::{Control, Patience, key_of};
use super::error::HookError;
use super::locked::{Extent, Locked};
use super::remove::waited;

/// A part of a file is a page of most servers, or that of a large database.
const UNIT_LOG2_SMALL: u32 = 13;
const UNIT_LOG2_LARGE: u32 = 16;
/// 16 KiB and 64 MiB of memory.
const CELLS_LOG2_MIN: u32 = 12;
const CELLS_LOG2_MAX: u32 = 24;

/// The map of changes of a server.
#[derive(Debug)]
pub struct ChangeMap {
    control: Control,
    /// Whether the numbers of files on a device mean anything.
    devices: Mutex<HashMap<u64, bool>>,
}

impl ChangeMap {
    /// The map of the server on a data directory; `None` if it does not write through the hook.
    pub fn of(data: &Path) -> Result<Option<Self>, HookError> {
        let control = match Control::open(data) {
            Err(HookError::NotLoaded { .. } | HookError::Version { .. }) => return Ok(None),
            control => control?,
        };
        Ok(control.serves().then(|| Self {
            control,
            devices: Mutex::default(),
        }))
    }

    /// Whether a mark is one of the map that there is.
    fn is_its_own(&self, mark: &ChangeMark) -> bool {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let known = number(&mark.epoch).zip(number(&mark.identity));
        known.is_some_and(|(epoch, identity)| {
            let generation = mark.generation;
            let mark = MapMark {
                epoch,
                generation,
                identity,
            };
            is_of_map(self.control.memory(), &mark)
        })
    }

    fn not_loaded(&self) -> HookError {
        HookError::NotLoaded {
            data: self.control.data().into(),
        }
    }

    /// Begins a generation, or takes what `make` says if there is no map.
    fn begun(
        &self,
        make: impl FnOnce(&Locked<'_>) -> Result<Option<MapMark>, HookError>,
    ) -> Result<Option<MapMark>, HookError> {
        let control = &self.control;
        control.check_server()?;
        let memory = control.memory();
        if memory.foreign() != 0 || !control.serves() {
            return Err(self.not_loaded());
        }
        let locked = control.lock()?;
        let begun = match next_generation(memory, random()) {
            Some(mark) => Some(mark),
            None => make(&locked)?,
        };
        if begun.is_none() {
            return Ok(None);
        }
        waited(grace(memory, &mut Patience::default()))?;
        match is_blind(memory) {
            // A module was loaded meanwhile.
            true => {
                end_map(memory);
                control.check_server()?;
                Err(self.not_loaded())
            }
            false => Ok(begun),
        }
    }

    /// Whether two files of this device never have one number, and a file never has two.
    fn has_numbers(&self, path: &Path, device: u64) -> bool {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        *devices.entry(device).or_insert_with(|| {
            let found = rustix::fs::statfs(path);
            #[allow(clippy::useless_conversion, reason = "the type differs by platform")]
            found.is_ok_and(|found| !has_other_clock(i64::from(found.f_type)))
        })
    }
}

/// Makes the map. That of an earlier server gives way.
fn made(locked: &Locked<'_>, shape: MapShape) -> Result<Option<MapMark>, HookError> {
    let memory = locked.memory();
    end_map(memory);
    waited(grace(memory, &mut Patience::default()))?;
    if let Some((at, words)) = map_extent(memory) {
        locked.free(Extent { at, words })?;
        forget_map(memory);
    }
    let extent = locked.allocate(shape.words(), &[])?;
    Ok(begin_map(memory, extent.at, shape, (random(), random())))
}

/// A number that nobody has had. A machine that is set back may repeat the system's random numbers,
/// but not the time.
fn random() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *uuid::Uuid::new_v4().as_bytes();
    let random = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos().to_le_bytes();
    let [a, b, c, d, e, f, g, h, ..] = nanos;
    random ^ u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Twice as many cells as the database has parts, so that few share one.
fn shape_for(bytes: u64) -> MapShape {
    let cells_log2 = |unit_log2: u32| {
        let cells = (bytes >> unit_log2).max(1).saturating_mul(2);
        cells.next_power_of_two().ilog2().max(CELLS_LOG2_MIN)
    };
    let unit_log2 = match cells_log2(UNIT_LOG2_SMALL) <= CELLS_LOG2_MAX {
        true => UNIT_LOG2_SMALL,
        false => UNIT_LOG2_LARGE,
    };
    MapShape {
        cells_log2: cells_log2(unit_log2).min(CELLS_LOG2_MAX),
        unit_log2,
    }
}

fn change_mark(begun: MapMark) -> ChangeMark {
    let shown = |number: u64| format!("{number:016x}");
    ChangeMark {
        epoch: shown(begun.epoch),
        generation: begun.generation,
        identity: shown(begun.identity),
    }
}

impl ChangeWitness for ChangeMap {
    fn go_on(&self) -> Result<Option<ChangeMark>, String> {
        let begun = self.begun(|_| Ok(None));
        let begun = begun.map_err(|error| error.to_string())?;
        Ok(begun.map(change_mark))
    }

    fn begin(&self, bytes: u64) -> Result<ChangeMark, String> {
        let begun = self.begun(|locked| made(locked, shape_for(bytes)));
        let begun = begun.and_then(|begun| begun.ok_or_else(|| self.not_loaded()));
        begun.map(change_mark).map_err(|error| error.to_string())
    }

    fn has_seen(&self, mark: &ChangeMark) -> bool {
        self.is_its_own(mark) && self.control.memory().foreign() == 0 && self.control.serves()
    }

    fn changed(
        &self,
        mark: &ChangeMark,
        (path, found): (&Path, &Metadata),
        (blocks, block_bytes): (u64, u64),
    ) -> Vec<u64> {
        if !self.has_numbers(path, found.dev()) {
            return (0..blocks).collect();
        }
        let (memory, key) = (self.control.memory(), key_of(found));
        let is_new = |block: &u64| {
            let bytes = (block * block_bytes, (block + 1) * block_bytes);
            is_changed(memory, mark.generation, key, bytes)
        };
        let changed = (0..blocks).filter(is_new).collect();
        // The words of a map that has ended may be free, or those of another one.
        match self.is_its_own(mark) {
            true => changed,
            false => (0..blocks).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_bounded_size() {
        const GIB: u64 = 1 << 30;
        for (bytes, cells_log2, unit_log2) in [
            (0, 12, 13),
            (GIB, 18, 13),
            (64 * GIB, 24, 13),
            (65 * GIB, 22, 16),
            (u64::MAX, 24, 16),
        ] {
            let shape = MapShape {
                cells_log2,
                unit_log2,
            };
            assert_eq!(shape_for(bytes), shape, "{bytes}");
        }
    }
}

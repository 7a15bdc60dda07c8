//! A file named `*.partial`: whose it is, whether a run still writes it, whether it is sealed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_media::{SEAL_BYTES, Seal, SetId, StripeHeader, Structure};

use crate::bounded::open_regular;
use crate::device::{holds_nothing, is_stripe};
use crate::durable::{self, Locked};
use crate::error::EngineError;
use crate::set::places::where_it_may_be;
use crate::set::{Ends, parity_header, sealed};
use crate::storage::Files;
use crate::stripe_name::{PARTIAL_SUFFIX, is_partial, partial_path, set_part};

/// What a file is that is named like a left-over stripe.
pub(super) enum Look {
    /// A file of somebody else, or of a run that is still alive.
    Passed,
    /// By its name it is ours, and nothing was written to it. It is locked.
    Nothing(Locked<File>),
    /// A stripe of ours, but nobody can tell whether it is sealed.
    Unknown(String),
    Stripe(Box<Leftover>),
}

/// A stripe that a run left under its temporary name.
pub(super) struct Leftover {
    pub(super) path: PathBuf,
    pub(super) sealed: bool,
    header: StripeHeader,
    /// Its lock keeps other runs and other clean-ups away from the file.
    file: Locked<File>,
}

/// Another stripe of the set that a left-over stripe belongs to.
pub(super) enum Sibling {
    /// It has its name, so its set was sealed.
    Named(PathBuf),
    Leftover(Box<Leftover>),
    /// Its run is still alive.
    InUse,
    Unknown(String),
    Absent,
}

impl Leftover {
    /// The name that its run would have given to it.
    pub(super) fn name(&self) -> PathBuf {
        let name = self.path.as_os_str().as_bytes();
        let end = name.len().saturating_sub(PARTIAL_SUFFIX.len());
        OsStr::from_bytes(&name[..end]).into()
    }

    /// The set, and where its parity was written.
    pub(super) fn parities(&self) -> (SetId, &[Vec<u8>]) {
        (self.header.set_id, &self.header.parities)
    }

    /// Whether its set has parity.
    pub(super) fn has_parity(&self) -> bool {
        !self.header.parities.is_empty()
    }

    /// Whether the same stripe of a set with parity has its name and is complete. Then a repair
    /// began this one.
    pub(super) fn is_there_complete(&self, limit: u64) -> bool {
        let name = self.name();
        let own = (self.header.set_id, self.header.stripe);
        let is_own = |(header, _): (StripeHeader, _)| (header.set_id, header.stripe) == own;
        self.has_parity()
            && read_header(&name).is_ok_and(is_own)
            && sealed(&Files, &name, limit).is_ok()
    }

    /// The open file, which is locked.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// True when the file with that name is a stripe of a set that was begun earlier.
    pub(super) fn is_newer_than(&self, name: &Path) -> bool {
        begun(name).is_some_and(|other| other < self.header.created_nanos)
    }
}

/// When the set of a stripe, or of a file with parity, was begun.
pub(super) fn begun(path: &Path) -> Option<i64> {
    match read_header(path) {
        Ok((header, _)) => Some(header.created_nanos),
        Err(_) => Some(parity_header(&Files, path).ok()?.0.created_nanos),
    }
}

fn read_header(path: &Path) -> Result<(StripeHeader, Vec<u8>), EngineError> {
    Ends::open(&Files, path)?.header()
}

/// Looks at a file named `*.partial`, and locks it if it is ours.
pub(super) fn look(path: &Path) -> Look {
    match path.metadata() {
        Ok(found) if found.is_file() => {}
        // A pipe, a device or a directory is not a stripe.
        Ok(_) => return Look::Passed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Passed,
        Err(error) => return Look::Unknown(format!("it cannot be looked at: {error}")),
    }
    let file = match open_regular(path) {
        Ok(file) => file,
        // Its run has given it its name meanwhile, or another clean-up has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Passed,
        Err(error) => return Look::Unknown(format!("it cannot be opened: {error}")),
    };
    match is_stripe(path) {
        Ok(true) => {}
        Ok(false) if !has_our_name(path) => return Look::Passed,
        Ok(false) => return nothing(path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Passed,
        Err(error) => return Look::Unknown(format!("it cannot be read: {error}")),
    }
    let Some(file) = locked(file, path) else {
        return Look::Passed;
    };
    let header = match read_header(path) {
        Ok((header, _)) => header,
        Err(error) => return Look::Unknown(error.to_string()),
    };
    if !is_its_partial(&header, path) {
        return Look::Passed;
    }
    match is_sealed(&file, &header) {
        Ok(sealed) => Look::Stripe(Box::new(Leftover {
            path: path.to_owned(),
            sealed,
            header,
            file,
        })),
        Err(why) => Look::Unknown(why),
    }
}

/// Judges a file that has the name of a stripe, but no header. If it holds nothing at all, it comes
/// from a run that was killed before it wrote the header.
fn nothing(path: &Path, file: File) -> Look {
    match locked(file, path) {
        Some(file) if holds_nothing(path).unwrap_or(false) => Look::Nothing(file),
        _ => Look::Passed,
    }
}

/// Locks a file. `None` if a run writes it, or if another clean-up removed it: its name may be that
/// of a new file then.
fn locked(file: File, path: &Path) -> Option<Locked<File>> {
    let file = Locked::take(file).ok()?;
    let is_own = durable::is_file_at(&file, path).unwrap_or(false);
    is_own.then_some(file)
}

/// True for `shop-20261121T081500Z-1f0c9a2e.2of4.windlass.partial`, whatever comes before the id.
fn has_our_name(path: &Path) -> bool {
    is_partial(path) && set_part(path).is_some()
}

/// True when the file has the temporary form of the name that the stripe was to have. If a user
/// named a set `x.partial`, it is no left-over of `x`.
fn is_its_partial(header: &StripeHeader, path: &Path) -> bool {
    let location = header.locations.get(usize::from(header.stripe.0));
    let name = location.map(|it| Path::new(OsStr::from_bytes(it)));
    let name = name
        .and_then(Path::file_name)
        .map(|it| partial_path(it.as_ref()));
    name.is_some_and(|name| path.file_name() == Some(name.as_os_str()))
}

/// Whether a stripe with this header ends in a seal. An error says why nobody can tell.
pub(super) fn is_sealed(file: &File, header: &StripeHeader) -> Result<bool, String> {
    let unreadable = |error: io::Error| format!("its end cannot be read: {error}");
    let length = file.metadata().map_err(unreadable)?.len();
    let Some(offset) = length.checked_sub(SEAL_BYTES as u64) else {
        return Ok(false);
    };
    let mut record = [0; SEAL_BYTES];
    file.read_exact_at(&mut record, offset)
        .map_err(unreadable)?;
    match Structure::begun_by(&record) {
        Some(Structure::Seal) => {}
        // The set's id stands where a seal has it, so these bytes were a seal.
        None if record[Seal::SET_ID] == header.set_id.0 => {
            return Err("its seal is damaged".to_owned());
        }
        // It was cut off. Headers and footers have the id at the same place, and it may end in one.
        _ => return Ok(false),
    }
    let seal = Seal::decode(&record, length).map_err(|error| error.to_string())?;
    let own = (seal.set_id, seal.stripe) == (header.set_id, header.stripe);
    own.then_some(true)
        .ok_or_else(|| "its seal is of another stripe".to_owned())
}

/// The other stripes of the set. It looks where the header says they were written, and beside this
/// stripe.
pub(super) fn siblings(stripe: &Leftover) -> Vec<Sibling> {
    let locations = (0..).zip(&stripe.header.locations);
    let others = locations.filter(|(index, _)| *index != stripe.header.stripe.0);
    let beside = [stripe.path.clone()];
    let sibling = |(index, location): (u16, &Vec<u8>)| {
        let mut places = where_it_may_be(&beside, location);
        let partials: Vec<_> = places.iter().map(|place| partial_path(place)).collect();
        places.extend(partials);
        // Looks at each file once: a second look would meet the lock of the first.
        let mut seen = Vec::new();
        places.retain(|place| match place.metadata() {
            Ok(found) => {
                let identity = (found.dev(), found.ino());
                let is_new = !seen.contains(&identity);
                seen.push(identity);
                is_new
            }
            Err(_) => true,
        });
        let found = places.iter().filter_map(|place| one(stripe, index, place));
        // A stripe with its own name tells most. One that cannot be judged tells least.
        found.min_by_key(rank).unwrap_or(Sibling::Absent)
    };
    others.map(sibling).collect()
}

fn rank(sibling: &Sibling) -> u8 {
    match sibling {
        Sibling::Named(_) => 0,
        Sibling::InUse => 1,
        Sibling::Leftover(_) => 2,
        Sibling::Unknown(_) => 3,
        Sibling::Absent => 4,
    }
}

/// The stripe with this index, if it is at this place.
fn one(stripe: &Leftover, index: u16, place: &Path) -> Option<Sibling> {
    let is_own =
        |header: &StripeHeader| (header.set_id, header.stripe.0) == (stripe.header.set_id, index);
    let header = match read_header(place) {
        Ok((header, _)) => header,
        Err(EngineError::NoSet { .. }) => return None,
        Err(error) if is_partial(place) => return Some(Sibling::Unknown(error.to_string())),
        // It is a stripe of an older set, or a file of somebody else. It says nothing about this
        // set.
        Err(_) => return None,
    };
    if !is_own(&header) {
        return None;
    }
    if !is_partial(place) || !is_its_partial(&header, place) {
        return Some(Sibling::Named(place.to_owned()));
    }
    Some(match look(place) {
        Look::Stripe(other) if is_own(&other.header) => Sibling::Leftover(other),
        Look::Unknown(why) => Sibling::Unknown(why),
        _ => Sibling::InUse,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_runs_give_are_ours() {
        for name in [
            "shop-20261121T081500Z-1f0c9a2e.2of4.windlass.partial",
            "-1f0c9a2e.1of1.windlass.partial",
        ] {
            assert!(has_our_name(name.as_ref()), "{name}");
        }
        for name in [
            "download.partial",
            "shop.windlass.partial",
            "shop-1f0c9a2e.1of.windlass.partial",
            "shop-20261121T081500Z-1f0c9a2e.2of4.windlass",
        ] {
            assert!(!has_our_name(name.as_ref()), "{name}");
        }
    }
}

//! A check of an encrypted set without its key: of everything that is not encrypted.
//!
//! It finds missing stripes, stripes that were cut off or never sealed, and damaged headers, seals
//! and footers. It says nothing about frames and index blocks: only the key does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use windlass_media::{Lock, SetId, StripeHeader, StripeIndex};

use super::findings::explain;
use super::report::{Damage, DamageReport, DamagedPart};
use crate::error::{EngineError, damage};
use crate::set::{Ends, check_same_stripe, identity_of_stripe, mended, places};
use crate::storage::Storage;
use crate::stripe_name::is_partial;

/// Where the stripes of a set are, by their indexes.
type Stripes = BTreeMap<u16, PathBuf>;

/// What can be said of an encrypted set without its key.
#[derive(Debug)]
pub struct LockedSet {
    /// The set.
    pub set_id: SetId,
    /// Its envelopes, as its header has them.
    pub lock: Lock,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// Its stripes that were found, in order.
    pub stripes: Vec<PathBuf>,
    /// Its files with parity that were found.
    pub parities: Vec<PathBuf>,
    /// Where its devices were written that were not found.
    pub absent: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong.
    pub damage: DamageReport,
}

/// Checks what is not encrypted of the set that `places` lead to. None if that is no encrypted set.
pub fn check_locked(
    storage: &dyn Storage,
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<Option<LockedSet>, EngineError> {
    let Some((header, paths)) = gather(storage, places)? else {
        return Ok(None);
    };
    let Some(lock) = header.lock.clone() else {
        return Ok(None);
    };
    let mut found = LockedSet {
        set_id: header.set_id,
        lock,
        begun_nanos: header.created_nanos,
        stripes: paths.values().cloned().collect(),
        parities: Vec::new(),
        absent: Vec::new(),
        bytes: 0,
        damage: DamageReport::default(),
    };
    let mut root = None;
    for index in 0..header.stripe_count() {
        let Some(path) = paths.get(&index) else {
            let location = header.locations.get(usize::from(index));
            let location = location.map_or(&[][..], Vec::as_slice);
            let name = String::from_utf8_lossy(location).into_owned();
            found.absent.push(written_to(location));
            found.list(
                (index, &name),
                DamagedPart::Stripe,
                (0, "is missing".to_owned()),
            );
            continue;
        };
        match check_stripe(storage, path, metadata_limit) {
            Ok((bytes, own)) => {
                found.bytes += bytes;
                if *root.get_or_insert(own) != own {
                    let fault = "it is not of the same set as the other stripes".to_owned();
                    let name = path.to_string_lossy().into_owned();
                    found.list((index, &name), DamagedPart::Seal, (0, fault));
                }
            }
            Err((part, error)) => {
                let name = path.to_string_lossy().into_owned();
                found.list((index, &name), part, explain(&error));
            }
        }
    }
    found.find_parities(storage, places, &header);
    Ok(Some(found))
}

/// Does the same for a set of which nothing but parity is left. Its stripes are rebuilt to be
/// looked at, and count as absent. None if a stripe is there, or if parity does not make up for all
/// of them.
pub fn check_locked_parity(
    storage: &dyn Storage,
    places: &[PathBuf],
    metadata_limit: u64,
) -> Result<Option<LockedSet>, EngineError> {
    if gather(storage, places)?.is_some() {
        return Ok(None);
    }
    let mended = match mended(storage, places, metadata_limit) {
        Ok(Some(mended)) => mended,
        Ok(None) | Err(EngineError::BeyondParity { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let devices = [mended.stripes.as_slice(), places].concat();
    let mut found = check_locked(&mended.storage, &devices, metadata_limit)?;
    if let Some(set) = &mut found {
        let mut absent = std::mem::take(&mut set.stripes);
        absent.append(&mut set.absent);
        set.absent = absent;
    }
    Ok(found)
}

impl LockedSet {
    /// Its stripes and its files with parity that were found.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.stripes.iter().chain(&self.parities).cloned().collect()
    }

    /// Finds its files with parity: those that were named, beside its stripes, or where they were
    /// written.
    fn find_parities(&mut self, storage: &dyn Storage, places: &[PathBuf], header: &StripeHeader) {
        let beside: Vec<_> = places.iter().chain(&self.stripes).cloned().collect();
        for (index, location) in (header.stripe_count()..).zip(&header.parities) {
            let is_own = |path: &PathBuf| {
                let identity = identity_of_stripe(storage, path);
                identity == Some((self.set_id, StripeIndex(index)))
            };
            let may_be = places::where_it_may_be(&beside, location);
            let own = places.iter().cloned().chain(may_be).find(is_own);
            match own {
                Some(path) => self.parities.push(path),
                None => self.absent.push(written_to(location)),
            }
        }
    }

    fn list(&mut self, (index, name): (u16, &str), part: DamagedPart, fault: (u64, String)) {
        let number = StripeIndex(index).number();
        let one = Damage::new(number, name, part, (fault.0, 0), fault.1);
        self.damage.damage.push(one);
        self.damage.damage_count += 1;
    }
}

fn written_to(location: &[u8]) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(location))
}

/// The first header that is right, and the stripes of its set.
fn gather(
    storage: &dyn Storage,
    places: &[PathBuf],
) -> Result<Option<(StripeHeader, Stripes)>, EngineError> {
    let mut first: Option<StripeHeader> = None;
    let mut paths = Stripes::new();
    let header_of = |path: &Path| Some(Ends::open(storage, path).ok()?.header().ok()?.0);
    for path in places::expand(storage, places)? {
        if is_partial(&path) && !places.contains(&path) {
            continue;
        }
        let Some(header) = header_of(&path) else {
            continue;
        };
        if first.get_or_insert_with(|| header.clone()).set_id == header.set_id {
            paths.entry(header.stripe.0).or_insert(path);
        }
    }
    let Some(first) = first else { return Ok(None) };
    let beside: Vec<_> = paths.values().cloned().collect();
    for (index, location) in (0..).zip(&first.locations) {
        let own = |path: &PathBuf| {
            header_of(path).is_some_and(|it| (it.set_id, it.stripe.0) == (first.set_id, index))
        };
        if let Entry::Vacant(place) = paths.entry(index) {
            let may_be = places::where_it_may_be(&beside, location);
            let sibling = may_be.into_iter().find(own);
            sibling.map(|path| place.insert(path));
        }
    }
    Ok(Some((first, paths)))
}

/// The length of a stripe and the root in its seal, if all that can be seen of it is right.
fn check_stripe(
    storage: &dyn Storage,
    path: &Path,
    limit: u64,
) -> Result<(u64, [u8; 32]), (DamagedPart, EngineError)> {
    let of = |part| move |error| (part, error);
    let ends = Ends::open(storage, path).map_err(of(DamagedPart::Stripe))?;
    let (header, _) = ends.header().map_err(of(DamagedPart::Header))?;
    let seal = ends.seal().map_err(of(DamagedPart::Seal))?;
    check_same_stripe(&header, &seal)
        .map_err(|fault| (DamagedPart::Seal, damage(path, ends.bytes, fault)))?;
    let footer = ends.footer_bytes(&seal, limit);
    footer.map_err(of(DamagedPart::Footer))?;
    Ok((ends.bytes, seal.set_root))
}

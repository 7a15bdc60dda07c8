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
use crate::set::{Ends, check_same_stripe, places};
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
        bytes: 0,
        damage: DamageReport::default(),
    };
    let mut root = None;
    for index in 0..header.stripe_count() {
        let Some(path) = paths.get(&index) else {
            let location = header.locations.get(usize::from(index));
            let location = location.map(|name| String::from_utf8_lossy(name).into_owned());
            let name = location.unwrap_or_default();
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
    Ok(Some(found))
}

impl LockedSet {
    fn list(&mut self, (index, name): (u16, &str), part: DamagedPart, fault: (u64, String)) {
        let number = StripeIndex(index).number();
        let one = Damage::new(number, name, part, (fault.0, 0), fault.1);
        self.damage.damage.push(one);
        self.damage.damage_count += 1;
    }
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

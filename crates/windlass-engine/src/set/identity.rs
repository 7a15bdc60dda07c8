//! Which device of which set a file is, as far as it says so itself.

use std::path::Path;

use windlass_media::{ParityEnd, SEAL_BYTES, SetId, StripeIndex};

use super::ends::Ends;
use super::parity::file::header_of;
use crate::storage::Storage;

/// The set and the number of a stripe. The header says it, or the seal if the header is damaged.
/// Files with parity have the numbers behind those of the stripes.
pub(crate) fn identity_of_stripe(
    storage: &dyn Storage,
    location: &Path,
) -> Option<(SetId, StripeIndex)> {
    let ends = Ends::open(storage, location).ok()?;
    if let Ok((header, _)) = ends.header() {
        return Some((header.set_id, header.stripe));
    }
    if let Ok(seal) = ends.seal() {
        return Some((seal.set_id, seal.stripe));
    }
    let (header, _) = header_of(&ends).ok()?;
    let number = header.stripe_count() + header.parity;
    Some((header.set_id, StripeIndex(number)))
}

/// The set of a stripe or of a file with parity. Its beginning says it, or its end.
pub(crate) fn set_of_device(storage: &dyn Storage, location: &Path) -> Option<SetId> {
    if let Some((set, _)) = identity_of_stripe(storage, location) {
        return Some(set);
    }
    let ends = Ends::open(storage, location).ok()?;
    let offset = ends.bytes.checked_sub(SEAL_BYTES as u64)?;
    let mut record = [0; SEAL_BYTES];
    ends.device.read_exact_at(offset, &mut record).ok()?;
    ParityEnd::set_of(&record).ok()
}

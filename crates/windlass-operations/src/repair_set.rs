//! The repair of a set with parity: lost and damaged devices are written anew.

use std::path::Path;

use windlass_engine::{Cancel, METADATA_LIMIT_DEFAULT, RepairedSet, repair_set as repair_devices};

use crate::caller::Caller;
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::{self, SetRequest};
use crate::stored::no_bucket;
use crate::{owners, privilege};

/// Writes every device of a set anew that is missing or damaged. A device without damage is only
/// read.
pub fn repair_set(
    caller: &Caller,
    request: &SetRequest,
    cancel: &Cancel,
) -> Result<RepairedSet, OperationError> {
    let found = places::find(caller, request)?;
    for place in found.stripes.iter().chain(&found.places) {
        no_bucket(place, "sets with parity are in files only")?;
    }
    // The new devices belong to whom the others belong.
    let mut owners = found.stripes.iter().filter_map(|it| owners::owner(it));
    if let Some((uid, gid)) = owners.next() {
        privilege::become_user(caller.process, uid, gid)?;
    }
    let mut tell = |path: &Path, fault: &str| caller.tell(&Notice::WritesAnew { path, fault });
    let repaired = repair_devices(
        STORAGE,
        (&found.stripes, &found.places),
        (METADATA_LIMIT_DEFAULT, cancel),
        &mut tell,
    );
    Ok(repaired?)
}

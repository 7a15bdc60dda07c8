//! How many buffers a run may have, and how many of them devices keep while they gather them to
//! larger writes.

use windlass_media::saturated;

use crate::error::EngineError;
use crate::setting::{Setting, SettingFault};

/// Most buffers that a user can ask for.
pub(super) const BUFFERS_MAX: usize = 1 << 20;
/// Buffers that a run needs besides those that devices gather.
const BESIDE_GATHERED: usize = 4;

/// Refuses a number of buffers that no run can have.
pub(super) fn check(asked: usize) -> Result<(), EngineError> {
    let most = BUFFERS_MAX;
    let fault = match asked {
        0 | 1 => SettingFault::BuffersFew { asked },
        _ if asked > most => SettingFault::TooMany { asked, most },
        _ => return Ok(()),
    };
    Err(Setting::Buffers.refused(fault))
}

/// How many buffers devices gather. A quarter of each may be empty: then they copy.
pub(super) fn gathered(bytes: u64, transfer_bytes: usize) -> Result<usize, EngineError> {
    let filled = transfer_bytes as u64 / 4 * 3;
    let count: usize = saturated(bytes.div_ceil(filled));
    check(count.max(2)).map(|()| count)
}

/// The buffers that are left besides those. Refuses too few: the run would wait for a write that
/// never begins.
pub(super) fn beside(buffers: usize, gathered: usize) -> Result<usize, EngineError> {
    let rest = buffers.saturating_sub(gathered);
    if gathered > 0 && rest < BESIDE_GATHERED {
        let least = gathered + BESIDE_GATHERED;
        let asked = buffers;
        return Err(Setting::Buffers.refused(SettingFault::BuffersGathered { asked, least }));
    }
    Ok(rest)
}

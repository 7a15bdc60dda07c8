//! How many buffers a run may have, and how many of them devices keep while they gather them to
//! larger writes.

use windlass_media::saturated;

use crate::error::EngineError;
use crate::setting::{Setting, SettingFault};

/// Most buffers that a user can ask for.
pub(super) const BUFFERS_MAX: usize = 1 << 20;
/// Buffers that a run needs besides those that devices gather.
const BESIDE_GATHERED: usize = 4;

/// How many threads write to a target, at most and at least.
const TARGET_WRITERS: usize = 8;
const TARGET_WRITERS_MIN: usize = 4;

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

/// How many buffers devices gather. A quarter of each may be empty: others they fill.
pub(super) fn gathered(bytes: u64, transfer_bytes: usize) -> Result<usize, EngineError> {
    let filled = transfer_bytes as u64 / 4 * 3;
    let count: usize = saturated(bytes.div_ceil(filled));
    check(count.max(2)).map(|()| count)
}

/// How many buffers a restore has for the threads that write: one each, if there is memory for
/// them.
pub(super) fn behind(others: usize, limit_bytes: u64, transfer_bytes: usize) -> usize {
    let room: usize = saturated(limit_bytes / (transfer_bytes as u64).max(1));
    room.saturating_sub(others).min(TARGET_WRITERS)
}

/// How many threads hand bytes to a target, in a run that has at most so many buffers. If the
/// target keeps them, the threads mostly wait for it, and several keep its queue filled; half of
/// the buffers are never theirs. A verification keeps nothing, and needs one thread to take notes.
pub fn target_writers(keeps: bool, buffers_max: usize) -> usize {
    match keeps {
        true => (buffers_max / 2).clamp(TARGET_WRITERS_MIN, TARGET_WRITERS),
        false => 1,
    }
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

#[cfg(test)]
mod tests {
    use crate::options::BufferRequest;

    #[test]
    fn a_restore_has_buffers_for_its_writers_unless_somebody_chose_or_memory_is_short() {
        let plan = |buffers, memory_limit| {
            let request = BufferRequest {
                buffers,
                compressors: Some(2),
                memory_limit,
                restores: true,
                ..Default::default()
            };
            request.plan(1, 1).unwrap()
        };
        let plan = |buffers, memory_limit| {
            let plan = plan(buffers, memory_limit);
            (plan.buffers, plan.buffers_max(0))
        };
        assert_eq!(plan(None, None), (15, 50));
        assert_eq!(plan(Some(7), None), (7, 7));
        assert_eq!(plan(None, Some(10 << 20)), (10, 10));
        assert_eq!(plan(None, Some(7 << 20)), (7, 7));
    }

    #[test]
    fn buffers_for_larger_frames_may_be_fewer() {
        let request = BufferRequest {
            compressors: Some(2),
            memory_limit: Some(20 << 20),
            restores: true,
            ..Default::default()
        };
        let mut plan = request.plan(1, 1).unwrap();
        plan.grow(2 << 20, 1 << 20).unwrap();
        assert_eq!((plan.buffers, plan.buffer_bytes), (10, 20 << 20));
        assert!(plan.grow(4 << 20, 1 << 20).is_err());
    }

    #[test]
    fn a_run_has_more_buffers_only_if_nobody_chose_their_number_and_within_the_limit() {
        let most = |buffers, memory_limit, beside| {
            let request = BufferRequest {
                buffers,
                memory_limit,
                ..Default::default()
            };
            request.plan(1, 1).unwrap().buffers_max(beside)
        };
        assert_eq!(most(None, None, 0), 42);
        assert_eq!(most(Some(7), None, 0), 7);
        assert_eq!(most(None, Some(20 << 20), 0), 20);
        assert_eq!(most(None, Some(20 << 20), 8 << 20), 12);
        assert_eq!(most(None, Some(7 << 20), 8 << 20), 7);
    }
}

//! Which knobs can help, by what binds a run; the most likely first.

use super::space::Step;

/// The steps to try, given the stage that the verdict named.
pub(super) fn moves(limit: &str) -> &'static [Step] {
    match limit {
        "compressor" | "reader" => &[
            Step::Weaker,
            Step::MoreBuffers,
            Step::SmallerTransfers,
            Step::LargerTransfers,
            Step::FewerReaders,
        ],
        "device" | "device_rate_limit" => &[
            Step::Stronger,
            Step::MoreBuffers,
            Step::SmallerTransfers,
            Step::LargerTransfers,
            Step::Weaker,
        ],
        "source" => &[
            Step::MoreBuffers,
            Step::LargerTransfers,
            Step::MoreReaders,
            Step::FewerReaders,
            Step::Weaker,
            Step::SmallerTransfers,
        ],
        // Too few buffers, or nothing in particular.
        _ => &[
            Step::MoreBuffers,
            Step::LargerTransfers,
            Step::Stronger,
            Step::Weaker,
            Step::MoreReaders,
            Step::SmallerTransfers,
        ],
    }
}

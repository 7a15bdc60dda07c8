//! Which knobs can help, depending on what binds a run. The most likely one comes first.

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
        // There are too few buffers, or nothing in particular binds.
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

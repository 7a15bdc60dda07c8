//! Which knobs can help, depending on what binds a run. The most likely one comes first.

use windlass_engine::Resource;

use super::space::Step;

/// The steps to try, given what the verdict named.
pub(super) fn moves(limit: Resource) -> &'static [Step] {
    match limit {
        Resource::Compressor | Resource::Reader => &[
            Step::Weaker,
            Step::MoreBuffers,
            Step::SmallerTransfers,
            Step::LargerTransfers,
            Step::FewerReaders,
        ],
        Resource::Device | Resource::DeviceRateLimit => &[
            Step::Stronger,
            Step::MoreBuffers,
            Step::SmallerTransfers,
            Step::LargerTransfers,
            Step::Weaker,
        ],
        Resource::Source => &[
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

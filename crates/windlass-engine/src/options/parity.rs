//! How much memory parity takes, besides the buffers of a run.

use super::{BackupOptions, BufferPlan, DEVICE_DEPTH};
use crate::error::EngineError;

/// How many groups of a set with parity are open at once: how far one stripe may be ahead of
/// another, in transfers, before groups are closed without a member of each.
pub(crate) const GROUPS_OPEN: usize = 4;
/// How many buffers each parity needs: those of open groups, those in flight, and one to begin
/// with.
pub(crate) const PARITY_BUFFERS: usize = GROUPS_OPEN + DEVICE_DEPTH + 1;

impl BufferPlan {
    /// How much memory so many parities need, besides the buffers: each has some of the same size.
    pub fn parity_bytes(&self, parities: u16) -> u64 {
        let buffers = u64::from(parities) * PARITY_BUFFERS as u64;
        buffers * self.transfer_bytes as u64
    }

    /// Whether there is memory for parity. It is an error if that, the buffers, and `beside` bytes
    /// for other things would exceed the limit.
    pub fn check_parity(&self, parities: u16, beside: u64) -> Result<(), EngineError> {
        let limit_bytes = self.limit_bytes;
        let needed_bytes = self.buffer_bytes.saturating_add(beside);
        let needed_bytes = needed_bytes.saturating_add(self.parity_bytes(parities));
        if parities == 0 || needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(EngineError::ParityMemory {
            needed_bytes,
            limit_bytes,
        })
    }
}

impl BackupOptions {
    /// How much memory the parity needs, besides the buffers.
    pub fn parity_bytes(&self) -> u64 {
        self.plan.parity_bytes(self.parities)
    }
}

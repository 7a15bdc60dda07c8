//! The writer of one parity: lays the sums of closed groups on its device, and keeps the file's
//! blocks.

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use windlass_media::{ParityEnd, ParityHeader, crc32c};

use super::Closed;
use crate::backup::output::Output;
use crate::device::Device;
use crate::error::EngineError;
use crate::parity_file::ParityLayout;
use crate::progress::Progress;
use crate::rate::RateLimit;
use crate::shared::{LOOK, Shared};
use crate::waits::Cause;

/// A file with parity that is being written.
pub(crate) struct ParityWriter {
    pub(crate) output: Output,
    layout: ParityLayout,
}

impl ParityWriter {
    /// Begins a file on a device, and writes its header.
    pub(crate) fn begin(
        device: Box<dyn Device>,
        header: ParityHeader,
    ) -> Result<Self, EngineError> {
        let (layout, encoded) = ParityLayout::begin(header)?;
        let mut output = Output::new(device);
        output.device.write(0, &encoded)?;
        output.offset = encoded.len() as u64;
        Ok(Self { output, layout })
    }

    /// Its number among the devices of the run.
    pub(crate) fn place(&self) -> usize {
        let header = self.layout.header();
        header.stripes.len() + usize::from(header.parity)
    }

    /// Writes groups until there are no more.
    pub(crate) fn run(
        &mut self,
        groups: &Receiver<Closed>,
        shared: &Shared,
        rate: Option<&RateLimit>,
    ) -> Result<(), EngineError> {
        Progress::serve(self.place());
        loop {
            shared.check()?;
            let group = match groups.try_recv() {
                Ok(group) => group,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if self.output.device.in_flight() > 0 => {
                    self.output.reap(shared)?;
                    continue;
                }
                Err(TryRecvError::Empty) => {
                    let wait = |_: &mut Output| Ok(groups.recv_timeout(LOOK));
                    match self.output.timed(shared, Cause::Frames, wait)? {
                        Ok(group) => group,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
            };
            if let Some(rate) = rate {
                let bytes = group.buffer.len() as u64;
                rate.pass(bytes, &shared.progress.writer, &shared.cancel)?;
            }
            self.group(group, shared)?;
        }
        self.output.drain(shared)
    }

    fn group(&mut self, group: Closed, shared: &Shared) -> Result<(), EngineError> {
        let (bytes, crc) = (group.buffer.len(), crc32c(&group.buffer));
        self.layout.push((bytes, crc), &group.members);
        self.output.submit(group.buffer, shared)?;
        match self.layout.block_when_due()? {
            Some(block) => self.output.write(&block, shared).map(drop),
            None => Ok(()),
        }
    }

    /// Writes everything but the end. `stripe_bytes` is the length of each stripe.
    pub(crate) fn finish(
        &mut self,
        root: [u8; 32],
        shared: &Shared,
    ) -> Result<ParityEnd, EngineError> {
        Progress::serve(self.place());
        let (blocks, end) = self.layout.finish(root)?;
        for block in blocks {
            self.output.write(&block, shared)?;
        }
        Ok(end)
    }
}

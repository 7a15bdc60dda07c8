//! The threads that write a set's parity.

use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::BackupRun;
use super::parity::{Closed, Groups, Parity, ParityWriter};
use crate::error::EngineError;
use crate::resource::StageName;
use crate::shared::spawn;

impl BackupRun {
    /// Starts the writers of the set's parity.
    pub(super) fn spawn_parity(
        &mut self,
        groups: Arc<Groups>,
        files: impl Iterator<Item = (ParityWriter, Receiver<Closed>)>,
    ) -> Result<(), EngineError> {
        let writers = &mut self.parity.get_or_insert(Parity::new(groups)).writers;
        for (mut file, queue) in files {
            let (shared, rate) = (Arc::clone(&self.shared), self.device_limit.clone());
            let body = move || {
                crate::slice::shorten();
                let run = || file.run(&queue, &shared, rate.as_deref());
                let done = shared.progress.writer.thread(|| shared.guard(run));
                done.map(|()| file)
            };
            writers.push(spawn(StageName::Writer, body)?);
        }
        Ok(())
    }
}

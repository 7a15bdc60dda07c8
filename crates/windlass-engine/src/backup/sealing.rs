//! The commit: footers, then seals, then names, each durable on every stripe before the next.
//!
//! Invariants
//! - No seal is written before the footers of all stripes are durable.
//! - No stripe gets its name before the seals of all stripes are durable.

use windlass_media::{BackupType, Facts, FileTable, Seal, SetDescription, SupersededFiles, fitted};

use super::BackupRun;
use super::stripes;
use super::writer::StripeWriter;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::shared::panicked;
use crate::waits::Cause;

/// How much a backup read: the name of this number in its report, and among the options of its set.
pub(crate) const READ_BYTES: &str = "bytes_read";

impl BackupRun {
    /// Refuses a set that would lack bytes, because they were left out and no base has them.
    pub(super) fn check_base(&self, files: &FileTable, facts: &Facts) -> Result<(), EngineError> {
        let builds = matches!(facts.backup_type, BackupType::Diff | BackupType::Incr);
        if builds != self.base.is_some() && facts.backup_type != BackupType::Log {
            return Err(EngineError::WrongBase);
        }
        let has = |file| match &self.base {
            Some(base) => base.files.get(file).is_some(),
            None => false,
        };
        let entries = files.0.iter().map(|entry| entry.file);
        let mut without = entries.filter(|file| self.outcomes.has_dropped(*file));
        match without.find(|file| !has(*file)) {
            Some(file) => Err(EngineError::LeftOut { file }),
            None => Ok(()),
        }
    }

    pub(super) fn seal(
        &self,
        mut stripes: Vec<StripeWriter>,
        files: FileTable,
        mut facts: Facts,
    ) -> Result<Vec<StripeWriter>, EngineError> {
        if let Some(options) = facts.options.as_object_mut() {
            let read = self.shared.progress.reader.bytes();
            options.insert(READ_BYTES.to_owned(), read.into());
        }
        let description = SetDescription {
            stripes: stripes::describe(&stripes),
            files,
            superseded: SupersededFiles::new(self.superseded.clone()),
            base: self.base.clone(),
            facts,
        };
        let directories: Vec<_> = stripes
            .iter_mut()
            .map(|stripe| std::mem::take(&mut stripe.directory))
            .collect();
        let alignment = self.options.plan.alignment;
        let mut seals = Vec::with_capacity(stripes.len());
        let cipher = self.options.cipher().map(|cipher| &**cipher);
        description.footers_with(
            (self.set_id, cipher),
            alignment,
            &directories,
            |index, footer, root| {
                let stripe = &mut stripes[usize::from(index.0)];
                self.shared.cancel.check()?;
                let offset = stripe.offset;
                let bytes = footer.len() as u64;
                let write = |stripe: &mut StripeWriter| stripe.device.write(offset, &footer);
                stripe.timed(&self.shared, Cause::DeviceWrite, write)?;
                stripe.offset += bytes + u64::from(alignment);
                seals.push(Seal {
                    set_id: self.set_id,
                    stripe: index,
                    stripe_count: fitted(directories.len()),
                    footer_offset: offset,
                    footer_bytes: bytes,
                    footer_hash: *blake3::hash(&footer).as_bytes(),
                    set_root: root,
                    stripe_bytes: stripe.offset,
                    alignment,
                });
                Ok::<(), EngineError>(())
            },
        )?;
        drop(description);
        self.each(&mut stripes, &seals, |stripe, seal| {
            stripe.device.truncate(seal.stripe_bytes)?;
            stripe.device.sync()
        })?;
        self.shared.cancel.check()?;
        self.each(&mut stripes, &seals, |stripe, seal| {
            let offset = seal.stripe_bytes - u64::from(alignment);
            stripe.device.write(offset, &seal.encode())?;
            stripe.device.sync()
        })?;
        // All stripes are sealed, so the set exists from here on. Only its names are missing.
        self.each(&mut stripes, &seals, |stripe, _| stripe.device.publish())?;
        Ok(stripes)
    }

    /// Does one step on all devices at once. The time counts as a wait for the devices.
    fn each(
        &self,
        stripes: &mut [StripeWriter],
        seals: &[Seal],
        step: impl Fn(&mut StripeWriter, &Seal) -> Result<(), EngineError> + Sync,
    ) -> Result<(), EngineError> {
        let (shared, step) = (&self.shared, &step);
        let results: Vec<_> = std::thread::scope(|scope| {
            let pairs = stripes.iter_mut().zip(seals);
            let threads: Vec<_> = pairs
                .map(|(stripe, seal)| {
                    scope.spawn(move || {
                        Progress::serve(usize::from(stripe.stripe.0));
                        stripe.timed(shared, Cause::DeviceSync, |stripe| step(stripe, seal))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        results
            .into_iter()
            .try_for_each(|result| result.unwrap_or_else(|panic| Err(panicked(&*panic))))
    }
}

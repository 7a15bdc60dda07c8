//! The commit: footers, then seals, then names, each durable on every stripe before the next.
//!
//! Files with parity have an end in place of a seal. Their parity covers the seals, which are known
//! as soon as the footers are.
//!
//! Invariants
//! - No seal is written before the footers of all stripes, and all of the parity, are durable.
//! - No stripe gets its name before the seals of all stripes are durable.

use windlass_media::{
    BackupType, Facts, FileNo, FileTable, ParityEnd, Seal, SetDescription, SupersededFiles, fitted,
};

use super::BackupRun;
use super::output::Output;
use super::parity::{Parity, ParityWriter};
use super::source::FileSpec;
use super::stripes;
use super::writer::StripeWriter;
use crate::device::Device;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::shared::panicked;
use crate::waits::Cause;

/// How much a backup read: the name of this number in its report, and among the options of its set.
pub(crate) const READ_BYTES: &str = "bytes_read";

impl BackupRun {
    /// Takes files that were pushed before out of the set. Their numbers must not be in the file
    /// table that `finish` gets. Their bytes stay on the stripes, but no reader counts them.
    pub fn supersede(&mut self, files: impl IntoIterator<Item = FileNo>) {
        self.superseded.extend(files);
    }

    /// Adds a file that says something about the others. It is in the set and in no file table, and
    /// its bytes do not count as read.
    pub fn push_beside(&mut self, spec: FileSpec) -> Result<(), EngineError> {
        self.beside_bytes += spec.bytes;
        self.supersede([spec.file]);
        self.push(spec)
    }

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
        parity: &mut Option<Parity>,
        (files, mut facts): (FileTable, Facts),
    ) -> Result<(Vec<StripeWriter>, Vec<ParityWriter>), EngineError> {
        if let Some(options) = facts.options.as_object_mut() {
            let read = self.shared.progress.reader.bytes();
            let read = read.saturating_sub(self.beside_bytes);
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
        let spans = stripes.iter_mut();
        let spans: Vec<_> = spans.map(|it| std::mem::take(&mut it.spans)).collect();
        let alignment = self.options.plan.alignment;
        let mut seals = Vec::with_capacity(stripes.len());
        let cipher = self.options.cipher().map(|cipher| &**cipher);
        description.footers_spanned(
            (self.set_id, cipher),
            alignment,
            (&directories, &spans),
            |index, footer, root| {
                let stripe = &mut stripes[usize::from(index.0)];
                self.shared.cancel.check()?;
                let (offset, bytes) = (stripe.output.offset, footer.len() as u64);
                stripe.protect(offset, &footer, &self.shared)?;
                let write = |output: &mut Output| output.device.write(offset, &footer);
                stripe
                    .output
                    .timed(&self.shared, Cause::DeviceWrite, write)?;
                stripe.output.offset += bytes + u64::from(alignment);
                seals.push(Seal {
                    set_id: self.set_id,
                    stripe: index,
                    stripe_count: fitted(directories.len()),
                    footer_offset: offset,
                    footer_bytes: bytes,
                    footer_hash: *blake3::hash(&footer).as_bytes(),
                    set_root: root,
                    stripe_bytes: stripe.output.offset,
                    alignment,
                });
                Ok::<(), EngineError>(())
            },
        )?;
        drop(description);
        let parities = match parity.take() {
            Some(parity) => self.end_parity(parity, &mut stripes, &seals)?,
            None => Vec::new(),
        };
        let (mut parities, ends): (Vec<_>, Vec<_>) = parities.into_iter().unzip();
        let seal_offset = |bytes: u64| bytes - u64::from(alignment);
        let lengths = seals.iter().map(|seal| seal.stripe_bytes);
        let lengths = lengths.chain(ends.iter().map(|end: &ParityEnd| end.file_bytes));
        let lengths: Vec<_> = lengths.collect();
        self.each(
            outputs(&mut stripes, &mut parities),
            &lengths,
            |device, bytes| {
                device.truncate(*bytes)?;
                device.sync()
            },
        )?;
        self.shared.cancel.check()?;
        // Whoever finds a seal finds all of the parity, too.
        self.each(outputs(&mut [], &mut parities), &ends, |device, end| {
            device.write(seal_offset(end.file_bytes), &end.encode())?;
            device.sync()
        })?;
        self.each(outputs(&mut stripes, &mut []), &seals, |device, seal| {
            device.write(seal_offset(seal.stripe_bytes), &seal.encode())?;
            device.sync()
        })?;
        // All stripes are sealed, so the set exists from here on. Only its names are missing.
        self.each(
            outputs(&mut stripes, &mut parities),
            &lengths,
            |device, _| device.publish(),
        )?;
        Ok((stripes, parities))
    }

    /// Adds the seals to the parity, and ends that. Returns the files with their ends, which are
    /// not written yet.
    fn end_parity(
        &self,
        parity: Parity,
        stripes: &mut [StripeWriter],
        seals: &[Seal],
    ) -> Result<Vec<(ParityWriter, ParityEnd)>, EngineError> {
        let mut root = [0; 32];
        for (stripe, seal) in stripes.iter_mut().zip(seals) {
            Progress::serve(usize::from(stripe.stripe.0));
            let bytes = seal.encode();
            let offset = seal.stripe_bytes - bytes.len() as u64;
            stripe.protect(offset, &bytes, &self.shared)?;
            root = seal.set_root;
        }
        let writers = parity.end(&self.shared)?.into_iter();
        let ended = writers.map(|mut writer| {
            let end = writer.finish(root, &self.shared)?;
            Ok::<_, EngineError>((writer, end))
        });
        ended.collect()
    }

    /// Does one step on all devices at once. The time counts as a wait for the devices.
    fn each<T: Sync>(
        &self,
        outputs: Vec<(usize, &mut Output)>,
        with: &[T],
        step: impl Fn(&mut dyn Device, &T) -> Result<(), EngineError> + Sync,
    ) -> Result<(), EngineError> {
        let (shared, step) = (&self.shared, &step);
        let results: Vec<_> = std::thread::scope(|scope| {
            let pairs = outputs.into_iter().zip(with);
            let threads: Vec<_> = pairs
                .map(|((place, output), with)| {
                    scope.spawn(move || {
                        Progress::serve(place);
                        output.timed(shared, Cause::DeviceSync, |output| {
                            step(&mut *output.device, with)
                        })
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

/// What stripes and parities are written to, with the number of each device in the run.
fn outputs<'a>(
    stripes: &'a mut [StripeWriter],
    parities: &'a mut [ParityWriter],
) -> Vec<(usize, &'a mut Output)> {
    let stripes = stripes.iter_mut();
    let stripes = stripes.map(|one| (usize::from(one.stripe.0), &mut one.output));
    let parities = parities
        .iter_mut()
        .map(|one| (one.place(), &mut one.output));
    stripes.chain(parities).collect()
}

//! Findings: whether to stop at damage or to list it and read on, and the sum of all damage.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_media::{FileEntry, FileNo, FrameEntry, IndexDirectoryEntry, PieceEntry};

use super::cover::{join, unlisted};
use super::report::{
    ByteRange, DAMAGE_LISTED_MAX, Damage, DamageReport, DamagedPart, FileRange, LOST_LISTED_MAX,
    LostFile,
};
use super::survey::Survey;
use crate::error::EngineError;
use crate::restore::{Faults, Ledger, LinkLedger};
use crate::set::{FoundSet, OpenStripe};

/// How many ranges of files are kept with one damaged place.
const RANGES_OF_ONE: usize = 16;
/// How many lost ranges are kept while reading. Beyond that, only their bytes are counted.
const RANGES_KEPT_MAX: usize = 1 << 20;

/// The damage met so far.
#[derive(Debug)]
pub(crate) struct Findings {
    inner: Mutex<Inner>,
    /// How many sets lie below the newest one. What is missing in another set than the oldest may
    /// be newer than what is there.
    older_sets: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Ordered by set, stripe, offset and part. If there is too much damage to keep, the order of
    /// the threads does not decide what is kept.
    listed: BTreeMap<(usize, u16, u64, DamagedPart), Damage>,
    count: u64,
    /// Where the stripes of all this damage are.
    locations: BTreeSet<String>,
    /// Bytes and ranges that were lost with damaged frames.
    lost: BTreeMap<FileNo, Lost>,
    ranges_kept: usize,
    /// Something is missing, and nobody knows what it contained.
    unknown: bool,
    /// What is missing may include newer versions of bytes that are there.
    older: bool,
    paths: HashMap<FileNo, String>,
}

#[derive(Debug, Default)]
struct Lost {
    bytes: u64,
    ranges: Vec<(u64, u64)>,
    /// Not all ranges were kept.
    incomplete: bool,
}

impl Faults for Findings {
    fn lists(&self, error: &EngineError) -> bool {
        error.is_of_media()
    }

    fn frame(
        &self,
        stripe: &OpenStripe,
        (frame, pieces): (&FrameEntry, &[PieceEntry]),
        ledger: LinkLedger<'_>,
        error: EngineError,
    ) -> Result<(), EngineError> {
        let error = of_media(error)?;
        let place = (frame.offset, u64::from(frame.stored_bytes));
        let damage = Damage::at(stripe, DamagedPart::Frame, place, &error);
        self.add_frame(damage, pieces, ledger)
    }

    fn block(
        &self,
        (link, stripe): (usize, &OpenStripe),
        entry: &IndexDirectoryEntry,
        error: EngineError,
    ) -> Result<(), EngineError> {
        let error = of_media(error)?;
        let bytes = entry.offset - entry.region_offset + u64::from(entry.bytes);
        let place = (entry.offset, bytes);
        let mut inner = self.lock();
        inner.unknown = true;
        inner.older |= entry.layer_max > 0 || link < self.older_sets;
        inner.add(
            link,
            Damage::at(stripe, DamagedPart::IndexBlock, place, &error),
        );
        Ok(())
    }

    fn padding(
        &self,
        (link, stripe): (usize, &OpenStripe),
        place: (u64, u64),
        error: EngineError,
    ) -> Result<(), EngineError> {
        let error = of_media(error)?;
        let damage = Damage::at(stripe, DamagedPart::Padding, place, &error);
        self.lock().add(link, damage);
        Ok(())
    }

    fn whole(&self, error: EngineError) -> Result<(), EngineError> {
        let error = of_media(error)?;
        let mut inner = self.lock();
        let place = Damage::of_set(&error, inner.count);
        inner.add(0, place);
        Ok(())
    }

    /// `settle` finds out what is missing.
    fn complete(&self, _: &FoundSet, _: &Ledger) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Returns an error that says that media are damaged or cannot be read. Any other ends the run.
fn of_media(error: EngineError) -> Result<EngineError, EngineError> {
    if error.is_of_media() {
        Ok(error)
    } else {
        Err(error)
    }
}

/// Where the error is, and what it says.
pub(super) fn explain(error: &EngineError) -> (u64, String) {
    match error {
        EngineError::Damage { offset, source, .. } => (*offset, source.to_string()),
        EngineError::DeviceIo { offset, source, .. } => (*offset, source.to_string()),
        EngineError::Incomplete { what, .. } => (0, what.to_string()),
        error => (0, error.to_string()),
    }
}

impl Damage {
    pub(super) fn new(
        stripe: u16,
        location: &str,
        part: DamagedPart,
        (offset, bytes): (u64, u64),
        fault: String,
    ) -> Self {
        let (files, range_count) = (Vec::new(), 0);
        Self {
            stripe,
            location: location.to_owned(),
            part,
            offset,
            bytes,
            fault,
            files,
            range_count,
        }
    }

    fn at(stripe: &OpenStripe, part: DamagedPart, place: (u64, u64), error: &EngineError) -> Self {
        let number = stripe.header().stripe.number();
        let location = stripe.location().to_string_lossy();
        Self::new(number, &location, part, place, explain(error).1)
    }

    /// Damage of the set as a whole. `number` distinguishes one such damage from another.
    pub(super) fn of_set(error: &EngineError, number: u64) -> Self {
        Self::new(0, "", DamagedPart::Set, (number, 0), explain(error).1)
    }
}

impl Inner {
    fn add(&mut self, link: usize, damage: Damage) {
        self.count += 1;
        if !damage.location.is_empty() && !self.locations.contains(&damage.location) {
            self.locations.insert(damage.location.clone());
        }
        let key = (link, damage.stripe, damage.offset, damage.part);
        self.listed.insert(key, damage);
        if self.listed.len() > DAMAGE_LISTED_MAX {
            self.listed.pop_last();
        }
    }

    fn path(&self, file: FileNo) -> String {
        let known = self.paths.get(&file);
        known.map_or_else(|| format!("file number {file}"), Clone::clone)
    }

    fn lose(&mut self, file: FileNo, from: u64, to: u64) {
        let keeps = self.ranges_kept < RANGES_KEPT_MAX;
        let lost = self.lost.entry(file).or_default();
        lost.bytes += to - from;
        if keeps {
            lost.ranges.push((from, to));
            self.ranges_kept += 1;
        } else {
            lost.incomplete = true;
        }
    }
}

impl Findings {
    /// Begins with the damage that the survey found.
    pub(super) fn new(survey: &Survey) -> Self {
        let files = &survey.set().description().files.0;
        let older_sets = survey.set().links().count() - 1;
        let mut inner = Inner {
            unknown: survey.is_short(),
            older: survey.is_short() && (survey.has_layers() || older_sets > 0),
            paths: files
                .iter()
                .map(|file| (file.file, file.path_lossy()))
                .collect(),
            ..Inner::default()
        };
        for (link, one) in survey.found_by_link() {
            inner.add(link, one.clone());
        }
        Self {
            inner: Mutex::new(inner),
            older_sets,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_frame(
        &self,
        mut place: Damage,
        pieces: &[PieceEntry],
        ledger: LinkLedger<'_>,
    ) -> Result<(), EngineError> {
        let mut inner = self.lock();
        for piece in pieces {
            let (file, ranges) = ledger.counts(piece)?;
            for (from, to) in ranges {
                inner.lose(file, from, to);
                place.range_count += 1;
                if place.files.len() < RANGES_OF_ONE {
                    place.files.push(FileRange {
                        path: inner.path(file),
                        offset: from,
                        bytes: to - from,
                    });
                }
            }
        }
        inner.add(ledger.link(), place);
        Ok(())
    }

    /// Ends the check. It finds out which bytes the files lack, and whether complete files are
    /// right.
    pub(super) fn settle(
        &self,
        survey: &Survey,
        ledger: &Ledger,
    ) -> Result<DamageReport, EngineError> {
        let set = survey.set();
        let unknown = self.lock().unknown;
        let faults: &dyn Faults = self;
        let mut short = Vec::new();
        for file in &set.description().files.0 {
            let lost = self
                .lock()
                .lost
                .get(&file.file)
                .map_or(0, |lost| lost.bytes);
            let missing = ledger.missing(file).saturating_sub(lost);
            if missing > 0 && unknown {
                short.push((file.file, file.bytes, missing));
            } else if lost == 0 {
                faults.pass(ledger.check_file(file))?;
            }
        }
        let names: Vec<_> = short
            .iter()
            .map(|(file, bytes, _)| (*file, *bytes))
            .collect();
        let mut gaps = match names.is_empty() {
            true => BTreeMap::new(),
            false => unlisted(set, &names)?,
        };
        let mut inner = self.lock();
        for (file, _, missing) in short {
            match gaps.remove(&file).flatten() {
                Some(ranges) => ranges
                    .into_iter()
                    .for_each(|(from, to)| inner.lose(file, from, to)),
                None => {
                    let lost = inner.lost.entry(file).or_default();
                    lost.bytes += missing;
                    lost.incomplete = true;
                }
            }
        }
        Ok(inner.report(&set.description().files.0, survey.files_known()))
    }
}

impl Inner {
    fn report(&mut self, files: &[FileEntry], files_known: bool) -> DamageReport {
        let lost_bytes = self.lost.values().map(|lost| lost.bytes).sum();
        let lost_file_count = self.lost.len() as u64;
        let lengths: HashMap<_, _> = files.iter().map(|file| (file.file, file.bytes)).collect();
        let mut lost = Vec::new();
        for (file, one) in std::mem::take(&mut self.lost)
            .into_iter()
            .take(LOST_LISTED_MAX)
        {
            let file_bytes = lengths.get(&file).copied().unwrap_or(0);
            lost.push(one.listed(self.path(file), file_bytes));
        }
        DamageReport {
            damage: std::mem::take(&mut self.listed).into_values().collect(),
            damage_count: self.count,
            locations: std::mem::take(&mut self.locations),
            lost,
            lost_file_count,
            lost_bytes,
            files_known,
            maybe_older: self.older,
        }
    }
}

impl Lost {
    fn listed(mut self, path: String, file_bytes: u64) -> LostFile {
        join(&mut self.ranges);
        if self.incomplete {
            self.ranges.clear();
        }
        let range_count = self.ranges.len() as u64;
        self.ranges.truncate(LOST_LISTED_MAX);
        let ranges = self.ranges.into_iter().map(|(offset, to)| ByteRange {
            offset,
            bytes: to - offset,
        });
        LostFile {
            path,
            file_bytes,
            lost_bytes: self.bytes,
            ranges: ranges.collect(),
            range_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_with_more_damage_than_is_listed_hides_no_other_stripe() {
        let mut inner = Inner::default();
        for offset in 0..=DAMAGE_LISTED_MAX as u64 {
            let place = (offset, 1);
            let damage = Damage::new(1, "first", DamagedPart::Frame, place, String::new());
            inner.add(0, damage);
        }
        let damage = Damage::new(2, "second", DamagedPart::Frame, (0, 1), String::new());
        inner.add(0, damage);
        let report = inner.report(&[], true);
        assert!(report.damage.iter().all(|it| it.location == "first"));
        assert!(report.locations.iter().eq(["first", "second"]));
    }
}

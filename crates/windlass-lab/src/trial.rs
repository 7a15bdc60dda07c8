//! Trials: the pipeline of a backup reads a part of a real database and writes to real devices.
//! Nothing is kept.
//!
//! The part is the same in all trials, so that they compare settings and not data. It consists of
//! runs of extents from all over the files. Each run is long enough to be read in order, as in a
//! backup.
//!
//! Invariants
//! - A trial never makes a set: its stripes are removed before it ends, whatever happens.
//! - The database is only read, in the state that its files have at that moment. Nothing of it is
//!   kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use windlass_engine::media::{FileNo, PageLayout, SetId, fitted};
use windlass_engine::{
    BackupOptions, BackupRun, Cancel, Device, EngineError, FileClasses, FileContent, FileSpec,
    Missing, PageClass, Progress, RunReport,
};

use crate::error::LabError;
use crate::sample::{index_of, places};

/// Bytes that are read in order at each place.
const RUN_BYTES: u64 = 16 << 20;

/// A part of a database.
#[derive(Clone, Debug, Default)]
pub struct TrialSource {
    /// The files and their lengths.
    files: Vec<(PathBuf, u64)>,
    /// File, offset, bytes.
    runs: Vec<(usize, u64, u64)>,
    /// How pages of the files are laid out.
    layouts: Vec<PageLayout>,
    /// Which of the layouts the pages of a file have, if that is known.
    layout_of: Vec<Option<usize>>,
}

impl TrialSource {
    /// Draws about `bytes` from `files`; if they are smaller, all of them.
    pub fn draw(files: &[PathBuf], bytes: u64) -> Result<Self, LabError> {
        let mut source = Self::default();
        let mut all = Vec::new();
        for path in files {
            let size = match fs::metadata(path) {
                Ok(found) => found.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(LabError::io("examine", path)(error)),
            };
            let file = source.files.len();
            source.files.push((path.clone(), size));
            let starts = (0..size.div_ceil(RUN_BYTES)).map(|index| index * RUN_BYTES);
            all.extend(starts.map(|start| (file, start, RUN_BYTES.min(size - start))));
        }
        let total: u64 = all.iter().map(|run| run.2).sum();
        let mean = (total / (all.len() as u64).max(1)).max(1);
        let mut left = bytes.max(1);
        for place in places(all.len() as u64, bytes.div_ceil(mean)) {
            let (file, start, length) = all[fitted::<usize, _>(place)];
            let length = length.min(left);
            left -= length;
            if length > 0 {
                source.runs.push((file, start, length));
            }
        }
        Ok(source)
    }

    /// Says of each file to which class its pages belong. Trials whose options have page-aware
    /// frames take them apart.
    #[must_use]
    pub fn with_classes(mut self, class: impl Fn(&Path) -> Option<Arc<PageClass>>) -> Self {
        let mut classes = Vec::new();
        let files = self.files.iter();
        let found = files.map(|(path, _)| Some(index_of(&mut classes, &class(path)?)));
        self.layout_of = found.collect();
        let layouts = classes.iter().map(|class| class.layout().clone());
        self.layouts = layouts.collect();
        self
    }

    /// The classes of the files. Each trial has new ones: what one codec gains says nothing of
    /// another.
    fn classes(&self) -> FileClasses {
        let layouts = self.layouts.iter().cloned();
        let classes: Vec<_> = layouts.map(PageClass::new).map(Arc::new).collect();
        let files = (0_usize..).zip(&self.layout_of);
        let files = files.filter_map(|(file, layout)| {
            let class = classes.get((*layout)?)?;
            Some((FileNo(fitted(file)), Arc::clone(class)))
        });
        files.collect()
    }

    /// Bytes that a trial reads.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.2).sum()
    }

    /// Runs a backup of the part with these `options`. Returns the report, and the seconds that the
    /// whole trial took.
    pub fn run(
        &self,
        options: BackupOptions,
        devices: Vec<Box<dyn Device>>,
        cancel: &Cancel,
    ) -> Result<(RunReport, f64), EngineError> {
        let began = Instant::now();
        let progress = Arc::<Progress>::default();
        let set = SetId(*b"windlass's trial");
        let mut run = BackupRun::start(set, 0, options, devices, progress, cancel.clone())?;
        run.set_hook(Arc::new(self.classes()));
        for (file, offset, bytes) in &self.runs {
            let (path, size) = &self.files[*file];
            let spec = FileSpec {
                file: FileNo(fitted(*file)),
                content: FileContent::Path(path.clone()),
                bytes: *size,
                needed_bytes: 0,
                missing: Missing::Skip,
            };
            // Pushed as a newer version of a range, because no file here has a checksum of its
            // whole.
            run.push_range(&spec, *offset, *bytes, 1)?;
        }
        let report = run.discard()?;
        Ok((report, began.elapsed().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::media::Codec;
    use windlass_engine::{BufferRequest, FileDevice, FileDeviceOptions};

    use super::*;
    use crate::rehearsal::Corpus;

    #[test]
    fn a_trial_reads_its_part_and_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let corpus = Corpus::write(&place.path().join("corpus"), 48 << 20, &Cancel::new()).unwrap();
        let source = TrialSource::draw(&corpus.files, 20 << 20).unwrap();
        assert_eq!(source.bytes(), 20 << 20);
        let options = BackupOptions {
            plan: BufferRequest::default().plan(1, 1).unwrap(),
            codec: Codec::Zstd(1),
            range: None,
            source_rate: None,
            device_rate: None,
            ring: true,
            pacing: None,
            page_frames: false,
            frame_proof: true,
            encryption: None,
            parities: 0,
        };
        let stripe = place.path().join("stripe");
        let device = FileDevice::create(&stripe, FileDeviceOptions::default()).unwrap();
        let cancel = Cancel::new();
        let (report, _) = source
            .run(options, vec![Box::new(device)], &cancel)
            .unwrap();
        assert_eq!(report.bytes_read, 20 << 20);
        assert!(report.bytes_written > 8 << 20 && report.bytes_written < 14 << 20);
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "the corpus alone");
    }

    #[test]
    fn a_small_database_is_read_whole() {
        let place = tempfile::tempdir().unwrap();
        let corpus = Corpus::write(place.path(), 1, &Cancel::new()).unwrap();
        let source = TrialSource::draw(&corpus.files, 1 << 40).unwrap();
        assert_eq!(source.bytes(), corpus.bytes);
        assert_eq!(TrialSource::draw(&[], 1).unwrap().bytes(), 0);
    }
}

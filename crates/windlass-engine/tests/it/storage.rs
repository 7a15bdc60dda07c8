//! Storage: sets are read from whatever has bytes, and a backup reads whatever has bytes.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use windlass_engine::media::{Codec, FileNo};
use windlass_engine::{
    Cancel, EngineError, FileContent, FileSpec, Files, Lies, METADATA_LIMIT_DEFAULT, OpenSet,
    PlaceFile, ReadAt, SetState, Storage, Survey, Target, list_sets, restore, verify,
};
use windlass_testkit::memory::InMemory;

use crate::support::*;

/// Objects in memory, by name. Nothing in it is a file of the operating system.
#[derive(Debug, Default)]
struct Objects(BTreeMap<PathBuf, Arc<InMemory>>);

impl Storage for Objects {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        if let Some(object) = self.0.get(location) {
            let bytes = object.0.len() as u64;
            let modified_nanos = 0;
            return Ok(Lies::File {
                bytes,
                modified_nanos,
            });
        }
        match self.0.keys().any(|name| name.starts_with(location)) {
            true => Ok(Lies::Place),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let object = self.0.get(location).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(object) as Arc<dyn ReadAt>)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        let inside = self
            .0
            .iter()
            .filter(|(name, _)| name.parent() == Some(place));
        for (name, object) in inside {
            each(PlaceFile {
                location: name.clone(),
                bytes: object.0.len() as u64,
                modified_nanos: 0,
            });
        }
        Ok(())
    }
}

/// Objects that cancel a run when they are read, once it is known, and count their reads from then
/// on.
#[derive(Debug)]
struct Cancelling {
    objects: Objects,
    run: Arc<OnceLock<Cancel>>,
    reads: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CancellingObject {
    object: Arc<dyn ReadAt>,
    run: Arc<OnceLock<Cancel>>,
    reads: Arc<AtomicUsize>,
}

impl ReadAt for CancellingObject {
    fn length(&self) -> io::Result<u64> {
        self.object.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if let Some(run) = self.run.get() {
            run.cancel();
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.object.read_at(offset, into)
    }
}

impl Storage for Cancelling {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        self.objects.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(CancellingObject {
            object: self.objects.open(location)?,
            run: Arc::clone(&self.run),
            reads: Arc::clone(&self.reads),
        }))
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        self.objects.list(place, each)
    }
}

/// A target that leaves these files out.
struct LeavesOut(HashSet<FileNo>);

impl Target for LeavesOut {
    fn write(&self, file: FileNo, _offset: u64, _bytes: &[u8]) -> Result<(), EngineError> {
        panic!("bytes of {file:?} were read");
    }

    fn hole(&self, file: FileNo, _offset: u64, _bytes: u64) -> Result<(), EngineError> {
        panic!("zeros of {file:?} were read");
    }

    fn finish(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn left_out(&self) -> Option<&HashSet<FileNo>> {
        Some(&self.0)
    }
}

/// A set whose stripes are objects in `bucket/shop`. Its files are gone.
fn stored(tree: &Tree, stripes: usize) -> Objects {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(stripes, Codec::Zstd(1));
    let paths = make_set(tree, dir.path(), &setup);
    let object = |path: PathBuf| {
        let name = Path::new("bucket/shop").join(path.file_name().unwrap());
        (name, Arc::new(InMemory(std::fs::read(&path).unwrap())))
    };
    Objects(paths.into_iter().map(object).collect())
}

fn place() -> [PathBuf; 1] {
    [PathBuf::from("bucket/shop")]
}

#[test]
fn a_set_that_is_in_no_file_is_listed_verified_and_restored() {
    let (tree, dir) = (mixed_tree(1), tempfile::tempdir().unwrap());
    let objects = stored(&tree, 3);
    let list = list_sets(&objects, &place(), METADATA_LIMIT_DEFAULT).unwrap();
    assert_eq!(list.sets.len(), 1);
    assert!(matches!(list.sets[0].state, SetState::Sealed));
    let survey = Survey::of(&objects, &place(), METADATA_LIMIT_DEFAULT).unwrap();
    let found = verify(
        &survey,
        &lean_options().fit(survey.set()).unwrap(),
        &Arc::default(),
        &Cancel::new(),
    )
    .unwrap();
    assert_eq!(found.damage.damage_count, 0);
    let set = OpenSet::open_in(&objects, &place(), METADATA_LIMIT_DEFAULT).unwrap();
    let into = dir.path().join("restored");
    bring_back(&set, &into).unwrap();
    for (name, bytes) in &tree {
        assert_eq!(&std::fs::read(into.join(name)).unwrap(), bytes, "{name}");
    }
    // Only this storage has the set.
    assert!(OpenSet::open_in(&Files, &place(), METADATA_LIMIT_DEFAULT).is_err());
}

#[test]
fn an_object_that_is_cut_off_or_missing_is_found() {
    let tree = mixed_tree(2);
    let mut objects = stored(&tree, 2);
    // Whichever writer is free takes the next frames: the longer stripe has some.
    let longer = objects.0.iter().max_by_key(|(_, object)| object.0.len());
    let name = longer.unwrap().0.clone();
    let whole = objects.0.remove(&name).unwrap();
    let error = OpenSet::open_in(&objects, &place(), METADATA_LIMIT_DEFAULT).unwrap_err();
    assert!(
        matches!(error, EngineError::StripeMissing { .. }),
        "{error}"
    );
    let half = whole.0[..whole.0.len() / 2].to_vec();
    objects.0.insert(name, Arc::new(InMemory(half)));
    let survey = Survey::of(&objects, &place(), METADATA_LIMIT_DEFAULT).unwrap();
    let found = verify(
        &survey,
        &lean_options().fit(survey.set()).unwrap(),
        &Arc::default(),
        &Cancel::new(),
    )
    .unwrap();
    assert!(found.damage.damage_count > 0);
    assert!(found.damage.lost_bytes > 0);
}

#[test]
fn a_backup_takes_bytes_of_anything_and_finds_that_they_end_too_early() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::small(1, Codec::Lz4);
    let bytes = Random::new(3).noise(300_000);
    let at = |bytes: &[u8]| FileContent::At(Arc::new(InMemory(bytes.to_vec())));
    let tree: Tree = vec![
        ("large".into(), bytes.clone()),
        ("small".into(), plain(900, 7)),
    ];
    let devices = file_devices(dir.path(), &setup);
    let mut run = begin(&setup, devices, &Cancel::new()).unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(spec(index, at(bytes), bytes.len())).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, &tree);
    run.finish(files, facts()).unwrap();
    let set = open(&stripe_paths(dir.path(), &setup)).unwrap();
    let into = dir.path().join("restored");
    bring_back(&set, &into).unwrap();
    assert_eq!(std::fs::read(into.join("large")).unwrap(), bytes);

    let short = tempfile::tempdir().unwrap();
    let devices = file_devices(short.path(), &setup);
    let mut run = begin(&setup, devices, &Cancel::new()).unwrap();
    let all = spec(0, at(&bytes[..200_000]), bytes.len());
    run.push(FileSpec {
        needed_bytes: all.bytes,
        ..all
    })
    .unwrap();
    let error = run.drain().unwrap_err();
    assert!(matches!(error, EngineError::SourceShort { .. }), "{error}");
}

/// Of what is left out only the index is read, which takes long enough in a bucket.
#[test]
fn a_restore_that_reads_index_blocks_only_ends_when_it_is_cancelled() {
    let files = (0..40_000).map(|index| (format!("file{index}"), vec![1; 8]));
    let storage = Cancelling {
        objects: stored(&files.collect(), 1),
        run: Arc::default(),
        reads: Arc::default(),
    };
    let set = OpenSet::open_in(&storage, &place(), METADATA_LIMIT_DEFAULT).unwrap();
    let blocks = set.stripes()[0].directory().len();
    assert!(blocks > 2, "{blocks}");
    let files = set.description().files.0.iter().map(|entry| entry.file);
    let (target, cancel) = (LeavesOut(files.collect()), Cancel::new());
    let options = restore_options().fit(&set).unwrap();
    storage.run.set(cancel.clone()).unwrap();
    let error = restore(&set, &target, &options, &Arc::default(), &cancel).unwrap_err();
    assert!(matches!(error, EngineError::Cancelled), "{error}");
    let reads = storage.reads.load(Ordering::Relaxed);
    assert!(reads < blocks, "{reads} of {blocks}");
}

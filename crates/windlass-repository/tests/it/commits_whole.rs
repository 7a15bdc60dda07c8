//! The log of a SQLite database in a place whose objects appear whole, as those of a bucket do.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use windlass_engine::media::LogRecord;
use windlass_engine::{Keep, ListedObject, Listing, Naming, NewObject, Objects, ReadAt, Reading};
use windlass_postgres::Timeline;
use windlass_repository::{
    CommitLog, CommitReader, LogPlace, Place, RepositoryError, database_number, link,
};
use windlass_testkit::memory::InMemory;

use crate::commits::{Captured, keep};

/// How many parts are joined.
const PARTS: usize = 256;
/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

type Held = BTreeMap<PathBuf, Vec<u8>>;

/// Objects in memory. Nothing can grow or be locked there.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Held>>);

impl Memory {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap()
    }

    /// The parts of the locations below a folder.
    fn below(&self, folder: &Path) -> Vec<(PathBuf, Vec<String>, u64)> {
        let held = self.held();
        let found = held.iter().filter_map(|(location, bytes)| {
            let below = location.strip_prefix(folder).ok()?;
            let parts = below.iter().map(|one| one.to_str().unwrap().to_owned());
            let parts: Vec<String> = parts.collect();
            Some((location.clone(), parts, bytes.len() as u64))
        });
        found.collect()
    }
}

impl Objects for Memory {
    fn find(&self, _place: &Path) -> io::Result<()> {
        Ok(())
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        let below = self.below(folder).into_iter();
        let mut names: Vec<_> = below
            .filter(|(_, parts, _)| parts.len() > 1)
            .map(|(_, parts, _)| parts[0].clone())
            .collect();
        names.dedup();
        Ok(names)
    }

    fn objects(&self, folder: &Path, listing: Listing<'_>) -> io::Result<Vec<ListedObject>> {
        let depth = if listing == Listing::Below { 2 } else { 1 };
        let below = self.below(folder).into_iter();
        let own = below.filter(|(_, parts, _)| parts.len() == depth);
        let listed = own.map(|(location, _, bytes)| ListedObject {
            location,
            bytes: Some(bytes),
        });
        Ok(listed.collect())
    }

    fn open(&self, at: &Path, _: Option<u64>, _: Reading) -> io::Result<Arc<dyn ReadAt>> {
        match self.held().get(at) {
            Some(bytes) => Ok(Arc::new(InMemory(bytes.clone()))),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, _place: &Path, location: &Path) -> io::Result<Box<dyn NewObject>> {
        Ok(Box::new(New {
            memory: self.clone(),
            location: location.to_owned(),
            bytes: Vec::new(),
        }))
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        self.held().remove(location);
        Ok(())
    }

    fn settle(&self, _place: &Path, _location: &Path) -> io::Result<()> {
        Ok(())
    }
}

struct New {
    memory: Memory,
    location: PathBuf,
    bytes: Vec<u8>,
}

impl Write for New {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewObject for New {
    fn name(self: Box<Self>, _hash_bytes: usize) -> io::Result<Naming> {
        let mut held = self.memory.held();
        if held.contains_key(&self.location) {
            return Ok(Naming::Taken);
        }
        held.insert(self.location.clone(), self.bytes.clone());
        Ok(Naming::Named)
    }

    fn name_over(self: Box<Self>, _hash_bytes: usize) -> io::Result<()> {
        let mut held = self.memory.held();
        held.insert(self.location.clone(), self.bytes.clone());
        Ok(())
    }
}

/// The same objects. None is opened before so many are being opened.
#[derive(Debug, Default)]
struct Gathering {
    memory: Memory,
    wanted: usize,
    opening: Mutex<Opening>,
    changed: Condvar,
}

/// How many objects are being opened, and how many were at most.
#[derive(Debug, Default)]
struct Opening {
    now: usize,
    most: usize,
}

impl Objects for Gathering {
    fn find(&self, place: &Path) -> io::Result<()> {
        self.memory.find(place)
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.memory.folders(folder)
    }

    fn objects(&self, folder: &Path, listing: Listing<'_>) -> io::Result<Vec<ListedObject>> {
        self.memory.objects(folder, listing)
    }

    fn open(&self, at: &Path, bytes: Option<u64>, of: Reading) -> io::Result<Arc<dyn ReadAt>> {
        let mut opening = self.opening.lock().unwrap();
        opening.now += 1;
        opening.most = opening.most.max(opening.now);
        self.changed.notify_all();
        let is_alone = |opening: &mut Opening| opening.most < self.wanted;
        let waited = self.changed.wait_timeout_while(opening, PATIENCE, is_alone);
        let (mut opening, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "{} objects at once", opening.most);
        opening.now -= 1;
        self.memory.open(at, bytes, of)
    }

    fn create(&self, place: &Path, location: &Path) -> io::Result<Box<dyn NewObject>> {
        self.memory.create(place, location)
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        self.memory.remove(location)
    }

    fn settle(&self, place: &Path, location: &Path) -> io::Result<()> {
        self.memory.settle(place, location)
    }
}

/// The log of a database in memory.
fn log_of(captured: &Captured) -> (Memory, LogPlace) {
    let memory: &'static Memory = Box::leak(Box::<Memory>::default());
    (memory.clone(), log_in(captured, memory))
}

fn log_in(captured: &Captured, objects: &'static dyn Objects) -> LogPlace {
    let place = Place::new("s3://memory/place", objects);
    let number = database_number(&captured.capture.key());
    LogPlace::of_database(&place, number)
}

/// The records that a reader gives from here on.
fn rest(reader: &mut CommitReader) -> Vec<LogRecord> {
    std::iter::from_fn(|| reader.next_record().unwrap().map(|one| *one.head())).collect()
}

fn reader(place: &LogPlace) -> CommitReader {
    CommitReader::new(place, Timeline(1)).unwrap()
}

/// Each sync makes an object. When they are many, one takes their place: also for somebody who has
/// listed them before, and also if one of them stays.
#[test]
fn many_parts_become_one_object_and_every_reader_finds_the_same_records() {
    let mut captured = Captured::new();
    let (memory, place) = log_of(&captured);
    let mut log = CommitLog::open(&place).unwrap();
    let (stand, about) = captured.stand();
    log.begin(stand, about.clone()).unwrap();
    log.sync().unwrap();
    captured.look(|capture, commit| keep(&mut log, capture, commit));
    log.sync().unwrap();
    for _ in 2..PARTS {
        log.stand(stand, about.clone()).unwrap();
        log.sync().unwrap();
    }
    let parts = memory.held().clone();
    assert_eq!(parts.len(), PARTS);
    let all = rest(&mut reader(&place));
    assert!(all.len() > PARTS && all.iter().any(|head| head.number == 1));
    let mut early = reader(&place);
    let mut found: Vec<_> = (0..3)
        .map(|_| *early.next_record().unwrap().unwrap().head())
        .collect();
    log.stand(stand, about.clone()).unwrap();
    log.sync().unwrap();
    assert_eq!(memory.held().len(), 2);
    found.extend(rest(&mut early));
    assert_eq!(found, all);
    let now = rest(&mut reader(&place));
    assert_eq!(now[..all.len()], all);
    assert_eq!(now.len(), all.len() + 2);
    // A run was killed before it could remove this one.
    let (location, bytes) = parts.iter().nth(PARTS / 2).unwrap();
    memory.held().insert(location.clone(), bytes.clone());
    assert_eq!(rest(&mut reader(&place)), now);
    log.end().unwrap();
    let mut next = CommitLog::open(&place).unwrap();
    assert_eq!(next.number(), 1);
    next.go_on(stand, about).unwrap();
    next.sync().unwrap();
    assert!(!memory.held().contains_key(location));
    next.end().unwrap();
    captured.capture.end().unwrap();
}

/// They do not see each other's notes. Each stores every transaction.
#[test]
fn what_two_receivers_store_side_by_side_is_read_and_both_end_when_they_join_parts() {
    let mut captured = Captured::new();
    let (_, place) = log_of(&captured);
    let (stand, about) = captured.stand();
    let mut one = CommitLog::open(&place).unwrap();
    one.begin(stand, about.clone()).unwrap();
    one.sync().unwrap();
    let mut other = CommitLog::open(&place).unwrap();
    other.go_on(stand, about).unwrap();
    other.sync().unwrap();
    let newest = || rest(&mut reader(&place)).last().unwrap().number;
    captured.look(|capture, commit| {
        for number in 1..=3 {
            for log in [&mut one, &mut other] {
                keep(log, capture, commit);
                log.sync().unwrap();
                assert_eq!(newest(), number);
            }
        }
    });
    for log in [one, other] {
        let ended = log.end();
        assert!(matches!(ended, Err(RepositoryError::Locked { .. })));
    }
    assert_eq!(newest(), 3);
    // The next one begins behind both.
    let (stand, about) = captured.stand();
    let mut next = CommitLog::open(&place).unwrap();
    next.go_on(stand, about.clone()).unwrap();
    next.sync().unwrap();
    next.stand(stand, about).unwrap();
    next.end().unwrap();
    assert_eq!(newest(), 3);
    captured.capture.end().unwrap();
}

#[test]
fn nothing_is_asked_of_a_place_while_that_is_deferred() {
    let mut captured = Captured::new();
    let (memory, place) = log_of(&captured);
    let mut log = CommitLog::open(&place).unwrap();
    let (stand, about) = captured.stand();
    log.begin(stand, about).unwrap();
    log.sync().unwrap();
    let before = memory.held().clone();
    log.defer(true);
    captured.look(|capture, commit| keep(&mut log, capture, commit));
    log.sync().unwrap();
    assert_eq!(*memory.held(), before);
    log.defer(false);
    log.sync().unwrap();
    assert_eq!(memory.held().len(), before.len() + 1);
    assert_eq!(CommitLog::open(&place).unwrap().number(), 1);
    captured.capture.end().unwrap();
}

/// In a bucket each object costs the time of a request, and a log may have thousands.
#[test]
fn a_state_is_looked_for_in_many_objects_at_once_and_not_in_all() {
    let captured = Captured::new();
    let (memory, place) = log_of(&captured);
    let mut log = CommitLog::open(&place).unwrap();
    let (stand, about) = captured.stand();
    log.begin(stand, about.clone()).unwrap();
    log.sync().unwrap();
    for _ in 1..60 {
        log.stand(stand, about.clone()).unwrap();
        log.sync().unwrap();
    }
    let state = about.standing;
    let found = link(&place, &state).unwrap();
    let gathering: &'static Gathering = Box::leak(Box::new(Gathering {
        memory: memory.clone(),
        wanted: 8,
        ..Gathering::default()
    }));
    assert_eq!(link(&log_in(&captured, gathering), &state).unwrap(), found);
    let most = gathering.opening.lock().unwrap().most;
    assert!(most < 40, "{most} objects at once");
    // The first of those that cannot be read is the error, whichever came first.
    let paths: Vec<_> = memory.held().keys().cloned().collect();
    for damaged in [50, 20, 21] {
        memory.held().get_mut(&paths[damaged]).unwrap()[0] ^= 1;
    }
    let error = link(&place, &state).unwrap_err().to_string();
    assert!(error.contains(paths[20].to_str().unwrap()), "{error}");
    captured.capture.end().unwrap();
}

/// Keeps others away, until somebody says that it has not.
#[derive(Debug, Default)]
struct Note {
    is_gone: AtomicBool,
}

impl Keep for Note {
    fn has_kept(&self) -> io::Result<bool> {
        Ok(!self.is_gone.load(Ordering::Relaxed))
    }
}

#[test]
fn nothing_is_stored_when_the_note_that_keeps_others_away_is_gone() {
    let captured = Captured::new();
    let (memory, place) = log_of(&captured);
    let note = Arc::new(Note::default());
    let held: Arc<dyn Keep> = note.clone();
    let mut log = CommitLog::open(&place.held_by(Some(held))).unwrap();
    let (stand, about) = captured.stand();
    log.begin(stand, about.clone()).unwrap();
    log.sync().unwrap();
    log.stand(stand, about.clone()).unwrap();
    log.sync().unwrap();
    let before = memory.held().clone();
    note.is_gone.store(true, Ordering::Relaxed);
    log.stand(stand, about).unwrap();
    let refused = [log.sync(), log.end()];
    for refused in refused {
        let is_it = matches!(refused, Err(RepositoryError::NoteGone { .. }));
        assert!(is_it, "{refused:?}");
    }
    assert_eq!(*memory.held(), before);
    captured.capture.end().unwrap();
}

/// 256 MiB of pages.
#[test]
fn only_a_directory_takes_a_transaction_of_any_length() {
    let mut captured = Captured::new();
    let (_, place) = log_of(&captured);
    let in_memory = CommitLog::open(&place).unwrap();
    let in_directory = CommitLog::open(&captured.log()).unwrap();
    captured.look(|_, commit| {
        let mut long = *commit;
        long.count = (256 << 20) / long.page_bytes;
        assert!(in_memory.takes(&long) && in_directory.takes(&long));
        long.count += 1;
        assert!(!in_memory.takes(&long) && in_directory.takes(&long));
    });
    captured.capture.end().unwrap();
}

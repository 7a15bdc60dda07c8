//! Segments that are stored before the server hands them over: what is known of them is true, or
//! the segment is pushed as without it.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use windlass_engine::durable::Locked;
use windlass_repository::{Ahead, Fetched, LookAhead, PushRequest, RepositoryError};

use crate::support::*;

struct Server {
    place: Place,
    root: PathBuf,
}

impl Server {
    /// A server with these segments, all of them ready to be archived.
    fn new(numbers: std::ops::Range<u64>) -> Self {
        let place = Place::new();
        for number in numbers {
            place.ready(&place.segment((1, number), number));
        }
        let root = place.dir.path().join("spool");
        std::fs::create_dir(&root).unwrap();
        Self { place, root }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.place.wal(&name(1, number))
    }

    fn request(&self, number: u64) -> PushRequest {
        PushRequest {
            look_ahead: LookAhead(3),
            ..self.place.request(&self.path(number))
        }
    }

    fn ahead(&self) -> Ahead {
        Ahead::of(&self.root, &self.request(0)).unwrap()
    }

    fn store(&self, handed_over: u64) -> Result<usize, RepositoryError> {
        self.ahead().store(&self.request(handed_over))
    }

    fn has(&self, number: u64) -> bool {
        self.ahead().has(&self.path(number)).unwrap()
    }

    /// The only file of a group.
    fn group(&self) -> PathBuf {
        let list = |path: &PathBuf| {
            std::fs::read_dir(path)
                .unwrap()
                .map(|one| one.unwrap().path())
        };
        let directory = list(&self.root).next().unwrap();
        let is_group = |path: &PathBuf| path.to_string_lossy().contains("-00000001");
        list(&directory).find(is_group).unwrap()
    }
}

#[test]
fn what_was_stored_ahead_is_known_and_in_the_place() {
    let server = Server::new(1..9);
    server.place.push(&server.path(1)).unwrap();
    assert!(server.ahead().is_wanted(&server.path(1)).unwrap());
    assert_eq!(server.store(1).unwrap(), 7);
    assert!(!server.has(1), "that one was handed over");
    for number in 2..9 {
        assert!(server.has(number), "{number}");
        let (fetched, bytes) = server.place.fetch(&name(1, number)).unwrap();
        assert_eq!(fetched, Fetched::Complete { bytes: SEGMENT });
        assert!(bytes == content((1, 1), number, number));
    }
    assert!(!server.ahead().is_wanted(&server.path(1)).unwrap());
    assert!(!server.ahead().is_wanted(&server.path(8)).unwrap());
    // One object for three segments, and nothing is stored twice.
    assert_eq!(server.place.objects().len(), 4);
    assert_eq!(server.store(1).unwrap(), 0);
    // What the server has passed is forgotten.
    for number in 2..9 {
        let status = format!("archive_status/{}.ready", name(1, number));
        std::fs::remove_file(server.place.wal(&status)).unwrap();
    }
    server.place.ready(&server.place.segment((1, 9), 9));
    assert_eq!(server.store(8).unwrap(), 1);
    assert!(server.has(9) && !server.has(5));
}

/// Waits until a file that is changed has a later time than the last change of this one. Most file
/// systems tell times by a clock that moves some hundred times in a second.
fn wait_for_a_tick(file: &Path) {
    use std::os::unix::fs::MetadataExt;
    let changed = |path: &Path| {
        let found = path.metadata().unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let probe = file.with_extension("probe");
    let is_later = || {
        std::fs::write(&probe, "x").unwrap();
        changed(&probe) > changed(file)
    };
    while !is_later() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::fs::remove_file(&probe).unwrap();
}

#[test]
fn nothing_is_known_of_what_was_changed_since() {
    let server = Server::new(1..5);
    server.store(1).unwrap();
    assert!(server.has(2) && server.has(3) && server.has(4));
    // The last segment was written last.
    wait_for_a_tick(&server.path(4));
    // The same content, in another file; a file that was changed in its place.
    let again = std::fs::read(server.path(2)).unwrap();
    std::fs::remove_file(server.path(2)).unwrap();
    std::fs::write(server.path(2), again).unwrap();
    std::fs::write(server.path(3), content((1, 1), 3, 77)).unwrap();
    assert!(!server.has(2) && !server.has(3) && server.has(4));
    let error = server.place.push(&server.path(3)).unwrap_err();
    assert!(
        matches!(error, RepositoryError::Different { .. }),
        "{error}"
    );
}

#[test]
fn nothing_is_known_of_a_place_that_went_away() {
    let server = Server::new(1..5);
    server.store(1).unwrap();
    let away = server.place.dir.path().join("away");
    std::fs::rename(server.place.place(), &away).unwrap();
    assert!(!server.has(2));
    assert!(server.place.push(&server.path(2)).is_err());
    // A place without what was stored.
    std::fs::create_dir(server.place.place()).unwrap();
    assert!(!server.has(2));
    std::fs::remove_dir(server.place.place()).unwrap();
    std::fs::rename(&away, server.place.place()).unwrap();
    assert!(server.has(2));
    // A copy of an object is not the one that was made durable.
    let object = server.place.objects().remove(0);
    let copy = object.with_extension("copy");
    std::fs::copy(&object, &copy).unwrap();
    std::fs::rename(&copy, &object).unwrap();
    assert!(!server.has(2));
}

#[test]
fn a_segment_that_cannot_be_stored_ends_it_before_there_is_a_gap() {
    let server = Server::new(1..8);
    std::fs::write(server.path(4), "torn").unwrap();
    let error = server.store(1).unwrap_err();
    assert!(matches!(error, RepositoryError::Segment { .. }), "{error}");
    assert!(server.has(2) && server.has(3));
    for number in 4..8 {
        assert!(!server.has(number));
        assert_eq!(
            server.place.fetch(&name(1, number)).unwrap().0,
            Fetched::Absent
        );
    }
    let told = server.ahead().failure().unwrap();
    assert!(told.contains("is shorter than the header"), "{told}");
    assert_eq!(server.ahead().failure(), None);
}

#[test]
fn two_places_share_nothing() {
    let server = Server::new(1..5);
    server.store(1).unwrap();
    let other = PushRequest {
        place: windlass_repository::Place::directory(server.place.dir.path().join("data")),
        ..server.request(1)
    };
    let other = Ahead::of(&server.root, &other).unwrap();
    assert!(server.has(2) && !other.has(&server.path(2)).unwrap());
}

/// Whether somebody waits for a lock of this file.
fn is_waited_for(file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let waits = |line: &str| line.contains("->") && line.contains(&inode);
    locks.lines().any(waits)
}

#[test]
fn a_call_waits_for_the_segment_that_is_being_stored() {
    let server = Server::new(1..4);
    server.store(1).unwrap();
    let path = server.group();
    let receipts = std::fs::read(&path).unwrap();
    // As it is while the object is being written.
    std::fs::write(&path, "").unwrap();
    let file = Locked::take(File::options().write(true).open(&path).unwrap()).unwrap();
    let found = file.metadata().unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| server.has(3));
        while !is_waited_for(&found) {
            std::thread::yield_now();
        }
        std::fs::write(&path, &receipts).unwrap();
        drop(file);
        assert!(call.join().unwrap());
    });
    // A run that was killed wrote nothing, or not all of it.
    for length in (0..receipts.len()).step_by(7) {
        std::fs::write(&path, &receipts[..length]).unwrap();
        assert!(!server.has(3), "{length}");
    }
}

/// Two runs at the same time: one of them stores.
#[test]
fn only_one_process_stores_ahead() {
    let server = Server::new(1..4);
    server.store(1).unwrap();
    let lock = server.group().with_file_name("lock");
    let _held = Locked::take(File::open(&lock).unwrap()).unwrap();
    std::fs::remove_file(server.group()).unwrap();
    assert_eq!(server.store(1).unwrap(), 0);
    assert!(!server.has(2));
}

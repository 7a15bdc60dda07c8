//! Segments that are fetched ahead: they are what the place has, and never an answer of their own.

use std::path::PathBuf;

use windlass_repository::{RepositoryError, Spool};

use crate::support::*;

struct Ahead {
    place: Place,
    root: PathBuf,
}

impl Ahead {
    /// A place with these segments, and a directory for what is fetched ahead.
    fn new(numbers: &[u64]) -> Self {
        let place = Place::new();
        for number in numbers {
            place.push(&place.segment((1, *number), *number)).unwrap();
        }
        let root = place.dir.path().join("spool");
        std::fs::create_dir(&root).unwrap();
        Self { place, root }
    }

    fn spool(&self) -> Spool {
        Spool::of(&self.root, &self.place.log()).unwrap()
    }

    fn fill(&self, asked: u64) -> usize {
        let asked = name(1, asked);
        self.spool()
            .fill(&self.place.log(), (&asked, 3), 2)
            .unwrap()
    }

    fn taken(&self, number: u64) -> Option<Vec<u8>> {
        let into = self.place.dir.path().join("taken");
        let taken = self.spool().take(&name(1, number), &into).unwrap();
        taken.map(|bytes| {
            let content = std::fs::read(&into).unwrap();
            assert_eq!(content.len() as u64, bytes);
            content
        })
    }

    /// The segments in all directories of the spool.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for directory in std::fs::read_dir(&self.root).unwrap() {
            for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
                names.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        names.retain(|name| name != "lock");
        names.sort();
        names
    }
}

#[test]
fn the_next_segments_are_there_before_they_are_asked_for() {
    let ahead = Ahead::new(&[5, 6, 7, 8, 9]);
    assert_eq!(ahead.taken(6), None);
    assert_eq!(ahead.fill(5), 3);
    assert_eq!(ahead.names(), [6, 7, 8].map(|number| name(1, number)));
    for number in [6, 7] {
        let right = std::fs::read(ahead.place.wal(&name(1, number))).unwrap();
        assert_eq!(ahead.taken(number), Some(right));
    }
    // What was passed goes, what is left stays, and the end of the log ends it.
    assert_eq!(ahead.fill(7), 2);
    assert_eq!(ahead.names(), [8, 9].map(|number| name(1, number)));
    assert_eq!(ahead.fill(9), 0);
    assert!(ahead.names().is_empty());
}

#[test]
fn more_is_fetched_when_half_of_it_is_taken_and_nobody_fetches() {
    let ahead = Ahead::new(&[5, 6, 7, 8, 9]);
    let is_wanted = |number, ahead_of| {
        let spool = ahead.spool();
        spool.is_wanted((&name(1, number), ahead_of)).unwrap()
    };
    assert!(is_wanted(5, 3));
    assert_eq!(ahead.fill(5), 3);
    assert!(!is_wanted(5, 3));
    // A directory in which half is enough: two of four.
    assert!(ahead.taken(6).is_some());
    assert!(!is_wanted(6, 3) && is_wanted(6, 4));
    assert!(ahead.taken(7).is_some());
    assert!(is_wanted(7, 3));
    // Somebody has the turn.
    let directory = std::fs::read_dir(&ahead.root).unwrap().next().unwrap();
    let lock = std::fs::File::open(directory.unwrap().path().join("lock")).unwrap();
    lock.lock().unwrap();
    assert!(!is_wanted(7, 3));
    lock.unlock().unwrap();
    assert!(is_wanted(7, 3));
}

#[test]
fn a_segment_that_the_place_has_not_whole_is_not_kept() {
    let ahead = Ahead::new(&[5, 7]);
    let gap = ahead.spool().fill(&ahead.place.log(), (&name(1, 5), 3), 1);
    assert!(matches!(gap, Err(RepositoryError::Gap { .. })), "{gap:?}");
    assert!(ahead.names().is_empty());
    let part = Ahead::new(&[5]);
    let bytes = std::fs::read(part.place.segment((1, 6), 6)).unwrap();
    let start = windlass_postgres::Lsn(6 * SEGMENT);
    let of = (windlass_postgres::Timeline(1), 1 << 20);
    let mut log = windlass_repository::GrowingLog::open(&part.place.log(), of, start, 1).unwrap();
    log.append(start, &bytes[..5000]).unwrap();
    log.sync().unwrap();
    assert_eq!(part.fill(5), 0);
    assert!(part.names().is_empty());
}

#[test]
fn a_damaged_object_is_never_kept() {
    let ahead = Ahead::new(&[5, 6]);
    let path = &ahead.place.objects()[1];
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let filled = ahead.spool().fill(&ahead.place.log(), (&name(1, 5), 3), 1);
    assert!(filled.unwrap_err().is_damage());
    assert!(ahead.names().is_empty());
}

#[test]
fn two_places_and_two_runs_of_a_machine_share_nothing() {
    let one = Ahead::new(&[5, 6]);
    let other = Ahead::new(&[5]);
    other.place.push(&other.place.segment((1, 6), 77)).unwrap();
    one.fill(5);
    let spool = Spool::of(&one.root, &other.place.log()).unwrap();
    let into = one.place.dir.path().join("other");
    assert_eq!(spool.take(&name(1, 6), &into).unwrap(), None);
    // What an earlier run of the machine left may be cut off.
    let earlier = one
        .root
        .join("windlass-00000000000000000000000000000000-0123456789abcdef");
    std::fs::create_dir(&earlier).unwrap();
    std::fs::write(earlier.join(name(1, 6)), "cut off").unwrap();
    one.fill(5);
    assert!(!earlier.exists());
    assert!(one.taken(6).is_some());
}

/// A server that asks while its next segment is being fetched gets that one.
#[test]
fn a_segment_that_is_being_fetched_is_waited_for() {
    use std::os::unix::fs::MetadataExt;
    let ahead = Ahead::new(&[5, 6]);
    ahead.fill(5);
    let entry = std::fs::read_dir(&ahead.root).unwrap().next().unwrap();
    let directory = entry.unwrap().path();
    let (there, away) = (directory.join(name(1, 6)), ahead.root.join("away"));
    std::fs::rename(&there, &away).unwrap();
    let busy = directory.join(format!("{}.busy", name(1, 6)));
    let file = std::fs::File::create(&busy).unwrap();
    let lock = windlass_engine::durable::Locked::take(file).unwrap();
    let inode = format!(":{} ", lock.metadata().unwrap().ino());
    let right = std::fs::read(&away).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ahead.taken(6));
        let waits = |line: &str| line.contains("->") && line.contains(&inode);
        let locks = || std::fs::read_to_string("/proc/locks").unwrap();
        while !locks().lines().any(waits) {
            std::thread::yield_now();
        }
        std::fs::rename(&away, &there).unwrap();
        drop(lock);
        assert_eq!(asked.join().unwrap(), Some(right));
    });
    // The process that fetched was killed: nobody waits for it.
    assert_eq!(ahead.taken(6), None);
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let ahead = Ahead::new(&[5, 6]);
    ahead.fill(5);
    let entry = std::fs::read_dir(&ahead.root).unwrap().next().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(entry.unwrap().path(), open).unwrap();
    let error = Spool::of(&ahead.root, &ahead.place.log()).unwrap_err();
    assert!(matches!(error, RepositoryError::Spool { .. }), "{error}");
}

//! The log of a SQLite database: every record that was written is read again.

use std::path::Path;

use tempfile::TempDir;
use windlass_engine::Cancel;
use windlass_engine::media::{LOG_FRAMES_MAX, LogRecord, RecordKind};
use windlass_repository::{
    CheckDepth, CommitLog, CommitReader, LogPlace, NewCommit, RepositoryError, StandAbout,
    TimelineLog, database_number, link,
};
use windlass_sqlite::{Commit, LogCapture, LogPoint, SqliteError, Standing};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec};

/// A database with one transaction that is captured again and again, and the place of its log.
pub struct Captured {
    dir: TempDir,
    pub capture: LogCapture,
}

impl Captured {
    /// Syncs cost nothing in memory, and these tests make many.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::Builder::new()
                .prefix("windlass-")
                .tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let dir = dir.unwrap();
        std::fs::create_dir(dir.path().join("place")).unwrap();
        let spec = LedgerSpec {
            accounts: 2,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&dir.path().join("shop.db"), spec);
        let capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
        ledger.commit(1, 1);
        Self { dir, capture }
    }

    pub fn log(&self) -> LogPlace {
        let number = database_number(&self.capture.key());
        let place = windlass_repository::Place::directory(self.dir.path().join("place"));
        LogPlace::of_database(&place, number)
    }

    pub fn stand(&self) -> (LogRecord, StandAbout) {
        let standing = self.capture.standing().unwrap();
        let (page_bytes, page_count) = self.capture.shape();
        let head = LogRecord {
            kind: RecordKind::Stand,
            page_bytes,
            page_count,
            count: 0,
            frame: standing.point.frame,
            salts: standing.point.salts,
            sums: standing.point.sums,
            number: 0,
            after_nanos: 1,
            by_nanos: 1,
        };
        let about = StandAbout {
            key: self.capture.key(),
            standing,
            lost: None,
            watch: None,
            booted_nanos: None,
        };
        (head, about)
    }

    /// Gives the transaction to `keep`.
    pub fn look(&mut self, mut keep: impl FnMut(&LogCapture, &Commit)) {
        let looked = self.capture.look(&Cancel::new(), |capture, look| {
            look.commits.iter().for_each(|commit| keep(capture, commit));
            Ok::<_, SqliteError>(())
        });
        looked.unwrap();
    }
}

pub fn keep(log: &mut CommitLog, capture: &LogCapture, commit: &Commit) {
    let new = NewCommit {
        commit: *commit,
        after_nanos: 1,
        by_nanos: 1,
    };
    let kept = log.commit(&new, |put| {
        let mut failed = None;
        let pages = capture.pages(commit, |number, bytes| {
            failed = failed.take().or(put(number, bytes).err());
            Ok::<_, SqliteError>(())
        });
        pages.unwrap();
        failed.map_or(Ok(()), Err::<(), RepositoryError>)
    });
    kept.unwrap();
}

/// An object of so many small frames is sealed before it is long.
#[test]
fn the_log_goes_on_behind_an_object_that_was_sealed_for_its_many_frames() {
    let mut captured = Captured::new();
    let place = captured.log();
    let mut log = CommitLog::open(&place).unwrap();
    let (stand, about) = captured.stand();
    log.begin(stand, about.clone()).unwrap();
    log.sync().unwrap();
    while place.objects(log.timeline()).unwrap()[0].end.is_none() {
        log.stand(stand, about.clone()).unwrap();
        log.sync().unwrap();
    }
    captured.look(|capture, commit| keep(&mut log, capture, commit));
    let timeline = log.timeline();
    log.end().unwrap();
    let mut reader = CommitReader::new(&place, timeline).unwrap();
    assert_eq!(reader.objects(), 2);
    let (mut stands, mut commits) = (0, 0);
    while let Some(record) = reader.next_record().unwrap() {
        match record.head().kind {
            RecordKind::Stand => stands += 1,
            RecordKind::Commit => commits += 1,
        }
    }
    assert_eq!((stands, commits), (LOG_FRAMES_MAX / 2 + 2, 1));
    // The next writer finds the end, too.
    assert_eq!(CommitLog::open(&place).unwrap().number(), 1);
    captured.capture.end().unwrap();
}

/// Whoever is killed before the lost transactions have come again leaves a log that tells of them.
#[test]
fn a_lost_end_is_told_until_the_first_look_was_kept() {
    let mut captured = Captured::new();
    let place = captured.log();
    let (stand, about) = captured.stand();
    let mut log = CommitLog::open(&place).unwrap();
    log.begin(stand, about.clone()).unwrap();
    log.sync().unwrap();
    let timeline = log.timeline();
    log.stand(stand, about.clone()).unwrap();
    log.sync().unwrap();
    drop(log);
    let path = place.objects(timeline).unwrap().remove(0).path;
    let object = std::fs::read(&path).unwrap();
    std::fs::write(&path, &object[..object.len() - 1]).unwrap();
    let lost = || TimelineLog::of(&place, timeline).unwrap().lost;
    assert_eq!(lost().len(), 1);
    // Killed before anything was kept, and after more was kept than was lost.
    drop(CommitLog::open(&place).unwrap());
    assert_eq!(lost().len(), 1);
    for _ in 0..2 {
        let mut log = CommitLog::open(&place).unwrap();
        log.go_on(stand, about.clone()).unwrap();
        for _ in 0..3 {
            log.stand(stand, about.clone()).unwrap();
        }
        log.sync().unwrap();
        assert_eq!(lost().len(), 1);
    }
    let mut log = CommitLog::open(&place).unwrap();
    log.go_on(stand, about).unwrap();
    captured.look(|capture, commit| keep(&mut log, capture, commit));
    log.sync().unwrap();
    log.admit_lost_ends().unwrap();
    assert_eq!(lost(), []);
    log.end().unwrap();
    assert_eq!(lost(), []);
    let checked = place
        .verify(CheckDepth::Everything, &Cancel::new())
        .unwrap();
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
    captured.capture.end().unwrap();
}

/// Right after a write its change time proves nothing. Two stands around a state do.
#[test]
fn a_state_that_was_pinned_right_after_a_stand_is_found_between_it_and_the_next_one() {
    let captured = Captured::new();
    let place = captured.log();
    let mut log = CommitLog::open(&place).unwrap();
    let (stand, mut about) = captured.stand();
    let point = LogPoint {
        salts: [0; 8],
        frame: 0,
        sums: [0; 2],
    };
    about.standing.point = point;
    let text = String::from(about.standing);
    let mut words: Vec<&str> = text.split(' ').collect();
    // Its change time proves nothing yet, however slow this machine is.
    words[9] = "0";
    let state = Standing::try_from(words.join(" ")).unwrap();
    about.standing = state;
    let stand_at = |by_nanos| LogRecord {
        frame: 0,
        salts: point.salts,
        sums: point.sums,
        by_nanos,
        ..stand
    };
    let seen = state.seen_nanos();
    log.begin(stand_at(seen - 1), about.clone()).unwrap();
    log.sync().unwrap();
    assert_eq!(link(&place, &state).unwrap(), None);
    log.stand(stand_at(seen + state.step_nanos()), about)
        .unwrap();
    log.sync().unwrap();
    let found = link(&place, &state).unwrap().unwrap();
    assert_eq!((found.number, found.since_nanos), (0, seen - 1));
    log.end().unwrap();
    captured.capture.end().unwrap();
}

/// A power cut takes back the change time of a file, and not what was written to it.
#[test]
fn a_file_is_not_that_of_a_stand_if_the_system_was_started_in_between() {
    for (later, is_found) in [(0, true), (1, false)] {
        let captured = Captured::new();
        let place = captured.log();
        let (stand, mut about) = captured.stand();
        let text = String::from(about.standing);
        let mut words: Vec<&str> = text.split(' ').collect();
        // Its log is empty, and its file was at rest.
        words[..4].fill("0");
        words[9] = "1";
        let state = Standing::try_from(words.join(" ")).unwrap();
        about.standing = state;
        about.booted_nanos = Some(state.seen_nanos() + later);
        let empty = LogRecord {
            frame: 0,
            salts: [0; 8],
            sums: [0; 2],
            ..stand
        };
        let mut log = CommitLog::open(&place).unwrap();
        log.begin(empty, about).unwrap();
        log.sync().unwrap();
        let found = link(&place, &state).unwrap();
        assert_eq!(found.is_some(), is_found);
        log.end().unwrap();
        captured.capture.end().unwrap();
    }
}

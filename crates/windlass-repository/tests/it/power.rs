//! A power cut right after log was stored: XFS is shut down under the place, so that everything is
//! gone that nobody had synced.

use windlass_engine::media::Codec;
use windlass_postgres::{Lsn, Timeline};
use windlass_repository::{
    CopyRequest, Fetched, GrowingLog, LogFileName, LogPlace, PushRequest, TimelineLog, copy, fetch,
    push,
};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::support::*;

/// A pg_wal elsewhere, and a place on a volume of its own.
struct Cut {
    volume: Volume,
    wal: Place,
}

impl Cut {
    fn new() -> Self {
        let volume = Volume::new(VolumeKind::Xfs, 320);
        std::fs::create_dir(volume.at().join("place")).unwrap();
        std::fs::File::open(volume.at())
            .unwrap()
            .sync_all()
            .unwrap();
        Self {
            volume,
            wal: Place::new(),
        }
    }

    fn log(&self) -> LogPlace {
        LogPlace::new(
            &windlass_repository::Place::directory(self.volume.at().join("place")),
            SYSTEM,
        )
    }

    fn push(&self, path: &std::path::Path, look_ahead: usize) {
        let request = PushRequest {
            place: windlass_repository::Place::directory(self.volume.at().join("place")),
            look_ahead: windlass_repository::LookAhead(look_ahead),
            ..self.wal.request(path)
        };
        push(&request).unwrap();
    }

    /// Cuts the power. What nobody synced must then be gone, or the test would prove nothing.
    fn cut(&mut self) {
        let unsynced = self.volume.at().join("unsynced");
        std::fs::write(&unsynced, [7; 4096]).unwrap();
        self.volume.cut_power();
        let left = std::fs::read(&unsynced).unwrap_or_default();
        assert_ne!(left, [7; 4096], "the power cut lost nothing");
    }

    fn fetched(&self, name: &str) -> Option<Vec<u8>> {
        let into = self.wal.dir.path().join("fetched");
        let name = LogFileName::parse(name).unwrap();
        match fetch(&self.log(), &name, &into, (1, None)).unwrap() {
            Fetched::Complete { .. } => Some(std::fs::read(&into).unwrap()),
            _ => None,
        }
    }
}

#[test]
fn what_was_pushed_survives_a_power_cut() {
    let mut cut = Cut::new();
    let segments: Vec<_> = (5..8).map(|at| cut.wal.segment((1, at), at)).collect();
    cut.push(&segments[0], 1);
    cut.cut();
    let whole = std::fs::read(&segments[0]).unwrap();
    assert_eq!(cut.fetched(&name(1, 5)), Some(whole.clone()));
    // The same content again is durable, too, whoever stored it.
    cut.wal.ready(&segments[2]);
    cut.push(&segments[1], 8);
    let history = cut.wal.wal("00000002.history");
    std::fs::write(&history, "1\t0/680000\tno reason\n").unwrap();
    cut.push(&history, 1);
    cut.cut();
    for (number, path) in (5..8).zip(&segments) {
        assert_eq!(cut.fetched(&name(1, number)), std::fs::read(path).ok());
    }
    assert!(cut.fetched("00000002.history").is_some());
}

#[test]
fn what_was_received_or_copied_survives_a_power_cut() {
    let mut cut = Cut::new();
    let bytes = std::fs::read(cut.wal.segment((1, 5), 5)).unwrap();
    let start = Lsn(5 * SEGMENT);
    let of = (Timeline(1), 1 << 20);
    let mut growing = GrowingLog::open(&cut.log(), of, start, 1).unwrap();
    growing.append(start, &bytes[..300_000]).unwrap();
    growing.sync().unwrap();
    let durable = growing.durable();
    drop(growing);
    cut.cut();
    let log = TimelineLog::of(&cut.log(), Timeline(1)).unwrap();
    assert_eq!(log.covered_from(start), durable);
    let end = Lsn(start.0 + 900_000);
    let copied = copy(
        &cut.log(),
        &CopyRequest {
            directory: cut.wal.wal(""),
            segment_bytes: SEGMENT,
            from: Lsn(0),
            end: (Timeline(1), end),
            history: Vec::new(),
            codec: Codec::Zstd(1),
            threads: 1,
        },
    );
    assert_eq!(copied.unwrap().bytes, end.0 - durable.0);
    cut.cut();
    let log = TimelineLog::of(&cut.log(), Timeline(1)).unwrap();
    assert_eq!(log.covered_from(start), end);
}

/// A run gave an object its name, and was killed before it synced that. The next receiver tells the
/// server that the log before its position is durable.
#[test]
fn what_a_killed_run_named_is_durable_when_the_next_one_goes_on() {
    let mut cut = Cut::new();
    cut.push(&cut.wal.segment((1, 5), 5), 1);
    let [sealed] = &cut.log().objects(Timeline(1)).unwrap()[..] else {
        panic!()
    };
    let hidden = sealed.path.with_extension("hidden");
    std::fs::rename(&sealed.path, &hidden).unwrap();
    let folder = std::fs::File::open(sealed.path.parent().unwrap()).unwrap();
    folder.sync_all().unwrap();
    drop(folder);
    std::fs::rename(&hidden, &sealed.path).unwrap();
    let end = Lsn(6 * SEGMENT);
    let growing = GrowingLog::open(&cut.log(), (Timeline(1), 1 << 20), end, 1).unwrap();
    assert_eq!(growing.durable(), end);
    drop(growing);
    cut.cut();
    let log = TimelineLog::of(&cut.log(), Timeline(1)).unwrap();
    assert_eq!(log.covered_from(Lsn(5 * SEGMENT)), end);
}

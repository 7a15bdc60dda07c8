//! Tests of the log reader with logs made here: correct ones across every boundary, and hostile
//! ones.

use proptest::prelude::*;
use windlass_media::crc32c;

use super::effects::{DatabaseDirectory, Effect, MANAGERS, next_effect};
use super::pages::LogEnd;
use super::records::{Record, Records};
use super::source::LogSource;
use crate::error::PostgresError;
use crate::lsn::Lsn;

const SEGMENT: u64 = 1 << 20;
const PAGE: u64 = 8192;
const MAGIC: u16 = 0xD110;
/// The log begins with this segment.
const FIRST: u64 = 3;

/// A log in memory.
struct Bytes(Vec<u8>);

impl LogSource for Bytes {
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> Result<bool, PostgresError> {
        let Some(number) = segment.checked_sub(FIRST) else {
            return Ok(false);
        };
        let from = usize::try_from(number * SEGMENT + offset).unwrap();
        let Some(bytes) = self.0.get(from..from + into.len()) else {
            return Ok(false);
        };
        into.copy_from_slice(bytes);
        Ok(true)
    }
}

/// Writes records as a server does.
struct Writer {
    bytes: Vec<u8>,
    previous: u64,
}

impl Writer {
    fn new() -> Self {
        let mut writer = Self {
            bytes: Vec::new(),
            previous: 0,
        };
        writer.begin_page(0, 0);
        writer
    }

    fn position(&self) -> Lsn {
        Lsn(FIRST * SEGMENT + self.bytes.len() as u64)
    }

    fn begin_page(&mut self, flags: u16, rest: u32) {
        let position = self.position().0;
        let long = position.is_multiple_of(SEGMENT);
        let flags = flags | if long { 2 } else { 0 };
        self.bytes.extend(MAGIC.to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend(1_u32.to_le_bytes());
        self.bytes.extend(position.to_le_bytes());
        self.bytes.extend(rest.to_le_bytes());
        self.bytes.extend([0; 4]);
        if long {
            self.bytes.extend(77_u64.to_le_bytes());
            self.bytes.extend((SEGMENT as u32).to_le_bytes());
            self.bytes.extend((PAGE as u32).to_le_bytes());
        }
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        if (self.bytes.len() as u64).is_multiple_of(PAGE) {
            self.begin_page(0, 0);
        }
    }

    /// Appends a record. Returns where it begins.
    fn record(&mut self, manager: u8, info: u8, body: &[u8]) -> Lsn {
        self.align();
        let start = self.position();
        let record = record_bytes(self.previous, manager, info, body);
        self.put(&record);
        self.previous = start.0;
        start
    }

    fn put(&mut self, mut record: &[u8]) {
        while !record.is_empty() {
            if (self.bytes.len() as u64).is_multiple_of(PAGE) {
                self.begin_page(1, record.len() as u32);
            }
            let room = PAGE as usize - self.bytes.len() % PAGE as usize;
            let (part, rest) = record.split_at(room.min(record.len()));
            self.bytes.extend(part);
            record = rest;
        }
    }

    /// Fills the page with zeros.
    fn end_page(&mut self) {
        let length = self.bytes.len().next_multiple_of(PAGE as usize);
        self.bytes.resize(length, 0);
    }

    /// The log, with its last segment filled up with zeros.
    fn finish(mut self) -> Bytes {
        let length = self.bytes.len().next_multiple_of(SEGMENT as usize);
        self.bytes.resize(length, 0);
        Bytes(self.bytes)
    }
}

fn record_bytes(previous: u64, manager: u8, info: u8, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(24 + body.len());
    record.extend((24 + body.len() as u32).to_le_bytes());
    record.extend(9_u32.to_le_bytes());
    record.extend(previous.to_le_bytes());
    record.extend([info, manager, 0, 0]);
    let crc = crc32c(&[body, &record].concat());
    record.extend(crc.to_le_bytes());
    record.extend(body);
    record
}

/// A body that holds only main data.
fn main_data(words: &[u32]) -> Vec<u8> {
    let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    [&[255, data.len() as u8], data.as_slice()].concat()
}

fn read_all(log: &mut Bytes, start: Lsn) -> (Vec<Record>, LogEnd) {
    let mut records = Records::open(log, SEGMENT, start, &MANAGERS).unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.read_next().unwrap() {
        found.push(record);
    }
    (found, records.end().unwrap())
}

fn start_of_log() -> Lsn {
    Lsn(FIRST * SEGMENT + 40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_read_over_pages_and_segments(
        bodies in proptest::collection::vec((0_u8..22, 0_usize..40_000), 1..60)
    ) {
        let mut writer = Writer::new();
        let mut expected = Vec::new();
        for (manager, length) in bodies {
            // Records of the database manager are never that long.
            let length = if MANAGERS.contains(&manager) { length % 500 } else { length };
            let body: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let start = writer.record(manager, 0, &body);
            expected.push((start, manager, 24 + length as u32));
        }
        let end = writer.position();
        let mut log = writer.finish();
        let (found, stopped) = read_all(&mut log, start_of_log());
        let found: Vec<_> = found.iter().map(|one| (one.start, one.manager, one.bytes)).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(stopped.at >= end);
    }

    #[test]
    fn a_flipped_bit_ends_the_log_at_its_record_or_the_one_before(
        at in 0_u64..900_000, bit in 0_u8..8
    ) {
        let mut writer = Writer::new();
        let mut starts = Vec::new();
        while (writer.bytes.len() as u64) < SEGMENT - 30_000 {
            starts.push(writer.record(10, 0, &[5; 3000]));
        }
        let mut log = writer.finish();
        log.0[usize::try_from(at).unwrap()] ^= 1 << bit;
        let begun = Records::open(&mut log, SEGMENT, start_of_log(), &MANAGERS);
        let Ok(mut records) = begun else { return Ok(()) };
        let mut count = 0;
        while records.read_next().unwrap().is_some() {
            count += 1;
        }
        // A flip may hit bytes without a checksum: padding, and fields of page headers other than
        // magic, position and kind.
        let hit = starts.partition_point(|start| start.0 - FIRST * SEGMENT <= at);
        prop_assert!(count == starts.len() || count + 1 == hit || count == hit, "{} {}", count, hit);
    }

    #[test]
    fn random_bytes_and_random_changes_harm_nothing(
        seed in proptest::collection::vec(any::<u8>(), 1..200),
        changes in proptest::collection::vec((0_usize..200_000, any::<u8>()), 0..40),
        lengths in proptest::collection::vec(0_usize..20_000, 0..12),
        start in 0_u64..SEGMENT,
    ) {
        let mut writer = Writer::new();
        for length in lengths {
            let body: Vec<u8> = seed.iter().copied().cycle().take(length).collect();
            writer.record(seed[0] % 9, seed[seed.len() - 1], &body);
        }
        let mut log = writer.finish();
        for (at, byte) in changes {
            log.0[at] = byte;
        }
        for position in [start_of_log(), Lsn(FIRST * SEGMENT + start)] {
            let Ok(mut records) = Records::open(&mut log, SEGMENT, position, &MANAGERS) else {
                continue;
            };
            while let Ok(Some(_)) = next_effect(&mut records) {}
        }
    }

    #[test]
    fn random_bodies_are_no_effect_or_one_that_they_state(
        body in proptest::collection::vec(any::<u8>(), 0..80),
        manager in 4_u8..8,
        info in any::<u8>(),
    ) {
        let record = Record {
            start: Lsn(1),
            end: Lsn(2),
            bytes: 24 + body.len() as u32,
            manager,
            info: info & 0xF0,
            transaction: 0,
            body,
        };
        for major in [14, 15, 18] {
            let _effect = Effect::of(major, &record);
        }
    }
}

#[test]
fn effects_are_those_of_the_version_that_wrote_the_log() {
    let directory = |database, tablespace| DatabaseDirectory {
        database,
        tablespace,
    };
    let record = |manager, info, body: Vec<u8>| Record {
        start: Lsn(1),
        end: Lsn(2),
        bytes: 0,
        manager,
        info,
        transaction: 0,
        body,
    };
    let copied = record(4, 0, main_data(&[1, 2, 3, 4]));
    let expected = Effect::DatabaseCopied {
        to: directory(1, 2),
        from: directory(3, 4),
    };
    assert_eq!(Effect::of(14, &copied), Some(expected.clone()));
    assert_eq!(Effect::of(18, &copied), Some(expected));
    let dropped = Effect::DatabaseDropped(vec![directory(1, 8), directory(1, 9)]);
    let body = main_data(&[1, 2, 8, 9]);
    assert_eq!(
        Effect::of(14, &record(4, 0x10, body.clone())),
        Some(dropped.clone())
    );
    assert_eq!(Effect::of(15, &record(4, 0x20, body)), Some(dropped));
    let logged = record(4, 0x10, main_data(&[1, 2]));
    assert_eq!(
        Effect::of(15, &logged),
        Some(Effect::DatabaseCreated(directory(1, 2)))
    );
    let path = [&[255, 11][..], &7_u32.to_le_bytes(), b"/srv/x\0"].concat();
    let created = Effect::TablespaceCreated {
        tablespace: 7,
        path: b"/srv/x".to_vec(),
    };
    assert_eq!(Effect::of(15, &record(5, 0, path)), Some(created));
    // The numbers of a transaction and of an origin may stand before the data.
    let marked = [&[252, 1, 1, 1, 1, 253, 2, 2][..], &main_data(&[7])].concat();
    assert_eq!(
        Effect::of(15, &record(5, 0x10, marked)),
        Some(Effect::TablespaceDropped(7))
    );
    // A count that goes beyond the data is not valid.
    assert_eq!(
        Effect::of(15, &record(4, 0x20, main_data(&[1, u32::MAX, 8]))),
        None
    );
}

#[test]
fn a_switch_leaves_the_rest_of_its_segment_unread() {
    let mut writer = Writer::new();
    writer.record(10, 0, &[1; 100]);
    writer.record(0, 0x40, &[]);
    writer.align();
    // PostgreSQL writes headers of empty pages up to the end; here they are simply zeros.
    let length = writer.bytes.len().next_multiple_of(SEGMENT as usize);
    writer.bytes.resize(length, 0);
    writer.begin_page(0, 0);
    let after = writer.record(11, 0, &[2; 100]);
    let (found, end) = read_all(&mut writer.finish(), start_of_log());
    assert_eq!(found.len(), 3);
    assert_eq!(found[2].start, after);
    assert_eq!(end.what, "no record begins here");
}

#[test]
fn a_record_that_a_crash_cut_off_is_passed_over() {
    let mut writer = Writer::new();
    writer.record(10, 0, &[1; 100]);
    writer.align();
    let cut = record_bytes(writer.previous, 10, 0, &[3; 20_000]);
    let room = PAGE as usize - writer.bytes.len() % PAGE as usize;
    writer.bytes.extend(&cut[..room]);
    // The restarted server began the next page with a flag that says so.
    writer.begin_page(8, 0);
    let after = writer.record(0, 0xD0, &[0; 16]);
    writer.end_page();
    let (found, _) = read_all(&mut writer.finish(), start_of_log());
    assert_eq!(found.last().map(|record| record.start), Some(after));
    assert_eq!(found.len(), 2);
}

#[test]
fn what_is_no_log_is_refused_with_its_position() {
    for (at, byte) in [(0, 0x11), (33, 9), (37, 1)] {
        let mut log = Writer::new().finish();
        log.0[at] = byte;
        let refused = Records::open(&mut log, SEGMENT, start_of_log(), &[]).err();
        let at_start = matches!(
            refused,
            Some(PostgresError::WalRecord { at, .. }) if at == start_of_log()
        );
        assert!(at_start, "{refused:?}");
    }
    let mut log = Writer::new().finish();
    assert!(Records::open(&mut log, 3 << 20, start_of_log(), &[]).is_err());
    assert!(Records::open(&mut log, SEGMENT, Lsn(0), &[]).is_err());
}

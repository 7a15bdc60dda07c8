//! Pages that SQLite wrote: every database comes back, also torn and damaged.

use std::fs;
use std::sync::OnceLock;

use proptest::prelude::*;
use rusqlite::Connection;
use windlass_pages::Layout;

use crate::support::{Codec, Draw, damage, page_size, round_trip};

const FRAME_BYTES: usize = 131_072;
const PAGE_SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

/// Tables and indexes with all kinds of values, cells that go on elsewhere, and rows that are gone.
const CONTENT: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT, price REAL, day TEXT, note TEXT);
    CREATE INDEX by_customer ON orders (customer, day);
    CREATE INDEX by_note ON orders (note);
    CREATE TABLE words (word TEXT, number, PRIMARY KEY (word, number)) WITHOUT ROWID;
    CREATE TABLE blobs (id INTEGER PRIMARY KEY, content BLOB, hash BLOB);
    CREATE TABLE numbers (a, b, c, d, e, f);
    CREATE TABLE narrow (a);
    CREATE INDEX by_a ON narrow (a);
    INSERT INTO orders WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 6000)
        SELECT n, abs(random() % 900), (n * 7919 % 100000) / 100.0,
            date('2020-01-01', '+' || (n * 31 % 1000) || ' days'),
            CASE n % 5 WHEN 0 THEN NULL ELSE 'note ' || (random() % 50) || char(0x263a) END FROM n;
    INSERT OR IGNORE INTO words SELECT note, n.id % 3 FROM orders n WHERE note IS NOT NULL;
    INSERT OR IGNORE INTO words SELECT 'w' || abs(random()), -id FROM orders;
    INSERT INTO blobs SELECT id, randomblob(id * 37 % 9000), randomblob(16) FROM orders
        WHERE id % 8 = 0;
    INSERT INTO numbers SELECT id - 3000, id * 1000003, (id - 3000) * 70000000001,
        random(), 1.0 / id, CASE id % 4 WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 2 THEN NULL ELSE 'x' END
        FROM orders;
    INSERT INTO narrow SELECT id % 2 FROM orders;
    ALTER TABLE orders ADD COLUMN late INT DEFAULT 5;
    INSERT INTO orders (customer, price, late) SELECT id, id, id * 300 FROM orders WHERE id < 500;
    DELETE FROM orders WHERE id % 3 = 0;
    DELETE FROM blobs WHERE id % 5 = 0;
    UPDATE words SET number = number + 10 WHERE number > 0;
    UPDATE orders SET note = 'longer note ' || id WHERE id % 7 = 0;";

/// The pages of a database made with these pragmas.
fn database(pragmas: &str, reserved: u8) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("test.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(pragmas).unwrap();
    if reserved > 0 {
        reserve(&connection, reserved);
    }
    connection
        .execute_batch(&format!("BEGIN; {CONTENT} COMMIT;"))
        .unwrap();
    drop(connection);
    fs::read(path).unwrap()
}

/// Asks SQLite to leave bytes at the end of each page alone.
#[expect(unsafe_code, reason = "SQLite has no SQL for it")]
fn reserve(connection: &Connection, bytes: u8) {
    let mut bytes = i32::from(bytes);
    // SAFETY: the connection is open, and this operation takes a pointer to an int.
    let result = unsafe {
        rusqlite::ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            rusqlite::ffi::SQLITE_FCNTL_RESERVE_BYTES,
            (&raw mut bytes).cast(),
        )
    };
    assert_eq!(result, rusqlite::ffi::SQLITE_OK);
}

fn sqlite(size: u32, reserved_bytes: u8) -> Layout {
    let page_size = page_size(size);
    Layout::Sqlite {
        page_size,
        reserved_bytes,
    }
}

fn build() -> Vec<(Layout, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut add = |size: u32, reserved, pragmas: &str| {
        let pragmas = format!("PRAGMA page_size = {size}; {pragmas}");
        let bytes = database(&pragmas, reserved);
        assert_eq!((bytes[20], bytes.len() % size as usize), (reserved, 0));
        let cut = bytes.chunks(FRAME_BYTES).map(<[u8]>::to_vec);
        frames.extend(cut.map(|frame| (sqlite(size, reserved), frame)));
    };
    for size in PAGE_SIZES {
        add(size, 0, "");
    }
    add(4096, 0, "PRAGMA encoding = 'UTF-16le';");
    add(4096, 0, "PRAGMA auto_vacuum = FULL;");
    add(
        1024,
        0,
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA encoding = 'UTF-16be';",
    );
    add(4096, 0, "PRAGMA secure_delete = ON;");
    add(4096, 0, "PRAGMA legacy_file_format = ON;");
    add(4096, 8, "");
    add(512, 32, "");
    frames
}

/// Frames of databases of all kinds; made once.
pub fn frames() -> &'static [(Layout, Vec<u8>)] {
    static FRAMES: OnceLock<Vec<(Layout, Vec<u8>)>> = OnceLock::new();
    FRAMES.get_or_init(build)
}

#[test]
fn every_database_comes_back_in_fewer_bytes() {
    let mut codec = Codec::default();
    let (mut raw_bytes, mut bytes) = (0, 0);
    for (layout, raw) in frames() {
        raw_bytes += raw.len();
        bytes += codec.round_trip(layout, raw).unwrap_or(raw.len());
    }
    assert!(bytes * 10 < raw_bytes * 9, "{bytes} of {raw_bytes}");
}

#[test]
fn damaged_leaves_come_back() {
    let mut codec = Codec::default();
    let mut draw = Draw::new(11);
    for (layout, raw) in frames() {
        let mut raw = raw.clone();
        for _ in 0..4 {
            for _ in 0..=draw.below(30) {
                damage(&mut raw, &mut draw);
            }
            codec.round_trip(layout, &raw);
        }
    }
}

/// Damage at the beginnings of pages hits headers, pointers and the headers of cells.
#[test]
fn leaves_with_damaged_headers_come_back() {
    let mut codec = Codec::default();
    let mut draw = Draw::new(12);
    for (layout, raw) in frames() {
        let mut raw = raw.clone();
        for page in raw.chunks_mut(layout.page_size().bytes()) {
            let at = draw.below(14);
            page[at] = page[at].wrapping_add(1 + (draw.next() & 3) as u8);
        }
        codec.round_trip(layout, &raw);
    }
}

#[test]
fn torn_leaves_come_back() {
    let mut codec = Codec::default();
    for pair in frames().windows(2) {
        let ((layout, raw), (_, other)) = (&pair[0], &pair[1]);
        let halves = raw.chunks(256).zip(other.chunks(256).cycle()).enumerate();
        let torn = halves.flat_map(|(half, (raw, other))| if half % 2 == 0 { raw } else { other });
        let mut torn: Vec<u8> = torn.copied().collect();
        torn.resize(raw.len(), 0);
        codec.round_trip(layout, &torn);
    }
}

#[test]
fn leaves_come_back_with_other_page_sizes_and_reserved_bytes() {
    let mut codec = Codec::default();
    for (_, raw) in frames() {
        for (size, reserved) in [(512, 0), (4096, 0), (4096, 255), (512, 33), (65_536, 3)] {
            if raw.len().is_multiple_of(size as usize) {
                codec.round_trip(&sqlite(size, reserved), raw);
            }
        }
    }
}

#[test]
fn no_page_has_so_many_reserved_bytes() {
    let layout = sqlite(512, 33);
    assert_eq!(round_trip(&layout, &[0; 1024]), None);
    let decoded = windlass_pages::Decoder::new().decode(&layout, &[&[], &[]], &mut [0; 512]);
    assert!(decoded.is_err());
}

/// A leaf whose cells are drawn: records of all kinds, some not as SQLite writes them.
fn leaf(draw: &mut Draw, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let is_table = draw.below(2) == 0;
    page[0] = if is_table { 13 } else { 10 };
    let cells: Vec<Vec<u8>> = (0..draw.below(30)).map(|_| cell(draw, is_table)).collect();
    let (mut end, mut placed) = (bytes, 0);
    for cell in cells {
        end -= draw.below(4) / 3 * draw.below(9);
        let pointer_at = 8 + 2 * placed;
        if end < pointer_at + 2 + cell.len() {
            break;
        }
        end -= cell.len();
        page[end..end + cell.len()].copy_from_slice(&cell);
        page[pointer_at..pointer_at + 2].copy_from_slice(&(end as u16).to_be_bytes());
        placed += 1;
    }
    page[3..5].copy_from_slice(&(placed as u16).to_be_bytes());
    page[5..7].copy_from_slice(&(end as u16).to_be_bytes());
    if placed > 1 && draw.below(3) == 0 {
        let (one, other) = (8 + 2 * draw.below(placed), 8 + 2 * draw.below(placed));
        (0..2).for_each(|byte| page.swap(one + byte, other + byte));
    }
    page
}

fn cell(draw: &mut Draw, is_table: bool) -> Vec<u8> {
    let (mut types, mut body) = (Vec::new(), Vec::new());
    for _ in 0..draw.below(6) {
        let serial = draw.below(30) as u8;
        types.push(serial);
        let bytes = match serial {
            0 | 8..=11 => 0,
            1..=4 => usize::from(serial),
            5 => 6,
            6 | 7 => 8,
            _ => usize::from(serial - 12) / 2,
        };
        let small = draw.below(2) == 0;
        let zeros = if small { bytes.saturating_sub(2) } else { 0 };
        body.extend(std::iter::repeat_n(0, zeros));
        body.extend((zeros..bytes).map(|_| draw.next() as u8));
    }
    let mut cell = vec![(1 + types.len() + body.len()) as u8 & 0x7F];
    if is_table {
        cell.push(draw.next() as u8 & 0x7F);
    }
    cell.push((1 + types.len()) as u8);
    cell.extend(types);
    cell.extend(body);
    cell
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn drawn_leaves_come_back(
        seed in any::<u64>(),
        size in prop::sample::select(PAGE_SIZES.to_vec()),
        reserved in prop::sample::select(vec![0u8, 0, 0, 8, 32]),
        damages in 0usize..8,
    ) {
        let mut draw = Draw::new(seed);
        let pages = 1 + draw.below(5);
        let mut raw: Vec<u8> = (0..pages).flat_map(|_| leaf(&mut draw, size as usize)).collect();
        (0..damages).for_each(|_| damage(&mut raw, &mut draw));
        round_trip(&sqlite(size, reserved), &raw);
    }
}

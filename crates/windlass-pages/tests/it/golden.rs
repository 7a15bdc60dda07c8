//! Golden frames: pages that were taken apart once, which must be read for ever, also by the reader
//! that was written from the documents alone.
//!
//! `testdata/pages/v1/` holds frames of layout 1 as format.md describes them, stored without a
//! codec, and in `frames` for each its name, the length of its pages and their CRC-32C. With
//! WINDLASS_WRITE_GOLDEN set, frames are written if the directory is not there: for another layout,
//! never to make these tests pass.
//!
//! `btree-104` and `btree-105` were written by another writer, from docs/pages.md alone: columns of
//! every kind, posting lists, keys with NULLs and stale bytes in pages of 16 and 32 KiB. The
//! encoder would choose other ways.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use windlass_media::{
    Codec, Encoder, FrameDecoder, FrameEntry, LAYOUT_STREAMS, PageEncoder, PageFrame, PageLayout,
    Taken, crc32c,
};
use windlass_pages::Layout;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::starting;

use crate::corpus::description;
use crate::real::{MANY_TYPES, layouts};
use crate::support::page_size;
use crate::{btrees, leaves, made};

/// Longest frame that is kept; a page of SQLite may be longer.
const FRAME_BYTES: usize = 16_384;
/// Relations of users have file numbers from this one on.
const FIRST_OF_USERS: u32 = 16_384;

/// A frame as it was written.
pub struct Golden {
    pub name: String,
    pub stored: Vec<u8>,
    raw_bytes: u32,
    crc32c: u32,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn directory() -> PathBuf {
    root().join("testdata/pages/v1")
}

pub fn golden() -> &'static [Golden] {
    static GOLDEN: OnceLock<Vec<Golden>> = OnceLock::new();
    GOLDEN.get_or_init(read)
}

fn read() -> Vec<Golden> {
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() && !directory().exists() {
        write();
    }
    let list = fs::read_to_string(directory().join("frames")).unwrap();
    let frame = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        Golden {
            name: fields[0].to_owned(),
            stored: fs::read(directory().join(fields[0])).unwrap(),
            raw_bytes: fields[1].parse().unwrap(),
            crc32c: u32::from_str_radix(fields[2], 16).unwrap(),
        }
    };
    list.lines().map(frame).collect()
}

/// The pages of a frame.
pub fn decode(golden: &Golden) -> Vec<u8> {
    let parts = usize::from(golden.stored[0]);
    let laid_bytes = golden.stored.len() - 1 - 8 * parts;
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: golden.stored.len() as u32,
        raw_bytes: golden.raw_bytes,
        crc32c: crc32c(&golden.stored),
        codec: Codec::None,
        piece_count: 1,
        page: Some(PageFrame {
            raw_crc32c: golden.crc32c,
            laid_bytes: laid_bytes as u32,
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    };
    let mut pages = vec![0; golden.raw_bytes as usize];
    let mut decoder = FrameDecoder::new().unwrap();
    decoder.decode(&entry, &golden.stored, &mut pages).unwrap();
    pages
}

#[test]
fn pages_of_layout_1_are_read_for_ever() {
    let all = golden();
    for golden in all {
        assert_eq!(crc32c(&decode(golden)), golden.crc32c, "{}", golden.name);
    }
    for kind in ["heap", "btree", "sqlite"] {
        let of_kind = all.iter().filter(|golden| golden.name.starts_with(kind));
        assert!(of_kind.count() >= 8, "{kind}");
    }
}

#[test]
fn there_are_golden_pages_of_postgresql_of_every_size() {
    for kind in ["heap", "btree"] {
        let of_kind = golden().iter().filter(|it| it.name.starts_with(kind));
        let layouts = of_kind.map(|it| Layout::from_bytes(description(it)).unwrap());
        let found: Vec<usize> = layouts.map(|it| it.page_size().bytes()).collect();
        for bytes in btrees::SIZES {
            assert!(found.contains(&(bytes as usize)), "{kind}: {bytes}");
        }
    }
}

#[test]
fn the_reader_that_was_written_from_the_documents_gives_the_same_pages() {
    for golden in golden() {
        let mut command = Command::new("python3");
        command.arg(root().join("docs/format-reader.py"));
        command.arg("--frame").arg(directory().join(&golden.name));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let command = command.arg(golden.raw_bytes.to_string());
        let output = starting::output(command).expect("start python3 (Debian: python3)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", golden.name);
        assert!(output.stdout == decode(golden), "{}", golden.name);
    }
}

fn write() {
    let mut frames = of_postgres();
    let sqlite = leaves::frames().iter().enumerate();
    let sqlite = sqlite.filter(|(number, _)| number % 16 == 1);
    frames.extend(sqlite.map(|(_, (layout, raw))| (layout.clone(), cut(layout, raw))));
    frames.extend(made::samples());
    let sizes = btrees::SIZES.into_iter();
    frames.extend(sizes.map(|bytes| (btrees::layout(bytes), btrees::index(bytes, 3, 1))));
    frames.push(long_integers());
    fs::create_dir_all(directory()).unwrap();
    let mut list = String::new();
    for (number, (layout, raw)) in frames.iter().enumerate() {
        let kind = match layout {
            Layout::PostgresHeap { .. } => "heap",
            Layout::PostgresBtree { .. } => "btree",
            _ => "sqlite",
        };
        let Some(stored) = store(layout, raw) else {
            continue;
        };
        let name = format!("{kind}-{number:03}");
        fs::write(directory().join(&name), stored).unwrap();
        list += &format!("{name} {} {:08x}\n", raw.len(), crc32c(raw));
    }
    fs::write(directory().join("frames"), list).unwrap();
}

/// The stored bytes of a frame; `None` if its pages stay as they are.
fn store(layout: &Layout, raw: &[u8]) -> Option<Vec<u8>> {
    let layout = PageLayout::new(layout.clone());
    let (mut pages, mut codec) = (PageEncoder::default(), Encoder::new(Codec::None).unwrap());
    if pages.take_apart(&layout, raw) != Taken::Apart {
        return None;
    }
    let mut room = vec![0; raw.len() + 4096];
    let laid = pages.store(&layout, raw.len(), &mut codec, &mut room)?;
    room.truncate(laid.stored_bytes);
    Some(room)
}

fn cut(layout: &Layout, raw: &[u8]) -> Vec<u8> {
    let most = FRAME_BYTES.max(layout.page_size().bytes());
    raw[..raw.len().min(most)].to_vec()
}

/// The first and the last pages of each relation of a user.
fn of_postgres() -> Vec<(Layout, Vec<u8>)> {
    let options = ClusterOptions::default().setting("autovacuum = off");
    let mut cluster = PrivateCluster::start(&options);
    for statement in MANY_TYPES.split_inclusive(";\n") {
        cluster.sql("postgres", statement);
    }
    let mut layouts: Vec<_> = layouts(&cluster, "postgres", 8192).into_iter().collect();
    cluster.stop("fast");
    layouts.sort_by(|one, other| one.0.cmp(&other.0));
    let mut frames = Vec::new();
    for (path, layout) in layouts {
        let number = path.rsplit('/').next().unwrap().parse();
        let raw = fs::read(cluster.data().join(&path)).unwrap();
        if number.is_ok_and(|number: u32| number < FIRST_OF_USERS) || raw.is_empty() {
            continue;
        }
        frames.push((layout.clone(), cut(&layout, &raw)));
        if raw.len() > 2 * FRAME_BYTES {
            frames.push((layout, raw[raw.len() - FRAME_BYTES..].to_vec()));
        }
    }
    frames
}

/// A leaf of SQLite with integers that are longer than they need to be, as other writers make them.
fn long_integers() -> (Layout, Vec<u8>) {
    let (page_bytes, mut end, mut pointers) = (4096, 4096, Vec::new());
    let mut page = vec![0; page_bytes];
    for rowid in 1..=60 {
        let serial = rowid % 6 + 1;
        let bytes = [1, 2, 3, 4, 6, 8][usize::from(serial) - 1];
        let mut cell = vec![2 + bytes, rowid, 2, serial];
        cell.resize(4 + usize::from(bytes), 0);
        *cell.last_mut().unwrap() = rowid;
        end -= cell.len();
        page[end..end + cell.len()].copy_from_slice(&cell);
        pointers.extend((end as u16).to_be_bytes());
    }
    page[..8].copy_from_slice(&[13, 0, 0, 0, 60, (end >> 8) as u8, end as u8, 0]);
    page[8..8 + pointers.len()].copy_from_slice(&pointers);
    let layout = Layout::Sqlite {
        page_size: page_size(4096),
        reserved_bytes: 0,
    };
    (layout, page)
}

//! A golden set whose pages are taken apart (layout 1): it must restore for ever, and the reader
//! that was written from the documents alone reads it, too.
//!
//! Its files are frames of `testdata/pages/v1`. With WINDLASS_WRITE_GOLDEN set, the set is written
//! if it is not there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass_engine::media::windlass_pages::Layout;
use windlass_engine::media::{
    Codec, FrameDecoder, FrameEntry, LAYOUT_STREAMS, PageFrame, PageLayout, crc32c,
};
use windlass_engine::{Cancel, EngineError, PageClass, PageHook, Pages};
use windlass_testkit::starting;

use crate::support::*;

/// Each frame whose number is a multiple of this is a file of the set.
const EVERY: usize = 4;
const SET: &str = "media/v1/zstd-pages-apart-1";

fn testdata(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    root.join(name)
}

/// A golden frame: its name, what its pages are, and the pages.
struct Golden {
    name: String,
    layout: Layout,
    pages: Vec<u8>,
}

fn golden() -> Vec<Golden> {
    let list = std::fs::read_to_string(testdata("pages/v1/frames")).unwrap();
    let lines = list.lines().step_by(EVERY);
    lines.map(read).collect()
}

fn read(line: &str) -> Golden {
    let fields: Vec<&str> = line.split(' ').collect();
    let raw_crc32c = u32::from_str_radix(fields[2], 16).unwrap();
    let stored = std::fs::read(testdata("pages/v1").join(fields[0])).unwrap();
    // Without a codec, the laid out bytes are behind the part table as they are.
    let laid = &stored[1 + 8 * usize::from(stored[0])..];
    let mut pages = vec![0; fields[1].parse().unwrap()];
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: stored.len() as u32,
        raw_bytes: pages.len() as u32,
        crc32c: crc32c(&stored),
        codec: Codec::None,
        piece_count: 1,
        page: Some(PageFrame {
            raw_crc32c,
            laid_bytes: laid.len() as u32,
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    };
    let mut decoder = FrameDecoder::new().unwrap();
    decoder.decode(&entry, &stored, &mut pages).unwrap();
    assert_eq!(crc32c(&pages), raw_crc32c, "{}", fields[0]);
    Golden {
        name: fields[0].to_owned(),
        layout: Layout::from_bytes(description(laid)).unwrap(),
        pages,
    }
}

/// The description of the pages, behind the lengths of the streams.
fn description(laid: &[u8]) -> &[u8] {
    let mut at = 0;
    let mut number = || {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = laid[at];
            at += 1;
            value |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    };
    let streams = number();
    let mut lengths = (0..streams).map(|_| number());
    assert_eq!(lengths.by_ref().count(), streams);
    let bytes = number();
    &laid[at..at + bytes]
}

/// Says of each file what its pages are.
struct Classes(Vec<Arc<PageClass>>);

impl PageHook for Classes {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        let class = &self.0[pages.file().0 as usize];
        pages.classify(class);
        Ok(())
    }
}

fn write_set(golden: &[Golden]) {
    let setup = Setup {
        page_frames: true,
        ..Setup::small(1, Codec::Zstd(1))
    };
    let dir = testdata(SET);
    std::fs::create_dir_all(&dir).unwrap();
    let mut run = begin(&setup, file_devices(&dir, &setup), &Cancel::new()).unwrap();
    let class = |golden: &Golden| PageClass::new(PageLayout::new(golden.layout.clone()));
    let classes = golden.iter().map(|golden| Arc::new(class(golden)));
    run.set_hook(Arc::new(Classes(classes.collect())));
    for (index, golden) in golden.iter().enumerate() {
        run.push(bytes_spec(index, &golden.pages)).unwrap();
    }
    run.drain().unwrap();
    let tree = golden.iter().map(|it| (it.name.clone(), it.pages.clone()));
    let files = table(&run, &tree.collect());
    run.finish(files, facts()).unwrap();
}

#[test]
fn a_set_with_pages_taken_apart_restores_for_ever() {
    let golden = golden();
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() && !testdata(SET).exists() {
        write_set(&golden);
    }
    let set = verify(&[testdata(SET)]).unwrap();
    let into = tempfile::tempdir().unwrap();
    bring_back(&set, into.path()).unwrap();
    for golden in &golden {
        let found = std::fs::read(into.path().join(&golden.name)).unwrap();
        assert!(found == golden.pages, "{} differs", golden.name);
    }
    let stripe = &set.stripes()[0];
    let blocks = stripe.directory().iter();
    let frames = blocks.flat_map(|entry| stripe.index_block(entry).unwrap().frames);
    let apart = frames.filter(|frame| frame.page.unwrap().layout == LAYOUT_STREAMS);
    assert!(
        apart.count() * 2 > golden.len(),
        "few pages are taken apart"
    );
}

#[test]
fn the_reader_that_was_written_from_the_documents_reads_the_same_set() {
    for golden in golden().iter().step_by(3) {
        let mut command = Command::new("python3");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-reader.py");
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
        let stripes = std::fs::read_dir(testdata(SET)).unwrap();
        command.args(stripes.map(|entry| entry.unwrap().path()));
        let output = starting::output(command.arg("--file").arg(&golden.name));
        let output = output.expect("start python3 (Debian: python3, zstd)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", golden.name);
        assert!(output.stdout == golden.pages, "{}", golden.name);
    }
}

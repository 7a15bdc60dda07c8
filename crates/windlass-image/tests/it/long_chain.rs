//! A chain of thirty sets over ten terabytes in one file: what opening it and reading a page of it
//! cost, in reads and in memory. Neither follows the size of the database.
//!
//! Pages and frames have 4 MiB here, so that the index fits on a disk. But an index block tells of
//! as many bytes of the file as one that the engine writes for pages of 8 KiB: 700 MB in the full
//! set, and 7.5 GB in the others, of which each has one page of a hundred. So the chain has as many
//! index blocks as a real one, and these are what a reader finds its way by.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use windlass_engine::{FoundSet, METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_testkit::long_chain::{LABEL, LABEL_PAGE_BYTES, LongChain};
use windlass_testkit::reads::NotedReads;
use windlass_testkit::sqlite::Random;

use crate::chains::through_restore;

const SETS: u64 = 30;
const TERABYTE: u64 = 1_000_000_000_000;
const PAGE: u32 = 4 << 20;
/// How many pages are read at random places.
const PAGES: u64 = 20;
/// The stripe of the newest set, and the terabytes of its chain, for a child. The test runs itself
/// again in a child, to measure only itself.
const PLACE: &str = "WINDLASS_TEST_LONG_CHAIN";
const TERABYTES: &str = "WINDLASS_TEST_LONG_CHAIN_TERABYTES";
/// What one set may cost to open besides its list of index blocks.
const OPENED_BYTES_MAX: u64 = 64 << 10;
/// What one index block may cost to open: an entry of 80 bytes, and spans of 22 for each file.
const LISTED_BYTES_MAX: u64 = 256;
/// The longest index block, with room to spare.
const READ_BYTES_MAX: u64 = 16 << 10;
const FRAME_CACHE_BYTES: u64 = 8 << 20;
/// The bound of every run, the cache, and frames on their way: those that are kept for later
/// readers, eight, and the one that is read.
const MEMORY_MAX: u64 = (64 << 20) + FRAME_CACHE_BYTES + 9 * PAGE as u64;

fn chain(terabytes: u64) -> LongChain {
    LongChain {
        sets: SETS,
        bytes: terabytes * TERABYTE,
        file_bytes: 1 << 62,
        page_bytes: PAGE,
        pages_a_frame: 1,
        frames_a_block: 18,
        full_frame_bytes: PAGE,
        full_frames_a_block: 170,
        seed: 12,
    }
}

/// What it cost to open a chain, and to read pages of it.
#[derive(Debug)]
struct Cost {
    /// The index blocks of the full set, and of all sets.
    full_blocks: u64,
    blocks: u64,
    /// How often something was read to open the chain, and how many bytes that were.
    opened_reads: u64,
    opened_bytes: u64,
    /// The most reads that a page took, and the longest of these.
    page_reads: u64,
    longest_read: u64,
    /// The most memory that the process ever had.
    peak_bytes: u64,
}

impl Cost {
    fn to_words(&self) -> String {
        format!(
            "cost {} {} {} {} {} {} {}",
            self.full_blocks,
            self.blocks,
            self.opened_reads,
            self.opened_bytes,
            self.page_reads,
            self.longest_read,
            self.peak_bytes
        )
    }

    fn of_words(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.split("cost ").nth(1))?;
        let numbers = line.split_whitespace().map(|word| word.parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        Some(Self {
            full_blocks: *numbers.first()?,
            blocks: *numbers.get(1)?,
            opened_reads: *numbers.get(2)?,
            opened_bytes: *numbers.get(3)?,
            page_reads: *numbers.get(4)?,
            longest_read: *numbers.get(5)?,
            peak_bytes: *numbers.get(6)?,
        })
    }
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes = peak.trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() * 1024
}

fn blocks_of(set: &FoundSet) -> u64 {
    let stripes = set.stripes().iter();
    stripes.map(|stripe| stripe.directory().len() as u64).sum()
}

/// How long each read was since this was asked last.
fn lengths(noted: &NotedReads) -> Vec<u64> {
    let reads = noted.take().into_iter();
    reads.map(|(_, _, bytes)| bytes as u64).collect()
}

/// Opens the chain of a stripe, and reads some pages, which must be right.
fn measure(newest: PathBuf, chain: &LongChain) -> Cost {
    let noted = NotedReads::default();
    let set = OpenSet::open_in(&noted, &[newest], METADATA_LIMIT_DEFAULT).unwrap();
    let options = SetImageOptions {
        frame_cache_bytes: FRAME_CACHE_BYTES,
        ..SetImageOptions::default()
    };
    let image = SetImage::open(Arc::new(set), &options).unwrap();
    let opened = lengths(&noted);
    let mut random = Random(chain.seed);
    let mut pages = vec![chain.oldest_change()];
    pages.extend((0..PAGES).map(|_| random.bits() % chain.pages()));
    let (mut page_reads, mut longest_read, mut seen) = (0u64, 0u64, BTreeSet::new());
    for page in pages {
        let (file, offset) = chain.place_of(page);
        // Somewhere in the page.
        let skip = random.bits() % u64::from(PAGE - 8192);
        let mut found = [0xee; 8192];
        assert_eq!(image.read(file, offset + skip, &mut found).unwrap(), 8192);
        let fill = chain.fill(page);
        assert!(found.iter().all(|byte| *byte == fill), "page {page}");
        seen.insert(fill);
        let reads = lengths(&noted);
        page_reads = page_reads.max(reads.len() as u64);
        longest_read = reads.into_iter().fold(longest_read, u64::max);
    }
    assert!(seen.len() > 1, "both the full set and newer ones");
    let links: Vec<u64> = image.set().links().map(blocks_of).collect();
    assert_eq!(links.len() as u64, SETS);
    Cost {
        full_blocks: links[links.len() - 1],
        blocks: links.iter().sum(),
        opened_reads: opened.len() as u64,
        opened_bytes: opened.iter().sum(),
        page_reads,
        longest_read,
        peak_bytes: peak_bytes(),
    }
}

/// What a chain over so many terabytes costs in a process of its own.
fn cost(test: &str, terabytes: u64) -> Cost {
    let dir = tempfile::tempdir().unwrap();
    let newest = chain(terabytes).write(dir.path());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", test, "--nocapture"])
        .env(PLACE, newest)
        .env(TERABYTES, terabytes.to_string());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{failed}");
    let cost = Cost::of_words(&said);
    cost.unwrap_or_else(|| panic!("{said}{failed}"))
}

#[test]
fn thirty_sets_over_ten_terabytes_open_and_are_read_at_the_cost_of_one_terabyte() {
    let test =
        "long_chain::thirty_sets_over_ten_terabytes_open_and_are_read_at_the_cost_of_one_terabyte";
    if let Some(newest) = std::env::var_os(PLACE) {
        let terabytes = std::env::var(TERABYTES).unwrap().parse().unwrap();
        let cost = measure(PathBuf::from(newest), &chain(terabytes));
        println!("{}", cost.to_words());
        return;
    }
    let (one, ten) = (cost(test, 1), cost(test, 10));
    // As many index blocks as there are of so many bytes.
    assert!(ten.full_blocks > 14_000 && ten.blocks > 50_000, "{ten:?}");
    assert_eq!(one.opened_reads, ten.opened_reads, "{one:?} {ten:?}");
    for cost in [&one, &ten] {
        // Opening reads lists of index blocks, and none of these.
        let opened = SETS * OPENED_BYTES_MAX + cost.blocks * LISTED_BYTES_MAX;
        assert!(cost.opened_bytes <= opened, "{cost:?}");
        // A page is asked of each newer set, at most in two blocks; then of the full set by halves;
        // then its block and its frame are read.
        let halves = u64::from(cost.full_blocks.ilog2()) + 1;
        let most = 2 * (SETS - 1) + halves + 2;
        assert!(cost.page_reads <= most, "{most} reads: {cost:?}");
        assert!(cost.longest_read <= READ_BYTES_MAX, "{cost:?}");
        assert!(cost.peak_bytes < MEMORY_MAX, "{MEMORY_MAX}: {cost:?}");
    }
}

#[test]
fn a_small_chain_of_this_kind_is_what_a_restore_gives() {
    let dir = tempfile::tempdir().unwrap();
    let chain = LongChain {
        sets: 7,
        bytes: 512 * 5_050,
        file_bytes: 512 * 700,
        page_bytes: 512,
        pages_a_frame: 4,
        frames_a_block: 3,
        full_frame_bytes: 8192,
        full_frames_a_block: 20,
        seed: 3,
    };
    let newest = chain.write(dir.path());
    let set = OpenSet::open(&[newest], METADATA_LIMIT_DEFAULT).unwrap();
    set.check_index().unwrap();
    let set = Arc::new(set);
    let restored = through_restore(&set, &dir.path().join("into"));
    let image = SetImage::open(Arc::clone(&set), &SetImageOptions::default()).unwrap();
    let mut fills = BTreeSet::new();
    for page in 0..chain.pages() {
        let (file, offset) = chain.place_of(page);
        let fill = chain.fill(page);
        fills.insert(fill);
        let at = offset as usize;
        let bytes = &restored[&LongChain::name(file)][at..at + 512];
        assert!(bytes.iter().all(|byte| *byte == fill), "page {page}");
        let mut found = [0xee; 512];
        assert_eq!(image.read(file, offset, &mut found).unwrap(), 512);
        assert!(found[..] == *bytes, "page {page}");
    }
    // Zeros, and pages of each newer set.
    assert!(fills.len() > 6, "{fills:?}");
    let label = &restored[LABEL];
    assert_eq!(label.len(), 7 * LABEL_PAGE_BYTES as usize);
    for (page, bytes) in (0..).zip(label.chunks(LABEL_PAGE_BYTES as usize)) {
        let fill = chain.label_fill(page);
        assert!(bytes.iter().all(|byte| *byte == fill), "label {page}");
    }
}

//! Makes a chain of sets over a database of any size that takes no more room than its index.
//!
//!   long_chain DIR GIGABYTES SETS
//!
//! The database has files of 1 GiB with pages of 8 KiB, as one of PostgreSQL. Each newer set has
//! one page of each hundred, at random places. A set's index blocks are as long as those that the
//! engine writes; only the full set has frames of 1 MiB, which keeps its index small.
//!
//! Prints a file, the offset of a page that the oldest of the newer sets has, and what the page is
//! filled with. For `scripts/bench chains`.

use std::path::Path;
use std::process::ExitCode;

use windlass_testkit::long_chain::LongChain;

const GIGABYTE: u64 = 1_000_000_000;
const PAGE_BYTES: u32 = 8192;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, gigabytes, sets] = &words[..] else {
        return fail("long_chain DIR GIGABYTES SETS");
    };
    let (Ok(gigabytes), Ok(sets)) = (gigabytes.parse::<u64>(), sets.parse::<u64>()) else {
        return fail("GIGABYTES and SETS are numbers");
    };
    let chain = LongChain {
        sets,
        bytes: gigabytes * GIGABYTE,
        file_bytes: 1 << 30,
        page_bytes: PAGE_BYTES,
        pages_a_frame: 16,
        // 256 KiB of entries: those of a frame and of its 16 pages take 408 bytes, and those of a
        // frame with one piece 48.
        frames_a_block: 643,
        full_frame_bytes: 1 << 20,
        full_frames_a_block: 5462,
        seed: 12,
    };
    chain.write(Path::new(dir));
    let page = chain.oldest_change();
    let (file, offset) = chain.place_of(page);
    println!("{} {offset} {}", LongChain::name(file), chain.fill(page));
    ExitCode::SUCCESS
}

fn fail(what: &str) -> ExitCode {
    eprintln!("{what}");
    ExitCode::FAILURE
}

//! PostgreSQL's data page checksum, and what a page's header says.
//!
//! The checksum consists of 32 FNV-1a sums side by side, each over every 32nd word of the page.
//! PostgreSQL folds them by XOR, mixes in the block number and reduces the result to 16 bits
//! (src/include/storage/checksum_impl.h describes it). The algorithm was designed for vectors. This
//! module writes it as plain loops over arrays, and the compiler turns them into vector code.
//! `#[target_feature]` allows AVX2 where the processor has it.
//!
//! Invariants
//! - Both variants compile the same source, so they cannot compute different results.

use windlass_media::fitted;

use crate::lsn::Lsn;

const SUMS: usize = 32;
const ROW_BYTES: usize = SUMS * 4;
const FNV_PRIME: u32 = 16_777_619;
/// Where pd_checksum stands in the page header. The computation takes it as zero.
const CHECKSUM_AT: usize = 8;
const UPPER_AT: usize = 14;

/// The sums' starting values; part of the on-disk format.
const BASES: [u32; SUMS] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

/// What the check says about a page that was read from a live server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The checksum holds, or the page is all zero.
    Good,
    /// Changed since the backup began. Replaying the log repairs it, whatever was read.
    Newer,
    /// The page is not what the server wrote.
    Bad,
}

/// Judges one page of a relation file: `block` is its number in the whole relation, not in the
/// segment file, and `start` is where the backup's log begins.
pub fn judge_page(page: &[u8], block: u32, start: Lsn) -> PageState {
    if is_new(page) {
        return PageState::Good;
    }
    if page_lsn(page) >= start {
        return PageState::Newer;
    }
    match has_checksum(page, block) {
        true => PageState::Good,
        false => PageState::Bad,
    }
}

/// Whether the checksum of a page holds, or the page is all zero, whenever it was last changed.
pub(crate) fn is_whole(page: &[u8], block: u32) -> bool {
    is_new(page) || has_checksum(page, block)
}

/// Whether a page was never initialised: it is all zero. Many tools look only at pd_upper, but then
/// a page that lost its header passes.
fn is_new(page: &[u8]) -> bool {
    word_at(page, UPPER_AT) == 0 && page.iter().all(|byte| *byte == 0)
}

fn has_checksum(page: &[u8], block: u32) -> bool {
    word_at(page, UPPER_AT) != 0 && word_at(page, CHECKSUM_AT) == page_checksum(page, block)
}

fn word_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

/// The position of the last log record that changed the page (pd_lsn, two 32-bit words).
pub(crate) fn page_lsn(page: &[u8]) -> Lsn {
    let word = |at: usize| {
        u64::from(u32::from_le_bytes([
            page[at],
            page[at + 1],
            page[at + 2],
            page[at + 3],
        ]))
    };
    Lsn(word(0) << 32 | word(4))
}

/// The checksum that a page should carry. The page's length must be a PostgreSQL block size.
pub fn page_checksum(page: &[u8], block: u32) -> u16 {
    let folded = fold(page) ^ block;
    // The checksum is never zero, so zero can mean "none". The remainder is below 65535.
    fitted(folded % 65_535 + 1)
}

#[cfg(target_arch = "x86_64")]
fn fold(page: &[u8]) -> u32 {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the line above has checked that the processor has AVX2.
        #[allow(unsafe_code)]
        return unsafe { fold_avx2(page) };
    }
    fold_portable(page)
}

#[cfg(not(target_arch = "x86_64"))]
fn fold(page: &[u8]) -> u32 {
    fold_portable(page)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_avx2(page: &[u8]) -> u32 {
    fold_rows(page)
}

fn fold_portable(page: &[u8]) -> u32 {
    fold_rows(page)
}

#[inline(always)]
fn fold_rows(page: &[u8]) -> u32 {
    let (rows, _) = page.as_chunks::<ROW_BYTES>();
    let mut sums = BASES;
    if let Some((first, rest)) = rows.split_first() {
        let mut header = *first;
        header[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        add_row(&mut sums, &header);
        rest.iter().for_each(|row| add_row(&mut sums, row));
    }
    // Two rounds of zeros, so that the bits of the last words spread too.
    add_row(&mut sums, &[0; ROW_BYTES]);
    add_row(&mut sums, &[0; ROW_BYTES]);
    sums.iter().fold(0, |folded, sum| folded ^ sum)
}

#[inline(always)]
fn add_row(sums: &mut [u32; SUMS], row: &[u8; ROW_BYTES]) {
    let (words, _) = row.as_chunks::<4>();
    for (sum, word) in sums.iter_mut().zip(words) {
        let mixed = *sum ^ u32::from_le_bytes(*word);
        *sum = mixed.wrapping_mul(FNV_PRIME) ^ (mixed >> 17);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 8192;

    fn filled(seed: u8) -> Vec<u8> {
        (0..PAGE)
            .map(|at| (at as u64 * 31 + u64::from(seed)).to_le_bytes()[0])
            .collect()
    }

    /// Miri looks at what the code may do, and not at what it computes. It takes a thousand times
    /// as long, so it gets some of the cases.
    const STEP: usize = if cfg!(miri) { 97 } else { 1 };

    fn stamped(mut page: Vec<u8>, lsn: Lsn, block: u32) -> Vec<u8> {
        page[..8].copy_from_slice(&lsn.0.rotate_left(32).to_le_bytes());
        page[UPPER_AT..UPPER_AT + 2].copy_from_slice(&8000_u16.to_le_bytes());
        let checksum = page_checksum(&page, block);
        page[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    #[test]
    fn both_twins_agree() {
        for seed in (0..=255).step_by(STEP) {
            let page = filled(seed);
            assert_eq!(fold(&page), fold_portable(&page));
        }
    }

    #[test]
    fn every_bit_counts_except_those_of_the_checksum_itself() {
        let page = filled(7);
        let expected = fold(&page);
        for bit in (0..PAGE * 8).step_by(STEP) {
            let mut changed = page.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let in_checksum = (CHECKSUM_AT..CHECKSUM_AT + 2).contains(&(bit / 8));
            assert_eq!(fold(&changed) == expected, in_checksum, "bit {bit}");
        }
    }

    #[test]
    fn old_pages_are_checked_and_newer_ones_are_the_logs_business() {
        let start = Lsn(0x1_0000_0000);
        let old = stamped(filled(1), Lsn(start.0 - 1), 5);
        assert_eq!(judge_page(&old, 5, start), PageState::Good);
        assert_eq!(
            judge_page(&old, 6, start),
            PageState::Bad,
            "a page of another block"
        );
        let mut torn = stamped(filled(1), start, 5);
        torn[5000] ^= 1;
        assert_eq!(judge_page(&torn, 5, start), PageState::Newer);
    }

    #[test]
    fn a_page_that_is_newer_than_every_log_is_not_whole() {
        assert!(!is_whole(&[0xFF; PAGE], 5));
        assert!(is_whole(&stamped(filled(1), Lsn(u64::MAX), 5), 5));
        assert!(is_whole(&[0; PAGE], 5));
    }

    #[test]
    fn only_a_page_that_is_zero_throughout_counts_as_new() {
        let mut page = vec![0; PAGE];
        assert_eq!(judge_page(&page, 0, Lsn(1)), PageState::Good);
        page[PAGE - 1] = 1;
        assert_eq!(judge_page(&page, 0, Lsn(1)), PageState::Bad);
    }
}

//! Looks at pages without a server: which pages a relation must have, and what shows that the pages
//! of another relation are lost.
//!
//!   index pages --> marks of their kind, pages that other pages lead to
//!   B-tree leaves, visibility map --> pages of the table that must be there
//!
//! amcheck does not know indexes other than B-trees, and it takes a table for as long as its files
//! are. An empty page, all zeros, is sound in a table: the server leaves one there if it crashes
//! while it extends the table. But nothing ever points to such a page.
//!
//! Invariants
//! - No content breaks it: offsets from pages are bounds-checked.

use windlass_media::saturated;

use super::kinds::Kind;
use crate::relations::heap::{u16_at, u32_at};

/// Behind a page's header, at a multiple of eight bytes.
const CONTENT_AT: usize = 24;
const BTREE_META: u32 = 0x0005_3162;
const HASH_META: u32 = 0x0644_0640;
const SPGIST_META: u32 = 0xBA0B_ABEE;
const BRIN_META: u32 = 0xA810_9CFA;
const SEQUENCE: u32 = 0x1717;
/// Flags of a GiST page.
const GIST_LEAF: u16 = 1;
const GIST_DELETED: u16 = 2;
/// Flags of a B-tree page: leaf; deleted, meta or half dead.
const BTREE_LEAF: u16 = 1;
const BTREE_UNUSED: u16 = 4 | 8 | 16;
/// A tuple of a B-tree whose pointer has another meaning, and then: it has a list of pointers.
const BTREE_OTHER_POINTER: u16 = 0x2000;
const BTREE_LIST: u16 = 0x2000;
const BTREE_LIST_COUNT: u16 = 0x0FFF;
/// Up to this many groups of buckets are allocated as a whole, later ones in four parts.
const HASH_WHOLE_GROUPS: u32 = 10;
/// Two bits for each page of the table; the lower one says that all its rows are visible.
const MAP_PAGES_PER_BYTE: u32 = 4;

/// The pages that every relation of this kind has.
pub(super) fn first_pages(kind: Kind) -> std::ops::Range<u32> {
    match kind {
        Kind::Table | Kind::NotReady | Kind::Unknown => 0..0,
        Kind::Gin => 0..2,
        Kind::SpGist => 0..3,
        _ => 0..1,
    }
}

/// Whether a page, which is not empty, has the marks of its kind.
pub(super) fn has_marks(kind: Kind, block: u32, page: &[u8]) -> bool {
    let last = || u16_at(page, page.len().saturating_sub(2));
    let meta = |magic| block != 0 || u32_at(page, CONTENT_AT) == Some(magic);
    match kind {
        Kind::Table | Kind::Gin | Kind::NotReady | Kind::Unknown => true,
        Kind::BTree => meta(BTREE_META),
        Kind::Hash => meta(HASH_META) && last() == Some(0xFF80),
        Kind::Gist => last() == Some(0xFF81),
        Kind::SpGist => meta(SPGIST_META) && last() == Some(0xFF82),
        Kind::Brin => meta(BRIN_META) && matches!(last(), Some(0xF091..=0xF093)),
        Kind::Sequence => special_at(page).and_then(|at| u32_at(page, at)) == Some(SEQUENCE),
    }
}

/// Adds the pages of the index that this page leads to.
pub(super) fn follow(kind: Kind, block: u32, page: &[u8], needed: &mut Vec<u32>) {
    match kind {
        Kind::Hash if block == 0 => hash_buckets(page, needed),
        Kind::Gist => {
            let flags = special_at(page).and_then(|at| u16_at(page, at + 12));
            if flags.is_some_and(|flags| flags & (GIST_LEAF | GIST_DELETED) == 0) {
                needed.extend(items(page).filter_map(|item| pointed(page, item)));
            }
        }
        _ => {}
    }
}

/// The pages of all buckets, as the meta page counts them.
fn hash_buckets(page: &[u8], needed: &mut Vec<u32>) {
    let buckets = u32_at(page, 48).unwrap_or(0);
    for bucket in 0..=buckets {
        let spares = match bucket {
            0 => Some(0),
            _ => {
                let at = 76 + 4 * (hash_part(bucket + 1) as usize).saturating_sub(1);
                u32_at(page, at)
            }
        };
        let block = spares.and_then(|spares| bucket.checked_add(spares)?.checked_add(1));
        // Half of all pages are spare at most, so this ends early on garbage.
        let Some(block) = block.filter(|_| needed.len() <= 1 << 26) else {
            return;
        };
        needed.push(block);
    }
}

/// `_hash_spareindex`: the part of the allocation in which this number of buckets ends.
fn hash_part(buckets: u32) -> u32 {
    let group = buckets.next_power_of_two().trailing_zeros();
    if group < HASH_WHOLE_GROUPS {
        return group;
    }
    let parts = HASH_WHOLE_GROUPS + ((group - HASH_WHOLE_GROUPS) << 2);
    parts + ((buckets - 1) >> (group - 3) & 3)
}

/// Passes each page of the table that a leaf of a B-tree points to.
pub(super) fn point_into_table(page: &[u8], each: &mut dyn FnMut(u32)) {
    let Some(special) = special_at(page) else {
        return;
    };
    let (right, flags) = (u32_at(page, special + 4), u16_at(page, special + 12));
    if flags.is_none_or(|flags| flags & (BTREE_LEAF | BTREE_UNUSED) != BTREE_LEAF) {
        return;
    }
    // If there is a page to the right, the first item is no row, but the upper bound.
    let skipped = usize::from(right != Some(0));
    for item in items(page).skip(skipped) {
        let (offset, info) = (u16_at(page, item + 4), u16_at(page, item + 6));
        let (Some(offset), Some(info)) = (offset, info) else {
            continue;
        };
        if info & BTREE_OTHER_POINTER == 0 {
            pointed(page, item).into_iter().for_each(&mut *each);
        } else if offset & BTREE_LIST != 0 {
            let list = pointed(page, item).unwrap_or(u32::MAX) as usize;
            let count = usize::from(offset & BTREE_LIST_COUNT);
            let at = |index: usize| item.checked_add(list)?.checked_add(index * 6);
            let all = (0..count).filter_map(|index| pointed(page, at(index)?));
            all.for_each(&mut *each);
        }
    }
}

/// Passes each page of the table that a page of the visibility map calls visible to all.
pub(super) fn mapped(block: u32, page: &[u8], each: &mut dyn FnMut(u32)) {
    let map = page.get(CONTENT_AT..).unwrap_or_default();
    let per_page = saturated::<u32, _>(map.len());
    let first = block
        .saturating_mul(per_page)
        .saturating_mul(MAP_PAGES_PER_BYTE);
    for (byte, base) in map.iter().zip((first..).step_by(4)) {
        for bit in (0..MAP_PAGES_PER_BYTE).filter(|bit| byte >> (2 * bit) & 1 == 1) {
            each(base.saturating_add(bit));
        }
    }
}

fn special_at(page: &[u8]) -> Option<usize> {
    u16_at(page, 16)
        .map(usize::from)
        .filter(|at| *at < page.len())
}

/// Where the items of a page lie.
fn items(page: &[u8]) -> impl Iterator<Item = usize> {
    let lower = usize::from(u16_at(page, 12).unwrap_or(0)).min(page.len());
    let pointers = page.get(CONTENT_AT..lower).unwrap_or_default();
    pointers.chunks_exact(4).filter_map(|pointer| {
        let pointer = u32_at(pointer, 0)?;
        (pointer >> 17 > 0).then_some((pointer & 0x7FFF) as usize)
    })
}

/// The page number at this place: two halves, the upper one first.
fn pointed(page: &[u8], at: usize) -> Option<u32> {
    let (upper, lower) = (u16_at(page, at)?, u16_at(page, at.checked_add(2)?)?);
    Some(u32::from(upper) << 16 | u32::from(lower))
}

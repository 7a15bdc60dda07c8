//! Heap pages and their tuples, as far as a reader of catalogs needs them.
//!
//!   page = [header 24][line pointers ...] free [... tuples][special]
//!
//! For the layout see "Database Page Layout" in PostgreSQL's documentation; unchanged since 8.3.

/// Length of a page's header.
const PAGE_HEADER_BYTES: usize = 24;
/// Length of a tuple's header up to the null bitmap.
const TUPLE_HEADER_BYTES: usize = 23;
/// `LP_NORMAL`: the line pointer leads to a tuple.
const POINTER_NORMAL: u32 = 1;

/// A tuple, with the fields that show whether it is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple<'a> {
    /// Transaction that inserted it.
    pub(crate) inserted_by: u32,
    /// Transaction that deleted, replaced or locked it.
    pub(crate) ended_by: u32,
    /// The hint bits.
    pub(crate) flags: u16,
    /// Its columns.
    pub(crate) columns: &'a [u8],
}

/// The tuples of a page. Bytes that are not a page, and tuples that lie outside it, give nothing.
pub(crate) fn tuples(page: &[u8]) -> impl Iterator<Item = Tuple<'_>> {
    let lower = usize::from(u16_at(page, 12).unwrap_or(0)).min(page.len());
    let pointers = page.get(PAGE_HEADER_BYTES..lower).unwrap_or_default();
    pointers
        .chunks_exact(4)
        .filter_map(move |pointer| tuple(page, u32_at(pointer, 0)?))
}

fn tuple(page: &[u8], pointer: u32) -> Option<Tuple<'_>> {
    let (offset, state, length) = (pointer & 0x7fff, pointer >> 15 & 3, pointer >> 17);
    let bytes = page.get(offset as usize..(offset + length) as usize)?;
    if state != POINTER_NORMAL || bytes.len() < TUPLE_HEADER_BYTES {
        return None;
    }
    Some(Tuple {
        inserted_by: u32_at(bytes, 0)?,
        ended_by: u32_at(bytes, 4)?,
        flags: u16_at(bytes, 20)?,
        columns: bytes.get(usize::from(bytes[22])..)?,
    })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page with one tuple at `offset`; its line pointer says that it is `length` long.
    fn page(offset: u32, length: u32, state: u32) -> Vec<u8> {
        let mut page = vec![0; 8192];
        page[12..14].copy_from_slice(&28_u16.to_le_bytes());
        let pointer = offset | state << 15 | length << 17;
        page[24..28].copy_from_slice(&pointer.to_le_bytes());
        page
    }

    #[test]
    fn a_tuple_is_found_where_its_pointer_leads() {
        let mut page = page(8000, 40, POINTER_NORMAL);
        page[8000..8004].copy_from_slice(&700_u32.to_le_bytes());
        page[8020..8022].copy_from_slice(&0x0900_u16.to_le_bytes());
        page[8022] = 24;
        page[8024] = 7;
        let found: Vec<_> = tuples(&page).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].inserted_by, found[0].flags), (700, 0x0900));
        assert_eq!((found[0].columns.len(), found[0].columns[0]), (16, 7));
    }

    #[test]
    fn what_lies_outside_or_is_dead_is_no_tuple() {
        assert_eq!(tuples(&page(8180, 40, POINTER_NORMAL)).count(), 0);
        assert_eq!(tuples(&page(8000, 22, POINTER_NORMAL)).count(), 0);
        assert_eq!(tuples(&page(8000, 40, 3)).count(), 0);
        assert_eq!(tuples(&[0; 8192]).count(), 0);
        assert_eq!(tuples(&[]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_page_breaks_the_reader(
            page in proptest::collection::vec(any::<u8>(), 0..600),
            lower in 0_u16..700,
        ) {
            let mut page = page;
            if page.len() > 14 {
                page[12..14].copy_from_slice(&lower.to_le_bytes());
            }
            for tuple in tuples(&page) {
                prop_assert!(tuple.columns.len() <= page.len());
            }
        }
    }
}

//! A store of small pages: damaged, reused, synced.

use super::*;

const PAGE: usize = 512;

fn header() -> StoreHeader {
    StoreHeader {
        geometry: Geometry::new(512).unwrap(),
        identity: [3; 32],
    }
}

fn open(file: &File, used: &[Slot]) -> Result<PageStore, StoreError> {
    let used = used.iter().copied();
    PageStore::open(file.try_clone().unwrap(), &header(), used)
}

fn owner(block: u64) -> PageOwner {
    PageOwner { file: 7, block }
}

fn take(store: &PageStore, count: u32) -> Vec<Range<Slot>> {
    store.writing().take(count).unwrap()
}

#[test]
fn a_freed_slot_is_used_again_only_after_a_sync() {
    let file = tempfile::tempfile().unwrap();
    open(&file, &[]).unwrap();
    let store = open(&file, &[0, 1, 4]).unwrap();
    assert_eq!(store.counts(), (3, 2));
    assert_eq!(take(&store, 3), [2..4, 5..6]);
    store.free([1]);
    let end = 6..8;
    assert_eq!(take(&store, 2), [end]);
    let (freed, marked) = store.begin_sync(|| 17);
    assert_eq!(marked, 17);
    store.free([4]);
    store.reuse(freed);
    assert_eq!(take(&store, 2), [1..2, 8..9]);
}

#[test]
fn only_what_no_sync_covers_is_fresh() {
    let store = open(&tempfile::tempfile().unwrap(), &[]).unwrap();
    take(&store, 100);
    assert!((0..100).all(|slot| store.writing().is_fresh(slot)));
    store.begin_sync(|| ());
    take(&store, 1);
    let fresh: Vec<_> = (0..200)
        .filter(|slot| store.writing().is_fresh(*slot))
        .collect();
    assert_eq!(fresh, [100]);
}

#[test]
fn pages_are_read_as_they_were_written_across_groups() {
    let file = tempfile::tempfile().unwrap();
    let store = open(&file, &[]).unwrap();
    let bytes: Vec<u8> = (0..60 * PAGE).map(|at| (at / 7 % 251) as u8).collect();
    take(&store, 60);
    store.writing().write(0, owner(5), &bytes).unwrap();
    let again = open(&file, &(0..60).collect::<Vec<_>>()).unwrap();
    for (slot, within, length) in [(0, 0, 60 * PAGE), (3, 100, 20 * PAGE), (15, 511, 2)] {
        let mut into = vec![0; length];
        let of = owner(5 + u64::from(slot));
        again.read(slot, of, within, &mut into).unwrap();
        let start = slot as usize * PAGE + within;
        assert!(into == bytes[start..start + length], "{slot} {within}");
    }
}

#[test]
fn every_changed_byte_makes_its_page_an_error_and_no_other() {
    let file = tempfile::tempfile().unwrap();
    let store = open(&file, &[]).unwrap();
    take(&store, 3);
    let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at % 253) as u8).collect();
    store.writing().write(0, owner(0), &bytes).unwrap();
    let geometry = header().geometry;
    let entry = geometry.entry_offset(1);
    let page = geometry.page_offset(1);
    for at in (entry..entry + 32).chain(page..page + PAGE as u64) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        let mut into = [0; PAGE];
        for slot in 0..3 {
            let read = store.read(slot, owner(u64::from(slot)), 0, &mut into);
            match read {
                Err(StoreError::Damaged { offset }) if slot == 1 => assert_eq!(offset, page),
                read => assert_eq!(read.is_ok(), slot != 1, "{at}: {slot}"),
            }
        }
        let writing = store.writing();
        assert!(writing.overwrite(1, owner(1), 3, b"part").is_err());
        file.write_all_at(&byte, at).unwrap();
    }
    // A whole page needs nothing of the old one.
    file.write_all_at(&[0; PAGE], page).unwrap();
    let whole = [9; PAGE];
    store.writing().overwrite(1, owner(1), 0, &whole).unwrap();
    let mut into = [0; PAGE];
    store.read(1, owner(1), 0, &mut into).unwrap();
    assert_eq!(into, whole);
}

#[test]
fn another_page_with_a_right_checksum_is_no_answer() {
    let file = tempfile::tempfile().unwrap();
    let store = open(&file, &[]).unwrap();
    take(&store, 1);
    store.writing().write(0, owner(4), &[1; PAGE]).unwrap();
    let other = PageOwner { file: 8, block: 4 };
    for wrong in [owner(5), other] {
        assert!(store.read(0, wrong, 0, &mut [0; 8]).is_err());
    }
    // The slot was never written, or the file ends before it.
    for slot in [1, 1000] {
        assert!(store.read(slot, owner(0), 0, &mut [0; 8]).is_err());
    }
    // The page is an older one: its write was lost.
    let mut old = [0; PAGE];
    let page = header().geometry.page_offset(0);
    file.read_exact_at(&mut old, page).unwrap();
    store.writing().overwrite(0, owner(4), 7, b"new").unwrap();
    file.write_all_at(&old, page).unwrap();
    assert!(store.read(0, owner(4), 0, &mut [0; 8]).is_err());
    // If a kill may have done that, the page is taken as it is.
    store.accept_torn(0, owner(5)).unwrap();
    assert!(store.read(0, owner(4), 0, &mut [0; 8]).is_err());
    store.accept_torn(0, owner(4)).unwrap();
    store.read(0, owner(4), 0, &mut [0; 8]).unwrap();
}

#[test]
fn the_checksum_is_the_layouts() {
    for bytes in [&b""[..], b"123456789", &[0xA7; 1000]] {
        assert_eq!(crc32c(bytes), windlass_layout::crc32c(bytes));
    }
}

#[test]
fn a_file_that_is_another_store_is_refused() {
    let file = tempfile::tempfile().unwrap();
    open(&file, &[]).unwrap();
    let foreign = StoreHeader {
        identity: [4; 32],
        ..header()
    };
    let opened = PageStore::open(file.try_clone().unwrap(), &foreign, [0]);
    assert!(matches!(opened, Err(StoreError::Header)));
    assert!(matches!(
        open(&file, &[2, 2]),
        Err(StoreError::Twice { slot: 2 })
    ));
}

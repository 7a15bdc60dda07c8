//! Every structure of a file with parity: written, read, compared; then each byte flipped.

use proptest::prelude::*;
use windlass_media::{
    FormatError, GroupBlock, GroupBlockBuilder, GroupDirectory, GroupDirectoryEntry, GroupEntry,
    MemberEntry, ParityEnd, ParityHeader, SEAL_BYTES, StripeHeader,
};

use crate::samples;
use crate::structures::every_flip_is_refused;

const LIMIT: u64 = 1 << 20;

fn header() -> ParityHeader {
    let stripe = StripeHeader {
        parities: vec![b"/backup/p".to_vec(), b"/backup/q".to_vec()],
        ..samples::header()
    };
    ParityHeader::of(&stripe, 1, 4096)
}

fn member(stripe: u16, offset: u64, bytes: u32) -> MemberEntry {
    MemberEntry {
        stripe,
        offset,
        bytes,
        crc32c: 0x1234_5678,
    }
}

/// A block of two groups, the second without the first stripe. It stands at `AT`.
pub fn block() -> GroupBlock {
    let mut builder = GroupBlockBuilder::default();
    let group = |offset, bytes| GroupEntry {
        offset,
        bytes,
        crc32c: 0x9abc_def0,
        members: 0,
    };
    builder.push(group(512, 1024), &[member(0, 0, 512), member(1, 0, 1024)]);
    builder.push(group(1536, 4096), &[member(1, 1024, 4096)]);
    builder.take(0, 512)
}

pub const AT: u64 = 512 + 1024 + 4096;

pub fn directory() -> GroupDirectory {
    GroupDirectory {
        stripe_bytes: vec![512, 5120],
        entries: vec![GroupDirectoryEntry {
            offset: AT,
            bytes: 512,
            groups: 2,
            first_group: 0,
            region_offset: 512,
            hash: [7; 32],
            starts: vec![0, 0],
        }],
    }
}

pub fn end() -> ParityEnd {
    ParityEnd {
        set_id: samples::SET,
        parity: 1,
        alignment: 512,
        directory_offset: AT + 512,
        directory_bytes: 512,
        directory_hash: [3; 32],
        file_bytes: AT + 512 + 512 + 512,
        groups: 2,
        set_root: [5; 32],
    }
}

#[test]
fn a_header_comes_back_and_no_flip_is_taken_for_it() {
    let header = header();
    let bytes = header.encode().unwrap();
    assert_eq!(ParityHeader::decode(&bytes).unwrap(), header);
    let prefix = &bytes[..ParityHeader::PREFIX_BYTES];
    let length = ParityHeader::encoded_bytes(prefix).unwrap();
    assert_eq!(length as usize, bytes.len());
    every_flip_is_refused(&bytes, ParityHeader::decode);
    assert!(StripeHeader::decode(&bytes).is_err(), "it is no stripe");
}

#[test]
fn a_group_block_comes_back_and_no_flip_is_taken_for_it() {
    let (header, block) = (header(), block());
    let bytes = block.encode(&header).unwrap();
    let decode = |bytes: &[u8]| GroupBlock::decode(bytes, AT, &header);
    assert_eq!(decode(&bytes).unwrap(), block);
    every_flip_is_refused(&bytes, decode);
    for elsewhere in [0, AT - 1, AT + 512, u64::MAX] {
        assert!(GroupBlock::decode(&bytes, elsewhere, &header).is_err());
    }
    let other = ParityHeader {
        parity: 0,
        ..header.clone()
    };
    assert!(GroupBlock::decode(&bytes, AT, &other).is_err());
}

#[test]
fn an_end_comes_back_and_no_flip_is_taken_for_it() {
    let (header, end) = (header(), end());
    let bytes = end.encode();
    let record = &bytes[bytes.len() - SEAL_BYTES..];
    let decode = |bytes: &[u8]| ParityEnd::decode(bytes, end.file_bytes, &header);
    assert_eq!(decode(record).unwrap(), end);
    every_flip_is_refused(record, decode);
    assert!(ParityEnd::decode(record, end.file_bytes + 1, &header).is_err());
}

#[test]
fn a_directory_comes_back_and_says_which_block_has_a_byte() {
    let (header, directory) = (header(), directory());
    let bytes = directory.encode(&header);
    let found = GroupDirectory::decode(&bytes, &header, LIMIT).unwrap();
    assert_eq!(found, directory);
    assert_eq!(found.block_of(1, 5119), Some(0));
    assert_eq!(found.block_of(0, 512), None);
    assert_eq!(found.block_of(2, 0), None);
    for length in 0..bytes.len() {
        assert!(GroupDirectory::decode(&bytes[..length], &header, LIMIT).is_err());
    }
    let small = GroupDirectory::decode(&bytes, &header, 100);
    assert!(matches!(small, Err(FormatError::Limit { .. })), "{small:?}");
}

#[test]
fn stripes_with_parity_say_where_it_is_and_older_readers_know_the_bit() {
    let header = StripeHeader {
        parities: vec![b"/backup/p".to_vec()],
        ..samples::header()
    };
    let bytes = header.encode().unwrap();
    assert_eq!(StripeHeader::decode(&bytes).unwrap(), header);
    assert_eq!((bytes[10], bytes[58]), (4, 1));
    every_flip_is_refused(&bytes, StripeHeader::decode);
}

proptest! {
    #[test]
    fn made_up_bytes_are_no_block_and_no_directory(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        offset: u64,
    ) {
        let header = header();
        let with = |magic: &[u8]| [magic, &bytes].concat();
        let crc = |mut bytes: Vec<u8>| {
            let sum = windlass_media::crc32c(&bytes);
            bytes.extend(sum.to_le_bytes());
            bytes
        };
        prop_assert!(GroupBlock::decode(&crc(with(b"WNDLGRPS")), offset, &header).is_err());
        prop_assert!(GroupDirectory::decode(&with(b"WNDLGDIR"), &header, LIMIT).is_err());
        prop_assert!(ParityHeader::decode(&crc(with(b"WNDLPAR\x01"))).is_err());
    }
}

//! Encrypted structures: written, read, compared; then each byte flipped, and each one put where
//! another one belongs.

use proptest::prelude::*;
use windlass_media::{
    BlockSpans, Codec, DataKey, Envelope, FileNo, FileSpan, Footer, FormatError, FrameDecoder,
    FrameEntry, IndexBlock, KeyFile, Lock, NONCE_BYTES, PieceEntry, SEALED_BYTES, SetCipher, SetId,
    StripeHeader, StripeIndex, crc32c,
};

use crate::samples::{self, REGION, REGION_BYTES, SET};
use crate::structures::every_flip_is_refused;

const METADATA_LIMIT: u64 = 1 << 20;

fn key(seed: u8) -> DataKey {
    DataKey::from_bytes(&[seed; 32]).unwrap()
}

fn cipher() -> SetCipher {
    SetCipher::new(&key(1), SET).unwrap()
}

/// Ciphers that differ in the set, or in the key.
fn others() -> [SetCipher; 2] {
    let other_set = SetCipher::new(&key(1), SetId(*b"another set's id"));
    [other_set.unwrap(), SetCipher::new(&key(2), SET).unwrap()]
}

fn lock() -> Lock {
    let envelope = |recipient: &str, bytes| Envelope {
        recipient: recipient.to_owned(),
        bytes: vec![7; bytes],
    };
    Lock {
        check: key(1).check_for(SET),
        envelopes: vec![envelope("age1someone", 230), envelope("passphrase", 200)],
    }
}

pub fn header() -> StripeHeader {
    StripeHeader {
        lock: Some(lock()),
        ..samples::header()
    }
}

pub fn key_file() -> KeyFile {
    KeyFile {
        set_id: SET,
        written_nanos: 5,
        lock: lock(),
    }
}

/// The sample of an index block, encrypted.
fn index_block() -> IndexBlock {
    let mut block = samples::index_block();
    block.frames[0].stored_bytes += u32::try_from(SEALED_BYTES).unwrap();
    block.frames[1].offset += SEALED_BYTES as u64;
    block.region_bytes += 512;
    block
}

pub fn block() -> Vec<u8> {
    index_block().encode_with(512, Some(&cipher())).unwrap()
}

pub fn footer() -> Vec<u8> {
    footers(&cipher()).0.remove(0)
}

#[test]
fn a_header_with_a_lock_comes_back_and_no_flip_is_taken_for_it() {
    let header = header();
    let bytes = header.encode().unwrap();
    assert_eq!(StripeHeader::decode(&bytes).unwrap(), header);
    assert_eq!(bytes[10], 2, "older readers refuse this feature by its bit");
    assert_eq!(bytes[57], 1);
    every_flip_is_refused(&bytes, StripeHeader::decode);
    let clear = samples::header().encode().unwrap();
    assert_eq!((clear[10], clear[57]), (0, 0));
}

#[test]
fn a_file_of_envelopes_comes_back_and_no_flip_is_taken_for_it() {
    let file = key_file();
    let bytes = file.encode().unwrap();
    assert_eq!(KeyFile::decode(&bytes).unwrap(), file);
    every_flip_is_refused(&bytes, KeyFile::decode);
}

#[test]
fn an_encrypted_block_comes_back_only_where_it_was_written() {
    let cipher = cipher();
    let (mut block, at) = (index_block(), REGION + REGION_BYTES + 512);
    let bytes = block.encode_with(512, Some(&cipher)).unwrap();
    let decode = |bytes: &[u8]| IndexBlock::decode_with(bytes, at, 512, Some(&cipher));
    assert_eq!(decode(&bytes).unwrap(), block);
    every_flip_is_refused(&bytes, decode);
    for other in others() {
        let decoded = IndexBlock::decode_with(&bytes, at, 512, Some(&other));
        assert!(matches!(decoded, Err(FormatError::Sealed(_))));
    }
    assert!(
        IndexBlock::decode(&bytes, at, 512).is_err(),
        "without a key"
    );
    // What says where it belongs is not encrypted, and is proven all the same.
    for place in [8, 24, 28, 32] {
        let mut moved = bytes.clone();
        moved[place] ^= 1;
        let end = moved.len() - 4;
        let crc = crc32c(&moved[..end]);
        moved[end..].copy_from_slice(&crc.to_le_bytes());
        assert!(decode(&moved).is_err(), "byte {place}");
    }
    // A block that is not encrypted is no part of an encrypted set.
    let clear = samples::index_block().encode(512).unwrap();
    let at = REGION + REGION_BYTES;
    assert!(IndexBlock::decode_with(&clear, at, 512, Some(&cipher)).is_err());
}

#[test]
fn index_blocks_of_one_stripe_are_refused_in_each_others_place() {
    let cipher = cipher();
    let mut one = index_block();
    let mut bytes = vec![one.encode_with(512, Some(&cipher)).unwrap()];
    let mut places = vec![one.region_offset + one.region_bytes];
    let mut other = one.clone();
    other.number += 1;
    other.region_offset = places[0] + u64::from(one.encoded_bytes);
    let shift = other.region_offset - one.region_offset;
    let frames = other.frames.iter_mut();
    frames.for_each(|frame| frame.offset += shift);
    bytes.push(other.encode_with(512, Some(&cipher)).unwrap());
    places.push(other.region_offset + other.region_bytes);
    assert_eq!(bytes[0].len(), bytes[1].len());
    let decode = |bytes: &[u8], at| IndexBlock::decode_with(bytes, at, 512, Some(&cipher));
    for (own, foreign) in [(0, 1), (1, 0)] {
        decode(&bytes[own], places[own]).unwrap();
        decode(&bytes[foreign], places[own]).unwrap_err();
        // Behind the head that belongs there, and with a right CRC.
        let mut forged = bytes[foreign].clone();
        let head = ..IndexBlock::PREFIX_BYTES;
        forged[head].copy_from_slice(&bytes[own][head]);
        let end = forged.len() - 4;
        let crc = crc32c(&forged[..end]);
        forged[end..].copy_from_slice(&crc.to_le_bytes());
        let decoded = decode(&forged, places[own]);
        assert!(matches!(decoded, Err(FormatError::Sealed(_))));
    }
}

fn footers(cipher: &SetCipher) -> (Vec<Vec<u8>>, [u8; 32]) {
    let (mut footers, mut root) = (Vec::new(), [0; 32]);
    let each = |_, footer, of| {
        footers.push(footer);
        root = of;
        Ok::<(), FormatError>(())
    };
    let directories = [samples::directory(), samples::directory()];
    samples::description()
        .footers_with((SET, Some(cipher)), 512, &directories, each)
        .unwrap();
    (footers, root)
}

#[test]
fn encrypted_footers_come_back_with_a_root_that_only_the_key_makes() {
    let cipher = cipher();
    let (footers, root) = footers(&cipher);
    assert_ne!(root, samples::footers().1, "nobody can guess content by it");
    for bytes in &footers {
        let footer = Footer::decode_with(bytes, METADATA_LIMIT, Some(&cipher)).unwrap();
        assert_eq!(footer.description, samples::description());
        assert_eq!(footer.set_root, root);
        for word in [&b"base"[..], b"windlass 0", b"/backup", b"directory"] {
            assert!(!bytes.windows(word.len()).any(|part| part == word));
        }
        assert!(
            Footer::decode(bytes, METADATA_LIMIT).is_err(),
            "without a key"
        );
        for other in others() {
            assert!(Footer::decode_with(bytes, METADATA_LIMIT, Some(&other)).is_err());
        }
    }
    let (clear, _) = samples::footers();
    assert!(Footer::decode_with(&clear[0], METADATA_LIMIT, Some(&cipher)).is_err());
    // The index directory of one stripe is none of another.
    let mut moved = footers[0].clone();
    moved[10] = 1;
    assert!(Footer::decode_with(&moved, METADATA_LIMIT, Some(&cipher)).is_err());
}

/// Where the stored bytes of a section of a footer are.
fn section(footer: &[u8], number: usize) -> std::ops::Range<usize> {
    let count = u32::from_le_bytes(footer[12..16].try_into().unwrap()) as usize;
    let length = |number: usize| {
        let at = 40 + 24 * number + 16;
        u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize
    };
    let start = 40 + 24 * count + (0..number).map(length).sum::<usize>();
    start..start + length(number)
}

#[test]
fn encrypted_spans_are_those_of_one_stripe_and_nobody_makes_others_without_the_key() {
    let cipher = cipher();
    let span = |file, layer_max, end| FileSpan {
        file: FileNo(file),
        layer_max,
        first: 0,
        end,
    };
    let of = |end| -> Vec<BlockSpans> { vec![Some([span(1, 0, end), span(3, 1, end)].into())] };
    let directories = [samples::directory(), samples::directory()];
    let spans = [of(8), of(9)];
    let mut footers: Vec<Vec<u8>> = Vec::new();
    let each = |_, footer, _| {
        footers.push(footer);
        Ok::<(), FormatError>(())
    };
    let own = (directories.as_slice(), spans.as_slice());
    let set = (SET, Some(&cipher));
    samples::description()
        .footers_spanned(set, 512, own, each)
        .unwrap();
    let decode = |bytes: &[u8]| Footer::decode_with(bytes, METADATA_LIMIT, Some(&cipher));
    for (footer, spans) in footers.iter().zip(&spans) {
        assert_eq!(&decode(footer).unwrap().spans, spans);
        assert_eq!(footer[64..68], 7u32.to_le_bytes());
        for at in section(footer, 1) {
            let mut flipped = footer.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "byte {at}");
        }
    }
    let mut moved = footers[0].clone();
    moved[section(&footers[0], 1)].copy_from_slice(&footers[1][section(&footers[1], 1)]);
    assert!(decode(&moved).is_err());
}

fn piece(file: u32, offset: u64, bytes: &[u8]) -> PieceEntry {
    PieceEntry {
        file: FileNo(file),
        bytes: u32::try_from(bytes.len()).unwrap(),
        offset,
        crc32c: crc32c(bytes),
        layer: 0,
    }
}

/// A frame that is stored as it is, encrypted.
fn sealed(cipher: &SetCipher, pieces: &[PieceEntry], raw: &[u8]) -> (FrameEntry, Vec<u8>) {
    let raw_bytes = u32::try_from(raw.len()).unwrap();
    let mut entry = FrameEntry {
        offset: 0,
        stored_bytes: raw_bytes,
        raw_bytes,
        crc32c: 0,
        codec: Codec::None,
        piece_count: 1,
        page: None,
    };
    let mut room = vec![0; raw.len() + SEALED_BYTES];
    room[NONCE_BYTES..NONCE_BYTES + raw.len()].copy_from_slice(raw);
    cipher.seal_frame(&entry, pieces, &mut room).unwrap();
    entry.stored_bytes += u32::try_from(SEALED_BYTES).unwrap();
    entry.crc32c = crc32c(&room);
    (entry, room)
}

fn decoded(
    cipher: &SetCipher,
    frame: (&FrameEntry, &[PieceEntry]),
    stored: &[u8],
) -> Result<Vec<u8>, FormatError> {
    let mut into = vec![0; frame.0.raw_bytes as usize];
    FrameDecoder::new()?.decode_with(Some(cipher), frame, stored, &mut into)?;
    Ok(into)
}

proptest! {
    #[test]
    fn a_frame_comes_back_and_nothing_else_is_taken_for_it(
        raw in proptest::collection::vec(any::<u8>(), 1..300),
        file: u32,
        offset in 0u64..1 << 60,
        flip: prop::sample::Index,
    ) {
        let cipher = cipher();
        let pieces = [piece(file, offset, &raw)];
        let (entry, stored) = sealed(&cipher, &pieces, &raw);
        prop_assert_eq!(decoded(&cipher, (&entry, &pieces), &stored).unwrap(), raw.clone());
        let again = sealed(&cipher, &pieces, &raw).1;
        prop_assert_ne!(&again, &stored, "each encryption has its own nonce");
        let mut flipped = stored.clone();
        flipped[flip.index(stored.len())] ^= 1;
        prop_assert!(decoded(&cipher, (&entry, &pieces), &flipped).is_err());
        prop_assert!(decoded(&cipher, (&entry, &pieces), &stored[1..]).is_err());
        for other in others() {
            prop_assert!(decoded(&other, (&entry, &pieces), &stored).is_err());
        }
        // The same bytes at another place, or of another file, or of a newer layer.
        let elsewhere = [
            PieceEntry { offset: offset + 1, ..pieces[0] },
            PieceEntry { file: FileNo(file ^ 1), ..pieces[0] },
            PieceEntry { layer: 1, ..pieces[0] },
        ];
        for moved in elsewhere {
            prop_assert!(decoded(&cipher, (&entry, &[moved]), &stored).is_err());
        }
        let as_zstd = FrameEntry { codec: Codec::Zstd(0), ..entry };
        prop_assert!(decoded(&cipher, (&as_zstd, &pieces), &stored).is_err());
    }
}

#[test]
fn a_check_tells_keys_and_sets_apart_and_a_key_shows_nothing_of_itself() {
    let other = SetId(*b"another set's id");
    assert_eq!(key(1).check_for(SET), key(1).check_for(SET));
    assert_ne!(key(1).check_for(SET), key(2).check_for(SET));
    assert_ne!(key(1).check_for(SET), key(1).check_for(other));
    assert_eq!(
        format!("{:?} {:?}", key(1), StripeIndex(0)),
        "DataKey StripeIndex(0)"
    );
    assert!(DataKey::from_bytes(&[1; 31]).is_none());
}

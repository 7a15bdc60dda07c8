//! One function a decoder, for any bytes: what the fuzz targets call, and what replays the corpus.
//!
//! Each must come back, whatever the bytes: no panic, no allocation beyond the format's limits.
//! Where a checksum guards a structure it is made right first, or no made-up bytes would get past.

use windlass_media::{
    Codec, DataKey, Decoder, Facts, FileTable, Footer, FrameDecoder, FrameEntry, GroupBlock,
    GroupDirectory, IndexBlock, KeyFile, LAYOUT_STREAMS, PageFrame, ParityEnd, ParityHeader,
    SEAL_BYTES, Seal, SetCipher, SetId, StripeHeader, crc32c,
};

/// How many bytes the sections of a footer may decompress to, together.
const METADATA_LIMIT: u64 = 16 << 20;
/// Most bytes a frame is decompressed to here; the format's own limit is 4 MiB.
const FRAME_BYTES: u32 = 1 << 20;

/// A decoder, by the name of its fuzz target and of its directory in the corpus.
pub type Decoding = (&'static str, fn(&[u8]));

/// Every decoder.
pub const TARGETS: [Decoding; 11] = [
    ("header", header),
    ("index_block", index_block),
    ("footer", footer),
    ("seal", seal),
    ("file_table", file_table),
    ("facts", facts),
    ("frame", frame),
    ("laid_frame", laid_frame),
    ("key_file", key_file),
    ("encrypted", encrypted),
    ("parity", parity),
];

/// A file of envelopes. What was decoded must be the same after it is encoded and decoded again.
pub fn key_file(bytes: &[u8]) {
    drop(KeyFile::decode(bytes));
    let mut whole = bytes.to_vec();
    reseal(&mut whole);
    if let Ok(file) = KeyFile::decode(&whole) {
        assert_eq!(file.encode().ok(), Some(whole));
    }
}

/// The header that blocks, directories and ends are read with.
pub fn parity_header() -> ParityHeader {
    ParityHeader {
        set_id: SetId([1; 16]),
        parity: 1,
        alignment: 512,
        member_bytes: 4096,
        created_nanos: 7,
        stripes: vec![b"/a/s.1of4".to_vec(), b"/b/s.2of4".to_vec()],
        parities: vec![b"/c/s.3of4".to_vec(), b"/d/s.4of4".to_vec()],
    }
}

/// A part of a file with parity: a byte that says which part, eight that say where it lies or how
/// long the file is, then the part.
pub fn parity(bytes: &[u8]) {
    let Some(([part, number @ ..], rest)) = bytes.split_first_chunk::<9>() else {
        return;
    };
    let number = u64::from_le_bytes(*number);
    let (header, mut rest) = (parity_header(), rest.to_vec());
    match part % 4 {
        0 => {
            let Ok(length) = ParityHeader::encoded_bytes(&rest) else {
                return;
            };
            rest.resize(length as usize, 0);
            reseal(&mut rest);
            if let Ok(header) = ParityHeader::decode(&rest) {
                let again = header.encode().and_then(|it| ParityHeader::decode(&it));
                assert_eq!(again, Ok(header));
            }
        }
        1 => {
            reseal(&mut rest);
            if let Ok(block) = GroupBlock::decode(&rest, number, &header) {
                let members = block.iter().map(|(_, members)| members.len());
                assert_eq!(members.sum::<usize>(), block.members.len());
            }
        }
        2 => {
            if let Ok(directory) = GroupDirectory::decode(&rest, &header, METADATA_LIMIT) {
                let block = directory.block_of((number % 3) as u16, number);
                assert!(block.is_none_or(|it| it < directory.entries.len()));
            }
        }
        _ => {
            rest.resize(SEAL_BYTES, 0);
            reseal(&mut rest);
            let end = ParityEnd::decode(&rest, number, &header);
            assert!(end.is_err() || ParityEnd::set_of(&rest) == Ok(header.set_id));
        }
    }
}

/// An index block and a footer of an encrypted set, by somebody without its key.
pub fn encrypted(bytes: &[u8]) {
    let key = DataKey::from_bytes(&[1; 32]);
    let cipher = key.and_then(|key| SetCipher::new(&key, SetId([1; 16])).ok());
    let Some((offset, block)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let mut resealed = block.to_vec();
    reseal(&mut resealed);
    let offset = u64::from_le_bytes(*offset);
    let decoded = IndexBlock::decode_with(&resealed, offset, 512, cipher.as_ref());
    assert!(decoded.is_err(), "a block that nobody with the key wrote");
    let mut footer = block.to_vec();
    let length = footer.len() as u64;
    if let Some(field) = footer.get_mut(32..40) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    assert!(Footer::decode_with(&footer, METADATA_LIMIT, cipher.as_ref()).is_err());
}

/// A header. What was decoded must be the same after it is encoded and decoded again. The bytes
/// need not be the same: a header may have more padding than it needs.
pub fn header(bytes: &[u8]) {
    let length = StripeHeader::encoded_bytes(bytes);
    drop(StripeHeader::decode(bytes));
    let Ok(length) = length else { return };
    let mut whole = bytes.to_vec();
    whole.resize(length as usize, 0);
    reseal(&mut whole);
    if let Ok(header) = StripeHeader::decode(&whole) {
        let again = header
            .encode()
            .and_then(|bytes| StripeHeader::decode(&bytes));
        assert_eq!(again, Ok(header));
    }
}

/// An index block: eight bytes that say where it lies, then the block.
pub fn index_block(bytes: &[u8]) {
    let Some((offset, block)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let offset = u64::from_le_bytes(*offset);
    drop(IndexBlock::encoded_bytes_of(block));
    drop(IndexBlock::decode(block, offset, 512));
    let mut block = block.to_vec();
    reseal(&mut block);
    for alignment in [512, 4096, 65_536] {
        if let Ok(block) = IndexBlock::decode(&block, offset, alignment) {
            let pieces: usize = block.iter().map(|(_, pieces)| pieces.len()).sum();
            assert_eq!(pieces, block.pieces.len());
        }
    }
}

/// A footer.
pub fn footer(bytes: &[u8]) {
    drop(Footer::decode(bytes, METADATA_LIMIT));
    // The same footer, with its length field corrected.
    let mut bytes = bytes.to_vec();
    let length = bytes.len() as u64;
    if let Some(field) = bytes.get_mut(32..40) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    if let Ok(footer) = Footer::decode(&bytes, METADATA_LIMIT) {
        assert!(!footer.description.stripes.is_empty());
    }
}

/// A seal: eight bytes that say how long the stripe is, then the record.
pub fn seal(bytes: &[u8]) {
    let Some((length, record)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let length = u64::from_le_bytes(*length);
    drop(Seal::decode(record, length));
    let mut record = record.to_vec();
    record.resize(SEAL_BYTES, 0);
    reseal(&mut record);
    if let Ok(seal) = Seal::decode(&record, length) {
        let block = seal.encode();
        assert_eq!(block.len(), seal.alignment as usize);
        assert_eq!(block[block.len() - SEAL_BYTES..], record);
    }
}

/// A file table. What was decoded must encode to the same bytes.
pub fn file_table(bytes: &[u8]) {
    if let Ok(table) = FileTable::decode(bytes) {
        assert_eq!(table.encode().ok().as_deref(), Some(bytes));
    }
}

/// Facts. What was decoded must be the same after it is encoded and decoded again.
pub fn facts(bytes: &[u8]) {
    if let Ok(facts) = Facts::decode(bytes) {
        let again = facts.encode().and_then(|bytes| Facts::decode(&bytes));
        assert!(again.is_ok());
    }
}

/// A frame: a codec, three bytes with its decoded length, then the stored bytes.
pub fn frame(bytes: &[u8]) {
    let Some(([codec, length @ ..], stored)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let length = u32::from_le_bytes([length[0], length[1], length[2], 0]) % (FRAME_BYTES + 1);
    let Ok(codec) = Codec::from_number(*codec) else {
        return;
    };
    let mut into = vec![0; length as usize];
    if let Ok(mut decoder) = Decoder::new() {
        drop(decoder.decode(codec, stored, &mut into));
    }
}

/// A frame of pages that were taken apart: a codec, three bytes with the decoded length, three with
/// the length of its laid out bytes, then the stored bytes.
pub fn laid_frame(bytes: &[u8]) {
    let Some(([codec, lengths @ ..], stored)) = bytes.split_first_chunk::<7>() else {
        return;
    };
    let length = |at: usize| {
        let field = [lengths[at], lengths[at + 1], lengths[at + 2], 0];
        u32::from_le_bytes(field) % (FRAME_BYTES + 1)
    };
    let Ok(codec) = Codec::from_number(*codec) else {
        return;
    };
    let entry = FrameEntry {
        offset: 0,
        stored_bytes: 0,
        raw_bytes: length(0),
        crc32c: 0,
        codec,
        piece_count: 0,
        page: Some(PageFrame {
            raw_crc32c: 0,
            laid_bytes: length(3),
            layout: LAYOUT_STREAMS,
            kind: 0,
        }),
    };
    let mut into = vec![0; entry.raw_bytes as usize];
    if let Ok(mut decoder) = FrameDecoder::new() {
        drop(decoder.decode(&entry, stored, &mut into));
    }
}

/// Corrects the CRC-32C in the last four bytes.
fn reseal(bytes: &mut [u8]) {
    if let Some((content, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32c(content).to_le_bytes();
    }
}

//! A whole set from any bytes: opened, its index checked, verified. What the fuzz target `set`
//! calls, and what replays its corpus.
//!
//! Made-up bytes would never get past the checksums, so these are made right first: the header's,
//! the seal's, and the seal's hash and root of the footer.

use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Footer, SEAL_BYTES, StripeHeader, crc32c};
use windlass_engine::{BufferRequest, Cancel, Discard, OpenSet, RestoreOptions, restore};

const METADATA_LIMIT: u64 = 16 << 20;
/// Positions in the seal's record of the footer's offset, its length, its hash, and the set's root.
const FOOTER_OFFSET: usize = 40;
const FOOTER_BYTES: usize = 48;
const FOOTER_HASH: usize = 64;
const SET_ROOT: usize = 96;

/// Verifies `bytes` as a set of one stripe: once as they are, and once with corrected checksums.
/// The stripe is written into `dir`. True when the set was whole both times.
pub fn set(bytes: &[u8], dir: &Path) -> bool {
    let plain = verify(bytes, dir);
    let mut bytes = bytes.to_vec();
    reseal_header(&mut bytes);
    reseal_footer(&mut bytes);
    verify(&bytes, dir) && plain
}

fn verify(bytes: &[u8], dir: &Path) -> bool {
    let place = dir.join("set.windlass");
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    std::fs::write(&place, bytes).unwrap();
    let Ok(set) = OpenSet::open(&[place], METADATA_LIMIT) else {
        return false;
    };
    let indexed = set.check_index();
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        buffers: Some(2),
        compressors: Some(1),
        ..BufferRequest::default()
    };
    let plan = request.plan(1, 1).unwrap();
    let options = RestoreOptions {
        plan,
        device_rate: None,
        ring: false,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    let verified = restore(&set, &Discard, &options, &Arc::default(), &Cancel::new());
    // A set that restores must have a right index.
    assert!(indexed.is_ok() || verified.is_err());
    verified.is_ok()
}

fn reseal_header(bytes: &mut [u8]) {
    let Ok(length) = StripeHeader::encoded_bytes(bytes) else {
        return;
    };
    let header = bytes
        .get_mut(..length as usize)
        .and_then(<[u8]>::split_last_chunk_mut::<4>);
    let Some((content, crc)) = header else { return };
    *crc = crc32c(content).to_le_bytes();
}

fn reseal_footer(bytes: &mut [u8]) {
    let Some(record_at) = bytes.len().checked_sub(SEAL_BYTES) else {
        return;
    };
    let (before, record) = bytes.split_at_mut(record_at);
    let number = |at: usize| {
        let field = record[at..at + 8]
            .first_chunk()
            .copied()
            .unwrap_or_default();
        usize::try_from(u64::from_le_bytes(field)).unwrap_or(usize::MAX)
    };
    let (start, length) = (number(FOOTER_OFFSET), number(FOOTER_BYTES));
    let Some(footer) = before.get(start..start.saturating_add(length)) else {
        return;
    };
    record[FOOTER_HASH..FOOTER_HASH + 32].copy_from_slice(blake3::hash(footer).as_bytes());
    if let Ok(footer) = Footer::decode(footer, METADATA_LIMIT) {
        record[SET_ROOT..SET_ROOT + 32].copy_from_slice(&footer.set_root);
    }
    if let Some((content, crc)) = record.split_last_chunk_mut::<4>() {
        *crc = crc32c(content).to_le_bytes();
    }
}

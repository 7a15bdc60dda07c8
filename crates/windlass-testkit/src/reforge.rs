//! Forged sets, made from good ones: a test changes something, and every checksum above it is made
//! right again.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that cannot be made ends its test"
)]
#![allow(clippy::disallowed_methods, reason = "a fixture needs no durability")]

use std::path::Path;

use windlass_engine::media::{
    BlockSpans, Footer, FormatError, IndexBlock, IndexDirectoryEntry, SEAL_BYTES, Seal, SetCipher,
    SetDescription, StripeHeader, StripeTableEntry,
};

/// The parts of a set that a test may change.
pub struct Parts {
    /// Its last index block.
    pub block: IndexBlock,
    /// What the index directory says about that block.
    pub entry: IndexDirectoryEntry,
    /// What the set says about itself.
    pub description: SetDescription,
    /// What the footer says that each index block has of each file. It comes empty: then the new
    /// footer says nothing of that, as those of older versions.
    pub spans: Vec<BlockSpans>,
}

/// Changes the set of one stripe. The index block must stay as long as it is.
pub fn reforge(stripe: &Path, change: impl FnOnce(&mut Parts)) {
    reforge_with(stripe, None, change);
}

/// Does the same with a set that may be encrypted: who has the key can forge everything.
pub fn reforge_with(stripe: &Path, cipher: Option<&SetCipher>, change: impl FnOnce(&mut Parts)) {
    let mut bytes = std::fs::read(stripe).unwrap();
    let record = &bytes[bytes.len() - SEAL_BYTES..];
    let mut seal = Seal::decode(record, bytes.len() as u64).unwrap();
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let data_bytes = at(seal.footer_offset);
    let footer = &bytes[data_bytes..data_bytes + at(seal.footer_bytes)];
    let mut footer = Footer::decode_with(footer, u64::MAX, cipher).unwrap();
    let entry = footer.directory.pop().unwrap();
    let (from, to) = (at(entry.offset), at(entry.offset) + entry.bytes as usize);
    let encoded = &bytes[from..to];
    let block = IndexBlock::decode_with(encoded, entry.offset, seal.alignment, cipher).unwrap();
    let description = footer.description;
    let mut parts = Parts {
        block,
        entry,
        description,
        spans: Vec::new(),
    };
    change(&mut parts);
    let encoded = parts.block.encode_with(seal.alignment, cipher).unwrap();
    assert_eq!(encoded.len(), to - from, "it has the length that it had");
    bytes[from..to].copy_from_slice(&encoded);
    parts.entry.hash = *blake3::hash(&encoded).as_bytes();
    footer.directory.push(parts.entry);
    let header = StripeHeader::encoded_bytes(&bytes[..StripeHeader::PREFIX_BYTES]).unwrap();
    let hash = StripeTableEntry::hash_of(&bytes[..header as usize], &footer.directory);
    parts.description.stripes[0].hash = hash;
    bytes.truncate(data_bytes);
    let directories = [footer.directory];
    let spans = match parts.spans.is_empty() {
        true => Vec::new(),
        false => vec![parts.spans],
    };
    let own = (directories.as_slice(), spans.as_slice());
    let set_id = seal.set_id;
    let alignment = seal.alignment;
    let footers = |_, footer: Vec<u8>, root| -> Result<(), FormatError> {
        seal.footer_bytes = footer.len() as u64;
        seal.footer_hash = *blake3::hash(&footer).as_bytes();
        seal.set_root = root;
        bytes.extend(footer);
        seal.stripe_bytes = bytes.len() as u64 + u64::from(alignment);
        bytes.extend(seal.encode());
        Ok(())
    };
    let made = parts
        .description
        .footers_spanned((set_id, cipher), alignment, own, footers);
    made.unwrap();
    std::fs::write(stripe, bytes).unwrap();
}

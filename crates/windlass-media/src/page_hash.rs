//! Hashes of pages, for a set to know later which pages are still the same.
//!
//! The hash is the tag that AES-256-GCM gives to bytes that it only authenticates, which NIST SP
//! 800-38D calls GMAC: a polynomial over the page, taken at a secret point. Two different pages
//! that were chosen without knowing the key have the same hash with a probability below 2^-115,
//! however they were chosen. No hash with a key that everybody knows promises that, and processors
//! have instructions for this one.
//!
//! The nonce is always the same. That would give the key away to whoever sees hashes of pages that
//! he knows, but hashes and key are kept in the same place anyway.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::cipher::random;
use crate::error::FormatError;

/// Bytes of the hash of a page.
pub const PAGE_HASH_BYTES: usize = 16;
/// Bytes of a key of hashes.
pub const PAGE_HASH_KEY_BYTES: usize = 32;

/// Hashes pages with one key.
pub struct PageHasher {
    key: [u8; PAGE_HASH_KEY_BYTES],
    hashing: LessSafeKey,
}

impl PageHasher {
    /// With a fresh key.
    pub fn random() -> Result<Self, FormatError> {
        let mut key = [0; PAGE_HASH_KEY_BYTES];
        random(&mut key)?;
        Ok(Self::new(key))
    }

    /// With this key.
    pub fn new(key: [u8; PAGE_HASH_KEY_BYTES]) -> Self {
        let hashing = UnboundKey::new(&AES_256_GCM, &key);
        let hashing = hashing.unwrap_or_else(|_| unreachable!("the key is as long as it must be"));
        Self {
            key,
            hashing: LessSafeKey::new(hashing),
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8; PAGE_HASH_KEY_BYTES] {
        &self.key
    }

    /// The hash of a page.
    pub fn hash(&self, page: &[u8]) -> [u8; PAGE_HASH_BYTES] {
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let tag = self
            .hashing
            .seal_in_place_separate_tag(nonce, Aad::from(page), &mut []);
        let tag = tag.unwrap_or_else(|_| unreachable!("a page is not too long"));
        let mut hash = [0; PAGE_HASH_BYTES];
        hash.copy_from_slice(tag.as_ref());
        hash
    }
}

impl std::fmt::Debug for PageHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        // Made with another implementation: cryptography's AESGCM in Python.
        let hasher = PageHasher::new([7; PAGE_HASH_KEY_BYTES]);
        let expected = [
            12, 5, 226, 239, 91, 245, 148, 115, 48, 160, 67, 37, 98, 188, 228, 127,
        ];
        assert_eq!(hasher.hash(&[1; 4096]), expected);
    }

    #[test]
    fn a_changed_bit_and_another_key_give_another_hash() {
        let hasher = PageHasher::random().unwrap();
        let other = PageHasher::random().unwrap();
        let mut page = vec![5; 65_536];
        let hash = hasher.hash(&page);
        assert_ne!(hash, other.hash(&page));
        assert_eq!(hash, PageHasher::new(*hasher.key()).hash(&page));
        for at in [0, 1, 4095, 65_535] {
            page[at] ^= 0x10;
            assert_ne!(hash, hasher.hash(&page), "{at}");
            page[at] ^= 0x10;
        }
        assert_ne!(hash, hasher.hash(&page[..65_535]));
    }
}

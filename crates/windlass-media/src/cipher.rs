//! The encryption of a set: its keys, and how frames, index blocks and sections are encrypted.
//!
//!   data key --HKDF-SHA256, salt: set id--> frames, blocks and sections, root, check
//!
//! Everything is AES-256-GCM with a random nonce in front and the tag behind. The associated data
//! says what the bytes are: a frame that is moved to other pieces, a block of another stripe, a
//! section of another set cannot be decrypted.
//!
//! Invariants
//! - The data key is overwritten when it is dropped. No `Debug` shows a byte of it.
//! - Nothing is returned of bytes that are not right to the last bit.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::error::{FormatError, Structure};
use crate::ids::{SetId, StripeIndex};
use crate::index::{FrameEntry, LAYOUT_PLAIN, PieceEntry};
use crate::lock::{CHECK_BYTES, KeyCheck};

/// Bytes of a nonce, which stand in front of encrypted bytes.
pub const NONCE_BYTES: usize = NONCE_LEN;
/// By how much encrypted bytes are longer than clear ones: a nonce and a tag.
pub const SEALED_BYTES: usize = NONCE_LEN + 16;
/// Bytes of a data key.
pub const DATA_KEY_BYTES: usize = 32;
/// The stripe of what stands on all stripes.
const EVERY_STRIPE: u16 = u16::MAX;

/// The key of one set, from which all its other keys come.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct DataKey([u8; DATA_KEY_BYTES]);

impl DataKey {
    /// A fresh one.
    pub fn random() -> Result<Self, FormatError> {
        let mut key = Self([0; DATA_KEY_BYTES]);
        random(&mut key.0)?;
        Ok(key)
    }

    /// The key with these bytes. `None` if they are not as many as a key has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, for an envelope.
    pub fn bytes(&self) -> &[u8; DATA_KEY_BYTES] {
        &self.0
    }

    /// What shows whether a key is this one, and nothing else about it.
    pub fn check_for(&self, set_id: SetId) -> KeyCheck {
        KeyCheck(derived(&self.keys_of(set_id), b"check"))
    }

    pub(crate) fn keys_of(&self, set_id: SetId) -> Prk {
        Salt::new(HKDF_SHA256, &set_id.0).extract(&self.0)
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey")
    }
}

/// Encrypts and decrypts what belongs to one set.
pub struct SetCipher {
    set_id: SetId,
    frames: LessSafeKey,
    structures: LessSafeKey,
    root: [u8; 32],
    random: SystemRandom,
}

impl std::fmt::Debug for SetCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SetCipher({})", self.set_id)
    }
}

impl Drop for SetCipher {
    fn drop(&mut self) {
        self.root.zeroize();
    }
}

impl SetCipher {
    /// The cipher of a set that has this data key.
    pub fn new(key: &DataKey, set_id: SetId) -> Result<Self, FormatError> {
        let keys = key.keys_of(set_id);
        Ok(Self {
            set_id,
            frames: aes(&keys, b"frames")?,
            structures: aes(&keys, b"structures")?,
            root: derived(&keys, b"root"),
            random: SystemRandom::new(),
        })
    }

    /// Computes the root of the set. Without the key nobody can tell from a root what was hashed.
    pub(crate) fn root_hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.root)
    }

    /// Encrypts a frame in its place. `room` has a nonce's room, the bytes, and a tag's room.
    pub fn seal_frame(
        &self,
        entry: &FrameEntry,
        pieces: &[PieceEntry],
        room: &mut [u8],
    ) -> Result<(), FormatError> {
        let aad = self.frame_aad(entry, pieces);
        seal(&self.frames, &self.random, &aad, room)
    }

    /// Decrypts a frame to `clear`.
    pub(crate) fn open_frame(
        &self,
        entry: &FrameEntry,
        pieces: &[PieceEntry],
        stored: &[u8],
        clear: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let aad = self.frame_aad(entry, pieces);
        open(&self.frames, &aad, stored, clear).ok_or(FormatError::Sealed(Structure::Frame))
    }

    /// Encrypts the entries of an index block, whose head is associated data.
    pub(crate) fn seal_block(&self, head: &[u8], clear: &[u8]) -> Result<Vec<u8>, FormatError> {
        self.seal_structure(&aad(b"block", &[head]), clear)
    }

    /// Decrypts the entries of an index block.
    pub(crate) fn open_block(&self, head: &[u8], sealed: &[u8]) -> Result<Vec<u8>, FormatError> {
        self.open_structure(&aad(b"block", &[head]), sealed, Structure::IndexBlock)
    }

    /// Encrypts a section of a footer. `head` is what the footer says of it.
    pub(crate) fn seal_section(
        &self,
        stripe: Option<StripeIndex>,
        head: &[u8],
        clear: &[u8],
    ) -> Result<Vec<u8>, FormatError> {
        self.seal_structure(&self.section_aad(stripe, head), clear)
    }

    /// Decrypts a section of a footer.
    pub(crate) fn open_section(
        &self,
        stripe: Option<StripeIndex>,
        head: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, FormatError> {
        self.open_structure(&self.section_aad(stripe, head), sealed, Structure::Footer)
    }

    fn seal_structure(&self, aad: &[u8], clear: &[u8]) -> Result<Vec<u8>, FormatError> {
        let mut room = vec![0; clear.len() + SEALED_BYTES];
        room[NONCE_BYTES..NONCE_BYTES + clear.len()].copy_from_slice(clear);
        seal(&self.structures, &self.random, aad, &mut room)?;
        Ok(room)
    }

    fn open_structure(
        &self,
        aad: &[u8],
        sealed: &[u8],
        structure: Structure,
    ) -> Result<Vec<u8>, FormatError> {
        let mut clear = Vec::new();
        open(&self.structures, aad, sealed, &mut clear).ok_or(FormatError::Sealed(structure))?;
        Ok(clear)
    }

    fn section_aad(&self, stripe: Option<StripeIndex>, head: &[u8]) -> Vec<u8> {
        let stripe = stripe.map_or(EVERY_STRIPE, |stripe| stripe.0);
        aad(b"section", &[&self.set_id.0, &stripe.to_le_bytes(), head])
    }

    /// What a frame is: of which set, how to decode it, and which bytes of which files it holds.
    /// The place on a stripe is not part of it, because compressors do not know it.
    fn frame_aad(&self, entry: &FrameEntry, pieces: &[PieceEntry]) -> Vec<u8> {
        let (layout, laid) = match entry.page {
            Some(page) => (page.layout, page.laid_bytes),
            None => (LAYOUT_PLAIN, entry.raw_bytes),
        };
        let mut what = Vec::with_capacity(11 + pieces.len() * crate::index::PIECE_ENTRY_BYTES);
        what.push(entry.codec.number());
        what.extend_from_slice(&layout.to_le_bytes());
        what.extend_from_slice(&entry.raw_bytes.to_le_bytes());
        what.extend_from_slice(&laid.to_le_bytes());
        for piece in pieces {
            crate::index::put_piece(&mut what, piece);
        }
        aad(b"frame", &[&self.set_id.0, &what])
    }
}

/// The kind of what is encrypted, its length, and what it is.
fn aad(kind: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut all = kind.to_vec();
    all.push(0);
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all
}

/// Encrypts in place: `room` is a nonce's room, the clear bytes, a tag's room.
pub(crate) fn seal(
    key: &LessSafeKey,
    random: &SystemRandom,
    aad: &[u8],
    room: &mut [u8],
) -> Result<(), FormatError> {
    let fault = FormatError::Truncated(Structure::Frame);
    let (nonce, rest) = room.split_at_mut_checked(NONCE_BYTES).ok_or(fault)?;
    random.fill(nonce).map_err(|_| FormatError::NoRandom)?;
    let tag_at = rest.len().saturating_sub(SEALED_BYTES - NONCE_BYTES);
    let (bytes, tag) = rest.split_at_mut(tag_at);
    let once = Nonce::try_assume_unique_for_key(nonce).map_err(|_| FormatError::NoRandom)?;
    let made: Tag = key
        .seal_in_place_separate_tag(once, Aad::from(aad), bytes)
        .map_err(|_| FormatError::NoRandom)?;
    tag.copy_from_slice(made.as_ref());
    Ok(())
}

/// Decrypts to `clear`. `None` if a bit is wrong, or the associated data is.
pub(crate) fn open(
    key: &LessSafeKey,
    aad: &[u8],
    sealed: &[u8],
    clear: &mut Vec<u8>,
) -> Option<()> {
    let (nonce, bytes) = sealed.split_at_checked(NONCE_BYTES)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    clear.clear();
    clear.extend_from_slice(bytes);
    let opened = key.open_in_place(nonce, Aad::from(aad), clear);
    let length = opened.map(|bytes| bytes.len());
    clear.truncate(length.unwrap_or(0));
    length.ok().map(drop)
}

/// How many bytes a derived key has.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

pub(crate) fn aes(keys: &Prk, what: &[u8]) -> Result<LessSafeKey, FormatError> {
    let mut key: [u8; 32] = derived(keys, what);
    let made = UnboundKey::new(&AES_256_GCM, &key);
    key.zeroize();
    Ok(LessSafeKey::new(made.map_err(|_| FormatError::NoRandom)?))
}

/// A key for one purpose.
pub(crate) fn derived<const N: usize>(keys: &Prk, what: &[u8]) -> [u8; N] {
    const { assert!(N == 32 || N == CHECK_BYTES) };
    let mut key = [0; N];
    let info = [b"windlass ".as_slice(), what];
    let filled = keys
        .expand(&info, Bytes(N))
        .and_then(|okm| okm.fill(&mut key));
    // HKDF gives up to 8160 bytes, so 32 never fail.
    assert!(filled.is_ok(), "HKDF gives 32 bytes");
    key
}

pub(crate) fn random(into: &mut [u8]) -> Result<(), FormatError> {
    let filled = SystemRandom::new().fill(into);
    filled.map_err(|_| FormatError::NoRandom)
}

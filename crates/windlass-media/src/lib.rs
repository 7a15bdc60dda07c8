//! The media format, version 1: bytes in, bytes out.
//!
//!   stripe = [header][transfers, index block, transfers, index block, ...][footer][seal]
//!
//! A media set has 1 to 64 stripes. Frames (compressed pieces of files) are packed into transfers.
//! An index block follows the transfers that it describes; it says what each frame holds, and its
//! checksum. The footer lists the index blocks and describes the whole set. The seal is written
//! last. Files with parity lie beside the stripes of some sets; lost stripes are rebuilt from them.
//! `docs/format.md` describes every byte.
//!
//! A frame, there and back:
//!
//! ```
//! use windlass_media::{Codec, Decoder, Encoder, crc32c};
//!
//! let page = vec![7; 8192];
//! let mut encoder = Encoder::new(Codec::Zstd(1))?;
//! let mut stored = vec![0; encoder.bound(page.len())];
//! let (codec, bytes) = encoder.encode(&page, &mut stored).expect("it can be made smaller");
//! assert!(bytes < 100 && crc32c(&stored[..bytes]) != 0);
//! let mut again = vec![0; page.len()];
//! Decoder::new()?.decode(codec, &stored[..bytes], &mut again)?;
//! assert_eq!(again, page);
//! # Ok::<_, windlass_media::FormatError>(())
//! ```
//!
//! Invariants
//! - This crate never touches files, threads or clocks, and never panics on input.
//! - Every length is checked against a stated limit before anything is allocated from it.
//! - Every byte of a stripe is covered: by a CRC-32C, by a BLAKE3 hash, or by "must be zero".

mod base;
mod beginning;
mod cipher;
mod codec;
mod error;
mod facts;
mod files;
mod footer;
mod frame;
mod header;
mod ids;
mod index;
mod laid;
mod limits;
mod lock;
mod log;
mod memory;
mod name;
mod number;
mod page_hash;
mod pages;
mod parity;
mod seal;
mod superseded;
mod wire;

pub use base::{Base, Inherited, InheritedFiles};
pub use cipher::{DATA_KEY_BYTES, DataKey, NONCE_BYTES, SEALED_BYTES, SetCipher};
pub use codec::{Codec, Decoder, Encoder, crc32c, crc32c_zeros_after, is_zero};
pub use error::{CodecText, FormatError, Structure};
pub use facts::{BackupType, Facts};
pub use files::{FileEntry, FileFlags, FileKind, FileTable, check_path};
pub use footer::{
    BlockSpans, FileSpan, Footer, IndexDirectoryEntry, SetDescription, StripeTableEntry,
};
pub use header::StripeHeader;
pub use ids::{FileNo, SetId, StripeIndex};
pub use index::{
    FrameEntry, IndexBlock, IndexBlockBuilder, LAYOUT_PLAIN, LAYOUT_STREAMS, PageFrame, PieceEntry,
};
pub use laid::Laid;
pub use limits::*;
pub use lock::{
    ENVELOPE_BYTES_MAX, ENVELOPES_MAX, Envelope, KEY_FILE_BYTES_MAX, KeyCheck, KeyFile, Lock,
    RECIPIENT_BYTES_MAX,
};
pub use log::{
    CONTENT_TOKEN_BYTES, LOG_END_BYTES, LOG_FRAME_HEADER_BYTES, LOG_FRAMES_MAX, LOG_HEADER_BYTES,
    LOG_LOCK_HEAD_BYTES, LOG_MARK_BYTES, LOG_MARK_UNKNOWN, LOG_RECORD_BYTES, LOG_SEALED_BYTES,
    LOG_STAND_BYTES_MAX, LogCipher, LogContent, LogEncryption, LogEnd, LogFrame, LogHeader,
    LogIndexEntry, LogLock, LogMark, LogRecord, RecordKind, decode_log_index, encode_log_index,
};
pub use name::NameObject;
pub use number::{Whole, fitted, saturated};
pub use page_hash::{PAGE_HASH_BYTES, PAGE_HASH_KEY_BYTES, PageHasher};
pub use pages::{FrameDecoder, PageEncoder, PageLayout, TakeApart, Taken};
pub use parity::{
    GroupBlock, GroupBlockBuilder, GroupDirectory, GroupDirectoryEntry, GroupEntry, MemberEntry,
    ParityEnd, ParityHeader, Recipe, add_product, coefficient,
};
pub use seal::Seal;
pub use superseded::SupersededFiles;
pub use windlass_pages;
pub use wire::round_up;

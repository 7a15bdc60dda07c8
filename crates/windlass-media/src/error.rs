//! What can be wrong with media, by structure and position.

use crate::ids::{FileNo, SetId, StripeIndex};

/// The structures of a stripe, as errors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The first block of a stripe.
    Header,
    /// A block of frame entries.
    IndexBlock,
    /// The directory, stripe table, file table and facts.
    Footer,
    /// The list of index blocks in a footer.
    IndexDirectory,
    /// The list, in a footer, of what each index block has of each file.
    IndexSpans,
    /// The list of stripes in a footer.
    StripeTable,
    /// The list of files in a footer.
    FileTable,
    /// The list, in a footer, of the file numbers whose pieces do not count.
    Superseded,
    /// The section that names the base of a set.
    Base,
    /// The JSON document in a footer.
    Facts,
    /// The last 512 bytes of a stripe.
    Seal,
    /// The first bytes of a log object.
    LogHeader,
    /// The lock of an encrypted log object.
    LogLock,
    /// A frame of a log object.
    LogFrame,
    /// The list of the frames of a log object.
    LogIndex,
    /// The last bytes of a log object.
    LogEnd,
    /// The mark beside a growing log object.
    LogMark,
    /// A record in the log of a SQLite database.
    LogRecord,
    /// One frame.
    Frame,
    /// A file of envelopes beside a set.
    KeyFile,
    /// The object that gives a stripe its name in a bucket.
    NameObject,
    /// The first bytes of a file with parity.
    ParityHeader,
    /// A block that says what the groups before it are made of.
    GroupBlock,
    /// The list of group blocks.
    GroupDirectory,
    /// The last 512 bytes of a file with parity.
    ParityEnd,
    /// The parity of a group.
    Parity,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::IndexBlock => "index block",
            Self::Footer => "footer",
            Self::IndexDirectory => "index directory",
            Self::IndexSpans => "spans of index blocks",
            Self::StripeTable => "stripe table",
            Self::FileTable => "file table",
            Self::Superseded => "list of superseded files",
            Self::Base => "section about the base",
            Self::Facts => "facts",
            Self::Seal => "seal",
            Self::LogHeader => "header of a log object",
            Self::LogLock => "lock of a log object",
            Self::LogFrame => "frame of a log object",
            Self::LogIndex => "index of a log object",
            Self::LogEnd => "end of a log object",
            Self::LogMark => "mark beside a growing log object",
            Self::LogRecord => "record in the log of a SQLite database",
            Self::Frame => "frame",
            Self::KeyFile => "file of envelopes",
            Self::NameObject => "name object of a stripe",
            Self::ParityHeader => "header of a file with parity",
            Self::GroupBlock => "group block",
            Self::GroupDirectory => "directory of groups",
            Self::ParityEnd => "end of a file with parity",
            Self::Parity => "parity",
        })
    }
}

/// Why bytes are not a valid structure of the format.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The structure does not start with its magic bytes.
    #[error("{0}: not a Windlass {0} (magic bytes differ)")]
    Magic(Structure),
    /// The stripe was written by a newer version of the format.
    #[error(
        "{structure}: format version {found} is newer than {supported}, the newest that this build can read"
    )]
    Version {
        /// The structure that has this version.
        structure: Structure,
        /// The version found.
        found: u16,
        /// The newest version this build reads.
        supported: u16,
    },
    /// A feature bit that this build does not know, and must know to read on.
    #[error("{structure}: needs feature {found:#x}, which this build does not have")]
    Feature {
        /// The structure that has this feature bit.
        structure: Structure,
        /// The value found.
        found: u32,
    },
    /// The structure ends before its content does.
    #[error("{0}: truncated")]
    Truncated(Structure),
    /// A checksum differs.
    #[error("{structure}: checksum mismatch (expected {expected:08x}, found {found:08x})")]
    Checksum {
        /// The structure.
        structure: Structure,
        /// The checksum that is stored.
        expected: u32,
        /// The checksum that the bytes give.
        found: u32,
    },
    /// Encrypted bytes are not what was encrypted at this place.
    #[error("{0}: cannot be decrypted: it was changed, moved, or belongs elsewhere")]
    Sealed(Structure),
    /// The system gives no random numbers, or no cipher.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// A BLAKE3 hash differs.
    #[error("{0}: hash mismatch")]
    Hash(Structure),
    /// A count, size or length is beyond its limit.
    #[error("{structure}: {what} is {found}, beyond the limit of {limit}")]
    Limit {
        /// The structure.
        structure: Structure,
        /// The field.
        what: &'static str,
        /// The value found.
        found: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// The value of a field contradicts the rest.
    #[error("{structure}: {what}")]
    Invalid {
        /// The structure.
        structure: Structure,
        /// What is wrong.
        what: &'static str,
    },
    /// A path that a set may not contain.
    #[error("file {file}: path {path:?} {what}")]
    Path {
        /// The file.
        file: FileNo,
        /// The path, lossily decoded.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A stripe belongs to another set, or lies at the wrong place.
    #[error("{structure}: belongs to set {found}, not to {expected}")]
    Foreign {
        /// The structure.
        structure: Structure,
        /// The set that was expected.
        expected: SetId,
        /// The set found.
        found: SetId,
    },
    /// The stripe index is not the one expected.
    #[error("{structure}: belongs to stripe {found}, not to stripe {expected}")]
    StripeIndex {
        /// The structure.
        structure: Structure,
        /// The stripe that was expected.
        expected: StripeIndex,
        /// The stripe found.
        found: StripeIndex,
    },
    /// A codec number this build does not know.
    #[error("frame: codec {0} is unknown to this build")]
    Codec(u8),
    /// The streams of a frame of pages cannot be found.
    #[error("frame: {0}")]
    LaidOut(&'static str),
    /// Streams of pages, or the description of the pages, are wrong.
    #[error("frame: {0}")]
    Pages(windlass_pages::PagesError),
    /// A layout of pages that this build does not know.
    #[error("frame: page layout {0} is unknown to this build")]
    PageLayout(u16),
    /// A frame's stored bytes do not match their checksum.
    #[error("frame: checksum mismatch (expected {expected:08x}, found {found:08x})")]
    FrameChecksum {
        /// The checksum that the index states.
        expected: u32,
        /// The checksum that the bytes give.
        found: u32,
    },
    /// A frame cannot be decompressed, or does not decompress to its stated length.
    #[error("frame: cannot decompress {codec} to {expected_bytes} bytes")]
    FrameContent {
        /// The codec's name.
        codec: &'static str,
        /// The length the index states.
        expected_bytes: u32,
    },
}

/// A text that names no codec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no codec")]
pub struct CodecText(pub String);

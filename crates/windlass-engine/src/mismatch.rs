//! Where the content of a set does not add up: its index blocks, its tables and its files.

use windlass_media::{FileNo, SetId, StripeIndex};

/// What does not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The stripe table is not of as many stripes.
    #[error("the stripe table does not list as many stripes as there are")]
    Stripes {
        /// How many it lists.
        listed: usize,
        /// How many there are.
        found: usize,
    },
    /// The files are longer than what the stripes can hold.
    #[error("its files are {file_bytes} bytes long, and its stripes hold {held_bytes}")]
    TooLong {
        /// Bytes of all files.
        file_bytes: u64,
        /// Bytes that the stripes hold.
        held_bytes: u64,
    },
    /// The frames of a stripe have other sizes than the stripe table says.
    #[error(
        "the frames of stripe {} hold {raw_bytes} bytes of files in {stored_bytes} bytes, and the \
         stripe table says {raw_listed} in {stored_listed}",
        stripe.number()
    )]
    Frames {
        /// The stripe.
        stripe: StripeIndex,
        /// Bytes of files in its frames.
        raw_bytes: u64,
        /// Bytes of its frames.
        stored_bytes: u64,
        /// Bytes of files, by the stripe table.
        raw_listed: u64,
        /// Bytes of frames, by the stripe table.
        stored_listed: u64,
    },
    /// Two pieces of one layer hold the same bytes of a file.
    #[error("pieces of layer {layer} of file {file} overlap at {offset}")]
    Overlap {
        /// The layer.
        layer: u8,
        /// The file.
        file: FileNo,
        /// Where in the file.
        offset: u64,
    },
    /// A file has layers, and so nobody knows which content its checksum is of.
    #[error("file {path} has layers, and its entry states a checksum all the same")]
    LayeredChecksum {
        /// The file.
        path: String,
    },
    /// A piece is of a file that the set does not list.
    #[error("piece at {offset} of file {file} is of a file the set does not list")]
    PieceOfNone {
        /// The file.
        file: FileNo,
        /// Where in the file.
        offset: u64,
    },
    /// The base does not have as many bytes of a file as the set takes from it.
    #[error(
        "it takes the first {bytes} bytes of file {file} from set {base}, which does not have them"
    )]
    BaseFile {
        /// The base.
        base: SetId,
        /// The file in the base.
        file: FileNo,
        /// How many bytes the set takes.
        bytes: u64,
    },
    /// A piece is longer than the rest of its file.
    #[error("piece at {offset} of file {file} ends beyond its file")]
    PieceBeyond {
        /// The file.
        file: FileNo,
        /// Where in the file.
        offset: u64,
    },
    /// Bytes of a file are missing, or there are too many.
    #[error("file {path}: {found_bytes} of {file_bytes} bytes are there")]
    FileBytes {
        /// The file.
        path: String,
        /// How many came.
        found_bytes: u64,
        /// How many it has.
        file_bytes: u64,
    },
    /// As many bytes came as the file has, but not each of them once.
    #[error("file {path}: some bytes are there twice, and others not at all")]
    FileTwice {
        /// The file.
        path: String,
    },
    /// A file has another checksum than its entry says.
    #[error("file {path}: checksum is {found:08x}, not {expected:08x}")]
    FileChecksum {
        /// The file.
        path: String,
        /// The CRC-32C of its bytes.
        found: u32,
        /// The CRC-32C that its entry states.
        expected: u32,
    },
}

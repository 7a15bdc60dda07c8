//! What the format allows. Decoders refuse anything beyond, before they allocate.

/// The format version that this crate writes. It is also the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;
/// Most stripes a media set may have (SQL Server's bound for devices, too).
pub const STRIPES_MAX: u16 = 64;
/// Smallest alignment (block size) of a stripe, in bytes.
pub const ALIGNMENT_MIN: u32 = 512;
/// Largest alignment (block size) of a stripe, in bytes.
pub const ALIGNMENT_MAX: u32 = 65_536;
/// Largest frame, decompressed, in bytes. It bounds how much memory one frame can make a reader
/// allocate.
pub const FRAME_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Largest header of a stripe, padding included, in bytes.
pub const HEADER_BYTES_MAX: u32 = 1024 * 1024;
/// Largest index block, padding included, in bytes.
pub const INDEX_BLOCK_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Most index blocks in one stripe.
pub const INDEX_BLOCKS_MAX: u32 = 4_000_000;
/// Largest member of a group with parity, in bytes: a transfer.
pub const MEMBER_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Largest footer, padding included, in bytes.
pub const FOOTER_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Most sections in one footer.
pub const SECTIONS_MAX: u32 = 64;
/// Most files in one set.
pub const FILES_MAX: u32 = 10_000_000;
/// Most superseded file numbers: room for every file to be copied again a few times.
pub const SUPERSEDED_MAX: u64 = 4 * FILES_MAX as u64;
/// Longest path or symbolic link target, in bytes (Linux's PATH_MAX).
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest component of a path, in bytes (Linux's NAME_MAX).
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Longest section of a footer, decompressed, in bytes; the longest one is the file table.
pub const FILE_TABLE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Longest facts document, decompressed, in bytes.
pub const FACTS_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Largest file that a set may describe: 2^62 bytes, so that the sum of two sizes never overflows.
pub const FILE_BYTES_MAX: u64 = 1 << 62;
/// Bytes of the seal record, with which the stripe ends.
pub const SEAL_BYTES: usize = 512;

/// Longest key in the object that gives a stripe its name in a bucket.
pub const NAME_KEY_BYTES_MAX: usize = 1024;
/// Most bytes of a stripe's head that such an object has a copy of.
pub const NAME_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a stripe's tail that such an object has a copy of: the seal's block and, if it is
/// short, the footer.
pub const NAME_TAIL_BYTES_MAX: usize = 256 * 1024;
/// Longest object of this kind.
pub const NAME_OBJECT_BYTES_MAX: usize =
    NAME_KEY_BYTES_MAX + NAME_HEAD_BYTES_MAX + NAME_TAIL_BYTES_MAX + 64;

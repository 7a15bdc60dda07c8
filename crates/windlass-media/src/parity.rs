//! Parity: what devices with parity hold, so that lost and damaged stripes can be rebuilt.
//!
//!   parity file = [header][parity, parity, ..., group block][parity, ...] ... [directory][end]
//!
//! The bytes of all stripes of a set, from their headers to their seals, are cut into members. A
//! group has at most one member of each stripe. Each parity file has one parity of each group:
//! a sum of the members, each multiplied by a coefficient, in the field of 256 numbers. From any K
//! of members and parities the others of the group can be computed (`code`).
//!
//! Invariants
//! - Each byte of each stripe is in exactly one member. Members of a stripe follow each other.
//! - Each parity and each member has a CRC-32C, so nothing wrong is used to rebuild anything.

mod blocks;
mod code;
mod directory;
mod end;
mod header;

pub use blocks::{GroupBlock, GroupBlockBuilder, GroupEntry, MemberEntry};
pub use code::{Recipe, add_product, coefficient};
pub use directory::{GroupDirectory, GroupDirectoryEntry};
pub use end::ParityEnd;
pub(crate) use header::MAGIC as HEADER_MAGIC;
pub use header::ParityHeader;

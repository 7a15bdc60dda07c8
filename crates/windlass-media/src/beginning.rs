//! Which record begins with some bytes, as far as its first eight say.

use crate::error::Structure;
use crate::{footer, header, index, parity, seal};

/// How the records of a stripe begin, and a file with parity.
const BEGINNINGS: [(&[u8; 8], Structure); 5] = [
    (header::MAGIC, Structure::Header),
    (index::MAGIC, Structure::IndexBlock),
    (footer::MAGIC, Structure::Footer),
    (seal::MAGIC, Structure::Seal),
    (parity::HEADER_MAGIC, Structure::ParityHeader),
];

impl Structure {
    /// The record that begins with these bytes: one of a stripe, or the header of a file with
    /// parity. Nothing behind its first eight bytes is looked at. Frames begin with any bytes.
    pub fn begun_by(bytes: &[u8]) -> Option<Self> {
        let begins = |(magic, _): &&(&[u8; 8], Self)| bytes.starts_with(*magic);
        BEGINNINGS.iter().find(begins).map(|(_, record)| *record)
    }
}

//! The names of warnings that `--accept` takes.

use clap::builder::PossibleValuesParser;
pub use windlass_operations::warnings::{SQLITE_VERSION, acceptable};

/// The parser of `--accept`.
pub fn parser() -> PossibleValuesParser {
    PossibleValuesParser::new(acceptable())
}

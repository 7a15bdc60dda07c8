//! The names of warnings that `--accept` takes.

use clap::builder::PossibleValuesParser;

/// The name of the remark about the SQLite version that last wrote the database.
pub const SQLITE_VERSION: &str = "sqlite-version";

/// The names that `--accept` takes.
pub fn acceptable() -> Vec<&'static str> {
    let postgres = windlass_postgres::Warning::LASTING.iter();
    let sqlite = windlass_sqlite::Warning::LASTING.iter();
    let mut names: Vec<_> = postgres.chain(sqlite).copied().collect();
    names.push(SQLITE_VERSION);
    names
}

/// The parser of `--accept`.
pub fn parser() -> PossibleValuesParser {
    PossibleValuesParser::new(acceptable())
}

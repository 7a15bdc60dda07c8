//! Makes a SQLite database huge without taking disk space, and compares sparse files.
//!
//!   sparse grow FILE GIBIBYTES     free pages, as holes, until the database is so long
//!   sparse compare FILE OTHER      says `same`, or at which byte they differ first
//!
//! For `scripts/soak huge`.

use std::path::Path;
use std::process::ExitCode;

use windlass_testkit::sparse::{first_difference, grow};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["grow", file, gibibytes] => match gibibytes.parse::<u64>() {
            Ok(gibibytes) => {
                grow(Path::new(file), gibibytes << 30);
                ExitCode::SUCCESS
            }
            Err(error) => fail(&format!("{gibibytes}: {error}")),
        },
        ["compare", one, other] => match first_difference(Path::new(one), Path::new(other)) {
            Ok(difference) => {
                let at = difference.map(|at| format!("they differ at byte {at}"));
                println!("{}", at.as_deref().unwrap_or("same"));
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error.to_string()),
        },
        _ => fail("sparse grow FILE GIBIBYTES | sparse compare FILE OTHER"),
    }
}

fn fail(what: &str) -> ExitCode {
    eprintln!("{what}");
    ExitCode::FAILURE
}

//! Man pages and shell completions, made from the same definition as `--help`.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Code, Failure};

pub fn completions(shell: clap_complete::Shell) -> Result<Code, Failure> {
    clap_complete::generate(
        shell,
        &mut Cli::command(),
        "windlass",
        &mut std::io::stdout(),
    );
    Ok(Code::Done)
}

pub fn pages(into: &Path) -> Result<Code, Failure> {
    clap_mangen::generate_to(Cli::command(), into).map_err(|error| {
        let message = format!("cannot write man pages to {}: {error}", into.display());
        Failure::new(Code::Failed, message, "Name a directory that exists.")
    })?;
    Ok(Code::Done)
}

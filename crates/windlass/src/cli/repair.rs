//! `windlass repair`: which pages, and from where they come.

use std::path::PathBuf;

use clap::Args;
use windlass_postgres::PageAt;

use super::moment::Recovering;
use super::{Choice, Repo};

/// `windlass repair`
#[derive(Debug, Args)]
pub struct Repair {
    /// The data directory of a PostgreSQL cluster whose server was stopped
    #[arg(value_name = "DATABASE")]
    pub data: PathBuf,
    /// The directory that has its sets and its log
    #[arg(long, value_name = "PLACE")]
    pub from: PathBuf,
    /// In which repository they are
    #[command(flatten)]
    pub repo: Repo,
    /// Keep the damaged pages in this directory
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "dry_run")]
    pub keep: Option<PathBuf>,
    /// A damaged page, as the server names it: the path of the relation, and the block. Repeat it
    /// for several [default: all whose checksums are wrong]
    #[arg(long = "page", value_name = "PATH:BLOCK", value_parser = page)]
    pub pages: Vec<PageAt>,
    /// Say which pages are damaged; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The place of the archived log, if it is not that of the sets
    #[arg(long, value_name = "PLACE")]
    pub log_from: Option<PathBuf>,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
    /// How the set is recovered
    #[command(flatten)]
    pub recovering: Recovering,
}

fn page(text: &str) -> Result<PageAt, String> {
    let expected = "no page: write the path of a relation and a block, as in base/5/16384:17";
    PageAt::parse(text).ok_or_else(|| expected.to_owned())
}

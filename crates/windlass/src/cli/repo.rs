//! `--repo`: a place by its name in the configuration.

use clap::Args;

/// The places of the configuration in which sets and logs lie.
#[derive(Clone, Debug, Default, Args)]
pub struct Repo {
    /// A repository of the configuration: its directories hold the sets and the log. The words for
    /// sets are names of databases then
    #[arg(long, value_name = "NAME", env = "WINDLASS_REPO")]
    pub repo: Option<String>,
}

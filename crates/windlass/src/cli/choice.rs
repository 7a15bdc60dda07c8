//! Which set of a place is meant.

use clap::Args;

use windlass_operations::places::Which;

/// The help of `--set` for commands that take all sets if none is chosen.
pub const WHICH_OF_ALL: &str = "The beginning of the set's id, `latest`, or a time, which means \
    the newest set that was begun by then [default: all sets]";

/// Which of many sets a command takes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which set of a directory")]
pub struct Choice {
    /// The beginning of the set's id, `latest`, or a time, which means the newest set that was
    /// begun by then [default: latest]
    #[arg(long = "set", value_name = "ID|latest|TIME", value_parser = Which::parse)]
    pub which: Option<Which>,
    /// Only sets of this database, if the directory holds sets of several
    #[arg(long = "database", value_name = "NAME")]
    pub of: Option<String>,
}

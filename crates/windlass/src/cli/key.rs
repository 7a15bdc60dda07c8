//! `windlass key`: who can read encrypted sets.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Choice, examples};

/// `windlass key`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Show who can read sets
    #[command(after_long_help = examples::KEY_LIST)]
    List(KeyOf),
    /// Check that the keys of --key open sets, without reading their data
    #[command(after_long_help = examples::KEY_CHECK)]
    Check(KeyOf),
    /// Encrypt the keys of sets to others, without reading or changing the sets
    #[command(after_long_help = examples::KEY_ROTATE)]
    Rotate(KeyRotate),
}

impl Key {
    /// The sets that are meant.
    pub fn of(&self) -> &KeyOf {
        match self {
            Self::List(of) | Self::Check(of) => of,
            Self::Rotate(arguments) => &arguments.of,
        }
    }
}

/// The sets that are meant.
#[derive(Debug, Args)]
pub struct KeyOf {
    /// A directory of sets, a stripe of a set, or the name of a configured database
    #[arg(required = true, value_name = "SET")]
    pub set: Vec<PathBuf>,
    /// Which set
    #[command(flatten)]
    pub choice: Choice,
}

/// `windlass key rotate`
#[derive(Debug, Args)]
pub struct KeyRotate {
    /// Which sets
    #[command(flatten)]
    pub of: KeyOf,
    /// Who can read the sets from now on: age:RECIPIENT, identity-file:PATH, passphrase-file:PATH,
    /// fd:N or command:PROGRAM. Name all, also those who could read them before
    #[arg(long, value_name = "WHO", required = true)]
    pub encrypt: Vec<String>,
}

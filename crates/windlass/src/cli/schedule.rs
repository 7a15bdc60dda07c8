//! `windlass schedule`: its commands and their options.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use windlass_operations::schedule::Job;

use super::examples;

/// `windlass schedule`
#[derive(Debug, Subcommand)]
pub enum Schedule {
    /// Write timers and services of systemd for the jobs of the configuration
    #[command(after_long_help = examples::SCHEDULE_INSTALL)]
    Install(ScheduleChange),
    /// Show the jobs, when each is due next, and whether its units are installed
    #[command(alias = "show", after_long_help = examples::SCHEDULE_LIST)]
    List(ScheduleUnits),
    /// Remove the timers and services that `install` made
    #[command(after_long_help = examples::SCHEDULE_REMOVE)]
    Remove(ScheduleChange),
}

impl Schedule {
    /// Which units.
    pub fn units(&self) -> &ScheduleUnits {
        match self {
            Self::Install(change) | Self::Remove(change) => &change.units,
            Self::List(units) => units,
        }
    }

    /// The same, to be completed.
    pub fn units_mut(&mut self) -> &mut ScheduleUnits {
        match self {
            Self::Install(change) | Self::Remove(change) => &mut change.units,
            Self::List(units) => units,
        }
    }
}

/// Which units.
#[derive(Debug, Args)]
pub struct ScheduleUnits {
    /// Units of this user, who then runs the jobs, and not of the machine
    #[arg(long)]
    pub user: bool,
    /// Units in this directory, of which systemd is not told
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "user")]
    pub dir: Option<PathBuf>,
    /// The jobs of the configuration.
    #[arg(skip)]
    pub jobs: Vec<Job>,
}

/// `windlass schedule install`, `windlass schedule remove`
#[derive(Debug, Args)]
pub struct ScheduleChange {
    /// Which units
    #[command(flatten)]
    pub units: ScheduleUnits,
    /// Print the units and what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

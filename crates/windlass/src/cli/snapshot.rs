//! `windlass snapshot`: its commands and their options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use windlass_engine::{parse_amount, parse_seconds};

use super::{accept, examples};

/// `windlass snapshot`
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Prepare a PostgreSQL server for snapshots by the hook, or check that it is prepared
    #[command(after_long_help = examples::SNAPSHOT_ENABLE)]
    Enable(SnapshotEnable),
    /// Make a snapshot of a live database
    #[command(after_long_help = examples::SNAPSHOT_CREATE)]
    Create(SnapshotCreate),
    /// List the snapshots of a database
    #[command(after_long_help = examples::SNAPSHOT_LIST)]
    List(SnapshotList),
    /// Remove a snapshot, or a state that a revert overwrote
    #[command(after_long_help = examples::SNAPSHOT_DROP)]
    Drop(SnapshotDrop),
    /// Take the hook out of a PostgreSQL server again
    #[command(after_long_help = examples::SNAPSHOT_DISABLE)]
    Disable(SnapshotDisable),
    /// Make a snapshot, and remove the oldest of its kind
    #[command(after_long_help = examples::SNAPSHOT_ROTATE)]
    Rotate(SnapshotRotate),
    /// Make a database what its snapshot is
    #[command(after_long_help = examples::SNAPSHOT_REVERT)]
    Revert(SnapshotRevert),
    /// Bring back what a revert overwrote
    #[command(after_long_help = examples::SNAPSHOT_UNDO)]
    Undo(SnapshotUndo),
}

/// Whose snapshots.
#[derive(Debug, Args)]
pub struct Of {
    /// SQLite file, libpq connection string or URI, or a name from the configuration. For list,
    /// drop and undo also a data directory, whose server need not run
    pub database: String,
    /// What the configuration calls the database.
    #[arg(skip)]
    pub name: Option<String>,
}

/// How a snapshot is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SnapshotMethod {
    /// The cheapest that works for this database in this place
    Auto,
    /// A library in the PostgreSQL server keeps what it overwrites: costs what changes later
    Hook,
    /// The file system clones the files (XFS, Btrfs): costs what changes later
    Clone,
    /// Everything is read and written once
    Copy,
}

/// How a snapshot of a cluster begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SnapshotCheckpoint {
    /// With a checkpoint at once
    Fast,
    /// With a checkpoint that spares the disks
    Spread,
    /// Without one: a server that opens the snapshot first recovers, as after a crash
    None,
}

/// `windlass snapshot enable`
#[derive(Debug, Args)]
pub struct SnapshotEnable {
    /// The database
    #[command(flatten)]
    pub of: Of,
    /// The library with the hook, or its directory [default: beside windlass, or where packages put
    /// libraries]
    #[arg(long, value_name = "PATH", env = "WINDLASS_SNAPSHOT_LIBRARY")]
    pub library: Option<PathBuf>,
}

/// `windlass snapshot disable`
#[derive(Debug, Args)]
pub struct SnapshotDisable {
    /// The database
    #[command(flatten)]
    pub of: Of,
}

/// `windlass snapshot create`
#[derive(Debug, Args)]
pub struct SnapshotCreate {
    /// The database
    #[command(flatten)]
    pub of: Of,
    /// The name of the snapshot. It has letters, digits and the characters . - _ only
    #[arg(value_name = "NAME")]
    pub snapshot: String,
    /// How it is made
    #[command(flatten)]
    pub making: Making,
}

/// How a snapshot is made, and where.
#[derive(Debug, Args)]
pub struct Making {
    /// The directory for the snapshot [default: beside the database]
    #[arg(long, value_name = "DIRECTORY", env = "WINDLASS_SNAPSHOT_TO")]
    pub to: Option<PathBuf>,
    /// How the snapshot is made
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        env = "WINDLASS_SNAPSHOT_METHOD"
    )]
    pub method: SnapshotMethod,
    /// PostgreSQL: start with a checkpoint at once, with one that spares the disks, or with none:
    /// the method hook then stops the server for a moment
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value = "fast",
        env = "WINDLASS_CHECKPOINT"
    )]
    pub checkpoint: SnapshotCheckpoint,
    /// Method hook: the snapshot ends when more than this was kept since it was made
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, env = "WINDLASS_SNAPSHOT_MAX_SIZE")]
    pub max_size: Option<u64>,
    /// Method hook: the snapshot ends at this age, as in 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age, env = "WINDLASS_SNAPSHOT_MAX_AGE")]
    pub max_age: Option<Duration>,
    /// Method hook: the snapshot ends when its disk has less free space than this
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, env = "WINDLASS_SNAPSHOT_KEEP_FREE")]
    pub keep_free: Option<u64>,
    /// Method hook: the snapshot outlives a power cut. By clone and copy each one does
    #[arg(long, env = "WINDLASS_SNAPSHOT_DURABLE")]
    pub durable: bool,
    /// Accept the warnings of this name: they are not shown, and do not change the exit code.
    /// Repeat it for several
    #[arg(
        long,
        value_name = "NAME",
        value_parser = accept::parser(),
        value_delimiter = ',',
        env = "WINDLASS_ACCEPT"
    )]
    pub accept: Vec<String>,
}

/// `windlass snapshot list`
#[derive(Debug, Args)]
pub struct SnapshotList {
    /// The database
    #[command(flatten)]
    pub of: Of,
}

/// `windlass snapshot drop`
#[derive(Debug, Args)]
pub struct SnapshotDrop {
    /// The database
    #[command(flatten)]
    pub of: Of,
    /// The name of the snapshot, or of a state that a revert overwrote, like undo:1
    #[arg(value_name = "NAME")]
    pub snapshot: String,
}

/// `windlass snapshot rotate`
#[derive(Debug, Args)]
pub struct SnapshotRotate {
    /// The database
    #[command(flatten)]
    pub of: Of,
    /// How the names begin; Windlass adds the time
    #[arg(value_name = "NAME-PREFIX", default_value = "rolling")]
    pub prefix: String,
    /// How many snapshots of this prefix stay, with the new one
    #[arg(long, value_name = "N", env = "WINDLASS_SNAPSHOT_KEEP", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// How the new one is made
    #[command(flatten)]
    pub making: Making,
}

/// `windlass snapshot revert`
#[derive(Debug, Args)]
pub struct SnapshotRevert {
    /// The snapshot of the database, like shop.db@before-upgrade
    #[arg(value_name = "DATABASE@NAME")]
    pub database: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// `windlass snapshot undo`
#[derive(Debug, Args)]
pub struct SnapshotUndo {
    /// The database
    #[command(flatten)]
    pub of: Of,
    /// The state to bring back, like undo:1 [default: what the newest revert overwrote]
    #[arg(value_name = "NAME")]
    pub state: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

impl Snapshot {
    /// The word for the database.
    pub fn database(&mut self) -> &mut String {
        match self {
            Self::Create(create) => &mut create.of.database,
            Self::List(list) => &mut list.of.database,
            Self::Drop(drop) => &mut drop.of.database,
            Self::Rotate(rotate) => &mut rotate.of.database,
            Self::Revert(revert) => &mut revert.database,
            Self::Undo(undo) => &mut undo.of.database,
            Self::Enable(enable) => &mut enable.of.database,
            Self::Disable(disable) => &mut disable.of.database,
        }
    }

    /// Says what the configuration calls the database.
    pub fn set_name(&mut self, name: Option<String>) {
        match self {
            Self::Create(create) => create.of.name = name,
            Self::List(list) => list.of.name = name,
            Self::Drop(drop) => drop.of.name = name,
            Self::Rotate(rotate) => rotate.of.name = name,
            // The name is in front of the @, and the configuration has replaced it.
            Self::Revert(_) => {}
            Self::Undo(undo) => undo.of.name = name,
            Self::Enable(enable) => enable.of.name = name,
            Self::Disable(disable) => disable.of.name = name,
        }
    }
}

/// An age at which a snapshot ends. One of no age would end at once, and so would one of the single
/// second that `1` would mean.
fn parse_age(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text).map_err(|error| error.to_string())?;
    let text = text.trim();
    if text.ends_with(|letter: char| letter.is_ascii_digit()) {
        return Err(format!(
            "{text} what? Give a unit, e.g. {text}d, {text}h or {text}m"
        ));
    }
    match Duration::from_secs_f64(seconds) {
        Duration::ZERO => Err(format!("{text:?} must be more than nothing")),
        age => Ok(age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_days_hours_or_less() {
        let seconds = |text| parse_age(text).ok().map(|age| age.as_secs());
        assert_eq!(seconds("7d"), Some(7 * 86_400));
        assert_eq!(seconds("12h"), Some(12 * 3600));
        assert_eq!(seconds("90 s"), Some(90));
        assert_eq!((seconds("soon"), seconds("-1d")), (None, None));
        assert_eq!((seconds("0s"), seconds("0d")), (None, None));
    }

    #[test]
    fn an_age_without_a_unit_is_asked_back() {
        for text in ["1", " 90 ", "1.5", "0"] {
            let error = parse_age(text).unwrap_err();
            let says = format!("{} what? Give a unit", text.trim());
            assert!(error.contains(&says), "{text}: {error}");
        }
    }
}

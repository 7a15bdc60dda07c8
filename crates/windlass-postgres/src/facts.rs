//! What a set says about its cluster (`Facts.database`), and what a cluster says about itself.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::Checksums;
use crate::error::PostgresError;
use crate::lsn::{Lsn, Timeline};
use crate::tablespace::TABLESPACE_LINKS;
use crate::wal::WalRange;
use crate::warning::Warning;
use crate::windows::EarlierWindow;
use crate::witness::ChangeMark;

/// The `kind` that marks a set as one of a PostgreSQL cluster.
pub const KIND: &str = "postgresql";
/// The sizes of pages that a server can be built with.
const BLOCK_BYTES: RangeInclusive<u32> = 1024..=32 * 1024;
/// The sizes of WAL segments that `initdb` accepts.
const SEGMENT_BYTES: RangeInclusive<u32> = 1024 * 1024..=1024 * 1024 * 1024;
/// Longest name of a user.
const USER_BYTES_MAX: usize = 256;

/// What a cluster is. Windlass asks when the session begins and checks the answers against the data
/// directory.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterFacts {
    /// What people call it: cluster_name, or the data directory's name and the port.
    pub name: String,
    /// The server's version as it shows it.
    pub version: String,
    /// Version as a number: 150004 for 15.4.
    pub version_number: u32,
    /// Identity of the cluster.
    pub system_identifier: u64,
    /// The timeline of the last checkpoint.
    pub timeline: Timeline,
    /// Where the files are.
    pub data_directory: PathBuf,
    /// Bytes of a data page.
    pub block_bytes: u32,
    /// Pages in one segment file of a relation.
    pub relation_segment_blocks: u32,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u32,
    /// All pages carry checksums.
    pub data_checksums: bool,
    /// Whether the server is switching them on or off.
    #[serde(skip)]
    pub(crate) checksums: Checksums,
    /// The restores that it comes from, as the server's setting has them; empty for most.
    pub restored: String,
    /// How far it was when Windlass asked.
    #[serde(skip)]
    pub(crate) reached: Lsn,
    /// The server replays the log of another server.
    pub standby: bool,
    /// `replica` or `logical`.
    pub wal_level: String,
    /// Tablespaces other than the two built-in ones.
    pub tablespaces: Vec<Tablespace>,
    /// Version of the system catalogs.
    pub catalog_version: u32,
    /// Configuration files outside the data directory.
    pub configuration_outside: Vec<PathBuf>,
    /// What no server would start with in the configuration files, as far as the role may see it.
    pub configuration_faults: Vec<ConfigurationFault>,
    /// What a copy of it would do outside its own directories.
    pub outgoing: Outgoing,
    /// PostgreSQL 14's directory of temporary statistics, below the data directory.
    #[serde(skip)]
    pub(crate) statistics_directory: Option<String>,
    /// Permission bits of the data directory.
    #[serde(skip)]
    pub(crate) data_directory_mode: u32,
}

impl ClusterFacts {
    /// The server's major version.
    pub fn major(&self) -> u32 {
        self.version_number / 10_000
    }

    /// Name of this cluster's directory in a tablespace.
    pub(crate) fn version_directory(&self) -> String {
        crate::control::version_directory(self.major(), self.catalog_version)
    }

    /// The data directory is open to its owner's group (0750).
    pub fn group_access(&self) -> bool {
        self.data_directory_mode & 0o050 == 0o050
    }
}

/// What a restored cluster would do or need outside its own directories. Sets of older versions of
/// this program do not record it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outgoing {
    /// Number of enabled subscriptions; `None` if nobody has counted them.
    pub subscriptions: Option<u64>,
    /// log_directory, if it leads out of the data directory and the server writes its log there.
    pub log_directory: Option<String>,
    /// log_filename, if it holds or makes a slash (`%D`) and the server writes its log so.
    pub log_filename: Option<String>,
    /// PostgreSQL 14's stats_temp_directory, if it leads out of the data directory.
    pub statistics_directory: Option<String>,
    /// external_pid_file, empty if it is not set. `None` if nobody has asked.
    pub external_pid_file: Option<String>,
    /// postgresql.conf lies in the data directory and names that directory, so a copy would run on
    /// the original.
    pub names_data_directory: bool,
    /// What the configuration includes from outside the data directory.
    pub includes: Vec<String>,
}

/// A line of a configuration file that keeps every server from starting. The running server goes on
/// with what it had read before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigurationFault {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u32,
    /// What the server says about it.
    pub what: String,
}

/// A tablespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tablespace {
    /// Its number, which is also its name in pg_tblspc.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// Its directory; relative (`pg_tblspc/<oid>`) for one that lies in the data directory.
    pub location: String,
}

impl Tablespace {
    /// True if it lies in the data directory itself, which PostgreSQL has for tests of its own.
    pub fn is_in_place(&self) -> bool {
        self.location.starts_with(TABLESPACE_LINKS)
    }
}

/// The page checksums of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumFacts {
    /// The cluster has page checksums.
    pub enabled: bool,
    /// The backup checked them.
    pub verified: bool,
    /// Pages looked at.
    pub pages_checked: u64,
    /// Pages whose checksum does not hold.
    pub pages_bad: u64,
    /// The files with such pages.
    pub files: Vec<BadFile>,
}

/// A relation file with pages whose checksum does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadFile {
    /// Path below the data directory.
    pub path: String,
    /// How many of its pages are bad.
    pub pages: u64,
    /// The first bad pages, as block numbers of the relation's fork.
    pub blocks: Vec<u32>,
}

/// What a set says about the cluster that was backed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseFacts {
    /// Always [`KIND`].
    pub kind: String,
    /// What people call the cluster. Two clusters may have the same name, but not the same system
    /// identifier. Sets of older versions record no name.
    #[serde(default)]
    pub name: String,
    /// The server's version as it shows it.
    pub version: String,
    /// Version as a number: 150004 for 15.4.
    pub version_number: u32,
    /// Identity of the cluster. A string, because many readers lose digits of JSON numbers.
    pub system_identifier: String,
    /// The timeline that the backup began on.
    pub timeline: Timeline,
    /// Where the backup's log begins.
    pub start_lsn: Lsn,
    /// From this position on the restored cluster is consistent.
    pub stop_lsn: Lsn,
    /// When the backup began, by the server's clock, as RFC 3339.
    pub start_time: String,
    /// When it ended, by the server's clock, as RFC 3339.
    pub stop_time: String,
    /// The log in the set, by timeline.
    pub wal: Vec<WalRange>,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u32,
    /// Bytes of a data page.
    pub block_bytes: u32,
    /// The user's name for the backup.
    pub label: String,
    /// The backup was taken from a standby.
    pub standby: bool,
    /// Tablespaces.
    pub tablespaces: Vec<Tablespace>,
    /// Page checksums.
    pub checksums: ChecksumFacts,
    /// Name of the data directory's owner.
    pub owner: String,
    /// The data directory is open to the owner's group (0750).
    pub group_access: bool,
    /// Where the data directory was.
    pub data_directory: String,
    /// Configuration files that are not in the set.
    pub configuration_outside: Vec<String>,
    /// What a restored cluster would do outside its own directories.
    #[serde(default)]
    pub outgoing: Outgoing,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// The windows before the one that the set holds, oldest first; empty for most backups.
    #[serde(default)]
    pub earlier_windows: Vec<EarlierWindow>,
    /// Whoever sets a hint bit in a page logs that: the cluster has page checksums, or
    /// wal_log_hints is on. Then a page that changed has another position in its header. Sets of
    /// older versions do not record this.
    #[serde(default)]
    pub hints_logged: bool,
    /// The backup searched the log for anything that replay would do outside the data directory,
    /// and found nothing. Sets of older versions do not record this.
    #[serde(default)]
    pub log_surveyed: bool,
    /// The restores that the cluster comes from, oldest first: for each its id and the end of the
    /// set that was restored. Empty for most. Sets of older versions do not record this.
    #[serde(default)]
    pub restored: String,
    /// The files are what a crash would have left: pg_control, and no label, says where recovery
    /// begins. No page is newer than this position. Other sets do not have this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_lsn: Option<Lsn>,
    /// The write hook has seen every write since this point, which is before everything in the set.
    /// Other sets do not have this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_mark: Option<ChangeMark>,
    /// What said which blocks changed since the base: `summaries`, `map` or `pages`. Full sets do
    /// not have this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_from: Option<String>,
}

impl DatabaseFacts {
    /// Reads the database part of a set's facts.
    pub fn of_set(database: &serde_json::Value) -> Result<Self, PostgresError> {
        let kind = database
            .get("kind")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("none");
        if kind != KIND {
            let what = format!("it is of a {kind:?} database, not of a PostgreSQL cluster");
            return Err(PostgresError::Set { what });
        }
        let found: Self =
            serde_json::from_value(database.clone()).map_err(|error| PostgresError::Set {
                what: format!("its facts are not those of a PostgreSQL cluster: {error}"),
            })?;
        found.check_sizes()?;
        found.check_owner()?;
        Ok(found)
    }

    /// Refuses sizes that no server has. Readers divide by them.
    fn check_sizes(&self) -> Result<(), PostgresError> {
        for (name, bytes, allowed) in [
            ("page size", self.block_bytes, BLOCK_BYTES),
            ("WAL segment size", self.wal_segment_bytes, SEGMENT_BYTES),
        ] {
            if !bytes.is_power_of_two() || !allowed.contains(&bytes) {
                let what = format!("its facts name a {name} of {bytes} bytes, which no server has");
                return Err(PostgresError::Set { what });
            }
        }
        Ok(())
    }

    /// Refuses an owner that no system has, and whom nobody can name. One that only this machine
    /// lacks is no fault of the set.
    fn check_owner(&self) -> Result<(), PostgresError> {
        let owner = &self.owner;
        let is_strange = |letter: char| letter.is_control() || letter == '/' || letter == ':';
        // The number of a user has 32 bits, and the largest one means nobody.
        let is_digits = owner.chars().all(|letter| letter.is_ascii_digit());
        let is_number = owner.parse().is_ok_and(|number: u32| number < u32::MAX);
        if owner.is_empty()
            || owner.len() > USER_BYTES_MAX
            || owner.contains(is_strange)
            || (is_digits && !is_number)
        {
            let what = format!("its facts name an owner {owner:?}, which no system has");
            return Err(PostgresError::Set { what });
        }
        Ok(())
    }

    /// The document for `Facts.database`.
    pub fn to_json(&self) -> Result<serde_json::Value, PostgresError> {
        serde_json::to_value(self).map_err(|error| PostgresError::Set {
            what: format!("database facts: {error}"),
        })
    }

    /// The server's major version.
    pub fn major(&self) -> u32 {
        self.version_number / 10_000
    }
}

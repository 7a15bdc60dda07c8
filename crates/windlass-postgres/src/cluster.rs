//! A running cluster: a session with its server, and its data directory on this machine.
//!
//! Invariants
//! - The directory belongs to the server: it has the same system identifier and the same settings,
//!   and what the server writes appears in it. Windlass refuses a copy or a standby at the same
//!   path.
//! - This process runs as the directory's owner.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use postgres::error::SqlState;

use crate::configuration::{Configuration, Place};
use crate::conninfo::Conninfo;
use crate::control::{Checksums, Control};
use crate::error::{IoContext, PostgresError};
use crate::facts::{ClusterFacts, ConfigurationFault, Outgoing, Tablespace};
use crate::rights;
use crate::scan::{ScanRules, scan};
use crate::session::Session;
use crate::written::reached;

/// Oldest major version with the functions and files that this crate knows.
pub const MAJOR_OLDEST: u32 = 14;
/// Newest major version this crate was made for.
pub const MAJOR_NEWEST: u32 = 19;

/// If the facts are older than this, a backup asks for them again. A change after that shows at the
/// end: the server is then no longer a standby, or no longer a primary.
const FACTS_AGE_MAX: Duration = Duration::from_secs(5);

const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version', \
     'data_directory', 'block_size', 'segment_size', 'wal_segment_size', 'data_checksums', \
     'wal_level', 'config_file', 'hba_file', 'ident_file', 'stats_temp_directory', \
     'logging_collector', 'log_directory', 'log_filename', 'external_pid_file', 'cluster_name', \
     'port')";
/// The view has no settings that no library knows.
const RESTORED: &str = "SELECT coalesce(current_setting('windlass.restored', true), '')";
const MAY_SEE_FILES: &str = "SELECT has_table_privilege('pg_file_settings', 'SELECT') \
     AND has_function_privilege('pg_show_all_file_settings()', 'EXECUTE')";
/// The view has its rows in English. A value that could not be applied may need a restart, or be
/// wrong only in the database of this session.
const CONFIGURATION_FAULTS: &str = "SELECT sourcefile, sourceline, error FROM pg_file_settings \
     WHERE error <> 'setting could not be applied' AND sourcefile IS NOT NULL \
     AND sourceline IS NOT NULL ORDER BY seqno";
const SUBSCRIPTIONS: &str = "SELECT count(subname) FROM pg_subscription WHERE subenabled";
const TABLESPACES: &str = "SELECT oid, spcname::text \
     FROM pg_tablespace WHERE oid NOT IN (1663, 1664) ORDER BY oid";

/// A running cluster that can be backed up.
pub struct Cluster {
    pub(crate) conninfo: Conninfo,
    /// `None` after a failed backup. The session is then closed, so that the server ends the backup
    /// too.
    pub(crate) session: Option<Session>,
    pub(crate) facts: ClusterFacts,
    /// When the server was asked for the facts; `None` once a backup has used them.
    pub(crate) asked: Option<Instant>,
}

impl Cluster {
    /// Connects as libpq would for `conninfo`, and checks that the data directory is on this
    /// machine. `conninfo` is keyword/value or a URI. The service file, the environment and the
    /// password file fill in what it leaves out.
    pub fn connect(conninfo: &str) -> Result<Self, PostgresError> {
        let conninfo = Conninfo::resolve(conninfo)?;
        let mut session = open(&conninfo)?;
        let facts = ask(&mut session)?;
        Ok(Self {
            conninfo,
            session: Some(session),
            facts,
            asked: Some(Instant::now()),
        })
    }

    /// The facts of the cluster.
    pub fn facts(&self) -> &ClusterFacts {
        &self.facts
    }

    /// The rights that a backup needs, and which of them this session's role has.
    pub fn rights(&mut self) -> Result<rights::Rights, PostgresError> {
        match &mut self.session {
            Some(session) => rights::ask(session),
            None => rights::ask(&mut open(&self.conninfo)?),
        }
    }

    /// How many replication slots there are, and how many there may be. A backup uses one while it
    /// runs.
    pub fn slots(&mut self) -> Result<(i64, i64), PostgresError> {
        let sql = "SELECT (SELECT count(*) FROM pg_replication_slots), \
                   current_setting('max_replication_slots')::bigint";
        let ask = |session: &mut Session| {
            let rows = session.rows("ask for replication slots", sql)?;
            Ok(rows.first().map_or((0, 0), |row| (row.get(0), row.get(1))))
        };
        self.ask(ask)
    }

    /// The session, for somebody who keeps it, with facts that are not old. A standby may have
    /// become a primary since the cluster was last asked.
    pub(crate) fn take_session(&mut self) -> Result<Session, PostgresError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => open(&self.conninfo)?,
        };
        let asked = self.asked.take();
        if asked.is_none_or(|asked| asked.elapsed() > FACTS_AGE_MAX) {
            self.facts = ask(&mut session)?;
        }
        Ok(session)
    }

    /// Asks the server, with another session while a backup has this one.
    pub(crate) fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, PostgresError>,
    ) -> Result<T, PostgresError> {
        match &mut self.session {
            Some(session) => ask(session),
            None => ask(&mut open(&self.conninfo)?),
        }
    }

    /// How many file systems the cluster's files lie on: data directory, log and tablespaces.
    pub fn scan_volumes(&self) -> Result<usize, PostgresError> {
        let root = &self.facts.data_directory;
        let mut paths = vec![root.clone(), root.join("pg_wal")];
        paths.extend(
            self.facts
                .tablespaces
                .iter()
                .map(|space| root.join(&space.location)),
        );
        let mut volumes = BTreeSet::new();
        for path in paths {
            volumes.insert(std::fs::metadata(&path).doing("examine", &path)?.dev());
        }
        Ok(volumes.len())
    }

    /// How many bytes of files a backup would read now, without the log.
    pub fn estimate_bytes(&self) -> Result<u64, PostgresError> {
        Ok(scan(&self.scan_rules())?.listing.total_bytes())
    }

    fn scan_rules(&self) -> ScanRules {
        ScanRules::of(&self.facts)
    }
}

impl ScanRules {
    /// The rules for scanning this cluster.
    pub(crate) fn of(facts: &ClusterFacts) -> Self {
        Self {
            root: facts.data_directory.clone(),
            version_directory: facts.version_directory().into(),
            statistics_directory: facts.statistics_directory.clone().map(String::into_bytes),
            summaries: facts.major() >= 17,
            expected: Vec::new(),
            catalogs: None,
        }
    }
}

/// Opens a session. The server's version must be one that this crate knows.
pub(crate) fn open(conninfo: &Conninfo) -> Result<Session, PostgresError> {
    let mut session = Session::connect(conninfo)?;
    let found = session.version_number() / 10_000;
    if !(MAJOR_OLDEST..=MAJOR_NEWEST).contains(&found) {
        return Err(PostgresError::Version {
            found,
            oldest: MAJOR_OLDEST,
            newest: MAJOR_NEWEST,
        });
    }
    session.prepare()?;
    Ok(session)
}

type Settings = BTreeMap<String, String>;

/// Asks the server what the cluster is, and checks the answers against the data directory.
pub(crate) fn ask(session: &mut Session) -> Result<ClusterFacts, PostgresError> {
    let settings = ask_settings(session)?;
    if !settings.contains_key("data_directory") {
        return Err(PostgresError::Right {
            what: format!(
                "role {} may not see the setting data_directory",
                session.role()
            ),
            database: session.database().to_owned(),
            grant: rights::grant_settings(session.role()),
        });
    }
    let root = PathBuf::from(setting(&settings, "data_directory")?);
    let wal_level = setting(&settings, "wal_level")?.to_owned();
    if wal_level == "minimal" {
        return Err(PostgresError::WalLevelMinimal);
    }
    let data_directory_mode = check_owner(&root)?;
    let control = Control::read(&root)?;
    check_identity(session, &root, &control)?;
    check_sizes(&settings, &control)?;
    Ok(ClusterFacts {
        name: cluster_name(&settings, &root),
        version: setting(&settings, "server_version")?.to_owned(),
        version_number: session.version_number(),
        system_identifier: control.system_identifier,
        timeline: control.newest_timeline(),
        block_bytes: control.block_bytes,
        relation_segment_blocks: control.relation_segment_blocks,
        wal_segment_bytes: control.wal_segment_bytes,
        checksums: control.checksums(),
        data_checksums: control.checksums() == Checksums::On,
        restored: session.value("ask for settings", RESTORED)?,
        reached: reached(session)?,
        standby: session.in_recovery()?,
        wal_level,
        tablespaces: ask_tablespaces(session)?,
        catalog_version: control.catalog_version,
        configuration_outside: configuration_outside(&settings, &root),
        configuration_faults: ask_configuration_faults(session)?,
        outgoing: outgoing(session, &settings, &root)?,
        statistics_directory: statistics_directory(&settings, &root),
        data_directory_mode,
        data_directory: root,
    })
}

fn ask_settings(session: &mut Session) -> Result<Settings, PostgresError> {
    let rows = session.rows("ask for settings", SETTINGS)?;
    Ok(rows
        .iter()
        .map(|row| (row.get::<_, String>(0), row.get::<_, String>(1)))
        .collect())
}

fn setting<'a>(settings: &'a Settings, name: &str) -> Result<&'a str, PostgresError> {
    settings
        .get(name)
        .map(String::as_str)
        .ok_or_else(|| PostgresError::Answer {
            doing: "ask for settings",
            answer: format!("no {name}"),
        })
}

/// What people call the cluster: its cluster_name, or its directory's name and the server's port.
fn cluster_name(settings: &Settings, root: &Path) -> String {
    let word = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let given = word("cluster_name").trim();
    if !given.is_empty() {
        return given.to_owned();
    }
    let directory = root.file_name().unwrap_or_default().to_string_lossy();
    format!("{directory}-{}", word("port"))
}

/// The tablespaces that are there now. While somebody drops one, its row is still there and its
/// link is gone, and asking for its location fails. Such a tablespace is left out.
pub(crate) fn ask_tablespaces(session: &mut Session) -> Result<Vec<Tablespace>, PostgresError> {
    const DOING: &str = "ask for tablespaces";
    let mut found = Vec::new();
    for row in session.rows(DOING, TABLESPACES)? {
        let (oid, name): (u32, String) = (row.get(0), row.get(1));
        let location = session.value(DOING, &format!("SELECT pg_tablespace_location({oid})"));
        match location {
            Err(PostgresError::Sql { source, .. })
                if source.code() == Some(&SqlState::UNDEFINED_FILE) => {}
            location => found.push(Tablespace {
                oid,
                name,
                location: location?,
            }),
        }
    }
    Ok(found)
}

/// The directory's permission bits; an error if another user owns it.
fn check_owner(root: &Path) -> Result<u32, PostgresError> {
    let metadata = std::fs::metadata(root).doing("examine data directory", root)?;
    let (owner, us) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if owner != us {
        return Err(PostgresError::Owner {
            path: root.into(),
            owner,
            us,
        });
    }
    std::fs::read_dir(root).doing("list data directory", root)?;
    Ok(metadata.mode() & 0o777)
}

fn check_identity(
    session: &mut Session,
    root: &Path,
    control: &Control,
) -> Result<(), PostgresError> {
    let other = |what: String| {
        Err(PostgresError::OtherCluster {
            path: root.into(),
            what,
        })
    };
    let server = session.identifier()?;
    if server.cast_unsigned() != control.system_identifier {
        let (server, ours) = (server.cast_unsigned(), control.system_identifier);
        return other(format!(
            "system identifier {ours} is not the server's {server}"
        ));
    }
    // A standby and a copy have the same identifier. So the server writes into its directory at our
    // request. The file appears here only if the directory is that server's.
    let directory = root.join("pg_snapshots");
    let seen = session.while_snapshot_exported(|name| directory.join(name).exists())?;
    if !seen {
        return other("what the server writes does not appear there".into());
    }
    Ok(())
}

fn check_sizes(settings: &Settings, control: &Control) -> Result<(), PostgresError> {
    let checksums = match control.checksums() {
        Checksums::Off => "off",
        Checksums::On => "on",
        Checksums::Changing => "inprogress",
    };
    for (what, control) in [
        ("block_size", control.block_bytes.to_string()),
        ("segment_size", control.relation_segment_blocks.to_string()),
        ("wal_segment_size", control.wal_segment_bytes.to_string()),
        ("data_checksums", checksums.to_owned()),
    ] {
        let server = setting(settings, what)?;
        // While the setting is changing, the server has more words for it, and may already have
        // finished.
        let changing = what == "data_checksums" && control == "inprogress";
        if server != control && !changing {
            return Err(PostgresError::Mismatch {
                what,
                server: server.into(),
                control,
            });
        }
    }
    Ok(())
}

/// What no server would start with in the configuration files. Nothing if the role may not ask.
fn ask_configuration_faults(
    session: &mut Session,
) -> Result<Vec<ConfigurationFault>, PostgresError> {
    const DOING: &str = "ask for errors of the configuration";
    if !session.value::<bool>(DOING, MAY_SEE_FILES)? {
        return Ok(Vec::new());
    }
    let rows = session.rows(DOING, CONFIGURATION_FAULTS)?;
    let fault = |row: &postgres::Row| ConfigurationFault {
        path: row.get(0),
        line: row.get::<_, i32>(1).cast_unsigned(),
        what: row.get(2),
    };
    Ok(rows.iter().map(fault).collect())
}

fn configuration_outside(settings: &Settings, root: &Path) -> Vec<PathBuf> {
    let files = ["config_file", "hba_file", "ident_file"];
    let paths = files
        .iter()
        .filter_map(|name| settings.get(*name))
        .map(PathBuf::from);
    paths
        .filter(|path| !path.as_os_str().is_empty() && !path.starts_with(root))
        .collect()
}

/// What a copy of the cluster would do outside its own directories.
fn outgoing(
    session: &mut Session,
    settings: &Settings,
    root: &Path,
) -> Result<Outgoing, PostgresError> {
    let mut configuration = Configuration::default();
    let file = settings.get("config_file").map(PathBuf::from);
    if let Some(file) = &file {
        let place = Place {
            root,
            was: root,
            everywhere: true,
        };
        configuration.read(file, place)?;
        // The server reads this file last.
        configuration.read(&root.join("postgresql.auto.conf"), place)?;
    }
    let inside = file.is_some_and(|file| file.starts_with(root));
    let collects = settings.get("logging_collector").map(String::as_str) == Some("on");
    // The files may say something else than the server, until it starts or reads them again.
    let value = |name: &str, is_wanted: fn(&str) -> bool| {
        let running = settings.get(name).map(String::as_str);
        let written = configuration.value(name);
        let mut values = running.into_iter().chain(written);
        values.find(|value| is_wanted(value)).map(str::to_owned)
    };
    let external_pid_file = value("external_pid_file", |path| !path.is_empty());
    let includes = configuration.outside.iter();
    Ok(Outgoing {
        subscriptions: Some(count_subscriptions(session)?),
        log_directory: value("log_directory", leads_out).filter(|_| collects),
        log_filename: value("log_filename", names_directory).filter(|_| collects),
        statistics_directory: value("stats_temp_directory", leads_out)
            .filter(|_| settings.contains_key("stats_temp_directory")),
        external_pid_file: Some(external_pid_file.unwrap_or_default()),
        names_data_directory: inside && configuration.value("data_directory").is_some(),
        includes: includes.map(|path| path.display().to_string()).collect(),
    })
}

/// True if log_filename may make a path with a slash, of which no copy has the directories. The
/// server puts the time into it as strftime does: `%D` and `%x` become dates like 11/22/26, and `E`
/// or `O` may stand before the letter.
fn names_directory(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let conversion = match letter {
            '/' => return true,
            '%' => letters.by_ref().find(|it| !matches!(it, 'E' | 'O')),
            _ => continue,
        };
        if let Some('D' | 'x') = conversion {
            return true;
        }
    }
    false
}

/// True if a path of a setting may lead out of the data directory of a copy. An absolute path
/// leads into the source, even if it is below the source's data directory.
fn leads_out(path: &str) -> bool {
    let mut depth = 0;
    Path::new(path).components().any(|part| {
        match part {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
        part == Component::RootDir || depth < 0
    })
}

/// How many subscriptions a copy of the cluster would go on with.
pub(crate) fn count_subscriptions(session: &mut Session) -> Result<u64, PostgresError> {
    let count: i64 = session.value("count subscriptions", SUBSCRIPTIONS)?;
    Ok(count.cast_unsigned())
}

fn statistics_directory(settings: &Settings, root: &Path) -> Option<String> {
    let path = root.join(settings.get("stats_temp_directory")?);
    let inner = path.strip_prefix(root).ok()?.to_str()?;
    Some(
        inner
            .trim_start_matches("./")
            .trim_end_matches('/')
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_makes_a_slash_names_a_directory() {
        for pattern in ["a/b", "pg-%D.log", "%x", "%ED", "%OEx", "%%%D"] {
            assert!(names_directory(pattern), "{pattern}");
        }
        for pattern in [
            "postgresql-%Y-%m-%d_%H%M%S.log",
            "",
            "%",
            "%%D",
            "D",
            "%c",
            "%E",
        ] {
            assert!(!names_directory(pattern), "{pattern}");
        }
    }
}

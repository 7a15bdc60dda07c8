//! The plan of a cluster's restore: which directories it writes, what it changes in the set's
//! files, and what the user does next. The engine writes; this module decides.
//!
//!   facts, file table, request --checks--> `RestorePlan` --prepare, layout--> the engine's restore
//!
//! Invariants
//! - Windlass never writes into a directory that holds anything, unless the user asks for a restore
//!   over it (`over`). It writes nothing before it has checked all directories.
//! - If tablespaces are mapped, links, tablespace_map and backup_manifest agree.
//! - The restored server reaches nothing outside, unless the user asked for it by name
//!   (`outgoing`).

mod checks;
mod occupied;
mod outgoing;
mod over;
mod partial;
mod recovery;

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::TargetLayout;
use windlass_media::{Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, crc32c};

use crate::error::{IoContext, PostgresError};
use crate::facts::{DatabaseFacts, Tablespace};
use crate::manifest::{MANIFEST_PATH, Manifest};
use crate::origin::{Origin, RestoreId};
use crate::tablespace::{TABLESPACE_MAP_PATH, oid_of, oid_of_link, tablespace_map};
use crate::users::user_name;

/// Settings of ALTER SYSTEM. The server reads them after its other files, wherever those are, and
/// pg_verifybackup does not check them.
const AUTO_CONF: &str = "postgresql.auto.conf";

/// A server refuses to recover if pg_tblspc holds directories and this is off.
const IN_PLACE_ALLOWED: &str = "\n# Written by Windlass when it restored this cluster, which has \
     tablespaces in pg_tblspc itself.\nallow_in_place_tablespaces = 'on'\n";

pub use occupied::check_unoccupied;
pub(crate) use occupied::{lives, running_server};
pub use over::OverCluster;
pub use partial::LeftOut;
pub(crate) use recovery::SIGNAL;
pub use recovery::{Recovery, RecoveryAction, RecoveryPoint, RecoveryTimeline};

/// What the user asks of a restore.
#[derive(Clone, Debug, Default)]
pub struct RestoreRequest {
    /// The new data directory. It must not exist, or must be empty.
    pub into: PathBuf,
    /// Whether it may be a cluster's, of which only what differs is rewritten.
    pub delta: bool,
    /// With `delta`: also another cluster's.
    pub force: bool,
    /// Where tablespaces go instead of their old places: (was, becomes).
    pub tablespace_map: Vec<(PathBuf, PathBuf)>,
    /// Which of the source's connections to the outside stay on.
    pub keep: Kept,
    /// What is left out.
    pub left_out: LeftOut,
    /// How the server recovers; without it, as after a crash, to the end of the set's log.
    pub recovery: Option<Recovery>,
    /// Names this restore. No other one has the same id.
    pub id: RestoreId,
}

/// What stays on in a restored server as it was in its source. Everything else is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The server archives its log where the source does, and cleans that archive up.
    pub archive: bool,
    /// The server keeps the source's subscriptions.
    pub subscriptions: bool,
}

/// The plan of a restore that has passed all checks. It can be printed.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    /// The new data directory, absolute.
    pub into: PathBuf,
    /// Where each tablespace goes.
    pub tablespaces: Vec<TablespacePlan>,
    /// What the set says about the cluster.
    pub facts: DatabaseFacts,
    /// The cluster that is there already, and becomes that of the set.
    pub over: Option<OverCluster>,
    keep: Kept,
    left_out: LeftOut,
    recovery: Option<Recovery>,
    /// The restores that the new cluster comes from.
    origin: Origin,
    /// Tablespaces lie in the data directory itself.
    in_place: bool,
    system_identifier: u64,
    files: u64,
    bytes: u64,
}

/// Where one tablespace goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablespacePlan {
    /// Its number.
    pub oid: u32,
    /// Its directory in the source.
    pub was: PathBuf,
    /// Its directory in the restored cluster.
    pub becomes: PathBuf,
}

impl RestorePlan {
    /// Makes the plan and runs the checks; writes nothing.
    pub fn new(
        facts: &Facts,
        files: &FileTable,
        request: &RestoreRequest,
    ) -> Result<Self, PostgresError> {
        let facts = DatabaseFacts::of_set(&facts.database)?;
        let system_identifier = identifier(&facts)?;
        if let Some(recovery) = &request.recovery {
            recovery.check(&facts)?;
        }
        let into = std::path::absolute(&request.into).doing("resolve", &request.into)?;
        checks::check_table(&facts, files)?;
        checks::check_map(&request.tablespace_map)?;
        let tablespaces = plan_tablespaces(files, &request.tablespace_map)?;
        checks::check_listed(&tablespaces, &facts.tablespaces, &request.tablespace_map)?;
        let over = checks::check_data_directory(&into, request, system_identifier)?;
        checks::check_tablespaces(&into, &tablespaces, over.as_ref())?;
        let regular = files.0.iter().filter(|entry| entry.kind == FileKind::File);
        let in_place = |entry: &FileEntry| {
            entry.kind == FileKind::Directory && oid_of_link(&entry.path).is_some()
        };
        Ok(Self {
            in_place: facts.tablespaces.iter().any(Tablespace::is_in_place)
                || files.0.iter().any(in_place),
            into,
            tablespaces,
            over,
            // What somebody else has written there is not passed on.
            origin: Origin::parse(&facts.restored)
                .unwrap_or_default()
                .then(request.id, facts.stop_lsn),
            facts,
            keep: request.keep,
            left_out: request.left_out.clone(),
            recovery: request.recovery.clone(),
            system_identifier,
            files: regular.clone().count() as u64,
            bytes: regular.map(|entry| entry.bytes).sum(),
        })
    }

    /// Makes the directories, with the permissions that PostgreSQL needs to start.
    pub fn prepare(&self) -> Result<(), PostgresError> {
        let mode = match self.facts.group_access {
            true => 0o750,
            false => 0o700,
        };
        make_directory(&self.into, mode)?;
        self.tablespaces
            .iter()
            .try_for_each(|space| make_directory(&space.becomes, mode))
    }

    /// The layout for the engine's restore.
    pub fn layout(&self, mut files: FileTable) -> TargetLayout {
        let left_out = self.left_out.take_out(&mut files);
        let is_edited = self.is_mapped() || !self.left_out.is_empty();
        let rewritten = is_edited.then(|| self.rewrite(&mut files));
        let mut replace = rewritten.unwrap_or_default();
        let mut append = Vec::new();
        let mut block = outgoing::block(&self.facts, self.keep);
        if let Some(recovery) = &self.recovery {
            block.extend(recovery.block().into_bytes());
            let (file, _) = add_to(&mut files, recovery::SIGNAL, self.facts.group_access);
            replace.push((file, Vec::new()));
        }
        if self.in_place {
            block.extend_from_slice(IN_PLACE_ALLOWED.as_bytes());
        }
        block.extend_from_slice(self.left_out.block(&self.facts).as_bytes());
        block.extend_from_slice(self.origin.block().as_bytes());
        // The manifest need not change: pg_verifybackup does not look at this file.
        match add_to(&mut files, AUTO_CONF, self.facts.group_access) {
            (file, true) => append.push((file, block)),
            (file, false) => replace.push((file, block)),
        }
        let mount = |space: &TablespacePlan| {
            (
                format!("pg_tblspc/{}", space.oid).into_bytes(),
                space.becomes.clone(),
            )
        };
        let mounts = self.tablespaces.iter().map(mount).collect();
        TargetLayout {
            root: self.into.clone(),
            mounts,
            replace,
            append,
            files,
            left_out,
        }
    }

    /// Whether a tablespace goes to where that of the cluster is already.
    pub fn is_own(&self, place: &Path) -> bool {
        let mut spaces = self.tablespaces.iter();
        let over = self.over.as_ref();
        over.is_some_and(|over| spaces.any(|it| it.becomes == place && over.has(it.oid, place)))
    }

    fn is_mapped(&self) -> bool {
        self.tablespaces
            .iter()
            .any(|space| space.was != space.becomes)
    }

    /// Points links, map and manifest to the new directories. Returns the changed contents.
    fn rewrite(&self, files: &mut FileTable) -> Vec<(FileNo, Vec<u8>)> {
        for entry in files
            .0
            .iter_mut()
            .filter(|entry| entry.kind == FileKind::Symlink)
        {
            let oid = oid_of_link(&entry.path);
            if let Some(space) = self.tablespaces.iter().find(|space| Some(space.oid) == oid) {
                entry.link_target = space.becomes.as_os_str().as_bytes().to_vec();
            }
        }
        let spaces = self.tablespaces.iter();
        let map = spaces.map(|space| (space.oid, space.becomes.as_os_str().as_bytes()));
        let map = replaced(files, TABLESPACE_MAP_PATH, tablespace_map(map));
        let manifest = Manifest {
            major: self.facts.major(),
            system_identifier: self.system_identifier,
            ranges: &self.facts.wal,
        };
        let text = manifest.bytes(files.0.iter()).to_vec();
        let text = replaced(files, MANIFEST_PATH, text);
        map.into_iter().chain(text).collect()
    }

    /// Describes for the user what is about to happen.
    pub fn describe(&self) -> String {
        let (files, bytes, into) = (self.files, self.bytes, self.into.display());
        let mut text = format!("{files} files, {bytes} bytes, into {into}\n");
        for space in &self.tablespaces {
            let (was, becomes) = (space.was.display(), space.becomes.display());
            put(
                &mut text,
                format_args!("tablespace {}: {was} -> {becomes}\n", space.oid),
            );
        }
        text
    }

    /// The user that must start the server: the owner of the new directory. It is another one than
    /// in the source if somebody else restored the set.
    fn owner(&self) -> String {
        let owner = std::fs::metadata(&self.into).map(|metadata| metadata.uid());
        owner.map_or_else(|_| self.facts.owner.clone(), user_name)
    }

    /// Tells the user what to do next. Call it after the restore.
    pub fn next_steps(&self) -> String {
        let facts = &self.facts;
        let major = facts.major();
        let into = shell_quoted(&self.into);
        let mut text = String::new();
        let start = if facts.configuration_outside.is_empty() {
            if facts.outgoing.names_data_directory {
                let options = format!("-c data_directory={}", self.into.display());
                let options = shell_quoted(Path::new(&options));
                format!("pg_ctl -D {into} -w -o {options} start")
            } else {
                format!("pg_ctl -D {into} -w start")
            }
        } else {
            put(
                &mut text,
                format_args!("The configuration was outside the data directory:\n"),
            );
            for path in &facts.configuration_outside {
                put(&mut text, format_args!("  {path}\n"));
            }
            let files = configuration_options(&facts.configuration_outside);
            let options = format!("-c data_directory={}{files}", self.into.display());
            format!(
                "pg_ctl -D {into} -w -o {} start",
                shell_quoted(Path::new(&options))
            )
        };
        let owner = self.owner();
        put(
            &mut text,
            format_args!("Start it with PostgreSQL {major}, as {owner}:\n  {start}\n"),
        );
        let (first, last) = (facts.start_lsn, facts.stop_lsn);
        put(
            &mut text,
            format_args!("It replays its log from {first} and is consistent at {last}.\n"),
        );
        if let Some(recovery) = &self.recovery {
            put(
                &mut text,
                format_args!("It recovers up to {}.\n", recovery.point),
            );
        }
        if facts.standby {
            text.push_str("It becomes a primary; create standby.signal first to keep a standby.\n");
        }
        if self.in_place {
            text.push_str(
                "It has tablespaces in pg_tblspc itself, so allow_in_place_tablespaces is on.\n",
            );
        }
        text.push_str(&self.left_out.words(&self.facts));
        text.push_str(&outgoing::words(facts, self.keep, &self.into));
        text
    }
}

/// Refuses a set that holds no cluster, although all of its checksums may be right. A restore does
/// the same before it creates anything.
pub fn check_set(facts: &Facts, files: &FileTable) -> Result<(), PostgresError> {
    let facts = DatabaseFacts::of_set(&facts.database)?;
    identifier(&facts)?;
    checks::check_table(&facts, files)?;
    plan_tablespaces(files, &[]).map(drop)
}

/// As [`check_set`], for an image that is opened and not restored: it may lie somewhere else than
/// in a set, and its server may begin with pg_control instead of a label.
pub fn check_image(facts: &Facts, files: &FileTable) -> Result<(), PostgresError> {
    identifier(&DatabaseFacts::of_set(&facts.database)?)?;
    checks::check_cluster(files)?;
    plan_tablespaces(files, &[]).map(drop)
}

/// The backup_manifest of files that a snapshot has, each with the checksum of its content. `None`
/// if they have one.
pub fn manifest_of_image(
    facts: &Facts,
    files: &FileTable,
) -> Result<Option<Arc<[u8]>>, PostgresError> {
    let is_manifest = |entry: &FileEntry| entry.path == MANIFEST_PATH.as_bytes();
    if files.0.iter().any(is_manifest) {
        return Ok(None);
    }
    let facts = DatabaseFacts::of_set(&facts.database)?;
    let manifest = Manifest {
        major: facts.major(),
        system_identifier: identifier(&facts)?,
        ranges: &facts.wal,
    };
    Ok(Some(manifest.bytes(files.0.iter())))
}

/// Server options that name the configuration files which are outside the data directory. A file
/// with a name of its own could be any of the three, so the user has to choose.
fn configuration_options(paths: &[String]) -> String {
    let files = [
        ("config_file", "postgresql.conf"),
        ("hba_file", "pg_hba.conf"),
        ("ident_file", "pg_ident.conf"),
    ];
    let is_usual = |path: &&String| {
        let name = Path::new(path).file_name();
        files
            .iter()
            .any(|(_, usual)| name == Some(OsStr::new(usual)))
    };
    let has_others = !paths.iter().all(|path| is_usual(&path));
    let mut text = String::new();
    for (option, usual) in files {
        let named = |path: &&String| Path::new(path).file_name() == Some(OsStr::new(usual));
        match paths.iter().find(named) {
            Some(path) => put(&mut text, format_args!(" -c {option}={path}")),
            None if has_others => put(&mut text, format_args!(" -c {option}=PATH")),
            None => {}
        }
    }
    text
}

fn identifier(facts: &DatabaseFacts) -> Result<u64, PostgresError> {
    let text = &facts.system_identifier;
    text.parse().map_err(|_| PostgresError::Set {
        what: format!("its system identifier {text:?} is not a number"),
    })
}

fn plan_tablespaces(
    files: &FileTable,
    map: &[(PathBuf, PathBuf)],
) -> Result<Vec<TablespacePlan>, PostgresError> {
    let mut plans = Vec::new();
    for entry in files
        .0
        .iter()
        .filter(|entry| entry.kind == FileKind::Symlink)
    {
        let oid = oid_of(entry)?;
        let was = PathBuf::from(OsStr::from_bytes(&entry.link_target));
        checks::check_location(oid, &was, &plans)?;
        let mapped = map
            .iter()
            .find(|(from, _)| *from == was)
            .map(|(_, to)| to.clone());
        plans.push(TablespacePlan {
            oid,
            becomes: mapped.unwrap_or_else(|| was.clone()),
            was,
        });
    }
    match map
        .iter()
        .find(|(from, _)| !plans.iter().any(|plan| plan.was == *from))
    {
        Some((from, _)) => Err(PostgresError::Target {
            path: from.clone(),
            what: "is not the directory of a tablespace of this set",
        }),
        None => Ok(plans),
    }
}

/// The number of the file to add something to, and true if the set has it. If the set does not have
/// it, this enters an empty file into the table.
fn add_to(files: &mut FileTable, path: &str, group: bool) -> (FileNo, bool) {
    let entries = files.0.iter();
    let mut there = entries
        .clone()
        .filter(|entry| entry.path == path.as_bytes());
    if let Some(entry) = there.find(|entry| entry.kind == FileKind::File) {
        return (entry.file, true);
    }
    let last = entries.map(|entry| entry.file.0).max().unwrap_or_default();
    let file = FileNo(last.saturating_add(1));
    files.0.push(FileEntry {
        file,
        kind: FileKind::File,
        flags: FileFlags::default(),
        mode: if group { 0o640 } else { 0o600 },
        bytes: 0,
        mtime_nanos: 0,
        crc32c: 0,
        path: path.into(),
        link_target: Vec::new(),
    });
    (file, false)
}

/// Puts new content into the table's entry. `None` if the set has no such file.
fn replaced(files: &mut FileTable, path: &str, content: Vec<u8>) -> Option<(FileNo, Vec<u8>)> {
    let entry: &mut FileEntry = files
        .0
        .iter_mut()
        .find(|entry| entry.path == path.as_bytes())?;
    entry.bytes = content.len() as u64;
    entry.crc32c = crc32c(&content);
    entry.flags.crc_known = true;
    Some((entry.file, content))
}

pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), PostgresError> {
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(mode)
        .create(path)
        .doing("create directory", path)?;
    // The umask may have removed bits, and an empty directory may have existed before.
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).doing("set the mode of", path)
}

fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string takes everything");
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests;

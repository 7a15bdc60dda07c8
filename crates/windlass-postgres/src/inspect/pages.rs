//! Reads every page of every relation file: checks its checksum if it has one, and whether pages
//! are lost that others need.
//!
//! Tables are read first. Then it is known how long they are and which of their pages are empty,
//! when indexes and visibility maps are read that point to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_media::saturated;

use super::found::{FAULTS_NAMED, Inspection, RelationFault};
use super::kinds::{self, Kind, Known};
use super::structure::{first_pages, follow, has_marks, mapped, point_into_table};
use super::{in_parallel, relations};
use crate::checksum::is_whole;
use crate::control::{Checksums, Control};
use crate::error::{IoContext, PostgresError, SqlContext};
use crate::names::{Fork, RelationFile, is_relation_directory};
use crate::open::Connection;

const READ_BYTES: usize = 256 * 1024;
/// Finds the relation of a file. `path` is the part of the path that all forks and segments share.
const NAMES: &str = "SELECT f.path, format('%I.%I', n.nspname, c.relname) FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace \
     CROSS JOIN LATERAL (SELECT pg_relation_filepath(c.oid) AS path) f WHERE f.path = ANY ($1)";

/// A file of a relation.
pub(crate) struct PageFile {
    /// Path below the data directory.
    pub(crate) path: PathBuf,
    /// Path of the relation's first file.
    relation: String,
    fork: Fork,
    pub(crate) segment: u32,
    bytes: u64,
}

/// What reading one file found.
#[derive(Default)]
struct Read {
    pages: u64,
    /// Pages of the main fork that are all zeros.
    empty: Vec<u32>,
    /// Pages of the main fork that others lead to.
    needed: Vec<u32>,
    /// Pages of the table that this file points to and that are lost.
    lost: BTreeSet<u32>,
    faults: Vec<String>,
    faults_count: u64,
}

/// The main fork of a relation.
#[derive(Default)]
struct Table {
    pages: u32,
    empty: BTreeSet<u32>,
    needed: Vec<u32>,
}

/// What to look for in a file besides checksums.
struct Look<'a> {
    kind: Kind,
    /// The table that it points to.
    table: Option<&'a Table>,
}

/// Reads all files, and adds pages and faults to `found`.
pub(super) fn read_all(
    connection: &Connection,
    databases: &[String],
    data: &Path,
    jobs: usize,
    cancel: &Cancel,
    found: &mut Inspection,
) -> Result<(), PostgresError> {
    let control = Control::read(data)?;
    found.checksums = control.checksums() == Checksums::On;
    let known = kinds::ask(connection, databases)?;
    let is_table = |file: &PageFile| file.is_main() && kind(&known, file) == Kind::Table;
    let (mut files, others): (Vec<_>, Vec<_>) = list(data)?.into_iter().partition(is_table);
    let read_these = |files: &[PageFile], tables: &HashMap<String, Table>| {
        in_parallel(files, jobs, cancel, || {
            let mut buffer = vec![0; READ_BYTES.max(control.block_bytes as usize)];
            let (control, known) = (&control, &known);
            Ok(move |file: &PageFile| {
                let table = table_of(known, tables, file);
                let look = Look {
                    kind: kind(known, file),
                    table,
                };
                read(data, file, control, &look, &mut buffer)
            })
        })
    };
    let mut reads = read_these(&files, &HashMap::new())?;
    let tables = lengths(&files, &reads, &control);
    reads.extend(read_these(&others, &tables)?);
    files.extend(others);
    found.pages = reads.iter().map(|read| read.pages).sum();
    let mut faults: BTreeMap<&str, String> = gaps(&files, &known, &control);
    let forks = lengths(&files, &reads, &control);
    for (path, what) in lost_pages(&forks, &known).chain(lost_rows(&files, &reads, &known)) {
        add(&mut faults, path, &what);
    }
    for (file, read) in files
        .iter()
        .zip(&reads)
        .filter(|(_, read)| read.faults_count > 0)
    {
        let more = read.faults_count.saturating_sub(FAULTS_NAMED as u64);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        let what = format!("{}{more}", read.faults.join("; "));
        add(&mut faults, &file.relation, &what);
    }
    found.faults.extend(name(connection, databases, faults)?);
    Ok(())
}

fn add<'a>(faults: &mut BTreeMap<&'a str, String>, relation: &'a str, what: &str) {
    let text = faults.entry(relation).or_default();
    let comma = if text.is_empty() { "" } else { "; " };
    *text = format!("{text}{comma}{what}");
}

fn kind(known: &HashMap<String, Known>, file: &PageFile) -> Kind {
    known
        .get(&file.relation)
        .map_or(Kind::Unknown, |known| known.kind)
}

/// The table that a file points to: that of an index, or its own if the file is its map.
fn table_of<'a>(
    known: &HashMap<String, Known>,
    tables: &'a HashMap<String, Table>,
    file: &PageFile,
) -> Option<&'a Table> {
    let relation = match file.fork {
        Fork::Main => known.get(&file.relation)?.table.as_ref()?,
        _ => &file.relation,
    };
    tables.get(relation)
}

/// The main forks of relations, by the paths of their first files.
fn lengths(files: &[PageFile], reads: &[Read], control: &Control) -> HashMap<String, Table> {
    let mut found: HashMap<String, Table> = HashMap::new();
    for (file, read) in files.iter().zip(reads).filter(|(file, _)| file.is_main()) {
        let first = file.segment.saturating_mul(control.relation_segment_blocks);
        let pages: u32 = saturated(file.bytes / u64::from(control.block_bytes));
        let table = found.entry(file.relation.clone()).or_default();
        table.pages = table.pages.max(first.saturating_add(pages));
        table.empty.extend(&read.empty);
        table.needed.extend(&read.needed);
    }
    found
}

/// Pages of indexes and sequences that must be there, and are not or are empty.
fn lost_pages<'a>(
    forks: &HashMap<String, Table>,
    known: &'a HashMap<String, Known>,
) -> impl Iterator<Item = (&'a str, String)> {
    known.iter().filter_map(|(path, known)| {
        let fork = forks.get(path)?;
        let needed = first_pages(known.kind).chain(fork.needed.iter().copied());
        let lost: BTreeSet<u32> = needed.filter(|block| fork.has_lost(*block)).collect();
        let what = format!("{} missing or empty", blocks(&lost)?);
        Some((path.as_str(), what))
    })
}

/// Pages of tables that are lost, because indexes or visibility maps point to them.
fn lost_rows<'a>(
    files: &'a [PageFile],
    reads: &[Read],
    known: &'a HashMap<String, Known>,
) -> impl Iterator<Item = (&'a str, String)> {
    files.iter().zip(reads).filter_map(|(file, read)| {
        let table = match file.fork {
            Fork::Main => known.get(&file.relation)?.table.as_deref()?,
            _ => &file.relation,
        };
        let path = file.path.display();
        let what = format!(
            "{} missing or empty, but {path} points there",
            blocks(&read.lost)?
        );
        Some((table, what))
    })
}

/// Some blocks in words; `None` if there are none.
fn blocks(blocks: &BTreeSet<u32>) -> Option<String> {
    let first = blocks.first()?;
    Some(match blocks.len() {
        1 => format!("block {first} is"),
        count => format!("block {first} and {} more are", count - 1),
    })
}

/// Forks with a gap: a segment that is missing or not full, and one behind it that is not empty.
/// The server reads such a fork only up to the gap and takes that for its end. Empty segments at
/// the end are no gap: a server that shortens a relation leaves them there. An index that is not
/// ready may have one: most of its pages get into the log only when its build ends.
fn gaps<'a>(
    files: &'a [PageFile],
    known: &HashMap<String, Known>,
    control: &Control,
) -> BTreeMap<&'a str, String> {
    let full = u64::from(control.relation_segment_blocks) * u64::from(control.block_bytes);
    let mut forks: BTreeMap<(&str, Fork), BTreeMap<u32, &PageFile>> = BTreeMap::new();
    let is_ready = |file: &&PageFile| kind(known, file) != Kind::NotReady;
    for file in files.iter().filter(is_ready).filter(|file| file.bytes > 0) {
        let fork = forks.entry((&file.relation, file.fork)).or_default();
        fork.insert(file.segment, file);
    }
    let mut faults: BTreeMap<&str, String> = BTreeMap::new();
    for ((relation, _), segments) in forks {
        let ends = (0..).find(|at| segments.get(at).is_none_or(|file| file.bytes < full));
        let behind = ends.and_then(|end: u32| segments.range(end.saturating_add(1)..).next());
        if let (Some(end), Some((_, behind))) = (ends, behind) {
            let path = behind.path.display();
            let what = format!("segment {end} is missing or not full, although {path} follows it");
            add(&mut faults, relation, &what);
        }
    }
    faults
}

/// Names the relations of the damaged files.
fn name(
    connection: &Connection,
    databases: &[String],
    mut faults: BTreeMap<&str, String>,
) -> Result<Vec<RelationFault>, PostgresError> {
    const DOING: &str = "name damaged files";
    let mut named = Vec::new();
    for database in databases {
        if faults.is_empty() {
            break;
        }
        let mut session = relations::session(connection, database)?;
        let paths: Vec<&str> = faults.keys().copied().collect();
        for row in session.query(NAMES, &[&paths]).doing(DOING)? {
            let path: String = row.try_get(0).doing(DOING)?;
            if let Some(what) = faults.remove(path.as_str()) {
                named.push(RelationFault {
                    database: database.clone(),
                    relation: row.try_get(1).doing(DOING)?,
                    what,
                });
            }
        }
    }
    named.extend(faults.into_iter().map(|(path, what)| RelationFault {
        database: String::new(),
        relation: path.to_owned(),
        what,
    }));
    Ok(named)
}

/// Reads one file. A page that cannot be read is a fault, and the read goes on behind it.
fn read(
    data: &Path,
    file: &PageFile,
    control: &Control,
    look: &Look<'_>,
    buffer: &mut [u8],
) -> Result<Read, PostgresError> {
    let page_bytes = control.block_bytes as usize;
    let path = data.join(&file.path);
    let open = match File::open(&path) {
        // The server has removed the file since it was listed, as it does at a checkpoint.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Read::default()),
        other => other.doing("open", &path)?,
    };
    let mut block = file.segment.saturating_mul(control.relation_segment_blocks);
    let mut offset = 0;
    let mut read = Read::default();
    loop {
        let (count, error) = fill(&open, offset, buffer);
        for page in buffer[..count].chunks_exact(page_bytes) {
            if found_bad(control, page, block) {
                read.fault(format!(
                    "block {block} of {}: checksum mismatch",
                    file.path.display()
                ));
            }
            read.look(file, look, block, page);
            read.pages += 1;
            (block, offset) = (block.saturating_add(1), offset + page_bytes as u64);
        }
        let rest = count % page_bytes;
        if error.is_none() && rest > 0 {
            let path = file.path.display();
            read.fault(format!(
                "block {block} of {path}: the file ends after {rest} of its {page_bytes} bytes"
            ));
        }
        match error {
            Some(error) => {
                read.fault(format!("block {block} of {}: {error}", file.path.display()));
                (block, offset) = (block.saturating_add(1), offset + page_bytes as u64);
            }
            None if count < buffer.len() => return Ok(read),
            None => {}
        }
    }
}

fn found_bad(control: &Control, page: &[u8], block: u32) -> bool {
    control.checksums() == Checksums::On && !is_whole(page, block)
}

/// Reads until the buffer is full, the file ends, or an error.
pub(crate) fn fill(file: &File, offset: u64, buffer: &mut [u8]) -> (usize, Option<std::io::Error>) {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

impl Table {
    fn has_lost(&self, block: u32) -> bool {
        block >= self.pages || self.empty.contains(&block)
    }
}

impl PageFile {
    fn is_main(&self) -> bool {
        self.fork == Fork::Main
    }
}

impl Read {
    fn look(&mut self, file: &PageFile, look: &Look<'_>, block: u32, page: &[u8]) {
        let is_empty = page.iter().all(|byte| *byte == 0);
        if file.is_main() && is_empty {
            return self.empty.push(block);
        }
        if file.is_main() && !has_marks(look.kind, block, page) {
            let path = file.path.display();
            self.fault(format!(
                "block {block} of {path}: it is no page of such a relation"
            ));
        }
        if file.is_main() {
            follow(look.kind, block, page, &mut self.needed);
        }
        let Some(table) = look.table else { return };
        let mut note = |block| {
            if table.has_lost(block) {
                self.lost.insert(block);
            }
        };
        match (file.fork, look.kind) {
            (Fork::Main, Kind::BTree) => point_into_table(page, &mut note),
            (Fork::Visibility, _) => mapped(block, page, &mut note),
            _ => {}
        }
    }

    fn fault(&mut self, what: String) {
        self.faults_count += 1;
        if self.faults.len() < FAULTS_NAMED {
            self.faults.push(what);
        }
    }
}

/// Lists all relation files, the longest first.
pub(crate) fn list(data: &Path) -> Result<Vec<PageFile>, PostgresError> {
    let mut found = Vec::new();
    list_below(data, Path::new(""), &mut found)?;
    found.sort_by_key(|file: &PageFile| std::cmp::Reverse(file.bytes));
    Ok(found)
}

fn list_below(data: &Path, below: &Path, found: &mut Vec<PageFile>) -> Result<(), PostgresError> {
    let place = data.join(below);
    for entry in std::fs::read_dir(&place).doing("list", &place)? {
        let entry = entry.doing("list", &place)?;
        let path = below.join(entry.file_name());
        // Follow the links of tablespaces: an earlier check has seen that they stay inside.
        let metadata = match std::fs::metadata(data.join(&path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other.doing("examine", &path)?,
        };
        if metadata.is_dir() && LISTED.iter().any(|root| path.starts_with(root)) {
            list_below(data, &path, found)?;
        } else if let Some(file) = page_file(below, &entry.file_name(), metadata.len()) {
            found.push(file);
        }
    }
    Ok(())
}

/// The directories that hold relations.
const LISTED: [&str; 3] = ["base", "global", "pg_tblspc"];

fn page_file(directory: &Path, name: &std::ffi::OsStr, bytes: u64) -> Option<PageFile> {
    let parsed = RelationFile::parse(name.as_bytes()).filter(|file| !file.temporary)?;
    is_relation_directory(directory.as_os_str().as_bytes()).then(|| PageFile {
        path: directory.join(name),
        relation: format!("{}/{}", directory.display(), parsed.number),
        fork: parsed.fork,
        segment: parsed.segment,
        bytes,
    })
}

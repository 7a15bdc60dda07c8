//! Relation names without a server: which file of a cluster's image belongs to which relation.
//!
//!   global/pg_filenode.map ---> pg_database ------> database names
//!   DATABASE/pg_filenode.map -> pg_class ---------> file number, schema, kind
//!                                  +-> pg_namespace, pg_index: schema names, what serves what
//!
//! The catalogs are read as heap pages, each row judged by its hint bits and pg_xact. An image of
//! a running server is as of several moments at once until its log is replayed: a row may be there
//! twice, in an older form, or not yet. So every row that was ever inserted counts, the surest
//! first: a name is for people, and the file's path always stands beside it. Whoever needs
//! certainty opens the image as a server.
//!
//! Invariants
//! - Nothing here fails: a catalog that cannot be read is a fault beside the names of the others.
//! - No content breaks it: lengths and offsets from pages are bounds-checked, and memory is that of
//!   the rows that were found.

mod catalog;
mod heap;
mod map;
mod reader;
pub(crate) mod shared;
mod status;
mod wanted;

use std::collections::HashMap;
use std::fmt;

use windlass_media::{FileNo, FileTable};

pub use crate::names::Fork;
use crate::names::{self, RelationFile};
pub use wanted::{RelationPattern, RelationPatternError};

/// What a cluster's image gives its readers: a directory, a set, a view.
pub trait ClusterFiles {
    /// All files, by their paths below the data directory.
    fn files(&self) -> &FileTable;

    /// Reads bytes of a file; returns how many, fewer than asked for at its end only.
    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError>;
}

/// Why an image cannot be read: its own error.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// What a relation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationKind {
    /// A table, or a system catalog.
    Table,
    /// An index.
    Index,
    /// The table that holds another's long values.
    Toast,
    /// A materialized view.
    MaterializedView,
    /// A sequence.
    Sequence,
    /// A kind that has no files of its own: a view, a partitioned table or index, a type.
    WithoutFiles,
}

/// How sure it is that a catalog row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// It was deleted or replaced.
    Dead,
    /// Its inserter, or its deleter, had not ended when the image was taken.
    Unsure,
    /// It holds.
    Live,
}

/// A relation, as one row of pg_class tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The database; empty for the catalogs that all databases share.
    pub database: String,
    /// The schema.
    pub schema: String,
    /// The relation's own name.
    pub name: String,
    /// Its number in pg_class.
    pub oid: u32,
    /// What it is.
    pub kind: RelationKind,
    /// The number in the names of its files.
    pub file_number: u32,
    /// The relation that it belongs to, by its oid: an index's table, a TOAST table's table.
    pub serves: Option<u32>,
    /// False for a row that was replaced: the file is one the relation had before.
    pub current: bool,
    directory: usize,
    certainty: Certainty,
}

impl Relation {
    /// Schema and name, without the database.
    pub fn name_in_database(&self) -> String {
        format!(
            "{}.{}",
            wanted::quoted(&self.schema),
            wanted::quoted(&self.name)
        )
    }
}

impl fmt::Display for Relation {
    /// As [`RelationPattern`] takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.database.is_empty() {
            write!(f, "{}.", wanted::quoted(&self.database))?;
        }
        f.write_str(&self.name_in_database())
    }
}

/// A file of a relation.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'a> {
    /// The relation.
    pub relation: &'a Relation,
    /// Which of its forks.
    pub fork: Fork,
    /// Which segment of the fork.
    pub segment: u32,
}

/// A catalog that could not be read, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFault {
    /// The catalog's file, or the file that leads to it.
    pub path: String,
    /// What is wrong.
    pub what: String,
}

/// The names of a cluster's relations.
#[derive(Debug, Default)]
pub struct RelationNames {
    relations: Vec<Relation>,
    directories: HashMap<Vec<u8>, usize>,
    by_file: HashMap<(usize, u32), usize>,
    /// Catalogs have the same oid in every database.
    by_oid: HashMap<u32, Vec<usize>>,
    faults: Vec<NameFault>,
    block_bytes: u32,
    segment_blocks: u32,
}

impl RelationNames {
    /// Reads the catalogs of an image. What cannot be read is among the faults.
    pub fn read(files: &dyn ClusterFiles) -> Self {
        let mut names = Self::default();
        if let Err(fault) = reader::read(files, &mut names) {
            names.faults.push(fault);
        }
        names.settle();
        names
    }

    /// Catalogs that could not be read.
    pub fn faults(&self) -> &[NameFault] {
        &self.faults
    }

    /// Bytes of a data page; 0 when pg_control could not be read.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Pages in one segment file; 0 when pg_control could not be read.
    pub fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    /// The relation that a file belongs to, by the file's path below the data directory.
    pub fn of_path(&self, path: &[u8]) -> Option<NamedFile<'_>> {
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let file = RelationFile::parse(&path[slash + 1..])?;
        if file.temporary {
            return None;
        }
        let directory = *self.directories.get(&path[..slash])?;
        let relation = *self.by_file.get(&(directory, file.number))?;
        Some(NamedFile {
            relation: &self.relations[relation],
            fork: file.fork,
            segment: file.segment,
        })
    }

    /// The relations with files that a pattern means.
    pub fn find(&self, pattern: &RelationPattern) -> Vec<&Relation> {
        let matches = |relation: &&Relation| relation.current && pattern.matches(relation);
        self.relations.iter().filter(matches).collect()
    }

    /// A relation with all that serves it: its indexes, its TOAST table and that one's index.
    pub fn parts(&self, whole: &Relation) -> Vec<&Relation> {
        let mut oids = vec![whole.oid];
        // Twice: an index of a TOAST table serves what serves the table.
        for _ in 0..2 {
            let serving = self
                .current_of(&whole.database)
                .filter(|relation| relation.serves.is_some_and(|served| oids.contains(&served)));
            let more: Vec<u32> = serving.map(|relation| relation.oid).collect();
            oids.extend(more);
        }
        let mut parts: Vec<_> = self
            .current_of(&whole.database)
            .filter(|relation| oids.contains(&relation.oid))
            .collect();
        parts.sort_by_key(|relation| (relation.oid != whole.oid, relation.oid));
        parts
    }

    /// The relation that another one serves; for an index of a TOAST table, the table behind both.
    pub fn served(&self, relation: &Relation) -> Option<&Relation> {
        let step = |of: &Relation| {
            let same = self.by_oid.get(&of.serves?)?.iter();
            same.map(|index| &self.relations[*index])
                .find(|other| other.current && other.database == relation.database)
        };
        let first = step(relation)?;
        Some(step(first).unwrap_or(first))
    }

    fn current_of<'a, 'b>(
        &'a self,
        database: &'b str,
    ) -> impl Iterator<Item = &'a Relation> + use<'a, 'b> {
        let current = move |relation: &&Relation| relation.current && relation.database == database;
        self.relations.iter().filter(current)
    }

    /// Notes a row; of several for one file the surest holds, and of equals the later.
    fn add(&mut self, relation: Relation) {
        let key = (relation.directory, relation.file_number);
        match self.by_file.get(&key) {
            Some(known) if self.relations[*known].certainty > relation.certainty => {}
            Some(known) => self.relations[*known] = relation,
            None => {
                self.by_file.insert(key, self.relations.len());
                self.relations.push(relation);
            }
        }
    }

    fn directory(&mut self, path: &[u8]) -> usize {
        let next = self.directories.len();
        *self.directories.entry(path.to_vec()).or_insert(next)
    }

    /// Of all rows of one relation, the surest are current: a table that was rewritten while the
    /// image was taken has a file from before, too.
    fn settle(&mut self) {
        let mut surest: HashMap<(&str, u32), Certainty> = HashMap::new();
        for relation in &self.relations {
            let best = surest
                .entry((&relation.database, relation.oid))
                .or_insert(relation.certainty);
            *best = (*best).max(relation.certainty);
        }
        let current: Vec<bool> = self
            .relations
            .iter()
            .map(|relation| {
                surest.get(&(relation.database.as_str(), relation.oid)) == Some(&relation.certainty)
            })
            .collect();
        for (index, (relation, current)) in self.relations.iter_mut().zip(current).enumerate() {
            relation.current = current;
            self.by_oid.entry(relation.oid).or_default().push(index);
        }
    }
}

/// True for a file of pages: one of a relation's. A page that changes gets another LSN, so nothing
/// that lies in it can hide behind a checksum of its own.
pub fn is_relation_file(path: &[u8]) -> bool {
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
        return false;
    };
    names::is_relation_directory(&path[..slash])
        && RelationFile::parse(&path[slash + 1..]).is_some()
}

/// True for a path that a backup leaves out, or that only a backup has: what of a live data
/// directory and of a set cannot be compared. The log is among it: it is history, not state.
pub fn is_beside_the_data(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let first = parts.next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let below = parts.next().is_some();
    let relation = RelationFile::parse(name);
    first == b"pg_wal"
        || (below && names::is_emptied_directory(first))
        || (!below && names::is_skipped_root_file(first))
        || names::is_skipped_anywhere(name)
        || (below && relation.is_some_and(|relation| relation.temporary))
}

//! Relation names without a server: which file of a cluster's image belongs to which relation.
//!
//!   global/pg_filenode.map ---> pg_database ------> database names
//!   DATABASE/pg_filenode.map -> pg_class ---------> file number, schema, kind
//!                                  +-> pg_namespace, pg_index: schema names, what serves what
//!
//! This module reads the catalogs as heap pages and judges each row by its hint bits and pg_xact.
//! Until its log is replayed, an image of a running server mixes several moments. So a row may
//! appear twice, in an older form, or not yet. Therefore every row that was ever inserted counts,
//! and the surest one wins. A name is only for people, and the file's path always stands beside it.
//! Users who need certainty open the image as a server.
//!
//! Invariants
//! - Nothing here fails: if a catalog cannot be read, its fault is listed, and the other names are
//!   there.
//! - No content breaks it: lengths and offsets from pages are bounds-checked, and memory grows only
//!   with the rows that were found.

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

/// The files of a cluster's image, for its readers: a directory, a set or a view.
pub trait ClusterFiles {
    /// All files, by their paths below the data directory.
    fn files(&self) -> &FileTable;

    /// Reads bytes of a file. Returns how many; fewer than asked for only at the file's end.
    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError>;
}

/// Why an image cannot be read, as the image's own error.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// What a relation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationKind {
    /// A table, or a system catalog.
    Table,
    /// An index.
    Index,
    /// The TOAST table, which holds the long values of another table.
    Toast,
    /// A materialized view.
    MaterializedView,
    /// A sequence.
    Sequence,
    /// A kind that has no files of its own: a view, a partitioned table or index, a type.
    WithoutFiles,
}

/// How sure it is that a catalog row is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// The row was deleted or replaced.
    Dead,
    /// The transaction that inserted or deleted the row had not ended when the image was taken.
    Unsure,
    /// The row is valid.
    Live,
}

/// A relation, as one row of pg_class describes it.
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
    /// Oid of the relation that it belongs to: the table of an index, or of a TOAST table.
    pub serves: Option<u32>,
    /// False if the row was replaced: the file is one that the relation had before.
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
    /// Writes the form that [`RelationPattern`] takes.
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
    /// The catalog's file, or the file that is needed to find it.
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
    /// Indexes by oid. Catalogs have the same oid in every database, so one oid may have several.
    by_oid: HashMap<u32, Vec<usize>>,
    faults: Vec<NameFault>,
    block_bytes: u32,
    segment_blocks: u32,
}

impl RelationNames {
    /// Reads the catalogs of an image. What cannot be read goes to the faults.
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

    /// Bytes of a data page; 0 if pg_control could not be read.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Pages in one segment file; 0 if pg_control could not be read.
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

    /// The relations with files that match a pattern.
    pub fn find(&self, pattern: &RelationPattern) -> Vec<&Relation> {
        let matches = |relation: &&Relation| relation.current && pattern.matches(relation);
        self.relations.iter().filter(matches).collect()
    }

    /// A relation with everything that serves it: its indexes, its TOAST table and the TOAST
    /// table's index.
    pub fn parts(&self, whole: &Relation) -> Vec<&Relation> {
        let mut oids = vec![whole.oid];
        // Two rounds, because the index of a TOAST table serves the TOAST table, which serves the
        // table.
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

    /// The relation that another one serves. For an index of a TOAST table it is the main table.
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

    /// Records a row. If several rows name one file, the surest one wins, and among equals the
    /// later one.
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

    /// Marks the surest rows of each relation as current. A table that was rewritten while the
    /// image was taken also has a file from before.
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

/// True for a relation's file, which consists of pages. Data with its own CRC-32C behind it can
/// change although the checksum over both stays the same. In a page this hides nothing, because a
/// page that changes gets another LSN.
pub fn is_relation_file(path: &[u8]) -> bool {
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
        return false;
    };
    names::is_relation_directory(&path[..slash])
        && RelationFile::parse(&path[slash + 1..]).is_some()
}

/// True for a path that only one side has, because a backup leaves it out or adds it. Such files of
/// a live data directory and of a set cannot be compared. This includes the log, which is history
/// and not state.
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

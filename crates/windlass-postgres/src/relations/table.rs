//! The names of a cluster's relations: found by file, by pattern, and by what serves what.

use std::collections::HashMap;

use super::relation::{Certainty, Relation};
use super::wanted::RelationPattern;
use crate::names::{Fork, RelationFile};

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
    pub(super) faults: Vec<NameFault>,
    pub(super) block_bytes: u32,
    pub(super) segment_blocks: u32,
}

impl RelationNames {
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
    pub(super) fn add(&mut self, relation: Relation) {
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

    pub(super) fn directory(&mut self, path: &[u8]) -> usize {
        let next = self.directories.len();
        *self.directories.entry(path.to_vec()).or_insert(next)
    }

    /// Marks the surest rows of each relation as current. A table that was rewritten while the
    /// image was taken also has a file from before.
    pub(super) fn settle(&mut self) {
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

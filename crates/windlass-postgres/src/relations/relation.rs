//! A relation, as a row of pg_class describes it.

use std::fmt;

use crate::quoting::quoted;

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
    pub(super) directory: usize,
    pub(super) certainty: Certainty,
}

impl Relation {
    /// Schema and name, without the database.
    pub fn name_in_database(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

impl fmt::Display for Relation {
    /// Writes the form that [`RelationPattern`] takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.database.is_empty() {
            write!(f, "{}.", quoted(&self.database))?;
        }
        f.write_str(&self.name_in_database())
    }
}

//! What an inspection finds.

/// At most this many faults of one relation are spelled out; the others are counted.
pub(super) const FAULTS_NAMED: usize = 5;

/// What was checked, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Databases whose relations were checked.
    pub databases: u64,
    /// Tables whose rows were checked.
    pub tables: u64,
    /// Indexes checked against their tables.
    pub indexes: u64,
    /// Pages read.
    pub pages: u64,
    /// True if the pages have checksums, and these were checked.
    pub checksums: bool,
    /// What is damaged.
    pub faults: Vec<RelationFault>,
    /// What could not be checked, although nothing says that it is damaged.
    pub unchecked: Vec<RelationFault>,
}

/// A fault of a relation, or the reason why it could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationFault {
    /// The database; empty if it is not known.
    pub database: String,
    /// The relation with its schema; its file if the relation is not known.
    pub relation: String,
    /// What is wrong.
    pub what: String,
}

//! What a sweep backs up: one database, or several to see the effect of their size.

use windlass_lab::{Case, Source};
use windlass_postgres::Cluster;
use windlass_sqlite::Database;

use super::SweepError;
use crate::caller::ProcessUse;
use crate::database::DatabaseName;
use crate::error::{DatabaseError, OperationError};
use crate::privilege;

/// One of them.
pub(super) struct SweptDatabase {
    /// The name under which the process of a run finds it.
    pub(super) name: String,
    /// `PostgreSQL` or `SQLite`.
    kind: &'static str,
    /// Bytes that a backup reads.
    pub(super) bytes: u64,
}

/// Databases of one owner. There is at least one.
pub(super) struct Databases {
    known: Vec<SweptDatabase>,
    /// User and group, if they are known.
    pub(super) owner: Option<(u32, u32)>,
}

impl Databases {
    /// Looks at each database as its owner.
    pub(super) fn find(process: ProcessUse, names: &[String]) -> Result<Self, OperationError> {
        if names.is_empty() {
            return Err(DatabaseError::Empty.into());
        }
        let names = names.iter().map(|name| DatabaseName::resolve(name));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let owner = names.first().and_then(DatabaseName::owner);
        if names.iter().any(|name| name.owner() != owner) {
            return Err(SweepError::DifferentOwners.into());
        }
        let known = names.into_iter().map(|name| look(process, name));
        Ok(Self {
            known: known.collect::<Result<_, _>>()?,
            owner,
        })
    }

    /// The values of the axis; empty if there is only one database.
    pub(super) fn sources(&self) -> Vec<Source> {
        let source = |(index, known): (usize, &SweptDatabase)| Source {
            index,
            bytes: known.bytes,
        };
        match self.known.len() {
            1 => Vec::new(),
            _ => self.known.iter().enumerate().map(source).collect(),
        }
    }

    /// The database of a case.
    pub(super) fn of(&self, case: &Case) -> &SweptDatabase {
        &self.known[case.source.as_ref().map_or(0, |source| source.index)]
    }

    /// Bytes of the largest.
    pub(super) fn largest(&self) -> u64 {
        let bytes = self.known.iter().map(|known| known.bytes);
        bytes.max().unwrap_or(0)
    }

    /// The kinds of the databases.
    pub(super) fn kinds(&self) -> String {
        let mut kinds: Vec<_> = self.known.iter().map(|known| known.kind).collect();
        kinds.dedup();
        kinds.join(", ")
    }
}

fn look(process: ProcessUse, name: DatabaseName) -> Result<SweptDatabase, OperationError> {
    let (kind, bytes) = privilege::as_user(process, name.owner(), || size(&name))?;
    Ok(SweptDatabase {
        name: absolute(name),
        kind,
        bytes,
    })
}

/// What kind of database it is, and the bytes that a backup reads.
fn size(name: &DatabaseName) -> Result<(&'static str, u64), OperationError> {
    Ok(match name {
        DatabaseName::Sqlite(path) => ("SQLite", Database::open(path)?.estimate_bytes()),
        DatabaseName::Postgres(conninfo) => {
            ("PostgreSQL", Cluster::connect(conninfo)?.estimate_bytes()?)
        }
    })
}

fn absolute(name: DatabaseName) -> String {
    match name {
        DatabaseName::Postgres(conninfo) => conninfo,
        DatabaseName::Sqlite(path) => {
            let path = std::path::absolute(&path).unwrap_or(path);
            path.to_string_lossy().into_owned()
        }
    }
}

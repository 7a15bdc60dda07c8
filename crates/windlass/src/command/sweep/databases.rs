//! What a sweep backs up: one database, or several to see the effect of their size.

use windlass_lab::{Case, Source};
use windlass_postgres::Cluster;
use windlass_sqlite::Database;

use crate::database::DatabaseName;
use crate::exit::Failure;
use crate::privilege;
use windlass_operations::ProcessUse;

/// One of them.
pub struct Known {
    /// The name under which a child process finds it.
    pub name: String,
    /// `PostgreSQL` or `SQLite`.
    kind: &'static str,
    /// Bytes that a backup reads.
    pub bytes: u64,
}

/// Databases of one owner. There is at least one.
pub struct Databases {
    known: Vec<Known>,
    /// User and group, if they are known.
    pub owner: Option<(u32, u32)>,
}

impl Databases {
    /// Looks at each database as its owner.
    pub fn find(names: &[String]) -> Result<Self, Failure> {
        let names = names.iter().map(|name| DatabaseName::resolve(name));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let owner = names.first().and_then(DatabaseName::owner);
        if names.iter().any(|name| name.owner() != owner) {
            return Err(Failure::usage(
                "the databases belong to different users",
                "Sweep each by itself: scratch files belong to the owner of what is backed up.",
            ));
        }
        let known = names.into_iter().map(look).collect::<Result<_, _>>()?;
        Ok(Self { known, owner })
    }

    /// The values of the axis; empty if there is only one database.
    pub fn sources(&self) -> Vec<Source> {
        let source = |(index, known): (usize, &Known)| Source {
            index,
            bytes: known.bytes,
        };
        match self.known.len() {
            1 => Vec::new(),
            _ => self.known.iter().enumerate().map(source).collect(),
        }
    }

    /// The database of a case.
    pub fn of(&self, case: &Case) -> &Known {
        &self.known[case.source.as_ref().map_or(0, |source| source.index)]
    }

    /// Bytes of the largest.
    pub fn largest(&self) -> u64 {
        let bytes = self.known.iter().map(|known| known.bytes);
        bytes.max().unwrap_or(0)
    }

    /// The kinds of the databases.
    pub fn kinds(&self) -> String {
        let mut kinds: Vec<_> = self.known.iter().map(|known| known.kind).collect();
        kinds.dedup();
        kinds.join(", ")
    }
}

fn look(name: DatabaseName) -> Result<Known, Failure> {
    let (kind, bytes) = privilege::as_user(ProcessUse::Own, name.owner(), || size(&name))?;
    Ok(Known {
        name: absolute(name),
        kind,
        bytes,
    })
}

/// What kind of database it is, and the bytes that a backup reads.
fn size(name: &DatabaseName) -> Result<(&'static str, u64), Failure> {
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

//! Which kind of relation each file belongs to, and to which table an index belongs.

use std::collections::HashMap;

use super::relations;
use crate::error::{PostgresError, SqlContext};
use crate::open::Connection;

/// An index that is not valid may lack rows, and it need not point to its table. The build of an
/// index that is not ready failed or still runs: CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY
/// leave such an index with an empty file or with parts of a structure. An unlogged sequence that
/// was made in the log may be empty after recovery: the server does not write its `_init` fork to
/// the disk before it copies the fork.
const KINDS: &str = "SELECT pg_relation_filepath(c.oid), \
     CASE WHEN c.relkind = 'S' AND c.relpersistence = 'u' THEN '' \
       WHEN NOT i.indisready THEN 'not ready' ELSE c.relkind::text END, \
     coalesce(a.amname::text, ''), CASE WHEN i.indisvalid AND i.indisready AND i.indislive \
     THEN pg_relation_filepath(i.indrelid) END FROM pg_class c \
     LEFT JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_index i ON i.indexrelid = c.oid \
     WHERE c.relpersistence <> 't' AND pg_relation_filepath(c.oid) IS NOT NULL";

/// A kind of relation, as far as its pages differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table of the heap access method.
    Table,
    BTree,
    Hash,
    Gist,
    Gin,
    SpGist,
    Brin,
    Sequence,
    /// An index whose build has not ended. Nobody reads it, and no page of it must be there.
    NotReady,
    /// Of an access method that this module does not know, or of a database that nobody can
    /// connect to.
    Unknown,
}

/// What the catalogs say about a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) kind: Kind,
    /// Path of the first file of the table that an index serves.
    pub(super) table: Option<String>,
}

/// The kinds of all relations, by the paths of their first files.
pub(super) fn ask(
    connection: &Connection,
    databases: &[String],
) -> Result<HashMap<String, Known>, PostgresError> {
    const DOING: &str = "list the kinds of relations";
    let mut known = HashMap::new();
    for database in databases {
        let mut session = relations::session(connection, database)?;
        for row in session.query(KINDS, &[]).doing(DOING)? {
            let (path, kind) = (row.try_get(0).doing(DOING)?, row.try_get(1).doing(DOING)?);
            let (method, table) = (row.try_get(2).doing(DOING)?, row.try_get(3).doing(DOING)?);
            let kind = kind_of(kind, method);
            known.insert(path, Known { kind, table });
        }
    }
    Ok(known)
}

fn kind_of(kind: &str, method: &str) -> Kind {
    match (kind, method) {
        ("S", _) => Kind::Sequence,
        ("not ready", _) => Kind::NotReady,
        ("r" | "m" | "t", "heap") => Kind::Table,
        ("i", "btree") => Kind::BTree,
        ("i", "hash") => Kind::Hash,
        ("i", "gist") => Kind::Gist,
        ("i", "gin") => Kind::Gin,
        ("i", "spgist") => Kind::SpGist,
        ("i", "brin") => Kind::Brin,
        _ => Kind::Unknown,
    }
}

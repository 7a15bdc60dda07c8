//! Finds relations that lack files: the catalog has the relation, but the data directory does not
//! have the file.
//!
//! To amcheck such a relation is one that it cannot check, because the server says no more than
//! that it could not open a file. To the page reader it is nothing, because there is no file to
//! read. So this module asks the catalogs which files there must be.
//!
//! Only tables of the heap access method are looked at: other methods may keep their rows in files
//! of their own.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use super::found::{Inspection, RelationFault};
use super::relations;
use crate::error::{PostgresError, SqlContext};
use crate::open::Connection;

/// A shared relation belongs to every database. Its path is the same in all of them. An unlogged
/// index that recovery met while it was being built has no files, and nobody uses it.
const FILES: &str = "SELECT f.path, format('%I.%I', n.nspname, c.relname) FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam \
     CROSS JOIN LATERAL (SELECT pg_relation_filepath(c.oid) AS path) f \
     WHERE f.path IS NOT NULL AND c.relpersistence <> 't' \
       AND NOT (c.relpersistence = 'u' AND EXISTS \
         (SELECT FROM pg_index i WHERE i.indexrelid = c.oid AND NOT i.indisready)) \
       AND (c.relkind IN ('i', 'S') OR c.relkind IN ('r', 'm', 't') AND a.amname = 'heap') \
     ORDER BY c.oid";

/// Adds a fault for each relation whose first file is missing. If amcheck could not check such a
/// relation, this removes that remark, because the missing file is the reason.
pub(super) fn find(
    connection: &Connection,
    databases: &[String],
    data: &Path,
    found: &mut Inspection,
) -> Result<(), PostgresError> {
    const DOING: &str = "list the files of relations";
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for database in databases {
        let mut session = relations::session(connection, database)?;
        for row in session.query(FILES, &[]).doing(DOING)? {
            let path: String = row.try_get(0).doing(DOING)?;
            if is_missing(&data.join(&path)) && seen.insert(path.clone()) {
                faults.push(RelationFault {
                    database: database.clone(),
                    relation: row.try_get(1).doing(DOING)?,
                    what: format!("its file {path} is missing"),
                });
            }
        }
    }
    let is_explained = |remark: &RelationFault| {
        let of = |fault: &RelationFault| {
            (&fault.database, &fault.relation) == (&remark.database, &remark.relation)
        };
        faults.iter().any(of)
    };
    found.unchecked.retain(|remark| !is_explained(remark));
    found.faults.extend(faults);
    Ok(())
}

/// True if there is no such file. Any other error shows when the pages are read.
fn is_missing(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

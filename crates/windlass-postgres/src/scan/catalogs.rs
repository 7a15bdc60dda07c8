//! Which files the catalogs of a database name: those of its relations, as the disk has them now.
//!
//! A checkpoint has written all catalogs by the time a primary's backup begins. Rows of relations
//! that were dropped, and rows that were never committed, count too. The caller only asks whether
//! the files that they name are there.
//!
//! Invariants
//! - No content breaks it. A catalog that cannot be read names nothing.

use std::io;
use std::path::Path;

use crate::relations::RelationKind;
use crate::relations::catalog::{CLASS, SPACE_DEFAULT, SPACE_GLOBAL};
use crate::relations::files::{CatalogForm, read_map, read_tuples};

/// Passes the path of each file to `each`: the first segments of the relations of the database in
/// `directory`, or of the shared relations in `global`.
pub(super) fn name_files(
    root: &Path,
    directory: &str,
    version_directory: &str,
    form: &CatalogForm,
    each: &mut dyn FnMut(String),
) -> io::Result<()> {
    let place = root.join(directory);
    let Some(map) = read_map(&place)? else {
        return Ok(());
    };
    map.numbers()
        .for_each(|number| each(format!("{directory}/{number}")));
    let Some(classes) = map.get(CLASS) else {
        return Ok(());
    };
    let database = directory.rsplit('/').next().unwrap_or_default();
    read_tuples(&place, classes, form, &mut |tuple| {
        let Some(row) = form.layout.class(tuple.columns) else {
            return;
        };
        let directory = match row.tablespace {
            0 => directory.to_owned(),
            SPACE_DEFAULT => format!("base/{database}"),
            // Their numbers are in the map of `global`.
            SPACE_GLOBAL => return,
            other => format!("pg_tblspc/{other}/{version_directory}/{database}"),
        };
        let (number, kind) = (row.file_number, row.kind);
        if number == 0 || kind == RelationKind::WithoutFiles || row.persistence == b't' {
            return;
        }
        // Without this fork the copy would hold a torn state of an unlogged relation.
        if row.persistence == b'u' {
            each(format!("{directory}/{number}_init"));
        }
        each(format!("{directory}/{number}"));
    })
}

//! Which files the catalogs of a database name: those of its relations, as the disk has them now.
//!
//! A checkpoint has written all catalogs by the time a primary's backup begins. Rows of relations
//! that were dropped, and rows that were never committed, count too. The caller only asks whether
//! the files that they name are there.
//!
//! Invariants
//! - No content breaks it. A catalog that cannot be read names nothing.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::CatalogForm;
use crate::relations::RelationKind;
use crate::relations::catalog::{CLASS, ClassRow, SPACE_DEFAULT, SPACE_GLOBAL};
use crate::relations::heap::tuples;
use crate::relations::map::{FileMap, MAP_BYTES_MAX};

/// A live server writes the map in place, so a read may find half of a change.
const READS_MAX: u32 = 10;
const PAGES_AT_ONCE: usize = 32;

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
    read_classes(&place, classes, form, &mut |row| {
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

fn read_map(place: &Path) -> io::Result<Option<FileMap>> {
    for _ in 0..READS_MAX {
        let Some(bytes) = present(File::open(place.join("pg_filenode.map")))? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        bytes
            .take(MAP_BYTES_MAX as u64 + 1)
            .read_to_end(&mut content)?;
        if let Ok(map) = FileMap::parse(&content) {
            return Ok(Some(map));
        }
    }
    Ok(None)
}

fn read_classes(
    place: &Path,
    number: u32,
    form: &CatalogForm,
    each: &mut dyn FnMut(ClassRow),
) -> io::Result<()> {
    let page_bytes = form.page_bytes as usize;
    let mut pages = vec![0; page_bytes * PAGES_AT_ONCE];
    for segment in 0_u32.. {
        let name = match segment {
            0 => number.to_string(),
            _ => format!("{number}.{segment}"),
        };
        let Some(mut file) = present(File::open(place.join(name)))? else {
            break;
        };
        loop {
            let found = fill(&mut file, &mut pages)?;
            let whole = pages[..found].chunks_exact(page_bytes);
            let found_tuples = whole.flat_map(tuples);
            found_tuples
                .filter_map(|tuple| form.layout.class(tuple.columns))
                .for_each(&mut *each);
            if found < pages.len() {
                break;
            }
        }
    }
    Ok(())
}

fn fill(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    super::gone_is_none(result)
}

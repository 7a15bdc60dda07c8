//! Reads catalogs from the files of a data directory, whose server may be running.
//!
//! Invariants
//! - No content breaks it. Bytes that are no page have no rows.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use super::catalog::Layout;
use super::heap::{Tuple, tuples};
use super::map::{FileMap, MAP_BYTES_MAX};
use crate::control::Control;

/// A live server writes the map in place, so a read may find half of a change.
const READS_MAX: u32 = 10;
const PAGES_AT_ONCE: usize = 32;

/// What a reader of a cluster's catalogs must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatalogForm {
    pub(crate) layout: Layout,
    pub(crate) page_bytes: u32,
    pub(crate) segment_pages: u32,
}

impl CatalogForm {
    /// For a server of this major version, with the sizes of its build.
    pub(crate) fn of(major: u32, control: &Control) -> Self {
        Self {
            layout: Layout::new(major, control.name_bytes as usize),
            page_bytes: control.block_bytes,
            segment_pages: control.relation_segment_blocks,
        }
    }
}

/// The map in a database's directory; `None` if it is gone, or never makes sense.
pub(crate) fn read_map(place: &Path) -> io::Result<Option<FileMap>> {
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

/// Passes each tuple of the relation with this file number in `place` to `each`.
pub(crate) fn read_tuples(
    place: &Path,
    number: u32,
    form: &CatalogForm,
    each: &mut dyn FnMut(Tuple<'_>),
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
            whole.flat_map(tuples).for_each(&mut *each);
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
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

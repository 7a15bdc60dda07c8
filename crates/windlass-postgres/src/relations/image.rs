//! The catalogs of an image: its files by path, and what is in them.
//!
//! Invariants
//! - No content breaks it. Bytes that are no page have no rows.

use std::collections::HashMap;
use std::time::Duration;

use windlass_media::FileEntry;

use super::files::CatalogForm;
use super::heap::{Tuple, tuples};
use super::map::{FileMap, MAP_BYTES_MAX, MAP_NAME};
use super::table::NameFault;
use crate::cluster_files::ClusterFiles;
use crate::control::{CONTROL_BYTES, CONTROL_PATH, Control};

/// How many pages of a catalog are read at a time.
const PAGES_AT_ONCE: usize = 32;
/// A live server writes the map and pg_control in place. If the content makes no sense, it is read
/// again, up to this many times.
const READS_MAX: u32 = 10;
const READ_PAUSE: Duration = Duration::from_millis(10);
/// Longest name that a build may allow; 64 unless somebody changed it.
const NAME_BYTES_MAX: u32 = 1024;
const VERSION_PATH: &str = "PG_VERSION";

/// An image's files, by path.
pub(crate) struct ClusterImage<'a> {
    files: &'a dyn ClusterFiles,
    by_path: HashMap<&'a [u8], &'a FileEntry>,
}

impl<'a> ClusterImage<'a> {
    pub(crate) fn new(files: &'a dyn ClusterFiles) -> Self {
        let entries = files.files().0.iter();
        let by_path = entries
            .map(|entry| (entry.path.as_slice(), entry))
            .collect();
        Self { files, by_path }
    }

    pub(super) fn find(&self, path: &[u8]) -> Option<&'a FileEntry> {
        self.by_path.get(path).copied()
    }

    /// Reads a part of a file; `None` if it cannot be read.
    pub(super) fn read(&self, entry: &FileEntry, offset: u64, into: &mut [u8]) -> Option<usize> {
        self.files.read(entry.file, offset, into).ok()
    }

    /// The content of a small file.
    fn content(&self, path: &str, bytes_max: usize) -> Result<Vec<u8>, NameFault> {
        let fault = |what: String| NameFault {
            path: path.to_owned(),
            what,
        };
        let entry = self
            .find(path.as_bytes())
            .ok_or_else(|| fault("is not there".into()))?;
        let mut bytes = vec![0; bytes_max];
        let read = self.files.read(entry.file, 0, &mut bytes);
        bytes.truncate(read.map_err(|error| fault(error.to_string()))?);
        Ok(bytes)
    }

    /// Reads and parses a small file. Reads it again while it makes no sense.
    fn parsed<T>(
        &self,
        path: &str,
        bytes_max: usize,
        parse: impl Fn(Vec<u8>) -> Result<T, &'static str>,
    ) -> Result<T, NameFault> {
        let mut what = "is empty";
        for attempt in 0..READS_MAX {
            if attempt > 0 {
                std::thread::sleep(READ_PAUSE);
            }
            match parse(self.content(path, bytes_max)?) {
                Ok(parsed) => return Ok(parsed),
                Err(fault) => what = fault,
            }
        }
        Err(NameFault {
            path: path.to_owned(),
            what: what.to_owned(),
        })
    }

    pub(crate) fn control(&self) -> Result<Control, NameFault> {
        let parse = |bytes| {
            let control = Control::parse(bytes)?;
            match control.name_bytes {
                1..=NAME_BYTES_MAX => Ok(control),
                _ => Err("states a length of names that PostgreSQL cannot have"),
            }
        };
        self.parsed(CONTROL_PATH, CONTROL_BYTES, parse)
    }

    pub(crate) fn major(&self) -> Result<u32, NameFault> {
        let parse = |bytes: Vec<u8>| {
            let text = std::str::from_utf8(&bytes).map_err(|_| "is no text")?;
            text.trim().parse().map_err(|_| "is no version")
        };
        self.parsed(VERSION_PATH, 16, parse)
    }

    pub(crate) fn map(&self, directory: &str) -> Result<FileMap, NameFault> {
        let path = format!("{directory}/{}", String::from_utf8_lossy(MAP_NAME));
        self.parsed(&path, MAP_BYTES_MAX, |bytes| FileMap::parse(&bytes))
    }

    /// The directories that hold a database's catalogs: those with a map, except `global`.
    pub(super) fn database_directories(&self) -> Vec<String> {
        let directory = |path: &&[u8]| {
            let directory = path.strip_suffix(MAP_NAME)?.strip_suffix(b"/")?;
            let text = std::str::from_utf8(directory).ok()?;
            (text != "global").then(|| text.to_owned())
        };
        let mut found: Vec<_> = self.by_path.keys().filter_map(directory).collect();
        found.sort();
        found
    }

    /// Passes each tuple of the relation with this file number in a directory to `each`.
    pub(crate) fn tuples(
        &self,
        directory: &str,
        number: u32,
        form: &CatalogForm,
        each: &mut dyn FnMut(Tuple<'_>),
    ) -> Result<(), NameFault> {
        let page_bytes = form.page_bytes as usize;
        for segment in 0_u32.. {
            let path = match segment {
                0 => format!("{directory}/{number}"),
                _ => format!("{directory}/{number}.{segment}"),
            };
            let entry = match self.find(path.as_bytes()) {
                Some(entry) => entry,
                None if segment > 0 => break,
                None => {
                    let what = "is not there".to_owned();
                    return Err(NameFault { path, what });
                }
            };
            self.segment(entry, page_bytes, each)
                .map_err(|what| NameFault { path, what })?;
            if entry.bytes < u64::from(form.segment_pages) * page_bytes as u64 {
                break;
            }
        }
        Ok(())
    }

    fn segment(
        &self,
        entry: &FileEntry,
        page_bytes: usize,
        each: &mut dyn FnMut(Tuple<'_>),
    ) -> Result<(), String> {
        let mut pages = vec![0; page_bytes * PAGES_AT_ONCE];
        let mut offset = 0;
        while offset < entry.bytes {
            let read = self.files.read(entry.file, offset, &mut pages);
            let found = read.map_err(|error| error.to_string())?;
            if found == 0 {
                break;
            }
            let whole = pages[..found].chunks_exact(page_bytes);
            whole.flat_map(tuples).for_each(&mut *each);
            offset += found as u64;
        }
        Ok(())
    }
}

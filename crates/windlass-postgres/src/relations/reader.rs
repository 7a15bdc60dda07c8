//! Reads the catalogs of every database of an image, from the maps to the names.

use std::collections::HashMap;
use std::time::Duration;

use windlass_media::FileEntry;

use super::catalog::{self, ClassRow, Layout, SPACE_DEFAULT, SPACE_GLOBAL};
use super::heap::tuples;
use super::map::{FileMap, MAP_BYTES_MAX, MAP_NAME};
use super::relation::{Certainty, Relation, RelationKind};
use super::status::Transactions;
use super::table::{NameFault, RelationNames};
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

impl RelationNames {
    /// Reads the catalogs of an image. What cannot be read goes to the faults.
    pub fn read(files: &dyn ClusterFiles) -> Self {
        let mut names = Self::default();
        if let Err(fault) = read(files, &mut names) {
            names.faults.push(fault);
        }
        names.settle();
        names
    }
}

/// Reads all names. A fault of one database is recorded in `names`; a returned fault concerns all.
fn read(files: &dyn ClusterFiles, names: &mut RelationNames) -> Result<(), NameFault> {
    let image = ClusterImage::new(files);
    let control = image.control()?;
    let major = image.major()?;
    names.block_bytes = control.block_bytes;
    names.segment_blocks = control.relation_segment_blocks;
    let layout = Layout::new(major, control.name_bytes as usize);
    let page = |path: &str, offset: u64, length: usize| {
        let mut page = vec![0; length];
        let entry = image.find(path.as_bytes())?;
        let found = files.read(entry.file, offset, &mut page).ok()?;
        page.truncate(found);
        Some(page)
    };
    let mut catalogs = Catalogs {
        image: &image,
        layout,
        page_bytes: control.block_bytes as usize,
        segment_pages: control.relation_segment_blocks,
        transactions: Transactions::new(control.block_bytes, &page),
        version_directory: format!("PG_{major}_{}", control.catalog_version),
        shared: image.map("global")?,
    };
    let databases = match catalogs.databases() {
        Ok(databases) => databases,
        Err(fault) => {
            names.faults.push(fault);
            HashMap::new()
        }
    };
    for directory in image.database_directories() {
        let oid = directory.rsplit('/').next().unwrap_or_default();
        let known = oid.parse().ok().and_then(|oid: u32| databases.get(&oid));
        let database = known.cloned().unwrap_or_else(|| oid.to_owned());
        if let Err(fault) = catalogs.database(&directory, &database, names) {
            names.faults.push(fault);
        }
    }
    Ok(())
}

/// An image's files, by path.
struct ClusterImage<'a> {
    files: &'a dyn ClusterFiles,
    by_path: HashMap<&'a [u8], &'a FileEntry>,
}

impl<'a> ClusterImage<'a> {
    fn new(files: &'a dyn ClusterFiles) -> Self {
        let entries = files.files().0.iter();
        let by_path = entries
            .map(|entry| (entry.path.as_slice(), entry))
            .collect();
        Self { files, by_path }
    }

    fn find(&self, path: &[u8]) -> Option<&'a FileEntry> {
        self.by_path.get(path).copied()
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

    fn control(&self) -> Result<Control, NameFault> {
        let parse = |bytes| {
            let control = Control::parse(bytes)?;
            match control.name_bytes {
                1..=NAME_BYTES_MAX => Ok(control),
                _ => Err("states a length of names that PostgreSQL cannot have"),
            }
        };
        self.parsed(CONTROL_PATH, CONTROL_BYTES, parse)
    }

    fn major(&self) -> Result<u32, NameFault> {
        let parse = |bytes: Vec<u8>| {
            let text = std::str::from_utf8(&bytes).map_err(|_| "is no text")?;
            text.trim().parse().map_err(|_| "is no version")
        };
        self.parsed(VERSION_PATH, 16, parse)
    }

    fn map(&self, directory: &str) -> Result<FileMap, NameFault> {
        let path = format!("{directory}/{}", String::from_utf8_lossy(MAP_NAME));
        self.parsed(&path, MAP_BYTES_MAX, |bytes| FileMap::parse(&bytes))
    }

    /// The directories that hold a database's catalogs: those with a map, except `global`.
    fn database_directories(&self) -> Vec<String> {
        let directory = |path: &&[u8]| {
            let directory = path.strip_suffix(MAP_NAME)?.strip_suffix(b"/")?;
            let text = std::str::from_utf8(directory).ok()?;
            (text != "global").then(|| text.to_owned())
        };
        let mut found: Vec<_> = self.by_path.keys().filter_map(directory).collect();
        found.sort();
        found
    }
}

/// The catalogs of a cluster.
struct Catalogs<'a> {
    image: &'a ClusterImage<'a>,
    layout: Layout,
    page_bytes: usize,
    segment_pages: u32,
    transactions: Transactions<'a>,
    version_directory: String,
    shared: FileMap,
}

/// Rows by oid; for each oid the surest row.
type Surest<T> = HashMap<u32, (Certainty, T)>;

fn keep<T>(rows: &mut Surest<T>, oid: u32, certainty: Certainty, row: T) {
    match rows.get(&oid) {
        Some((known, _)) if *known > certainty => {}
        _ => drop(rows.insert(oid, (certainty, row))),
    }
}

impl Catalogs<'_> {
    /// Database names by oid.
    fn databases(&mut self) -> Result<HashMap<u32, String>, NameFault> {
        let number = self
            .shared
            .get(catalog::DATABASE)
            .ok_or_else(|| NameFault {
                path: "global/pg_filenode.map".to_owned(),
                what: "does not say where pg_database is".to_owned(),
            })?;
        let (layout, mut rows) = (self.layout, Surest::new());
        self.rows("global", number, &mut |certainty, columns| {
            if let Some((oid, name)) = layout.named(columns) {
                keep(&mut rows, oid, certainty, name);
            }
        })?;
        Ok(rows
            .into_iter()
            .map(|(oid, (_, name))| (oid, name))
            .collect())
    }

    /// The relations of the database in `directory`.
    fn database(
        &mut self,
        directory: &str,
        database: &str,
        names: &mut RelationNames,
    ) -> Result<(), NameFault> {
        let map = self.image.map(directory)?;
        let classes = self.classes(directory, &map)?;
        let mut schemas = Surest::new();
        let mut serves: Surest<u32> = Surest::new();
        let layout = self.layout;
        let number = |oid| number_of(&classes, &map, oid);
        if let Some(number) = number(catalog::NAMESPACE) {
            self.rows(directory, number, &mut |certainty, columns| {
                if let Some((oid, name)) = layout.named(columns) {
                    keep(&mut schemas, oid, certainty, name);
                }
            })?;
        }
        if let Some(number) = number(catalog::INDEX) {
            self.rows(directory, number, &mut |certainty, columns| {
                if let Some((index, table)) = layout.index(columns) {
                    keep(&mut serves, index, certainty, table);
                }
            })?;
        }
        for (certainty, row) in classes.iter().filter(|(_, row)| row.toast != 0) {
            keep(&mut serves, row.toast, *certainty, row.oid);
        }
        let place = Place {
            directory,
            database,
            map: &map,
        };
        for (certainty, row) in classes {
            let serves = serves.get(&row.oid).map(|(_, served)| *served);
            let schema = schemas.get(&row.namespace).map(|(_, name)| name.clone());
            self.name(&place, certainty, row, schema, serves, names);
        }
        Ok(())
    }

    fn classes(
        &mut self,
        directory: &str,
        map: &FileMap,
    ) -> Result<Vec<(Certainty, ClassRow)>, NameFault> {
        let number = map.get(catalog::CLASS).ok_or_else(|| NameFault {
            path: format!("{directory}/pg_filenode.map"),
            what: "does not say where pg_class is".to_owned(),
        })?;
        let (layout, mut classes) = (self.layout, Vec::new());
        self.rows(directory, number, &mut |certainty, columns| {
            classes.extend(layout.class(columns).map(|row| (certainty, row)));
        })?;
        Ok(classes)
    }

    /// Records a relation under the directory that holds its files.
    fn name(
        &self,
        place: &Place<'_>,
        certainty: Certainty,
        row: ClassRow,
        schema: Option<String>,
        serves: Option<u32>,
        names: &mut RelationNames,
    ) {
        let shared = row.tablespace == SPACE_GLOBAL;
        let map = if shared { &self.shared } else { place.map };
        let file_number = match row.file_number {
            0 => map.get(row.oid),
            number => Some(number),
        };
        let Some(file_number) = file_number.filter(|_| row.kind != RelationKind::WithoutFiles)
        else {
            return;
        };
        let directory = self.directory(place, row.tablespace);
        // If a row was replaced while the image was taken, it may be the only one of its relation.
        // If a relation was dropped, it has no file, or an empty one that the next checkpoint
        // removes.
        let main = self
            .image
            .find(format!("{directory}/{file_number}").as_bytes());
        if certainty == Certainty::Dead && main.is_none_or(|entry| entry.bytes == 0) {
            return;
        }
        let database = if shared { "" } else { place.database };
        names_add(
            names,
            &directory,
            Relation {
                database: database.to_owned(),
                schema: schema.unwrap_or_else(|| row.namespace.to_string()),
                name: row.name,
                oid: row.oid,
                kind: row.kind,
                file_number,
                serves,
                current: false,
                directory: 0,
                certainty,
            },
        );
    }

    /// The directory of a database's files in a tablespace.
    fn directory(&self, place: &Place<'_>, tablespace: u32) -> String {
        let oid = place.directory.rsplit('/').next().unwrap_or_default();
        match tablespace {
            0 => place.directory.to_owned(),
            SPACE_GLOBAL => "global".to_owned(),
            SPACE_DEFAULT => format!("base/{oid}"),
            other => format!("pg_tblspc/{other}/{}/{oid}", self.version_directory),
        }
    }

    /// Passes each row of a catalog that was ever inserted to `each`.
    fn rows(
        &mut self,
        directory: &str,
        number: u32,
        each: &mut dyn FnMut(Certainty, &[u8]),
    ) -> Result<(), NameFault> {
        for segment in 0_u32.. {
            let path = match segment {
                0 => format!("{directory}/{number}"),
                _ => format!("{directory}/{number}.{segment}"),
            };
            let entry = match self.image.find(path.as_bytes()) {
                Some(entry) => entry,
                None if segment > 0 => break,
                None => {
                    let what = "is not there".to_owned();
                    return Err(NameFault { path, what });
                }
            };
            self.segment(entry, each)
                .map_err(|what| NameFault { path, what })?;
            if entry.bytes < u64::from(self.segment_pages) * self.page_bytes as u64 {
                break;
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        entry: &FileEntry,
        each: &mut dyn FnMut(Certainty, &[u8]),
    ) -> Result<(), String> {
        let mut pages = vec![0; self.page_bytes * PAGES_AT_ONCE];
        let mut offset = 0;
        while offset < entry.bytes {
            let read = self.image.files.read(entry.file, offset, &mut pages);
            let found = read.map_err(|error| error.to_string())?;
            if found == 0 {
                break;
            }
            for page in pages[..found].chunks_exact(self.page_bytes) {
                for tuple in tuples(page) {
                    if let Some(certainty) = self.transactions.judge(&tuple) {
                        each(certainty, tuple.columns);
                    }
                }
            }
            offset += found as u64;
        }
        Ok(())
    }
}

/// A database: where its catalogs are, and its name.
struct Place<'a> {
    directory: &'a str,
    database: &'a str,
    map: &'a FileMap,
}

/// The file number of a catalog of this database.
fn number_of(classes: &[(Certainty, ClassRow)], map: &FileMap, oid: u32) -> Option<u32> {
    let rows = classes.iter().filter(|(_, row)| row.oid == oid);
    let surest = rows.max_by_key(|(certainty, _)| *certainty)?;
    match surest.1.file_number {
        0 => map.get(oid),
        number => Some(number),
    }
}

fn names_add(names: &mut RelationNames, directory: &str, relation: Relation) {
    let directory = names.directory(directory.as_bytes());
    names.add(Relation {
        directory,
        ..relation
    });
}

//! How the pages of relations are laid out, from the catalogs of a data directory.
//!
//!   pg_filenode.map -> pg_class ------> file number, kind of pages
//!                      pg_attribute --> columns
//!
//! The files are those of a data directory, or of an image of one. The server may be running, so
//! catalogs and pages are of several moments. A layout decides how short a page is stored, never
//! what comes back. So a row that is not valid any more costs room only, and nothing here is an
//! error.
//!
//! Invariants
//! - Memory grows with the number of relations and columns that have many pages, not with the
//!   database.
//! - The catalogs of a database are read only if it has relations that are larger than catalogs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::PageClass;
use windlass_media::PageLayout;
use windlass_media::windlass_pages::{Column, Layout, PageSize};

use crate::cluster_files::ClusterFiles;
use crate::listing::Listing;
use crate::names::{Fork, RelationFile, is_relation_directory};
use crate::relations::RelationKind;
use crate::relations::catalog::{
    ATTRIBUTE, AttributeRow, CLASS, ClassRow, SPACE_DEFAULT, SPACE_GLOBAL,
};
use crate::relations::files::{CatalogForm, read_map, read_tuples};
use crate::relations::heap::Tuple;
use crate::relations::image::ClusterImage;
use crate::relations::map::{FileMap, MAP_NAME};

/// A relation with less than this shares frames with others, and stays as it is.
const RELATION_BYTES_MIN: u64 = 64 * 1024;
/// The catalogs of a database are read if its own relations have at least this much.
const DATABASE_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Relations of users have file numbers from this one on.
const FIRST_OF_USERS: u32 = 16_384;
/// Access methods, by their oids: the same in every version.
const HEAP: u32 = 2;
const BTREE: u32 = 403;
/// The hint bits that say: the row was never valid, nobody has ended it.
const INSERT_FAILED: u16 = 0x0200;
const NEVER_ENDED: u16 = 0x0800;
/// Both bits say that the row is frozen, not that its insertion failed.
const FROZEN: u16 = 0x0300;

/// The classes of pages, by the directory and the file number of their relation.
#[derive(Debug, Default)]
pub struct PageLayouts(HashMap<(Vec<u8>, u32), Arc<PageClass>>);

/// How long relations are, by their directory and file number.
type Sizes<'a> = HashMap<&'a [u8], BTreeMap<u32, u64>>;

/// Files, with their paths below the data directory and their lengths.
trait Files<'a>: Iterator<Item = (&'a [u8], u64)> + Clone {}
impl<'a, I: Iterator<Item = (&'a [u8], u64)> + Clone> Files<'a> for I {}

/// Where catalogs are read.
pub(crate) enum Place<'a> {
    /// A data directory.
    Directory(&'a Path),
    Image(&'a ClusterImage<'a>),
}

impl Place<'_> {
    /// The map in a directory; `None` if it is not there, or makes no sense.
    fn map(&self, home: &[u8]) -> Option<FileMap> {
        match self {
            Self::Directory(root) => read_map(&root.join(OsStr::from_bytes(home))).ok()?,
            Self::Image(image) => image.map(std::str::from_utf8(home).ok()?).ok(),
        }
    }

    /// Passes each tuple of a relation to `each`. `None` if it cannot be read.
    fn tuples(
        &self,
        home: &[u8],
        number: u32,
        form: &CatalogForm,
        each: &mut dyn FnMut(Tuple<'_>),
    ) -> Option<()> {
        match self {
            Self::Directory(root) => {
                read_tuples(&root.join(OsStr::from_bytes(home)), number, form, each).ok()
            }
            Self::Image(image) => {
                let home = std::str::from_utf8(home).ok()?;
                image.tuples(home, number, form, each).ok()
            }
        }
    }
}

/// Where the catalogs are, and how to read them.
pub(crate) struct Catalogs<'a> {
    pub(crate) place: Place<'a>,
    /// Name of this cluster's directory in a tablespace.
    pub(crate) version_directory: &'a [u8],
    pub(crate) form: &'a CatalogForm,
}

/// A relation whose pages can be taken apart.
#[derive(Clone, Debug)]
pub struct PageRelation {
    /// Its name in pg_class, without the schema.
    pub name: String,
    /// The path of its first file, below the data directory.
    pub path: String,
    /// Its length, in bytes.
    pub bytes: u64,
    /// How its pages are laid out.
    pub layout: PageLayout,
}

impl PageLayouts {
    /// Reads the catalogs of all databases that have large relations in `listing`.
    pub(crate) fn read(catalogs: &Catalogs<'_>, listing: &Listing) -> Self {
        Self::of_relations(relations(catalogs, files_of(listing)))
    }

    /// Reads the catalogs of an image. One that cannot be read has no layouts.
    pub fn of_image(files: &dyn ClusterFiles) -> Self {
        let image = ClusterImage::new(files);
        let (Ok(control), Ok(major)) = (image.control(), image.major()) else {
            return Self::default();
        };
        let version_directory = control.version_directory(major);
        let catalogs = Catalogs {
            place: Place::Image(&image),
            version_directory: version_directory.as_bytes(),
            form: &CatalogForm::of(major, &control),
        };
        let entries = files.files().0.iter();
        let listed = entries.map(|entry| (entry.path.as_slice(), entry.bytes));
        Self::of_relations(relations(&catalogs, listed))
    }

    fn of_relations(relations: Vec<(Relation, PageLayout)>) -> Self {
        let class = |(relation, layout): (Relation, PageLayout)| {
            let key = (relation.directory, relation.file_number);
            (key, Arc::new(PageClass::new(layout)))
        };
        Self(relations.into_iter().map(class).collect())
    }

    /// The class of the pages of a file, by its path below the data directory; `None` if it is not
    /// known how they are laid out.
    pub fn class(&self, path: &[u8]) -> Option<&Arc<PageClass>> {
        let (directory, number) = main_file(path)?;
        self.0.get(&(directory.to_vec(), number))
    }
}

/// The large relations in `listing`, the largest first.
pub(crate) fn page_relations(catalogs: &Catalogs<'_>, listing: &Listing) -> Vec<PageRelation> {
    let found = relations(catalogs, files_of(listing)).into_iter();
    let found = found.map(|(relation, layout)| PageRelation {
        path: relation.path(),
        name: relation.name,
        bytes: relation.bytes,
        layout,
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by(|one, other| (other.bytes, &one.path).cmp(&(one.bytes, &other.path)));
    found
}

fn files_of(listing: &Listing) -> impl Files<'_> {
    let entries = listing.entries().iter();
    entries.map(|entry| (listing.path(entry), entry.bytes))
}

fn relations<'a>(catalogs: &Catalogs<'_>, files: impl Files<'a>) -> Vec<(Relation, PageLayout)> {
    let mut found = Vec::new();
    if let Some(page_size) = PageSize::new(catalogs.form.page_bytes) {
        let sizes = sizes(files.clone());
        for (path, _) in files {
            let home = path.strip_suffix(MAP_NAME);
            let Some(home) = home.and_then(|home| home.strip_suffix(b"/")) else {
                continue;
            };
            if own_bytes(&sizes, last_name(home)) < DATABASE_BYTES_MIN {
                continue;
            }
            let database = Database {
                catalogs,
                home,
                sizes: &sizes,
            };
            // Relations whose catalogs cannot be read now have no layout.
            let relations = database.relations().into_iter().flatten();
            found.extend(relations.map(|relation| {
                let layout = relation.layout(page_size);
                (relation, layout)
            }));
        }
    }
    found
}

/// A relation with many pages, and its columns by their numbers.
struct Relation {
    name: String,
    directory: Vec<u8>,
    file_number: u32,
    bytes: u64,
    access_method: u32,
    attributes: BTreeMap<i16, AttributeRow>,
}

impl Relation {
    fn path(&self) -> String {
        let directory = String::from_utf8_lossy(&self.directory);
        format!("{directory}/{}", self.file_number)
    }

    fn layout(&self, page_size: PageSize) -> PageLayout {
        let columns = self.columns();
        PageLayout::new(match self.access_method {
            BTREE => Layout::PostgresBtree { page_size, columns },
            _ => Layout::PostgresHeap { page_size, columns },
        })
    }

    /// Its columns in order; none if a row is missing or makes no sense.
    fn columns(&self) -> Vec<Column> {
        let numbers = self.attributes.keys().zip(1_i16..);
        let columns = self.attributes.values().map(|row| {
            let column = Column::postgres(row.length, row.align, row.of_type);
            column.filter(|_| row.number > 0)
        });
        let columns: Option<Vec<_>> = columns.collect();
        let in_order = numbers.clone().all(|(found, expected)| *found == expected);
        columns.filter(|_| in_order).unwrap_or_default()
    }
}

/// A database whose catalogs are read.
struct Database<'a> {
    catalogs: &'a Catalogs<'a>,
    /// The directory of its catalogs.
    home: &'a [u8],
    sizes: &'a Sizes<'a>,
}

impl Database<'_> {
    fn relations(&self) -> Option<Vec<Relation>> {
        let (form, place, home) = (self.catalogs.form, &self.catalogs.place, self.home);
        let map = place.map(home)?;
        let mut relations: HashMap<u32, Relation> = HashMap::new();
        place.tuples(home, map.get(CLASS)?, form, &mut |tuple| {
            let row = form.layout.class(tuple.columns).filter(|_| is_live(&tuple));
            let relation = row.and_then(|row| Some((row.oid, self.relation(&row, &map)?)));
            relations.extend(relation);
        })?;
        place.tuples(home, map.get(ATTRIBUTE)?, form, &mut |tuple| {
            let Some(row) = form.layout.attribute(tuple.columns) else {
                return;
            };
            let relation = relations.get_mut(&row.relation);
            if let Some(relation) = relation.filter(|_| row.number > 0 && is_live(&tuple)) {
                relation.attributes.insert(row.number, row);
            }
        })?;
        Some(relations.into_values().collect())
    }

    /// The relation of a row, if it has pages of a known kind, and many of them.
    fn relation(&self, row: &ClassRow, map: &FileMap) -> Option<Relation> {
        let known = match row.access_method {
            HEAP => matches!(
                row.kind,
                RelationKind::Table | RelationKind::MaterializedView
            ),
            BTREE => row.kind == RelationKind::Index,
            _ => false,
        };
        let directory = self.directory(row.tablespace).filter(|_| known)?;
        let file_number = match row.file_number {
            0 => map.get(row.oid)?,
            number => number,
        };
        let bytes = *self.sizes.get(directory.as_slice())?.get(&file_number)?;
        (bytes >= RELATION_BYTES_MIN).then(|| Relation {
            name: row.name.clone(),
            directory,
            file_number,
            bytes,
            access_method: row.access_method,
            attributes: BTreeMap::new(),
        })
    }

    /// The directory of its relations in a tablespace.
    fn directory(&self, tablespace: u32) -> Option<Vec<u8>> {
        let oid = last_name(self.home);
        match tablespace {
            0 => Some(self.home.to_vec()),
            SPACE_DEFAULT => Some([b"base/", oid].concat()),
            SPACE_GLOBAL => None,
            other => {
                let space = format!("pg_tblspc/{other}/").into_bytes();
                Some([&space, self.catalogs.version_directory, b"/", oid].concat())
            }
        }
    }
}

/// Whether a row is probably valid. Only a server could say that for sure.
fn is_live(tuple: &Tuple<'_>) -> bool {
    let failed = tuple.flags & FROZEN == INSERT_FAILED;
    let ended = tuple.ended_by != 0 && tuple.flags & NEVER_ENDED == 0;
    !failed && !ended
}

/// The lengths of the main forks of all relations.
fn sizes<'a>(files: impl Files<'a>) -> Sizes<'a> {
    let mut sizes = Sizes::new();
    for (path, bytes) in files {
        if let Some((directory, number)) = main_file(path) {
            let relations = sizes.entry(directory).or_default();
            *relations.entry(number).or_default() += bytes;
        }
    }
    sizes
}

/// How much the relations of users have in a database, in all tablespaces.
fn own_bytes(sizes: &Sizes<'_>, database: &[u8]) -> u64 {
    let own = sizes
        .iter()
        .filter(|(directory, _)| last_name(directory) == database);
    own.flat_map(|(_, relations)| relations.range(FIRST_OF_USERS..))
        .map(|(_, bytes)| bytes)
        .sum()
}

/// Directory and file number, if a path is that of a relation's main fork.
fn main_file(path: &[u8]) -> Option<(&[u8], u32)> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let file = RelationFile::parse(&path[slash + 1..])?;
    let is_main = file.fork == Fork::Main && !file.temporary;
    let directory = &path[..slash];
    (is_main && is_relation_directory(directory)).then_some((directory, file.number))
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;

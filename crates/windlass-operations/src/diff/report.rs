//! The differences, grouped by relation.
//!
//! A relation is known by its database and oid. So a relation that was renamed, or rewritten into
//! another file, is one relation in both images. A relation that was dropped and created again
//! counts as two.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use windlass_engine::media::{FileEntry, FileKind};
use windlass_image::{Differences, FileDifference, Image};
use windlass_postgres::{Fork, NamedFile, Relation, RelationKind, RelationNames};

/// One of the two images.
pub(super) struct Side<'a> {
    /// The image.
    pub image: &'a dyn Image,
    /// The names of its relations.
    pub names: &'a RelationNames,
    /// Whether it is a set.
    pub is_set: bool,
}

/// All differences.
#[derive(Debug, Default)]
pub struct DiffReport {
    /// The bytes of a page.
    pub page_bytes: u32,
    /// Relations that differ.
    pub relations: Vec<RelationDiff>,
    /// Other files that differ.
    pub files: Vec<FileDiff>,
    /// Databases that only one image has, by name. All of their relations are in the list above,
    /// too.
    pub databases: BTreeMap<String, DatabaseDiff>,
    /// Files that were compared, in either image.
    pub file_count: usize,
    /// Bytes that were taken for the same by their checksums.
    pub bytes_believed: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Catalogs that could not be read.
    pub faults: Vec<String>,
}

/// Pages that differ.
#[derive(Debug, Default)]
pub struct Pages {
    /// How many.
    pub changed: u64,
    /// Ranges of page numbers; the end is not included.
    pub ranges: Vec<Range<u64>>,
}

/// A relation that differs.
#[derive(Debug)]
pub struct RelationDiff {
    /// Its name, as a relation to extract is named.
    pub name: String,
    /// Its database.
    pub database: String,
    /// What kind of relation.
    pub kind: RelationKind,
    /// The table that it belongs to.
    pub serves: Option<String>,
    /// Its name in the second image, if it differs.
    pub renamed: Option<String>,
    /// Pages of the main fork, in the image that has more pages.
    pub pages: u64,
    /// Pages of each fork that differ.
    pub forks: BTreeMap<Fork, Pages>,
    /// Files that only one image has, with their lengths.
    pub only: [Vec<(String, u64)>; 2],
    /// Whether it changed while it was read.
    pub unsteady: bool,
}

/// A database that only one image has.
#[derive(Debug)]
pub struct DatabaseDiff {
    /// Which image has it; 0 is the first.
    pub side: usize,
    /// How many relations it has.
    pub relations: u64,
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A differing file that belongs to no relation.
#[derive(Debug)]
pub struct FileDiff {
    /// Its path.
    pub path: String,
    /// What it is in each image, and its length; `None` if the image does not have it.
    pub there: [Option<(FileKind, u64)>; 2],
    /// Pages that differ.
    pub pages: Pages,
    /// Whether it changed while it was read.
    pub unsteady: bool,
}

type Key = (String, u32);

struct Builder<'a> {
    sides: &'a [Side<'a>; 2],
    page_bytes: u64,
    first_page: u64,
    /// Bytes of the main forks of all relations, in each image.
    main_bytes: HashMap<Key, [u64; 2]>,
    relations: BTreeMap<Key, RelationDiff>,
    files: Vec<FileDiff>,
}

impl DiffReport {
    /// Groups the differences. `layout` is the bytes of a page and the number of the first page.
    pub(super) fn new(
        differences: &Differences,
        sides: &[Side<'_>; 2],
        (page_bytes, first_page): (u32, u64),
        skip: fn(&[u8]) -> bool,
    ) -> Self {
        let mut builder = Builder {
            sides,
            page_bytes: u64::from(page_bytes.max(1)),
            first_page,
            main_bytes: main_bytes(sides),
            relations: BTreeMap::new(),
            files: Vec::new(),
        };
        let unlogged = [0, 1].map(|index| unlogged(sides, index));
        let only = [&differences.only_first, &differences.only_second];
        for (index, paths) in only.into_iter().enumerate() {
            let entries = entries(sides[index].image, paths);
            for entry in entries.filter(|entry| !is_unlogged(&unlogged[index], &entry.path)) {
                builder.only(index, entry);
            }
        }
        for difference in &differences.differing {
            builder.differing(difference);
        }
        let mut relations: Vec<_> = builder.relations.into_values().collect();
        relations.sort_by(|a, b| (&a.database, &a.name).cmp(&(&b.database, &b.name)));
        let databases = whole_databases(&relations, &builder.main_bytes);
        builder.files.sort_by(|a, b| a.path.cmp(&b.path));
        let faults = sides.iter().flat_map(|side| side.names.faults());
        Self {
            page_bytes,
            relations,
            files: builder.files,
            databases,
            file_count: file_count(sides, skip),
            bytes_believed: differences.bytes_believed,
            bytes_read: differences.bytes_read,
            faults: faults
                .map(|fault| format!("{}: {}", fault.path, fault.what))
                .collect(),
        }
    }

    /// True when nothing differs.
    pub fn is_same(&self) -> bool {
        self.relations.is_empty() && self.files.is_empty()
    }
}

impl RelationDiff {
    /// The image that has it, if only one does.
    pub fn side(&self) -> Option<usize> {
        let [first, second] = &self.only;
        let is_alone = self.forks.is_empty() && first.is_empty() != second.is_empty();
        is_alone.then_some(usize::from(first.is_empty()))
    }
}

impl<'a> Builder<'a> {
    fn named(&self, index: usize, path: &[u8]) -> Option<NamedFile<'a>> {
        self.sides[index].names.of_path(path)
    }

    /// Adds a file that only one image has.
    fn only(&mut self, index: usize, entry: &FileEntry) {
        match self.named(index, &entry.path) {
            Some(named) => {
                let file = (entry.path_lossy(), entry.bytes);
                self.relation(index, named.relation).only[index].push(file);
            }
            None => {
                let mut there = [None, None];
                there[index] = Some((entry.kind, entry.bytes));
                self.files.push(FileDiff {
                    path: entry.path_lossy(),
                    there,
                    pages: Pages::default(),
                    unsteady: false,
                });
            }
        }
    }

    /// Adds a file that both images have.
    fn differing(&mut self, difference: &FileDifference) {
        let path = &difference.path;
        let names = [self.named(0, path), self.named(1, path)];
        let Some((index, named)) = names.iter().enumerate().find_map(|(i, n)| Some((i, (*n)?)))
        else {
            let (kinds, bytes) = (difference.kinds, difference.bytes);
            self.files.push(FileDiff {
                path: String::from_utf8_lossy(path).into_owned(),
                there: [Some((kinds.0, bytes.0)), Some((kinds.1, bytes.1))],
                pages: self.pages(difference, 0),
                unsteady: difference.unsteady,
            });
            return;
        };
        let segment_pages = u64::from(self.sides[index].names.segment_blocks());
        let pages = self.pages(difference, u64::from(named.segment) * segment_pages);
        let other = names[1].map(|other| other.relation.to_string());
        let relation = self.relation(index, named.relation);
        relation.renamed = other.filter(|other| *other != relation.name);
        relation.unsteady |= difference.unsteady;
        let fork = relation.forks.entry(named.fork).or_default();
        fork.changed += pages.changed;
        fork.ranges.extend(pages.ranges);
    }

    /// The differing pages of a file. `first` is the number of its first page in the fork.
    fn pages(&self, difference: &FileDifference, first: u64) -> Pages {
        let base = first + self.first_page;
        let page = |range: &Range<u64>| {
            base + range.start / self.page_bytes..base + range.end.div_ceil(self.page_bytes)
        };
        Pages {
            changed: difference.differing_bytes.div_ceil(self.page_bytes),
            ranges: difference.ranges.iter().map(page).collect(),
        }
    }

    fn relation(&mut self, index: usize, relation: &Relation) -> &mut RelationDiff {
        let key = (relation.database.clone(), relation.oid);
        let bytes = self.main_bytes.get(&key).copied().unwrap_or_default();
        let pages = bytes[0].max(bytes[1]).div_ceil(self.page_bytes);
        let names = self.sides[index].names;
        self.relations.entry(key).or_insert_with(|| RelationDiff {
            name: relation.to_string(),
            database: relation.database.clone(),
            kind: relation.kind,
            serves: names.served(relation).map(Relation::name_in_database),
            renamed: None,
            pages,
            forks: BTreeMap::new(),
            only: [Vec::new(), Vec::new()],
            unsteady: false,
        })
    }
}

/// The databases whose relations are all in one image only. `relations` are in the order of their
/// databases; `all` are those of both images.
fn whole_databases(
    relations: &[RelationDiff],
    all: &HashMap<Key, [u64; 2]>,
) -> BTreeMap<String, DatabaseDiff> {
    let databases = relations.chunk_by(|a, b| a.database == b.database);
    let whole = databases.filter_map(|found| {
        let (name, side) = (&found[0].database, found[0].side()?);
        let is_alone = found.iter().all(|one| one.side() == Some(side));
        let of_all = || all.keys().filter(|(database, _)| database == name);
        if name.is_empty() || !is_alone || found.len() != of_all().count() {
            return None;
        }
        let files = found.iter().flat_map(|one| &one.only[side]);
        let database = DatabaseDiff {
            side,
            relations: found.len() as u64,
            files: files.clone().count() as u64,
            bytes: files.map(|(_, bytes)| bytes).sum(),
        };
        Some((name.clone(), database))
    });
    whole.collect()
}

fn main_bytes(sides: &[Side<'_>; 2]) -> HashMap<Key, [u64; 2]> {
    let mut bytes: HashMap<Key, [u64; 2]> = HashMap::new();
    for (index, side) in sides.iter().enumerate() {
        for entry in &side.image.files().0 {
            let named = side.names.of_path(&entry.path);
            if let Some(named) = named.filter(|named| named.fork == Fork::Main) {
                let key = (named.relation.database.clone(), named.relation.oid);
                bytes.entry(key).or_default()[index] += entry.bytes;
            }
        }
    }
    bytes
}

/// The entries of these paths without directories: a directory is only what it contains.
fn entries<'a>(image: &'a dyn Image, paths: &'a [Vec<u8>]) -> impl Iterator<Item = &'a FileEntry> {
    let wanted: HashSet<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    let entries = image.files().0.iter();
    entries.filter(move |entry| {
        entry.kind != FileKind::Directory && wanted.contains(entry.path.as_slice())
    })
}

/// The paths of the main forks of unlogged relations in a live directory that is compared with a
/// set. A set never has their content.
fn unlogged(sides: &[Side<'_>; 2], index: usize) -> HashSet<Vec<u8>> {
    if sides[index].is_set || !sides[1 - index].is_set {
        return HashSet::new();
    }
    let entries = sides[index].image.files().0.iter();
    let init = entries.filter_map(|entry| entry.path.strip_suffix(b"_init"));
    init.map(<[u8]>::to_vec).collect()
}

fn is_unlogged(main_forks: &HashSet<Vec<u8>>, path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let main = &path[..path.len() - name.len() + digits];
    !path.ends_with(b"_init") && main_forks.contains(main)
}

fn file_count(sides: &[Side<'_>; 2], skip: fn(&[u8]) -> bool) -> usize {
    let files = sides.iter().flat_map(|side| &side.image.files().0);
    let files = files.filter(|entry| entry.kind == FileKind::File && !skip(&entry.path));
    let paths: HashSet<&[u8]> = files.map(|entry| entry.path.as_slice()).collect();
    paths.len()
}

//! What differs, put together by relation.
//!
//! A relation is known by its database and oid, so one that was renamed, or that was written anew
//! into another file, is one relation in both images; one that was dropped and made again is two.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use windlass_engine::media::{FileEntry, FileKind};
use windlass_image::{Differences, FileDifference, Image};
use windlass_postgres::{Fork, NamedFile, Relation, RelationKind, RelationNames};

/// One of the two images.
pub(super) struct Side<'a> {
    pub(super) image: &'a dyn Image,
    pub(super) names: &'a RelationNames,
    pub(super) is_set: bool,
}

/// All that differs.
#[derive(Debug, Default)]
pub(super) struct DiffReport {
    pub(super) page_bytes: u32,
    pub(super) relations: Vec<RelationDiff>,
    pub(super) files: Vec<FileDiff>,
    /// Databases that one image alone has, by name: their relations are all among the above.
    pub(super) databases: BTreeMap<String, DatabaseDiff>,
    /// Files that were looked at, in either image.
    pub(super) file_count: usize,
    pub(super) bytes_believed: u64,
    pub(super) bytes_read: u64,
    /// Catalogs that could not be read.
    pub(super) faults: Vec<String>,
}

/// Pages that differ.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) changed: u64,
    /// Numbers of pages, the end not included.
    pub(super) ranges: Vec<Range<u64>>,
}

/// A relation that differs.
#[derive(Debug)]
pub(super) struct RelationDiff {
    /// As `--relation` of extract takes it.
    pub(super) name: String,
    pub(super) database: String,
    pub(super) kind: RelationKind,
    /// The table that it serves.
    pub(super) serves: Option<String>,
    /// Its other name, in the second image.
    pub(super) renamed: Option<String>,
    /// Pages of the main fork, in the image that has more.
    pub(super) pages: u64,
    pub(super) forks: BTreeMap<Fork, Pages>,
    /// Files that one image alone has, with their lengths.
    pub(super) only: [Vec<(String, u64)>; 2],
    pub(super) unsteady: bool,
}

/// A database that one image alone has.
#[derive(Debug)]
pub(super) struct DatabaseDiff {
    /// 0: the first image has it.
    pub(super) side: usize,
    pub(super) relations: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A file of no relation that differs.
#[derive(Debug)]
pub(super) struct FileDiff {
    pub(super) path: String,
    /// What it is in each image, and its length; `None` where it is not.
    pub(super) there: [Option<(FileKind, u64)>; 2],
    pub(super) pages: Pages,
    pub(super) unsteady: bool,
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
    /// Puts together what was found. `layout` is bytes of a page, and the number of the first.
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
    pub(super) fn is_same(&self) -> bool {
        self.relations.is_empty() && self.files.is_empty()
    }
}

impl RelationDiff {
    /// The image that alone has it.
    pub(super) fn side(&self) -> Option<usize> {
        let [first, second] = &self.only;
        let is_alone = self.forks.is_empty() && first.is_empty() != second.is_empty();
        is_alone.then_some(usize::from(first.is_empty()))
    }
}

impl<'a> Builder<'a> {
    fn named(&self, index: usize, path: &[u8]) -> Option<NamedFile<'a>> {
        self.sides[index].names.of_path(path)
    }

    /// A file that one image alone has.
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

    /// A file that both have.
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

    /// The pages of a file that differ, counted from `first` of its fork.
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

/// The databases of which each relation is in one image alone. `relations` are in the order of
/// their databases, `all` are those of both images.
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

/// The entries of these paths, but for directories: those are what is in them.
fn entries<'a>(image: &'a dyn Image, paths: &'a [Vec<u8>]) -> impl Iterator<Item = &'a FileEntry> {
    let wanted: HashSet<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    let entries = image.files().0.iter();
    entries.filter(move |entry| {
        entry.kind != FileKind::Directory && wanted.contains(entry.path.as_slice())
    })
}

/// The main forks, by path, of unlogged relations of a live directory that is compared with a set:
/// a set never has their content.
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

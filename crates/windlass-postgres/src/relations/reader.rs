//! Reads the catalogs of every database of an image, from the maps to the names.

use std::collections::HashMap;

use super::catalog::{self, ClassRow, Layout, SPACE_DEFAULT, SPACE_GLOBAL};
use super::files::CatalogForm;
use super::image::ClusterImage;
use super::map::FileMap;
use super::relation::{Certainty, Relation, RelationKind};
use super::status::Transactions;
use super::table::{NameFault, RelationNames};
use crate::cluster_files::ClusterFiles;
use crate::control::Control;

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

/// The names of the databases of an image, by number.
pub fn database_names(files: &dyn ClusterFiles) -> Result<HashMap<u32, String>, NameFault> {
    let image = ClusterImage::new(files);
    let control = image.control()?;
    with_catalogs(&image, &control, |catalogs| catalogs.databases())
}

/// Reads all names. A fault of one database is recorded in `names`; a returned fault concerns all.
fn read(files: &dyn ClusterFiles, names: &mut RelationNames) -> Result<(), NameFault> {
    let image = ClusterImage::new(files);
    let control = image.control()?;
    names.block_bytes = control.block_bytes;
    names.segment_blocks = control.relation_segment_blocks;
    with_catalogs(&image, &control, |catalogs| {
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
    })
}

/// Opens the catalogs of an image.
fn with_catalogs<T>(
    image: &ClusterImage<'_>,
    control: &Control,
    read: impl FnOnce(&mut Catalogs<'_>) -> Result<T, NameFault>,
) -> Result<T, NameFault> {
    let major = image.major()?;
    let page = |path: &str, offset: u64, length: usize| {
        let mut page = vec![0; length];
        let entry = image.find(path.as_bytes())?;
        let found = image.read(entry, offset, &mut page)?;
        page.truncate(found);
        Some(page)
    };
    let mut catalogs = Catalogs {
        image,
        form: CatalogForm::of(major, control),
        transactions: Transactions::new(control.block_bytes, &page),
        version_directory: control.version_directory(major),
        shared: image.map("global")?,
    };
    read(&mut catalogs)
}

/// The catalogs of a cluster.
struct Catalogs<'a> {
    image: &'a ClusterImage<'a>,
    form: CatalogForm,
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
    fn layout(&self) -> Layout {
        self.form.layout
    }

    /// Database names by oid.
    fn databases(&mut self) -> Result<HashMap<u32, String>, NameFault> {
        let number = self
            .shared
            .get(catalog::DATABASE)
            .ok_or_else(|| NameFault {
                path: "global/pg_filenode.map".to_owned(),
                what: "does not say where pg_database is".to_owned(),
            })?;
        let (layout, mut rows) = (self.layout(), Surest::new());
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
        let layout = self.layout();
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
        let (layout, mut classes) = (self.layout(), Vec::new());
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
        let transactions = &mut self.transactions;
        self.image
            .tuples(directory, number, &self.form, &mut |tuple| {
                if let Some(certainty) = transactions.judge(&tuple) {
                    each(certainty, tuple.columns);
                }
            })
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

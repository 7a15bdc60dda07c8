//! What the word IMAGE means: a set, a server of this machine, a data directory or a SQLite file.
//! Each can be read as an image.
//!
//! The directory of a running PostgreSQL server is read while the server writes, so that image has
//! no single moment. A SQLite file is read under a read transaction, so its image has one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::Cancel;
use windlass_engine::media::{Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, fitted};
use windlass_image::{
    Checksummed, DirectoryImage, Image, ImageError, ImageStatistics, SetImage, SetImageOptions,
};
use windlass_postgres::{Cluster, Control};
use windlass_sqlite::{Database, PinnedReader, PinnedState};

use crate::caller::{Caller, ProcessUse};
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::places::{self, Configured, SetChoice, SetRequest};
use crate::privilege;
use crate::recovered::{ChosenMoment, MomentRequest, RecoveredImage};
use crate::snapshots::{SnapshotImage, divided};

pub use crate::as_cluster::AsCluster;

/// The path of the database's file in any image of a SQLite database, whatever the file is called
/// on disk.
const SQLITE_PATH: &[u8] = b"database";

/// The kind of database in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// A PostgreSQL cluster.
    Postgres,
    /// A SQLite database with pages of this many bytes; 0 when it is empty.
    Sqlite(u32),
    /// Neither.
    Unknown,
}

/// What names an image.
#[derive(Clone, Debug, Default)]
pub struct ImageRequest {
    /// The word: a set, a connection string, a data directory or a SQLite file.
    pub place: PathBuf,
    /// Which set of a directory, if the word itself does not say it.
    pub choice: SetChoice,
    /// The databases whose names stand for the places of their sets.
    pub configured: Vec<Configured>,
    /// A moment in the log of a cluster; without it that of the set.
    pub at: Option<MomentRequest>,
}

/// An image, opened.
pub struct OpenImage {
    /// The name that the user gave.
    pub place: PathBuf,
    /// The kind of database in it.
    pub kind: ImageKind,
    image: Arc<dyn Image>,
    set: Option<Arc<SetImage>>,
    is_fixed: bool,
    pinned: Option<PinnedState>,
    /// Keeps what recovery wrote as long as it is read.
    _recovered: Option<RecoveredImage>,
}

impl OpenImage {
    /// Opens `place`. If root started this process and `place` is not a set, it becomes the owner
    /// of `place`.
    pub fn open(
        caller: &Caller,
        request: &ImageRequest,
        cancel: &Cancel,
    ) -> Result<Self, OperationError> {
        let place = &request.place;
        if let Some(moment) = &request.at {
            let sets = request.sets();
            let chosen = ChosenMoment::find(caller, &sets, &moment.recovery)?;
            let recovered = chosen.recover(caller, &moment.settings, cancel)?;
            return Self::recovered(place, recovered);
        }
        if place.join("PG_VERSION").is_file() {
            return Self::directory(place, caller.process);
        }
        if place.is_file() && windlass_sqlite::is_sqlite(place)? {
            return Self::sqlite(place, caller.process, cancel);
        }
        if let Some(snapshot) = SnapshotImage::find(caller, place, &request.configured)? {
            return Self::snapshot(place, &snapshot);
        }
        if let Some(conninfo) = connection_string(place) {
            return Self::server(place, conninfo, caller.process);
        }
        Self::set(caller, request)
    }

    fn recovered(place: &Path, recovered: RecoveredImage) -> Result<Self, OperationError> {
        let kind = kind_of(&recovered.facts)?;
        let image = named_alike(kind, Arc::clone(&recovered.image));
        Ok(Self {
            place: place.to_owned(),
            kind,
            image,
            set: None,
            is_fixed: true,
            pinned: None,
            _recovered: Some(recovered),
        })
    }

    fn snapshot(place: &Path, snapshot: &SnapshotImage) -> Result<Self, OperationError> {
        let kind = kind_of(snapshot.facts())?;
        let image = named_alike(kind, Arc::clone(snapshot.image()));
        Ok(Self {
            place: place.to_owned(),
            kind,
            image,
            set: None,
            is_fixed: true,
            pinned: None,
            _recovered: None,
        })
    }

    /// Whether the word names a database itself, and not a set of it.
    pub fn is_live(place: &Path) -> bool {
        let is_sqlite = || place.is_file() && windlass_sqlite::is_sqlite(place).unwrap_or(false);
        place.join("PG_VERSION").is_file() || is_sqlite() || connection_string(place).is_some()
    }

    /// The data directory of a server, which says where that is.
    fn server(place: &Path, conninfo: &str, process: ProcessUse) -> Result<Self, OperationError> {
        DatabaseName::Postgres(conninfo.to_owned()).become_owner(process)?;
        let cluster = Cluster::connect(conninfo)?;
        let image = Self::directory(&cluster.facts().data_directory, process)?;
        Ok(Self {
            place: place.to_owned(),
            ..image
        })
    }

    fn directory(place: &Path, process: ProcessUse) -> Result<Self, OperationError> {
        become_owner(place, process)?;
        let image = DirectoryImage::open_with(place, &tablespaces(place)?)?;
        Ok(Self {
            place: place.to_owned(),
            kind: ImageKind::Postgres,
            image: Arc::new(image),
            set: None,
            is_fixed: false,
            pinned: None,
            _recovered: None,
        })
    }

    fn sqlite(place: &Path, process: ProcessUse, cancel: &Cancel) -> Result<Self, OperationError> {
        become_owner(place, process)?;
        let pinned = Database::open(place)?.pin(cancel)?;
        let reader = pinned.reader();
        let page_bytes = fitted(reader.page_bytes());
        Ok(Self {
            place: place.to_owned(),
            kind: ImageKind::Sqlite(page_bytes),
            image: Arc::new(PinnedImage::new(place, reader)),
            set: None,
            is_fixed: false,
            pinned: Some(pinned),
            _recovered: None,
        })
    }

    fn set(caller: &Caller, request: &ImageRequest) -> Result<Self, OperationError> {
        let place = &request.place;
        let set = Arc::new(places::open(caller, &request.sets())?);
        let kind = kind_of(&set.description().facts)?;
        let set = Arc::new(SetImage::open(set, &SetImageOptions::default())?);
        let image = named_alike(kind, Arc::clone(&set) as Arc<dyn Image>);
        Ok(Self {
            place: place.to_owned(),
            kind,
            image,
            set: Some(set),
            is_fixed: true,
            pinned: None,
            _recovered: None,
        })
    }

    /// Its files.
    pub fn image(&self) -> &dyn Image {
        &*self.image
    }

    /// Whether it is a backup set.
    pub fn is_set(&self) -> bool {
        self.set.is_some()
    }

    /// Whether it never changes: a set or a snapshot.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Whether somebody writes to the database and has to wait until the image is closed.
    pub fn holds_writers(&self) -> bool {
        let pinned = self.pinned.as_ref();
        pinned.is_some_and(|pinned| !pinned.writers_go_on())
    }

    /// The cost of reading a set.
    pub fn statistics(&self) -> Option<ImageStatistics> {
        self.set.as_ref().map(|set| set.statistics())
    }

    /// Ends the use of the image. What was read is valid only if this succeeds.
    pub fn close(self) -> Result<(), OperationError> {
        if let Some(pinned) = self.pinned {
            pinned.end()?;
        }
        Ok(())
    }
}

impl ImageRequest {
    /// The sets that the word means.
    fn sets(&self) -> SetRequest {
        SetRequest {
            words: vec![self.place.clone()],
            choice: self.choice.clone(),
            configured: self.configured.clone(),
        }
    }
}

/// The kind of database that facts name.
fn kind_of(facts: &Facts) -> Result<ImageKind, OperationError> {
    Ok(match facts.database["kind"].as_str() {
        Some(windlass_postgres::KIND) => ImageKind::Postgres,
        Some(windlass_sqlite::KIND) => {
            let facts = windlass_sqlite::DatabaseFacts::of_set(facts)?;
            ImageKind::Sqlite(facts.page_bytes)
        }
        _ => ImageKind::Unknown,
    })
}

/// The connection string that a word is, if it is one. A path that exists is none, and neither is
/// one with the name of a snapshot or a set behind it.
fn connection_string(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    let schemes = ["postgres://", "postgresql://"];
    let is_uri = schemes.iter().any(|scheme| text.starts_with(scheme));
    let keyword = text
        .split_once('=')
        .map_or("", |(keyword, _)| keyword.trim());
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let has_keyword = !keyword.is_empty() && keyword.bytes().all(is_letter);
    let is_string = is_uri || has_keyword && place.symlink_metadata().is_err();
    (is_string && matches!(divided(text), Ok(None))).then_some(text)
}

fn become_owner(place: &Path, process: ProcessUse) -> Result<(), OperationError> {
    privilege::owner(place).map_or(Ok(()), |(uid, gid)| {
        Ok(privilege::become_user(process, uid, gid)?)
    })
}

/// Where the files of this cluster's tablespaces are: behind the links, in the directory that has
/// the cluster's version in its name.
fn tablespaces(root: &Path) -> Result<Vec<(Vec<u8>, PathBuf)>, OperationError> {
    let links = root.join("pg_tblspc");
    let Ok(entries) = std::fs::read_dir(&links) else {
        return Ok(Vec::new());
    };
    let control = Control::read(root)?;
    let failed = |source: std::io::Error| OperationError::DataDirectory {
        path: root.to_owned(),
        source,
    };
    let version = std::fs::read_to_string(root.join("PG_VERSION")).map_err(failed)?;
    let version = format!("PG_{}_{}", version.trim(), control.catalog_version);
    let mut mounts = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let place = entry.path().join(&version);
        if entry.path().is_symlink() && place.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            mounts.push((format!("pg_tblspc/{name}/{version}").into_bytes(), place));
        }
    }
    Ok(mounts)
}

/// An image in which the file of a SQLite database has the path that all such images share.
fn named_alike(kind: ImageKind, image: Arc<dyn Image>) -> Arc<dyn Image> {
    match kind {
        ImageKind::Sqlite(_) => Arc::new(Renamed::new(image)),
        _ => image,
    }
}

/// The image of a SQLite database. Its file has the path that all such images share.
struct Renamed {
    image: Arc<dyn Image>,
    files: FileTable,
}

impl Renamed {
    fn new(image: Arc<dyn Image>) -> Self {
        let mut files = image.files().clone();
        if let [only] = files.0.as_mut_slice() {
            only.path = SQLITE_PATH.to_vec();
        }
        Self { image, files }
    }
}

impl Image for Renamed {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        self.image.read(file, offset, into)
    }

    fn checksum(&self, file: FileNo, offset: u64) -> Result<Option<Checksummed>, ImageError> {
        self.image.checksum(file, offset)
    }

    fn check_layers(&self, file: FileNo) -> Result<(), ImageError> {
        self.image.check_layers(file)
    }
}

/// A live SQLite database.
struct PinnedImage {
    place: PathBuf,
    reader: Arc<PinnedReader>,
    files: FileTable,
}

impl PinnedImage {
    fn new(place: &Path, reader: Arc<PinnedReader>) -> Self {
        let entry = FileEntry {
            file: FileNo(0),
            kind: FileKind::File,
            flags: FileFlags::default(),
            mode: 0,
            bytes: reader.bytes(),
            mtime_nanos: 0,
            crc32c: 0,
            path: SQLITE_PATH.to_vec(),
            link_target: Vec::new(),
        };
        Self {
            place: place.to_owned(),
            reader,
            files: FileTable(vec![entry]),
        }
    }
}

impl Image for PinnedImage {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        if file != FileNo(0) {
            return Err(ImageError::NoFile { file });
        }
        let read = self.reader.read(offset, into);
        read.map_err(|error| ImageError::Directory {
            operation: "read",
            path: self.place.clone(),
            source: std::io::Error::other(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_is_told_from_the_places_of_sets_and_from_snapshots() {
        for text in [
            "host=/var/run/postgresql",
            " port = 5433 dbname=shop",
            "postgres://me@db/shop",
            "postgresql:///shop",
            "postgres://me:p%40ss@db",
            "host=/var/run/postgresql password='p@ss'",
        ] {
            assert!(OpenImage::is_live(Path::new(text)), "{text}");
        }
        for text in [
            "host=/var/run/postgresql@before",
            "postgres:///shop@before",
            "postgres://me:p%40ss@db@before",
            "host=/var/run/postgresql password='p@ss'@before",
            "host=/var/run/postgresql password=p@ss",
            "/backup/a=b",
            "s3://backup/a=b",
            "a=b@latest",
            "shop",
        ] {
            assert!(!OpenImage::is_live(Path::new(text)), "{text}");
        }
    }
}

//! A snapshot that exists: its directory and its record, and how it is read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{FileNo, FileTable};
use windlass_image::{Image, ImageError};

use crate::directory::Locked;
use crate::error::{Doing, SnapshotError};
use crate::hook;
use crate::image;
use crate::method::Method;
use crate::overwritten::UndoState;
use crate::record::{RECORD, Record, State};
use crate::{copy, usage};

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    path: PathBuf,
    record: Record,
    /// What was seen of one by the hook; `None` if nothing could be.
    looked: Option<Box<hook::Looked>>,
}

/// Keeps a snapshot from being dropped.
#[derive(Debug)]
pub struct Hold {
    _lock: Locked,
}

/// What a snapshot is read from.
pub enum Content {
    /// A set. These are its stripes.
    Set(Vec<PathBuf>),
    /// Its files.
    Files(Arc<dyn Image>),
}

impl Snapshot {
    /// One of this name with this record. Fails if what the record says of the rest is not
    /// so, or if nobody can find out now whether it is lost.
    pub(crate) fn new(path: PathBuf, record: Record, name: &str) -> Result<Self, SnapshotError> {
        if record.name != name {
            return Err(SnapshotError::Damaged {
                path: path.join(RECORD),
                what: "it is the record of another snapshot",
            });
        }
        let mut snapshot = Self {
            path,
            record,
            looked: None,
        };
        if snapshot.record.method == Method::Hook {
            // The memory knows whether it was lost since, and not the record.
            let why = match snapshot.look() {
                Ok(looked) => {
                    let why = looked.state.lost.clone();
                    snapshot.looked = Some(Box::new(looked));
                    why
                }
                Err(error) if error.is_unclear() => return Err(error.into()),
                Err(error) => Some(error.to_string()),
            };
            snapshot.record.state = why.map_or(State::Kept, |why| State::Lost { why });
        }
        Ok(snapshot)
    }

    fn look(&self) -> Result<hook::Looked, hook::HookError> {
        hook::look(&self.path.join(hook::CONTENT), self.record.files_crc32c)
    }

    /// The snapshot in this directory.
    pub fn open(directory: &Path) -> Result<Self, SnapshotError> {
        match Record::read(directory)? {
            Some(record) => {
                let path = directory.canonicalize().doing("find", directory)?;
                let name = path.file_name().and_then(OsStr::to_str);
                let name = name.unwrap_or_default().to_owned();
                Self::new(path, record, &name)
            }
            None => Err(SnapshotError::NotASnapshot {
                path: directory.to_owned(),
            }),
        }
    }

    /// Whether a directory is that of a snapshot.
    pub fn is_at(directory: &Path) -> bool {
        let is_ours = crate::directory::is_marked(directory) || Record::is_in(directory);
        is_ours && crate::directory::is_complete(directory)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is known about it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// When it was begun.
    pub fn created(&self) -> jiff::Timestamp {
        let parsed = self.record.created.parse();
        parsed.unwrap_or(jiff::Timestamp::MIN)
    }

    /// Bytes that its directory takes on disk. Blocks that a clone shares with the database count
    /// too, and so do the pages that the hook preserved for it. States that reverts overwrote do
    /// not.
    pub fn disk_bytes(&self) -> Result<u64, SnapshotError> {
        let mut own = usage::disk_bytes(&self.path)?;
        for state in UndoState::list(&self.path)? {
            own = own.saturating_sub(state.disk_bytes()?);
        }
        if self.record.method != Method::Hook {
            return Ok(own);
        }
        let pages_bytes = match &self.looked {
            Some(looked) => looked.state.pages_bytes,
            None => self.look()?.state.pages_bytes,
        };
        Ok(own.saturating_add(pages_bytes))
    }

    /// What the hook knew about it when it was found; `None` if it was made in another way, or if
    /// nothing could be known.
    pub fn growth(&self) -> Option<hook::HookState> {
        self.looked.as_ref().map(|looked| looked.state.clone())
    }

    /// The data directory of the server that has one by the hook, when it was found; `None` if
    /// that could not be known.
    pub(crate) fn server_data(&self) -> Option<&Path> {
        self.looked.as_ref()?.data.as_deref()
    }

    /// Fails if its data are gone, or shorter than they were. Only names, lengths and ends are
    /// looked at, so this costs little.
    pub fn check_there(&self) -> Result<(), SnapshotError> {
        match self.record.method {
            _ if self.record.state != State::Kept => Ok(()),
            Method::Copy => copy::check_there(&self.path),
            Method::Clone => image::check_there(&self.path, &self.record),
            Method::Hook => Ok(hook::Document::check_table(&self.path.join(hook::CONTENT))?),
        }
    }

    /// Keeps it from being dropped as long as the result lives.
    pub fn hold(&self) -> Result<Hold, SnapshotError> {
        let in_use = || SnapshotError::InUse {
            path: self.path.clone(),
        };
        let lock = Locked::shared(&self.path)?.ok_or_else(in_use)?;
        // It may have been dropped, and another one made, since the record was read.
        match Record::read(&self.path)? {
            Some(record) if record.id == self.record.id => Ok(Hold { _lock: lock }),
            _ => Err(SnapshotError::NotASnapshot {
                path: self.path.clone(),
            }),
        }
    }

    /// What it is read from. Files are held as long as somebody reads them.
    pub fn content(&self) -> Result<Content, SnapshotError> {
        if let State::Lost { why } = &self.record.state {
            return Err(SnapshotError::Lost {
                name: self.record.name.clone(),
                why: why.clone(),
            });
        }
        match self.record.method {
            Method::Copy => {
                copy::check_own(&self.path, &self.record.facts)?;
                Ok(Content::Set(copy::stripes(&self.path)))
            }
            Method::Clone => {
                let hold = self.hold()?;
                let image = image::open(&self.path, &self.record)?;
                let image = Box::new(image);
                Ok(Content::Files(Arc::new(Held { image, _hold: hold })))
            }
            Method::Hook => {
                let hold = self.hold()?;
                let content = self.path.join(hook::CONTENT);
                let image = hook::HookImage::open_of(&content, self.record.files_crc32c)?;
                let image = Box::new(image);
                Ok(Content::Files(Arc::new(Held { image, _hold: hold })))
            }
        }
    }
}

/// The files of a snapshot, which cannot be dropped while this exists.
struct Held {
    image: Box<dyn Image>,
    _hold: Hold,
}

impl Image for Held {
    fn files(&self) -> &FileTable {
        self.image.files()
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        self.image.read(file, offset, into)
    }

    fn check_layers(&self, file: FileNo) -> Result<(), ImageError> {
        self.image.check_layers(file)
    }

    fn identity(&self) -> Option<[u8; 32]> {
        self.image.identity()
    }
}

//! Outputs: the files that Windlass writes because a user named them, and the one rule for all.
//!
//! An output replaces nothing but a file of its own kind. It is never a source, a side file of a
//! source, a file of a data directory, or a stripe of the set at hand.
//!
//!   path --> where it leads --> protected? guarded? --> own kind? --> create, replace, refresh
//!
//! Invariants
//! - Files and directories are compared by device and inode, and names that are not there yet by
//!   their directory's: links, hard links, bind mounts and relative names change nothing.
//! - What is there is opened without truncating it, and looked at, before it is emptied or renamed
//!   over.
//! - A guard that cannot see what a path belongs to lets nothing through: a directory that this
//!   user may not enter may be a data directory.
//! - The engine knows no database. What belongs to one, its own crate says, through a [`Guard`].

mod name;

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use windlass_media::Structure;

use crate::durable;
use crate::error::EngineError;
use crate::set::FoundSet;
use crate::stripe_name::{PARTIAL_SUFFIX, STRIPE_SUFFIX, is_named_as_stripe, is_partial};
use name::{Identity, Name, Tree};

/// How much of a file is read to find out its kind.
const BEGINNING_BYTES: usize = 64 * 1024;

/// A kind of output. An output replaces only files of its own kind.
#[derive(Clone, Copy, Debug)]
pub struct OutputKind {
    /// With its article, as in `a file of events`.
    pub noun: &'static str,
    /// Whether a file that begins with these bytes (up to 64 KiB) is of this kind.
    pub is_own: fn(&[u8]) -> bool,
    /// Whether such a file is put in place by a rename. A rename would replace a device or a pipe
    /// as well, so neither may be there. Other outputs may be written to a device or a pipe.
    pub is_renamed: bool,
}

impl OutputKind {
    /// A stripe of a set, sealed or not.
    pub const STRIPE: Self = Self {
        noun: "a stripe of a backup",
        is_own: |beginning| {
            let record = Structure::begun_by(beginning);
            matches!(record, Some(Structure::Header | Structure::ParityHeader))
        },
        is_renamed: false,
    };

    /// What a run has recorded, in either format.
    pub const EVENTS: Self = Self {
        noun: "a file of events",
        is_own: |beginning| {
            let has = |text: &[u8]| beginning.windows(text.len()).any(|part| part == text);
            beginning.starts_with(b"{") && has(b"\"format\":\"windlass-events\"")
        },
        is_renamed: false,
    };
}

/// Says what a path belongs to, if no output may be there. The answer follows the words `cannot
/// write PATH:`. The path is absolute, and its directories are real as far as they exist.
pub type Guard = fn(&Path) -> Option<String>;

/// The files and directories that no output of an operation may replace.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    files: Vec<(Name, String)>,
    trees: Vec<(Tree, String)>,
    guards: Vec<Guard>,
}

/// What lies at a path at which an output may be written.
enum Existing {
    Nothing,
    File(Identity),
    /// A terminal, a pipe or `/dev/null`. Writing to it replaces nothing.
    Stream,
}

impl Outputs {
    /// Nothing is protected yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks this guard, too.
    pub fn guarded_by(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    /// Removes the guards. This is for removing what belongs to a database that is given up.
    pub fn unguarded(self) -> Self {
        Self {
            guards: Vec::new(),
            ..self
        }
    }

    /// No output may be this file, whether it exists or not. `what` follows `cannot write PATH:`.
    pub fn protect_file(&mut self, path: &Path, what: &str) -> Result<(), EngineError> {
        for name in Name::of(path)? {
            self.files.push((name, what.to_owned()));
        }
        Ok(())
    }

    /// No other output of the same run may be this file. A device or a pipe may take several.
    pub fn protect_output(&mut self, path: &Path, what: &str) -> Result<(), EngineError> {
        match path.metadata() {
            Ok(metadata) if is_stream(&metadata) => Ok(()),
            _ => self.protect_file(path, what),
        }
    }

    /// No output may be this directory, or lie in it, whether it exists or not.
    pub fn protect_directory(&mut self, path: &Path, what: &str) -> Result<(), EngineError> {
        self.trees.push((Tree::of(path)?, what.to_owned()));
        Ok(())
    }

    /// No output may be a stripe of this set, or of one that it builds on.
    pub fn protect_set(&mut self, set: &FoundSet) -> Result<(), EngineError> {
        for stripe in set.links().flat_map(FoundSet::stripes) {
            let index = stripe.header().stripe;
            let what = format!("it is stripe {index} of the set that is being read");
            self.protect_file(stripe.location(), &what)?;
        }
        for file in set.rebuilders().flat_map(|rebuilder| rebuilder.files()) {
            let what = "it has parity of the set that is being read";
            self.protect_file(&file.location, what)?;
        }
        Ok(())
    }

    /// Refuses a path that is protected, for a file or a directory, whether it exists or not.
    pub fn check(&self, path: &Path) -> Result<(), EngineError> {
        for name in Name::of(path)? {
            if let Some(what) = self.belongs_to(&name) {
                return Err(EngineError::OutputRefused {
                    path: path.to_owned(),
                    what,
                });
            }
            if let Some(directory) = name.closed().filter(|_| !self.guards.is_empty()) {
                return Err(EngineError::OutputUnseen {
                    path: path.to_owned(),
                    directory: directory.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Refuses a path that is protected, or that has something else than a file of this kind, or
    /// than a device or a pipe if the kind allows these. An empty file counts as one of every kind.
    pub fn check_kind(&self, path: &Path, kind: &OutputKind) -> Result<(), EngineError> {
        self.look(path, kind).map(drop)
    }

    /// Opens a file for writing, emptied or new.
    pub fn create(&self, path: &Path, kind: &OutputKind) -> Result<File, EngineError> {
        let existing = self.look(path, kind)?;
        open_for_writing(path, &existing).map_err(|source| failed("create", path, source))
    }

    /// Writes a whole file durably. It replaces an existing file only when the new one is complete.
    pub fn replace(
        &self,
        path: &Path,
        kind: &OutputKind,
        bytes: &[u8],
        mode: u32,
    ) -> Result<(), EngineError> {
        let existing = self.look(path, kind)?;
        let written = match existing {
            Existing::Stream => write_stream(path, &existing, bytes),
            _ => durable::write(&target(path), bytes, mode),
        };
        written.map_err(|source| failed("write", path, source))
    }

    /// Does the same, but not durably. This is for files that nobody needs after a power cut, and
    /// that are written again and again: a pipe would block the run as soon as nobody reads it.
    pub fn refresh(&self, path: &Path, kind: &OutputKind, bytes: &[u8]) -> Result<(), EngineError> {
        assert!(
            kind.is_renamed,
            "a refreshed file is put in place by a rename"
        );
        self.look(path, kind)?;
        let written = durable::write_unsynced(&target(path), bytes, 0o644);
        written.map_err(|source| failed("write", path, source))
    }

    /// Removes what killed runs left that wrote this file. Refuses what [`Outputs::refresh`] does.
    pub fn remove_left(&self, path: &Path, kind: &OutputKind) -> Result<(), EngineError> {
        self.look(path, kind)?;
        durable::remove_left(&target(path));
        Ok(())
    }

    fn belongs_to(&self, name: &Name) -> Option<String> {
        let file = self.files.iter().find(|(file, _)| file.is(name));
        let tree = || self.trees.iter().find(|(root, _)| root.holds(name));
        let known = file.map(|(_, what)| what.clone());
        let known = known.or_else(|| tree().map(|(_, what)| what.clone()));
        known.or_else(|| self.guards.iter().find_map(|guard| guard(name.path())))
    }

    fn look(&self, path: &Path, kind: &OutputKind) -> Result<Existing, EngineError> {
        self.check(path)?;
        check_name(path, kind)?;
        let foreign = || EngineError::OutputForeign {
            path: path.to_owned(),
            noun: kind.noun,
        };
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if path.is_symlink() => {
                return Err(failed("write", path, dangling(path, error)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(source) => return Err(failed("look at", path, source)),
        };
        if is_stream(&metadata) && kind.is_renamed {
            return Err(EngineError::OutputStream {
                path: path.to_owned(),
            });
        }
        if is_stream(&metadata) {
            return Ok(Existing::Stream);
        }
        if !metadata.is_file() {
            return Err(foreign());
        }
        if metadata.len() > 0 {
            let beginning = beginning(path).map_err(|source| failed("read", path, source))?;
            if !(kind.is_own)(&beginning) {
                return Err(foreign());
            }
        }
        Ok(Existing::File((metadata.dev(), metadata.ino())))
    }
}

/// Whether two outputs would be one file: by device and inode, or by directory and name.
pub fn is_same_output(one: &Path, other: &Path) -> Result<bool, EngineError> {
    let (ones, others) = (Name::of(one)?, Name::of(other)?);
    Ok(ones.iter().any(|name| others.iter().any(|it| it.is(name))))
}

/// Refuses the name of a stripe for anything else. In a directory of sets, such a file would look
/// like a damaged stripe, and every verification would tell of damage.
fn check_name(path: &Path, kind: &OutputKind) -> Result<(), EngineError> {
    let is_stripe = kind.noun == OutputKind::STRIPE.noun;
    if is_stripe || !(is_named_as_stripe(path) || is_partial(path)) {
        return Ok(());
    }
    Err(EngineError::OutputRefused {
        path: path.to_owned(),
        what: format!("a name that ends in {STRIPE_SUFFIX} or {PARTIAL_SUFFIX} is for stripes"),
    })
}

/// Why nothing can be written to a symbolic link that leads to nothing that is there.
fn dangling(link: &Path, error: io::Error) -> io::Error {
    match std::fs::read_link(link) {
        Ok(to) if error.kind() == io::ErrorKind::NotFound => {
            let to = to.display();
            io::Error::other(format!(
                "it is a symbolic link to {to}, which does not exist"
            ))
        }
        _ => error,
    }
}

fn is_stream(metadata: &Metadata) -> bool {
    let file_type = metadata.file_type();
    file_type.is_char_device() || file_type.is_fifo()
}

/// The first bytes of a file.
pub(crate) fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut bytes = Vec::with_capacity(BEGINNING_BYTES);
    file.take(BEGINNING_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path to which a new file is renamed: a link that leads to the old file stays a link.
fn target(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn open_for_writing(path: &Path, existing: &Existing) -> io::Result<File> {
    let mut options = File::options();
    // For a pipe that nobody reads, this makes an error, not a wait that no signal ends.
    options.write(true).custom_flags(libc::O_NONBLOCK);
    match existing {
        Existing::Nothing => options.create_new(true).open(path),
        Existing::Stream => {
            let file = options.open(path)?;
            let flags = rustix::fs::fcntl_getfl(&file)?;
            rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
            Ok(file)
        }
        Existing::File(identity) => {
            let file = options.open(path)?;
            let now = file.metadata()?;
            if (now.dev(), now.ino()) != *identity {
                return Err(io::Error::other("another file has just taken its place"));
            }
            file.set_len(0)?;
            Ok(file)
        }
    }
}

fn write_stream(path: &Path, existing: &Existing, bytes: &[u8]) -> io::Result<()> {
    open_for_writing(path, existing)?.write_all(bytes)
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> EngineError {
    EngineError::OutputIo {
        operation,
        path: path.to_owned(),
        source,
    }
}

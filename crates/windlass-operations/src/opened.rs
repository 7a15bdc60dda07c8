//! An opened image: a mount in a scratch directory, and for PostgreSQL a server on it.
//!
//!   set --> image --edits--> overlay --> mount --+--> PostgreSQL's own server
//!                  \---- read-only ------> mount +--> a SQLite file
//!
//! A set is opened, or any other image for which somebody has the facts of its database. A set of
//! a cluster can recover up to a point in an archived log.
//!
//! Invariants
//! - The image is never written to. Changes go to the overlay, which is removed with the scratch
//!   directory.
//! - The parts end in a fixed order: first the server, then the mount, then the directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::media::Facts;
use windlass_engine::{Cancel, OpenSet};
use windlass_image::{EditedImage, Image, Overlay, Patch, SetImage, SetImageOptions};
use windlass_mount::{DamageHook, Mount, MountOptions, apart};
use windlass_postgres::{DatabaseFacts, OpenRequest, Programs, Recovery, Server, server_view};

use crate::error::OperationError;
use crate::held::Held;
use crate::kept::{self, Keeping, KeptName};
use crate::notice::{Notice, Observer};
use crate::privilege;
use crate::recovery::RecoveryError;
use crate::scratch::Scratch;
use crate::status::Operation;

/// The user for servers whose set belongs to root.
const USUAL_USER: &str = "postgres";

/// What is opened: an image, and what is known about the database in it.
#[derive(Clone)]
pub struct ToOpen {
    image: Arc<dyn Image>,
    facts: Facts,
    /// What people call it.
    title: String,
    /// The user and group whose backup it is, unless that is root.
    owner: Option<(u32, u32)>,
    /// The directory of its snapshot or its set.
    source: Option<PathBuf>,
    /// Up to where a cluster recovers; without it to the end of the log in the image.
    recovery: Option<Recovery>,
}

impl ToOpen {
    /// A set. `cache_bytes` is the memory for decoded frames.
    pub fn set(set: &Arc<OpenSet>, cache_bytes: u64) -> Result<Self, OperationError> {
        Held::check(set.description())?;
        let options = SetImageOptions {
            frame_cache_bytes: cache_bytes,
            ..SetImageOptions::default()
        };
        Ok(Self {
            image: Arc::new(SetImage::open(Arc::clone(set), &options)?),
            facts: set.description().facts.clone(),
            title: format!("set {}", set.set_id()),
            owner: set_owner(set),
            source: set_directory(set),
            recovery: None,
        })
    }

    /// An image of a database that was never started since it was backed up, and the facts of that
    /// backup. `title` is what people call it, and `owner` the user and group whose it is.
    pub fn image(
        image: Arc<dyn Image>,
        facts: Facts,
        title: &str,
        owner: Option<(u32, u32)>,
    ) -> Result<Self, OperationError> {
        Held::check_image(&facts, image.files())?;
        Ok(Self {
            image,
            facts,
            title: title.to_owned(),
            owner: owner.filter(|(uid, _)| *uid != 0),
            source: None,
            recovery: None,
        })
    }

    /// The same, which lies in this directory.
    pub(crate) fn lying_in(self, directory: &Path) -> Self {
        Self {
            source: Some(directory.to_owned()),
            ..self
        }
    }

    /// The same, with the image of a later moment and its facts.
    pub(crate) fn replaced(self, image: Arc<dyn Image>, facts: Facts, point: &str) -> Self {
        Self {
            title: format!("{} at {point}", self.title),
            image,
            facts,
            ..self
        }
    }

    /// The same, recovered up to a point.
    pub(crate) fn recovering(self, recovery: Recovery) -> Self {
        Self {
            title: format!("{} at {}", self.title, recovery.point),
            recovery: Some(recovery),
            ..self
        }
    }
}

impl ToOpen {
    /// The kind of the database, as the facts name it.
    pub fn kind(&self) -> Option<&str> {
        self.facts.database["kind"].as_str()
    }
}

/// How a set is opened.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// The directory for the changes and the server's files; without it, the temporary one.
    pub scratch: Option<PathBuf>,
    /// Memory for decoded frames, in bytes; for [`ToOpen::set`].
    pub cache_bytes: u64,
    /// PostgreSQL: the directory of the server's programs.
    pub bindir: Option<PathBuf>,
    /// PostgreSQL: libraries that the server must preload, as in `shared_preload_libraries`.
    pub preload: String,
    /// PostgreSQL: settings of the server.
    pub settings: Vec<(String, String)>,
    /// PostgreSQL: the role to connect as; without it, the one that initdb created.
    pub role: Option<String>,
    /// PostgreSQL: the user that runs the server if root opens the set.
    pub run_as: Option<String>,
    /// PostgreSQL: a TCP port to listen on, too.
    pub port: Option<u16>,
    /// PostgreSQL: the addresses for the port.
    pub listen: String,
    /// Whether the database can be written to. What is written is thrown away at the end.
    pub writable: bool,
    /// The name under which others can find the database and close it.
    pub name: Option<KeptName>,
}

/// An opened set.
pub enum Opened {
    /// A running server.
    Postgres {
        /// The server.
        server: Box<Server>,
        /// The mount that it runs on.
        view: Mounted,
    },
    /// A database file.
    Sqlite {
        /// Its path.
        database: PathBuf,
        /// The mount that holds it.
        view: Mounted,
    },
}

/// A set's image, mounted.
pub struct Mounted {
    /// Shows the mount in `windlass status`. It is dropped before the mount.
    operation: Operation,
    mount: Arc<Mount>,
    /// What was written, if something can be.
    overlay: Option<Arc<Overlay>>,
    scratch: Scratch,
    /// Whether a write found no free space.
    full: Arc<AtomicBool>,
    /// What others are told, if the database has a name.
    keeping: Option<Keeping>,
}

/// What a server left behind that was shut down: its files, which nobody writes any more.
pub(crate) struct AtRest {
    /// The files.
    pub(crate) overlay: Arc<Overlay>,
    /// Where they are; removed when this is dropped.
    pub(crate) scratch: Scratch,
    /// Whether damage of the image was found.
    pub(crate) is_damaged: bool,
}

impl Opened {
    /// Opens a set or another image.
    pub fn open(
        observer: &Arc<dyn Observer>,
        what: &ToOpen,
        options: &OpenSettings,
        cancel: &Cancel,
    ) -> Result<Self, OperationError> {
        match Held::of_facts(&what.facts)? {
            Held::Postgres => postgres(observer, what, options, cancel),
            Held::Sqlite => sqlite(observer, what, options),
        }
        .inspect(Self::tell)
    }

    /// Tells others how it is reached.
    fn tell(&self) {
        let reach = match self {
            Self::Postgres { server, .. } => server.connection().conninfo(),
            Self::Sqlite { database, .. } => database.display().to_string(),
        };
        let view = self.view();
        if let Some(keeping) = &view.keeping {
            keeping.opened(reach);
            view.operation.refresh();
        }
    }

    /// The mount of the set.
    pub fn view(&self) -> &Mounted {
        match self {
            Self::Postgres { view, .. } | Self::Sqlite { view, .. } => view,
        }
    }

    /// Fails if the server is no longer there.
    pub fn check_alive(&mut self) -> Result<(), OperationError> {
        if let Self::Postgres { server, view } = self {
            let alive = server.check_alive();
            return alive.map_err(|error| view.explained(error.into()));
        }
        Ok(())
    }

    /// A failure with its real cause. If the server still runs, it says only what did not work.
    pub fn explained(&mut self, error: OperationError) -> OperationError {
        match (self.check_alive(), self) {
            (Err(end), _) => end,
            (Ok(()), Self::Postgres { view, .. } | Self::Sqlite { view, .. }) => {
                view.explained(error)
            }
        }
    }

    /// Closes the set. Returns whether damage of the set was found while it was open.
    pub fn close(self) -> Result<bool, OperationError> {
        let view = match self {
            Self::Postgres { server, view } => {
                server.stop()?;
                view
            }
            Self::Sqlite { view, .. } => view,
        };
        let (damaged, ..) = view.unmount()?;
        Ok(damaged)
    }

    /// Shuts a server down in order, and keeps its files.
    pub(crate) fn settle(self, cancel: &Cancel) -> Result<AtRest, OperationError> {
        let Self::Postgres { server, view } = self else {
            return Err(RecoveryError::NotACluster.into());
        };
        let ended = server.shut_down(cancel);
        ended.map_err(|error| view.explained(error.into()))?;
        let (is_damaged, overlay, scratch) = view.unmount()?;
        match overlay {
            Some(overlay) => Ok(AtRest {
                overlay,
                scratch,
                is_damaged,
            }),
            None => Err(RecoveryError::NotACluster.into()),
        }
    }
}

impl Mounted {
    /// The path of the mounted image.
    pub fn at(&self) -> &Path {
        self.mount.at()
    }

    /// Whether damage of the set was found.
    pub fn is_damaged(&self) -> bool {
        self.mount.statistics().damaged > 0
    }

    /// Whether it stays open in the background.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// Ends the mount. Returns whether damage was found, and what was written.
    fn unmount(self) -> Result<(bool, Option<Arc<Overlay>>, Scratch), OperationError> {
        let is_damaged = self.is_damaged();
        let Self {
            operation,
            mount,
            overlay,
            scratch,
            ..
        } = self;
        drop(operation);
        // When the status no longer shows the mount, nobody else holds it.
        if let Some(mount) = Arc::into_inner(mount) {
            mount.unmount()?;
        }
        Ok((is_damaged, overlay, scratch))
    }

    /// The failure with its real cause: damage of the set, or a lack of free space.
    fn explained(&self, error: OperationError) -> OperationError {
        if self.is_damaged() {
            return OperationError::OfDamage(Box::new(error));
        }
        if !self.full.load(Ordering::Relaxed) {
            return error;
        }
        OperationError::ScratchFull {
            path: self.scratch.path().to_owned(),
            error: Box::new(error),
        }
    }

    fn new(
        observer: &Arc<dyn Observer>,
        what: &ToOpen,
        image: Arc<dyn Image>,
        options: &OpenSettings,
        owner: Option<(u32, u32)>,
        overlaid: bool,
    ) -> Result<Self, OperationError> {
        let (base, name) = (options.scratch.as_deref(), options.name.as_ref());
        let scratch = Scratch::create(observer, base, owner, name)?;
        let keeping = name.map(|name| Keeping::new(name.clone(), what.source.clone()));
        let full = Arc::<AtomicBool>::default();
        let mount_options = MountOptions {
            owner,
            cache_bytes: options.cache_bytes,
            name: "windlass-open".to_owned(),
            on_damage: Some(DamageHook::new({
                let (full, observer) = (Arc::clone(&full), Arc::clone(observer));
                move |error| {
                    full.fetch_or(error.is_full(), Ordering::Relaxed);
                    observer.notice(&Notice::OfMount(error));
                }
            })),
            ..MountOptions::default()
        };
        mount_options.check_room()?;
        let at = scratch.data();
        let overlay = match overlaid {
            true => Some(Overlay::create_once(
                Arc::clone(&image),
                &scratch.overlay(),
            )?),
            false => None,
        };
        let overlay = overlay.map(Arc::new);
        let mount = Arc::new(match &overlay {
            Some(overlay) => Mount::overlay(Arc::clone(overlay), &at, &mount_options)?,
            None => Mount::image(image, &at, &mount_options)?,
        });
        Ok(Self {
            operation: operation(&what.title, &mount, options.writable, keeping.clone()),
            mount,
            overlay,
            scratch,
            full,
            keeping,
        })
    }
}

/// Shows an opened set in `windlass status`.
fn operation(
    title: &str,
    mount: &Arc<Mount>,
    writable: bool,
    keeping: Option<Keeping>,
) -> Operation {
    let title = format!("{title} on {}", mount.at().display());
    let phase = if writable {
        "opened, writable"
    } else {
        "opened, read-only"
    };
    let mount = Arc::downgrade(mount);
    Operation::begin(kept::KIND, &title, move || {
        let statistics = mount.upgrade().map(|mount| mount.statistics());
        let mut numbers = serde_json::json!({ "mount": statistics });
        if let Some(keeping) = &keeping {
            numbers[kept::FIELD] = keeping.said();
        }
        (phase.to_owned(), numbers)
    })
}

fn postgres(
    observer: &Arc<dyn Observer>,
    what: &ToOpen,
    options: &OpenSettings,
    cancel: &Cancel,
) -> Result<Opened, OperationError> {
    let facts = DatabaseFacts::of_set(&what.facts.database)?;
    let programs = Programs::find(facts.major(), options.bindir.as_deref())?;
    let run_as = server_user(what, options)?;
    let files = server_view(what.image.files())?;
    let edited = EditedImage::new(Arc::clone(&what.image), files, Vec::new());
    // Recovery writes, even if nobody writes afterwards.
    let view = Mounted::new(observer, what, Arc::new(edited), options, run_as, true)?;
    let request = OpenRequest {
        data: view.at().to_owned(),
        was: facts.data_directory.into(),
        scratch: view.scratch.path().to_owned(),
        programs,
        writable: options.writable,
        port: options.port,
        listen: options.listen.clone(),
        preload: options.preload.clone(),
        settings: options.settings.clone(),
        role: options.role.clone(),
        owner: facts.owner,
        recovery: what.recovery.clone(),
        run_as,
        lock: Some(view.scratch.lock()?),
    };
    // The data directory is our own mount.
    match Server::start_apart(request, cancel, &|work| apart(work)) {
        Ok(server) => Ok(Opened::Postgres {
            server: Box::new(server),
            view,
        }),
        Err(error) => Err(view.explained(error.into())),
    }
}

/// The user of the server and of its files. Nobody can run a server as root.
fn server_user(
    what: &ToOpen,
    options: &OpenSettings,
) -> Result<Option<(u32, u32)>, OperationError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let named = options.run_as.as_deref();
    if let (None, Some(owner)) = (named, what.owner) {
        return Ok(Some(owner));
    }
    let name = named.unwrap_or(USUAL_USER);
    match privilege::user_ids(name) {
        Some(ids) if ids.0 != 0 => Ok(Some(ids)),
        _ => Err(OperationError::NoServerUser {
            user: name.to_owned(),
        }),
    }
}

/// The owner of the set's files, unless that is root.
fn set_owner(set: &OpenSet) -> Option<(u32, u32)> {
    let (uid, gid) = privilege::owner(set.stripes().first()?.location())?;
    (uid != 0).then_some((uid, gid))
}

/// The directory of its first stripe.
fn set_directory(set: &OpenSet) -> Option<PathBuf> {
    let first = set.stripes().first()?.location();
    let directory = first.parent().unwrap_or(first);
    directory.canonicalize().ok()
}

fn sqlite(
    observer: &Arc<dyn Observer>,
    what: &ToOpen,
    options: &OpenSettings,
) -> Result<Opened, OperationError> {
    let files = what.image.files();
    let shown = windlass_sqlite::shown(&what.facts, files)?;
    let is_root = rustix::process::geteuid().is_root();
    let owner = what.owner.filter(|_| is_root);
    let image = Arc::clone(&what.image);
    let image: Arc<dyn Image> = if options.writable {
        image
    } else {
        let patch = |(file, offset, bytes)| Patch {
            file,
            offset,
            bytes,
        };
        let patches = shown.read_only.into_iter().map(patch).collect();
        Arc::new(EditedImage::new(image, files.clone(), patches))
    };
    let view = Mounted::new(observer, what, image, options, owner, options.writable)?;
    Ok(Opened::Sqlite {
        database: view.scratch.shown(shown.name),
        view,
    })
}

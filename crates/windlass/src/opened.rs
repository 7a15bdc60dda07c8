//! An opened set: its image on a mount in a scratch directory, and for PostgreSQL a server on it.
//!
//!   set --> image --edits--> overlay --> mount --+--> PostgreSQL's own server
//!                  \---- read-only ------> mount +--> a SQLite file
//!
//! Invariants
//! - The set is never written to. Changes go to the overlay, which is removed with the scratch
//!   directory.
//! - The parts end in a fixed order: first the server, then the mount, then the directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::{Cancel, OpenSet};
use windlass_image::{EditedImage, Image, Overlay, Patch, SetImage, SetImageOptions};
use windlass_mount::{DamageHook, Mount, MountOptions, apart};
use windlass_postgres::{DatabaseFacts, OpenRequest, Programs, Server, server_view};

use crate::cli::OpenOptions;
use crate::exit::{Code, Failure};
use crate::held::Held;
use crate::scratch::Scratch;
use crate::status::Operation;
use crate::{output, privilege};

/// The user for servers whose set belongs to root.
const USUAL_USER: &str = "postgres";

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
    scratch: Scratch,
    /// Whether a write found no free space.
    full: Arc<AtomicBool>,
}

impl Opened {
    /// Opens a set.
    pub fn open(
        set: &Arc<OpenSet>,
        options: &OpenOptions,
        writable: bool,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        Held::check(set.description())?;
        match Held::of(set.description())? {
            Held::Postgres => postgres(set, options, writable, cancel),
            Held::Sqlite => sqlite(set, options, writable),
        }
    }

    /// The mount of the set.
    pub fn view(&self) -> &Mounted {
        match self {
            Self::Postgres { view, .. } | Self::Sqlite { view, .. } => view,
        }
    }

    /// Fails if the server is no longer there.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        if let Self::Postgres { server, view } = self {
            let alive = server.check_alive();
            return alive.map_err(|error| view.explained(error.into()));
        }
        Ok(())
    }

    /// Closes the set. Returns whether damage of the set was found while it was open.
    pub fn close(self) -> Result<bool, Failure> {
        let view = match self {
            Self::Postgres { server, view } => {
                server.stop()?;
                view
            }
            Self::Sqlite { view, .. } => view,
        };
        let damaged = view.is_damaged();
        let Mounted {
            operation,
            mount,
            scratch,
            ..
        } = view;
        drop(operation);
        // When the status no longer shows the mount, nobody else holds it.
        if let Some(mount) = Arc::into_inner(mount) {
            mount.unmount()?;
        }
        drop(scratch);
        Ok(damaged)
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

    /// The failure with its real cause: damage of the set, or a lack of free space.
    fn explained(&self, failure: Failure) -> Failure {
        if self.is_damaged() {
            return failure.of_damage();
        }
        if !self.full.load(Ordering::Relaxed) {
            return failure;
        }
        let (scratch, failure) = (self.scratch.path().display(), failure.message());
        let message = format!("the scratch directory {scratch} is full: {failure}");
        let hint = "Free space there, or name a directory on a larger disk with --scratch.";
        Failure::new(Code::Failed, message, hint)
    }

    fn new(
        set: &OpenSet,
        image: Arc<dyn Image>,
        options: &OpenOptions,
        owner: Option<(u32, u32)>,
        (overlaid, writable): (bool, bool),
    ) -> Result<Self, Failure> {
        let scratch = Scratch::create(options.scratch.as_deref(), owner)?;
        let full = Arc::<AtomicBool>::default();
        let mount_options = MountOptions {
            owner,
            name: "windlass-open".to_owned(),
            on_damage: Some(DamageHook::new({
                let full = Arc::clone(&full);
                move |error| {
                    full.fetch_or(error.is_full(), Ordering::Relaxed);
                    let what = if error.is_of_set() { "damage" } else { "error" };
                    output::note(&format!("{what}: {error}"));
                }
            })),
            ..MountOptions::default()
        };
        let at = scratch.data();
        let mount = if overlaid {
            let overlay = Overlay::create(image, &scratch.overlay())?;
            Mount::view(Arc::new(overlay), &at, &mount_options)?
        } else {
            Mount::image(image, &at, &mount_options)?
        };
        let mount = Arc::new(mount);
        Ok(Self {
            operation: operation(set, &mount, writable),
            mount,
            scratch,
            full,
        })
    }
}

/// Shows an opened set in `windlass status`.
fn operation(set: &OpenSet, mount: &Arc<Mount>, writable: bool) -> Operation {
    let title = format!("set {} on {}", set.set_id(), mount.at().display());
    let phase = if writable {
        "opened, writable"
    } else {
        "opened, read-only"
    };
    let mount = Arc::downgrade(mount);
    Operation::begin("open", &title, move || {
        let statistics = mount.upgrade().map(|mount| mount.statistics());
        (phase.to_owned(), serde_json::json!({ "mount": statistics }))
    })
}

fn image(set: &Arc<OpenSet>, options: &OpenOptions) -> Result<Arc<SetImage>, Failure> {
    let image_options = SetImageOptions {
        frame_cache_bytes: options.cache,
        ..SetImageOptions::default()
    };
    Ok(Arc::new(SetImage::open(Arc::clone(set), &image_options)?))
}

fn postgres(
    set: &Arc<OpenSet>,
    options: &OpenOptions,
    writable: bool,
    cancel: &Cancel,
) -> Result<Opened, Failure> {
    let description = set.description();
    let facts = DatabaseFacts::of_set(&description.facts.database)?;
    let programs = Programs::find(facts.major(), options.bindir.as_deref())?;
    let run_as = server_user(set, options)?;
    let files = server_view(&description.files)?;
    let edited = EditedImage::new(image(set, options)?, files, Vec::new());
    // Recovery writes, even if nobody writes afterwards.
    let view = Mounted::new(set, Arc::new(edited), options, run_as, (true, writable))?;
    let request = OpenRequest {
        data: view.at().to_owned(),
        was: facts.data_directory.into(),
        scratch: view.scratch.path().to_owned(),
        programs,
        writable,
        port: options.port,
        listen: options.listen.clone(),
        preload: options.preload.clone(),
        settings: options.settings.clone(),
        role: options.user.clone(),
        owner: facts.owner,
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
fn server_user(set: &OpenSet, options: &OpenOptions) -> Result<Option<(u32, u32)>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let named = options.run_as.as_deref();
    if let (None, Some(owner)) = (named, set_owner(set)) {
        return Ok(Some(owner));
    }
    let name = named.unwrap_or(USUAL_USER);
    match privilege::user_ids(name) {
        Some(ids) if ids.0 != 0 => Ok(Some(ids)),
        _ => Err(Failure::new(
            Code::Failed,
            format!("a server cannot run as user {name:?}"),
            "Name another user with --run-as.",
        )),
    }
}

/// The owner of the set's files, unless that is root.
fn set_owner(set: &OpenSet) -> Option<(u32, u32)> {
    let (uid, gid) = privilege::owner(set.stripes().first()?.location())?;
    (uid != 0).then_some((uid, gid))
}

fn sqlite(set: &Arc<OpenSet>, options: &OpenOptions, writable: bool) -> Result<Opened, Failure> {
    let description = set.description();
    let shown = windlass_sqlite::view(&description.facts, &description.files)?;
    let owner = rustix::process::geteuid().is_root().then(|| set_owner(set));
    let image = image(set, options)?;
    let image: Arc<dyn Image> = if writable {
        image
    } else {
        let patch = |(file, offset, bytes)| Patch {
            file,
            offset,
            bytes,
        };
        let patches = shown.read_only.into_iter().map(patch).collect();
        Arc::new(EditedImage::new(image, description.files.clone(), patches))
    };
    let view = Mounted::new(set, image, options, owner.flatten(), (writable, writable))?;
    Ok(Opened::Sqlite {
        database: view.at().join(shown.name),
        view,
    })
}

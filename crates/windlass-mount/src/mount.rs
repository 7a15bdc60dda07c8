//! One mount: how it starts, how threads serve it, and how it ends.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL};
use windlass_image::{Image, ImageView, Overlay, View};

use crate::counters::{Counters, MountStatistics};
use crate::damage::{DamageHook, DamageLog};
use crate::end::{self, End};
use crate::error::MountError;
use crate::kernel_ahead;
use crate::read_ahead::ReadAhead;
use crate::served::{Parts, Served};
use crate::unmount::{self, Unmounted};

/// Fewest and most threads that answer the kernel, unless the caller sets a number. They mostly
/// wait for stripes.
const THREADS: (usize, usize) = (4, 16);

/// How long to wait for the end of a mount that nobody uses. The end is one message from the kernel
/// away.
const ENDING: Duration = Duration::from_millis(500);

/// How long to wait for it if the mount is gone here. It never comes if another mount namespace has
/// a copy of the mount: a container or a service that began meanwhile.
const ENDING_ELSEWHERE: Duration = Duration::from_secs(5);

/// How an image is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Threads that answer the kernel [default: twice the cores, 4 to 16].
    pub threads: Option<usize>,
    /// Who owns the files [default: the user who mounts]. Only root can name another user.
    pub owner: Option<(u32, u32)>,
    /// Memory that the view takes for its caches, as far as that is known.
    pub cache_bytes: u64,
    /// Lets other users in, as far as the modes of the files allow. Naming another owner always
    /// does.
    pub allow_other: bool,
    /// Reads bypass the kernel's page cache.
    pub direct_io: bool,
    /// The name of the source in lists of mounts.
    pub name: String,
    /// Receives reports of damage.
    pub on_damage: Option<DamageHook>,
}

/// A mounted image. Dropping it unmounts.
pub struct Mount {
    at: PathBuf,
    /// The number of its file system. No other one has it as long as this mount lies anywhere.
    number: Option<u64>,
    counters: Arc<Counters>,
    end: Arc<End>,
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mount").field("at", &self.at).finish()
    }
}

/// Address space that a thread takes that answers the kernel: its stack, its buffer for requests,
/// and what the C library reserves for its memory.
///
/// These are constants because nobody can be asked. The crate that serves FUSE makes its threads
/// and their buffers only when the mount is there, and tells no size. The C library tells none
/// either. Nothing else in Windlass estimates these sizes.
const THREAD_BYTES: u64 = (2 + 16 + 64) << 20;
/// Address space for everything else: the threads that read ahead, and those of the process.
const OTHER_BYTES: u64 = 128 << 20;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

impl MountOptions {
    fn threads(&self) -> usize {
        let default = (cores() * 2).clamp(THREADS.0, THREADS.1);
        self.threads.unwrap_or(default).max(1)
    }

    /// Refuses a mount that would find no more memory later. Then the process would end, and leave
    /// a mount that nobody serves. Only a limit on the address space shows that before: without
    /// one, the kernel promises memory that it may not have.
    pub fn check_room(&self) -> Result<(), MountError> {
        let Some(left_bytes) = windlass_engine::address_space_left() else {
            return Ok(());
        };
        let threads = (self.threads() as u64).saturating_mul(THREAD_BYTES);
        let needed_bytes = threads
            .saturating_add(self.cache_bytes)
            .saturating_add(OTHER_BYTES);
        match windlass_engine::address_space_has(needed_bytes) {
            true => Ok(()),
            false => Err(MountError::AddressSpace {
                needed_bytes,
                left_bytes,
            }),
        }
    }
}

impl Mount {
    /// Mounts an image, read-only.
    pub fn image(
        image: Arc<dyn Image>,
        at: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        Self::view(Arc::new(ImageView::new(image)), at, options)
    }

    /// Mounts an overlay. Programs can write to it, and the image below does not change.
    pub fn overlay(
        overlay: Arc<Overlay>,
        at: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        Self::view(overlay, at, options)
    }

    /// Mounts a view of either kind: an image or an overlay.
    pub fn view(
        view: Arc<dyn View>,
        at: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let at = Self::place(at)?;
        unmount::check_device()?;
        let us = rustix::process::geteuid();
        if !us.is_root() && unmount::helper().is_none() {
            return Err(MountError::NoHelper);
        }
        let owner = options
            .owner
            .unwrap_or((us.as_raw(), rustix::process::getegid().as_raw()));
        if !us.is_root() && owner.0 != us.as_raw() {
            return Err(MountError::NotForOwner { at });
        }
        let serve = |source| MountError::Serve {
            at: at.clone(),
            source,
        };
        let cores = cores();
        let mut config = config(&*view, options);
        if options.allow_other || owner.0 != us.as_raw() {
            config.acl = SessionACL::All;
        }
        options.check_room()?;
        config.n_threads = Some(options.threads());
        let counters = Arc::<Counters>::default();
        let ahead = ReadAhead::start(&view, cores, &counters).map_err(serve)?;
        let damage = DamageLog::new(options.on_damage.clone(), Arc::clone(&counters));
        let (direct_io, shared) = (options.direct_io, Arc::clone(&counters));
        let parts = Parts::new(view, owner, direct_io, ahead, damage, shared);
        let end = Arc::<End>::default();
        let served = Served::new(parts, Arc::clone(&end));
        let below = end::file_system(&at);
        let session = Session::new(served, &at, &config).map_err(|source| refusal(&at, source))?;
        let ending = Arc::clone(&end);
        std::thread::Builder::new()
            .name("mount".to_owned())
            .spawn(move || ending.note(ending.follow(&session).and_then(|()| session.run())))
            .map_err(serve)?;
        // If it is gone already, somebody's disk is seen here.
        let number = end::file_system(&at).filter(|number| Some(*number) != below);
        if let Some(number) = number {
            kernel_ahead::raise(number);
        }
        Ok(Self {
            at,
            number,
            counters,
            end,
        })
    }

    /// Checks that `at` is a directory to mount on, and returns its absolute path. It must exist
    /// and be empty. If a mount whose server is dead lies there, this call takes it away first.
    pub fn place(at: &Path) -> Result<PathBuf, MountError> {
        let fault = |error: io::Error| MountError::Place {
            at: at.to_owned(),
            what: error.to_string(),
        };
        if unmount::is_dead(at) {
            unmount::detach(at)?;
        }
        let absolute = at.canonicalize().map_err(fault)?;
        let mut entries = std::fs::read_dir(&absolute).map_err(fault)?;
        match entries.next() {
            None => Ok(absolute),
            Some(_) if is_mounted_on(&absolute) => Err(MountError::Taken { at: absolute }),
            Some(_) => Err(fault(io::Error::other("the directory is not empty"))),
        }
    }

    /// The directory it is mounted on.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// What the mount has done so far.
    pub fn statistics(&self) -> MountStatistics {
        self.counters.statistics()
    }

    /// Returns when the tree has been unmounted, here or by anybody else.
    pub fn wait(&self) -> Result<(), MountError> {
        self.end.wait().map_err(|source| MountError::Serve {
            at: self.at.clone(),
            source,
        })
    }

    /// True when the tree has been unmounted. Waits at most `limit` for that.
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.end.wait_for(limit)
    }

    /// Takes the mount out of the tree of directories. While programs have files of it open, it
    /// goes on serving them; `wait` returns when the last file is closed. Another mount that lies
    /// on the place by now stays.
    pub fn detach(&self) -> Result<Unmounted, MountError> {
        if self.wait_for(Duration::ZERO) {
            return Ok(Unmounted::Gone);
        }
        let unmounted = match self.lies_there() {
            true => unmount::unmount(&self.at)?,
            false => Unmounted::Detached,
        };
        let limit = match unmounted {
            Unmounted::Detached => ENDING,
            Unmounted::Gone => ENDING_ELSEWHERE,
        };
        Ok(match self.wait_for(limit) {
            true => Unmounted::Gone,
            false => Unmounted::Detached,
        })
    }

    fn lies_there(&self) -> bool {
        !self.end.is_over() && end::file_system(&self.at) == self.number
    }

    /// Unmounts. Open files stay readable as long as this process lives.
    pub fn unmount(self) -> Result<Unmounted, MountError> {
        let unmounted = self.detach()?;
        if unmounted == Unmounted::Gone {
            self.wait()?;
        }
        Ok(unmounted)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A caller that wants to know how it went calls `unmount` instead.
        if let Ok(Unmounted::Gone) = self.detach() {
            self.wait().unwrap_or_default();
        }
    }
}

fn config(view: &dyn View, options: &MountOptions) -> Config {
    // The name becomes part of a list that is separated by commas.
    let plain = |letter: char| match letter {
        ',' | '\\' | '\n' => '_',
        letter => letter,
    };
    let name = match options.name.as_str() {
        "" => "windlass",
        name => name,
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name.chars().map(plain).collect()),
        MountOption::Subtype("windlass".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if !view.is_writable() {
        config.mount_options.push(MountOption::RO);
    }
    config
}

/// True if the directory is the top of a file system.
fn is_mounted_on(at: &Path) -> bool {
    let system = end::file_system;
    at.parent()
        .is_some_and(|parent| system(parent) != system(at))
}

fn refusal(at: &Path, source: io::Error) -> MountError {
    let at = at.to_owned();
    // The message of the helper comes with the helper's name and a line break.
    let said = source.to_string();
    let said = said.trim().trim_start_matches("fusermount3: ");
    if said.contains("user_allow_other") {
        return MountError::NotForOthers { at };
    }
    if said.contains("no write access") {
        let what = "you may not write there".to_owned();
        return MountError::Place { at, what };
    }
    let source = io::Error::new(source.kind(), said.to_owned());
    MountError::Mount { at, source }
}

//! A set of a small tree, and a place to mount it on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windlass_image::{SetImage, SetImageOptions};
use windlass_mount::{Mount, MountOptions};
use windlass_testkit::heap::HeapHook;
pub use windlass_testkit::sets::*;

/// A mount namespace that a test makes gets a copy of the mounts of all other tests, and what is
/// unmounted is served on for as long as such a copy is there. So that test has this for itself.
static MOUNTS: RwLock<()> = RwLock::new(());

enum Turn {
    BesideOthers {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

/// A directory with a set in `set` and an empty directory `at`.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub tree: Vec<Planted>,
    _turn: Option<Turn>,
}

impl Place {
    pub fn new(tree: Vec<Planted>, spec: &Setup) -> Self {
        let _guard = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
        Self::made(tree, (spec, None), Some(Turn::BesideOthers { _guard }))
    }

    /// A place whose set has pages that were taken apart, as this hook says.
    pub fn hooked(tree: Vec<Planted>, spec: &Setup, hook: HeapHook) -> Self {
        let _guard = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
        let turn = Turn::BesideOthers { _guard };
        Self::made(tree, (spec, Some(hook)), Some(turn))
    }

    /// Waits until no other test has a place, and keeps them waiting.
    pub fn alone(tree: Vec<Planted>, spec: &Setup) -> Self {
        let _guard = MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
        Self::made(tree, (spec, None), Some(Turn::Alone { _guard }))
    }

    /// The second place of a test. It may wait for nobody, since its test keeps others waiting.
    pub fn second(tree: Vec<Planted>, spec: &Setup) -> Self {
        Self::made(tree, (spec, None), None)
    }

    fn made(
        tree: Vec<Planted>,
        (spec, hook): (&Setup, Option<HeapHook>),
        turn: Option<Turn>,
    ) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["set", "at"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let is_hooked = hook.is_some();
        let report = make_set_by(&tree, &dir.path().join("set"), spec, hook);
        let apart = report.pages.map_or(0, |pages| pages.apart_bytes);
        assert_eq!(apart > 0, is_hooked);
        Self {
            dir,
            tree,
            _turn: turn,
        }
    }

    pub fn set(&self) -> PathBuf {
        self.dir.path().join("set")
    }

    pub fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at().join(name)
    }

    pub fn image(&self) -> Arc<SetImage> {
        open_image(&self.set())
    }

    pub fn mount(&self) -> Mount {
        self.mount_as(false)
    }

    /// Mounts the set. With `direct_io`, reads bypass the kernel's page cache.
    pub fn mount_as(&self, direct_io: bool) -> Mount {
        let options = MountOptions {
            direct_io,
            ..MountOptions::default()
        };
        Mount::image(self.image(), &self.at(), &options).unwrap()
    }
}

pub fn open_image(dir: &Path) -> Arc<SetImage> {
    Arc::new(SetImage::open(open_set(dir), &SetImageOptions::default()).unwrap())
}

/// A tree with everything that a data directory has: files of all lengths, links, modes.
pub fn sample() -> Vec<Planted> {
    let mut tree = vec![
        Planted::directory("base").mode(0o750),
        Planted::file("base/empty", vec![]),
        Planted::file("base/byte", vec![42]),
        Planted::file("base/page", text(8192, 1)),
        Planted::file("base/odd", text(300_001, 2)).mode(0o640),
        Planted::file("base/zeros", vec![0; 1_000_000]),
        Planted::file("large", text(5_000_000, 3)).mode(0o444),
        Planted::directory("pg_tblspc"),
        Planted::link("pg_tblspc/16400", "/nowhere/at/all"),
        Planted::directory("pg_tblspc/16400/PG_15"),
        Planted::file("pg_tblspc/16400/PG_15/1", text(20_000, 4)),
        Planted::link("inside", "base/byte"),
        Planted::link("outside", "/etc/passwd"),
        Planted::file("base/sp ace\n\u{e4}", vec![1, 2, 3]).mode(0o711),
    ];
    tree.extend((0..300).map(|n| Planted::file(&format!("base/n{n}"), vec![n as u8; n])));
    tree
}

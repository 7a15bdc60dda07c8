//! Random changes on an overlay's mount and on an ordinary directory: both must look the same,
//! after every few changes and after the overlay was opened again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use windlass_testkit::sqlite::Random;

use crate::support::*;

/// How many names the changes choose from. There are few, so that changes meet on the same name.
const NAMES: u32 = 14;
const DIRECTORIES: [&str; 4] = ["", "base/", "d0/", "d0/d1/"];
const LENGTH_MAX: u32 = 120_000;

/// Two trees that must stay equal.
struct Twins {
    mounted: PathBuf,
    plain: PathBuf,
    random: Random,
    /// Files that were removed while open, in both trees. Their content must stay equal, too.
    open: Vec<(File, File)>,
}

impl Twins {
    fn name(&mut self) -> String {
        let directory = DIRECTORIES[self.random.below(4) as usize];
        format!("{directory}f{}", self.random.below(NAMES))
    }

    /// Does the same to both trees, and expects the same answer.
    fn both<T>(&self, name: &str, act: impl Fn(&Path) -> std::io::Result<T>) -> Option<(T, T)> {
        let mounted = act(&self.mounted.join(name));
        let plain = act(&self.plain.join(name));
        match (mounted, plain) {
            (Ok(mounted), Ok(plain)) => Some((mounted, plain)),
            (Err(mounted), Err(plain)) => {
                assert_eq!(mounted.raw_os_error(), plain.raw_os_error(), "{name}");
                None
            }
            (mounted, plain) => panic!(
                "{name}: mounted {:?}, plain {:?}",
                mounted.err(),
                plain.err()
            ),
        }
    }

    fn change(&self, name: &str, act: impl Fn(&Path) -> std::io::Result<()>) {
        self.both(name, act).map_or((), |((), ())| ())
    }

    fn step(&mut self) {
        let (name, other) = (self.name(), self.name());
        match self.random.below(20) {
            0..=6 => self.write(&name),
            7..=8 => self.resize(&name),
            9 => self.change(&name, |path| fs::remove_file(path)),
            10..=11 => self.rename(&name, &other),
            12 => self.link(&name, &other),
            13 => self.change(&name, |path| std::os::unix::fs::symlink("base/page", path)),
            14 => self.change("d0", |path| fs::create_dir(path)),
            15 => self.change("d0/d1", |path| fs::create_dir(path)),
            16 => {
                let directory = ["d0/d1", "d0"][self.random.below(2) as usize];
                self.change(directory, |path| fs::remove_dir(path));
            }
            17 => self.change_mode(&name),
            18 => self.remove_while_open(&name),
            _ => self.read(&name),
        }
    }

    fn write(&mut self, name: &str) {
        let offset = u64::from(self.random.below(LENGTH_MAX));
        let mut bytes = vec![0; self.random.below(40_000) as usize];
        let seed = self.random.bits();
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (seed >> (at % 56)) as u8 ^ at as u8;
        }
        let sync = self.random.below(4) == 0;
        self.both(name, |path| {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.write_all_at(&bytes, offset)?;
            if sync { file.sync_all() } else { Ok(()) }
        });
    }

    fn resize(&mut self, name: &str) {
        let bytes = u64::from(self.random.below(LENGTH_MAX));
        self.both(name, |path| {
            File::options().write(true).open(path)?.set_len(bytes)
        });
    }

    fn rename(&self, name: &str, other: &str) {
        for root in [&self.mounted, &self.plain] {
            // Either both fail or both succeed: the comparison of the trees shows it.
            rustix::fs::rename(root.join(name), root.join(other)).unwrap_or_default();
        }
    }

    fn link(&self, name: &str, other: &str) {
        let act = |root: &Path| fs::hard_link(root.join(name), root.join(other));
        let (mounted, plain) = (act(&self.mounted), act(&self.plain));
        let number = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
        assert_eq!(number(mounted), number(plain), "{name} {other}");
    }

    fn change_mode(&mut self, name: &str) {
        let mode = 0o600 | (self.random.below(0o100));
        self.both(name, |path| {
            // Does not follow a link: both trees would change the same file outside.
            if path.symlink_metadata()?.is_file() {
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            }
            Ok(())
        });
    }

    fn remove_while_open(&mut self, name: &str) {
        let opened = self.both(name, |path| {
            if path.symlink_metadata()?.is_symlink() {
                return Err(std::io::ErrorKind::NotFound.into());
            }
            let file = File::options().read(true).write(true).open(path)?;
            fs::remove_file(path)?;
            file.write_all_at(b"removed", 3)?;
            Ok(file)
        });
        self.open.extend(opened);
        if self.open.len() > 3 {
            let at = self.random.below(4) as usize;
            let (mounted, plain) = self.open.swap_remove(at);
            assert!(content(&mounted) == content(&plain));
        }
    }

    fn read(&mut self, name: &str) {
        let offset = u64::from(self.random.below(LENGTH_MAX));
        let bytes = self.random.below(30_000) as usize;
        let read = self.both(name, |path| {
            let mut into = vec![0; bytes];
            let count = File::open(path)?.read_at(&mut into, offset)?;
            into.truncate(count);
            Ok(into)
        });
        if let Some((mounted, plain)) = read {
            assert!(mounted == plain, "{name} at {offset}");
        }
    }

    fn compare(&self, when: &str) {
        let (mounted, plain) = (look(&self.mounted), look(&self.plain));
        let names = |tree: &BTreeMap<String, Seen>| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&mounted), names(&plain), "{when}");
        for (name, seen) in &mounted {
            assert!(*seen == plain[name], "{when}: {name} differs");
        }
        for (mounted, plain) in &self.open {
            assert!(content(mounted) == content(plain), "{when}: an open file");
        }
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// What a program can see of a path: kind, mode, names, length, content.
#[derive(PartialEq)]
struct Seen(u32, u64, Vec<u8>);

fn look(root: &Path) -> BTreeMap<String, Seen> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let seen = if metadata.is_dir() {
                waiting.push(path.clone());
                Seen(metadata.mode(), 0, Vec::new())
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                Seen(metadata.mode(), 1, target.to_str().unwrap().into())
            } else {
                Seen(metadata.mode(), metadata.nlink(), fs::read(&path).unwrap())
            };
            let own = path.strip_prefix(root).unwrap();
            found.insert(own.to_str().unwrap().to_owned(), seen);
        }
    }
    found
}

/// A tree with the names that the changes choose from.
fn tree() -> Vec<Planted> {
    let mut tree = vec![
        Planted::directory("base"),
        Planted::file("base/page", text(8192, 1)),
        Planted::directory("d0"),
    ];
    for number in 0..8 {
        let (top, below) = (format!("f{number}"), format!("base/f{number}"));
        tree.push(Planted::file(&top, text(number * 9_001, number as u64)));
        tree.push(Planted::file(
            &below,
            text(100_000 - number * 8192, 50 + number as u64),
        ));
    }
    tree
}

fn plant(tree: &[Planted], root: &Path) {
    for node in tree {
        let path = root.join(&node.path);
        if node.path == "base" || node.path == "d0" {
            fs::create_dir(&path).unwrap();
        } else {
            File::create(&path)
                .unwrap()
                .write_all_at(&node.content, 0)
                .unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(node.mode)).unwrap();
    }
}

fn run(seed: u64) {
    let place = Place::new(tree(), &two_stripes());
    let before = set_bytes(&place.set());
    let plain = place.dir.path().join("plain");
    fs::create_dir(&plain).unwrap();
    plant(&place.tree, &plain);
    let mut twins = Twins {
        mounted: place.at(),
        plain,
        random: Random(seed),
        open: Vec::new(),
    };
    for round in 0..6 {
        let mount = place.mount_overlay();
        twins.compare(&format!("seed {seed}, opened in round {round}"));
        for batch in 0..4 {
            for _ in 0..25 {
                twins.step();
            }
            twins.compare(&format!("seed {seed}, round {round}, batch {batch}"));
        }
        twins.open.clear();
        mount.unmount().unwrap();
    }
    assert!(set_bytes(&place.set()) == before);
}

#[test]
fn an_overlay_is_like_an_ordinary_directory_seed_1() {
    run(1);
}

#[test]
fn an_overlay_is_like_an_ordinary_directory_seed_2() {
    run(2);
}

#[test]
fn an_overlay_is_like_an_ordinary_directory_seed_3() {
    run(3);
}

#[test]
fn an_overlay_is_like_an_ordinary_directory_seed_4() {
    run(4);
}

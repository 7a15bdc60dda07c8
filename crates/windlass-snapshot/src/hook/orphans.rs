//! What somebody removed without Windlass: the store, or directories of snapshots.
//!
//!   store gone      --> every snapshot is lost, and forgotten: none has all its pages
//!   directory gone  --> that snapshot is forgotten: nobody finds it, and its pages cost room
//!
//! The memory of the server outlives both, and also a start of the server. So whoever makes the
//! next snapshot looks here first, or that one would get a store that is not there.
//!
//! Invariants
//! - A file that has the name of the store and is another one is not read or changed.
//! - If one directory cannot be looked into, none counts as gone: its disk may not be mounted.
//! - Nor if a place that had entries is not where it was (`homes`): it may have been moved.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use windlass_image::layout::hook::{
    Cause, Fault, Memory, Phase, Reading, SNAPSHOTS_MAX, Snapshot, grace, lose_all,
};

use super::control::{Control, Patience};
use super::durable;
use super::error::{HookError, HookIo};
use super::homes::Homes;
use super::locked::Locked;
use super::record::{CONTENT, Document, boot};
use super::remove::{finish, take_out, waited};
use super::store::PreservedPages;
use super::unnamed;

/// What is gone that the server still had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// So many snapshots were lost, because their store is not there.
    pub without_pages: usize,
    /// So many snapshots were dropped, because their directories are not there.
    pub without_directory: usize,
    /// So many stay that have no directory: it may have been moved.
    pub in_doubt: usize,
    /// Where it may have been.
    pub missing: Vec<PathBuf>,
}

impl Orphans {
    /// The name of each warning, and its words.
    pub(crate) fn warnings(&self) -> Vec<(String, String)> {
        let mut warnings = Vec::new();
        let mut warn = |count, name: &str, one: &str, many: &str| {
            let text = match count {
                0 => return,
                1 => format!("an older snapshot {one}"),
                count => format!("{count} older snapshots {many}"),
            };
            warnings.push((name.to_owned(), text));
        };
        warn(
            self.without_pages,
            "snapshots-lost",
            "is lost: the file with its pages was removed, or replaced by another one",
            "are lost: the file with their pages was removed, or replaced by another one",
        );
        warn(
            self.without_directory,
            "snapshots-removed",
            "is dropped: somebody removed its directory",
            "are dropped: somebody removed their directories",
        );
        let (one, many) = self.doubts();
        warn(self.in_doubt, "snapshots-elsewhere", &one, &many);
        warnings
    }

    /// Whether anything is gone, or may be.
    pub fn has_any(&self) -> bool {
        self.without_pages + self.without_directory + self.in_doubt > 0
    }

    /// The places that are not where they were; `None` if no such place is known.
    pub fn moved(&self) -> Option<String> {
        let missing = self.missing.iter().map(|path| path.display().to_string());
        let missing: Vec<_> = missing.collect();
        (!missing.is_empty()).then(|| format!("{} is not where it was", missing.join(", ")))
    }

    /// Why snapshots stay that have no directory, of one and of more.
    fn doubts(&self) -> (String, String) {
        let unknown = || "whether somebody removed it is not known".to_owned();
        let why = self.moved().unwrap_or_else(unknown);
        (
            format!("stays in the server, without a directory here: {why}"),
            format!("stay in the server, without directories here: {why}"),
        )
    }
}

/// What the directories say of the snapshots of a memory.
enum Sight {
    /// One cannot be looked into.
    Unclear,
    /// There are as many directories of this memory as snapshots, and no others.
    Whole,
    /// The numbers of the snapshots of this memory that have a directory.
    Numbers(BTreeSet<u32>),
}

/// Takes out what has no pages or no directory any more. `home` has an entry for each snapshot of
/// the database; without it no directory is missed.
pub(crate) fn take_out_all(locked: &Locked<'_>, home: Option<&Path>) -> Result<Orphans, HookError> {
    let mut orphans = Orphans {
        without_pages: without_pages(locked)?,
        ..Orphans::default()
    };
    if let Some(home) = home {
        without_directory(locked, home, &mut orphans)?;
    }
    Ok(orphans)
}

/// Takes out what has no directory any more, after one was removed that did not say which snapshot
/// of the server it was.
pub(crate) fn take_out_missing(data: &Path, home: &Path) -> Result<(), HookError> {
    let Some(control) = Control::open_any(data)? else {
        return Ok(());
    };
    let locked = control.lock()?;
    let is_clear = without_directory(&locked, home, &mut Orphans::default())?;
    // What was removed may have been by another method. Then the server has none more for it.
    if !is_clear && unnamed::count(data)? < unseen(&locked, home)? {
        unnamed::add(data)?;
    }
    finish(&locked, data)
}

/// What a list of the snapshots of a cluster lacks: those that the server still has, and whose
/// directories are not there. Nothing is changed.
pub fn missed(data: &Path, home: &Path) -> Result<Orphans, HookError> {
    let mut orphans = Orphans::default();
    let control = match Control::open_any(data) {
        // Each snapshot that is there says the same.
        Err(HookError::Version { .. } | HookError::Foreign { .. }) => return Ok(orphans),
        control => control?,
    };
    let Some(control) = control else {
        return Ok(orphans);
    };
    let before = whole(control.memory());
    if before.is_empty() {
        return Ok(orphans);
    }
    let homes = Homes::of(data, home)?;
    let seen = sight(&control, in_use(control.memory()), &homes)?;
    let Sight::Numbers(known) = seen else {
        return Ok(orphans);
    };
    // Somebody may make or drop one meanwhile. The server has it later than its directory is
    // there, and forgets it before.
    let after = whole(control.memory());
    let gone = before.intersection(&after);
    let gone = gone.filter(|number| !known.contains(*number)).count();
    if !PreservedPages::is_there(control.memory()) {
        // Wherever the directories are, nobody can read these.
        orphans.without_pages = gone;
    } else if homes.are_all() {
        orphans.without_directory = gone.saturating_sub(unnamed::count(data)?);
    } else {
        orphans.in_doubt = gone;
        orphans.missing = homes.missing;
    }
    Ok(orphans)
}

/// The snapshots that nobody is making or dropping.
fn whole(memory: Memory<'_>) -> BTreeSet<u32> {
    let entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    let is_whole =
        |it: &Snapshot<'_>| it.is_complete() && matches!(it.state(), Phase::Active | Phase::Lost);
    entries.filter(is_whole).map(|it| it.number()).collect()
}

/// So many snapshots have a directory, if none is gone: one that reached a limit, too.
fn in_use(memory: Memory<'_>) -> usize {
    let entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    entries.filter(|it| it.state() != Phase::Free).count()
}

fn without_pages(locked: &Locked<'_>) -> Result<usize, HookError> {
    let memory = locked.memory();
    if locked.snapshots().next().is_none() || PreservedPages::is_there(memory) {
        return Ok(0);
    }
    let lost = locked.snapshots().filter(|it| it.state() == Phase::Active);
    let lost = lost.count();
    let (cause, errno) = (Cause::Store, 0);
    durable::forget_all(locked.control().data(), memory)?;
    let forget = |index| durable::forget(locked.control().data(), index);
    lose_all(memory, Fault { cause, errno }, forget);
    waited(grace(memory, &mut Patience::default()))?;
    waited(Reading::grace(memory, &mut Patience::default()))?;
    // Nobody keeps a page now. What has the store's name is not ours, so its pages are not freed.
    memory.set_store(b"");
    let numbers: Vec<_> = locked.snapshots().map(|it| it.number()).collect();
    for number in numbers {
        take_out(locked, number)?;
    }
    Ok(lost)
}

/// True if no snapshot is left that may have no directory.
fn without_directory(
    locked: &Locked<'_>,
    home: &Path,
    orphans: &mut Orphans,
) -> Result<bool, HookError> {
    let data = locked.control().data();
    let homes = Homes::of(data, home)?;
    let numbers: BTreeSet<_> = locked.snapshots().map(|it| it.number()).collect();
    let known = match sight(locked.control(), numbers.len(), &homes)? {
        Sight::Unclear => return Ok(false),
        Sight::Whole => numbers.clone(),
        Sight::Numbers(known) => known,
    };
    let gone: Vec<_> = numbers.difference(&known).copied().collect();
    if !homes.are_all() && !gone.is_empty() {
        orphans.in_doubt = gone.len();
        orphans.missing = homes.missing;
        return Ok(false);
    }
    for number in &gone {
        take_out(locked, *number)?;
    }
    orphans.without_directory = gone.len().saturating_sub(unnamed::count(data)?);
    unnamed::forget(data)?;
    Ok(true)
}

/// What is known of so many snapshots (`count`).
fn sight(control: &Control, count: usize, homes: &Homes) -> Result<Sight, HookError> {
    let mut numbers = BTreeSet::new();
    let (boot, inode) = (boot()?, control.inode()?);
    let mut all = Vec::new();
    for home in &homes.there {
        match directories(home)? {
            Some(found) => all.extend(found),
            None => return Ok(Sight::Unclear),
        }
    }
    let is_from = |directory: &PathBuf| Document::is_from(directory, (boot.as_str(), inode));
    if all.len() == count && all.iter().all(is_from) {
        return Ok(Sight::Whole);
    }
    for directory in all {
        let Ok(document) = Document::read(&directory) else {
            return Ok(Sight::Unclear);
        };
        let is_of_this = |it: &Document| is_of(it, control, (boot.as_str(), inode));
        numbers.extend(document.filter(is_of_this).map(|it| it.number));
    }
    Ok(Sight::Numbers(numbers))
}

/// How many snapshots of the server have no directory that can be read now.
fn unseen(locked: &Locked<'_>, home: &Path) -> Result<usize, HookError> {
    let control = locked.control();
    let (boot, inode) = (boot()?, control.inode()?);
    let mut seen = BTreeSet::new();
    for home in &Homes::of(control.data(), home)?.there {
        let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
        let documents = entries.filter_map(|entry| {
            let content = entry.path().join(CONTENT);
            Document::read(&content).ok().flatten()
        });
        let of_this = documents.filter(|it| is_of(it, control, (boot.as_str(), inode)));
        seen.extend(of_this.map(|it| it.number));
    }
    let unseen = locked.snapshots().filter(|it| !seen.contains(&it.number()));
    Ok(unseen.count())
}

/// Whether a document is of a snapshot of this memory.
fn is_of(document: &Document, control: &Control, (boot, inode): (&str, u64)) -> bool {
    match &document.durable {
        Some(durable) => durable.is_in(control.memory(), document.number),
        None => document.boot == boot && document.control_inode == inode,
    }
}

/// The directories of snapshots by the hook. `None` if an entry leads nowhere.
fn directories(home: &Path) -> Result<Option<Vec<PathBuf>>, HookError> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(home) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(found)),
        entries => entries.doing("list", home)?,
    };
    for entry in entries {
        let path = entry.doing("list", home)?.path();
        if !path.exists() {
            return Ok(None);
        }
        let directory = path.join(CONTENT);
        if Document::is_in(&directory) {
            found.push(directory);
        }
    }
    Ok(Some(found))
}

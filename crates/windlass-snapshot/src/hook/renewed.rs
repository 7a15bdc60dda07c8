//! What was taken of a running server, brought up to date while the server is paused.
//!
//! The journal says which files have another length, and which names came or went. Only these are
//! looked at, so the pause is as short for many files as for few.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use windlass_engine::media::FileKind;
use windlass_image::layout::hook::{FileKey, FileLink};
use windlass_postgres::ChangedFiles;

use super::error::HookError;
use super::examined::examine;
use super::index::Tracked;
use super::record::Kept;
use super::taken::{Into, Taken};

/// Where each file is in what was taken. It is made before the pause.
pub(crate) struct Roll {
    by_path: HashMap<Vec<u8>, usize>,
    by_key: HashMap<FileKey, Vec<usize>>,
}

impl Roll {
    pub(crate) fn of(taken: &Taken) -> Self {
        let paths = taken.entries.iter().zip(0..);
        let by_path = paths.map(|(entry, at)| (entry.path.clone(), at)).collect();
        let mut by_key: HashMap<_, Vec<_>> = HashMap::with_capacity(taken.kept.len());
        let keys = taken.kept.iter().zip(0..);
        let keys = keys.filter_map(|(kept, at)| Some((kept.key()?, at)));
        for (key, at) in keys.chain(taken.empty.iter().copied()) {
            by_key.entry(key).or_default().push(at);
        }
        Self { by_path, by_key }
    }

    /// The names of all of them.
    pub(crate) fn paths(&self) -> Vec<Vec<u8>> {
        self.by_path.keys().cloned().collect()
    }
}

impl Taken {
    /// Brings it up to date. Returns the files that are new to the index, or have another length,
    /// or are gone.
    pub(crate) fn renew(
        &mut self,
        roll: &Roll,
        (files, changed): (impl Iterator<Item = FileKey>, &ChangedFiles),
        (data, into): (&Path, &mut Into<'_>),
    ) -> Result<Vec<Tracked>, HookError> {
        let before = self.tracked.len();
        let known = self.gone.clone();
        for path in &changed.paths {
            self.forget(path, roll);
        }
        let forgotten: Vec<_> = self.gone.difference(&known).copied().collect();
        for key in files {
            for position in roll.by_key.get(&key).into_iter().flatten() {
                self.renew_length(*position, key, (data, into))?;
            }
        }
        for (entry, source) in changed.files.entries() {
            self.take_new(entry, source, into)?;
        }
        let mut new = self.tracked.split_off(before);
        new.extend(self.gone_of(&forgotten, roll, &new));
        Ok(new)
    }

    /// Looks again at the names of files that are kept. What is gone is forgotten, and a file that
    /// came in the place of another one is taken. Returns the files that are new to the index, or
    /// gone.
    pub(crate) fn renew_names(
        &mut self,
        roll: &Roll,
        paths: &[Vec<u8>],
        (data, into): (&Path, &mut Into<'_>),
    ) -> Result<Vec<Tracked>, HookError> {
        let before = self.tracked.len();
        let mut forgotten = Vec::new();
        for path in paths {
            let Some(position) = roll.by_path.get(path).copied() else {
                continue;
            };
            let Some(linked) = into.known.get(path) else {
                continue;
            };
            let source = data.join(std::ffi::OsStr::from_bytes(path));
            if into.links.again(&source, linked)?.is_some() {
                continue;
            }
            let mut entry = self.entries[position].clone();
            self.gone.insert(position);
            forgotten.push(position);
            if let Some(found) = examine(&source)? {
                entry.bytes = found.bytes;
                self.take(entry, source, into)?;
            }
        }
        let mut new = self.tracked.split_off(before);
        new.extend(self.gone_of(&forgotten, roll, &new));
        Ok(new)
    }

    /// The files of these positions that have no other name. Another file may get the number of
    /// such an inode, and nothing of that one is to be kept.
    fn gone_of(&self, positions: &[usize], roll: &Roll, new: &[Tracked]) -> Vec<Tracked> {
        let new: HashSet<_> = new.iter().map(|file| file.key).collect();
        let keys = positions.iter().filter_map(|at| self.kept[*at].key());
        let is_gone = |key: &FileKey| {
            let others = roll.by_key.get(key).into_iter().flatten();
            !new.contains(key) && others.copied().all(|at| self.gone.contains(&at))
        };
        let gone = keys.filter(is_gone).map(|key| Tracked {
            key,
            blocks: 0,
            link: FileLink::default(),
            is_watched: false,
        });
        gone.collect()
    }

    /// Drops a path, and what is below it.
    fn forget(&mut self, path: &[u8], roll: &Roll) {
        let Some(position) = roll.by_path.get(path) else {
            return;
        };
        self.gone.insert(*position);
        if self.entries[*position].kind == FileKind::File {
            return;
        }
        let below = [path, b"/"].concat();
        let inside = roll.by_path.iter();
        let inside = inside.filter(|(path, _)| path.starts_with(&below));
        self.gone.extend(inside.map(|(_, position)| *position));
    }

    /// A file that has the same name has another length.
    fn renew_length(
        &mut self,
        position: usize,
        key: FileKey,
        (data, into): (&Path, &mut Into<'_>),
    ) -> Result<(), HookError> {
        if self.gone.contains(&position) {
            return Ok(());
        }
        let mut entry = self.entries[position].clone();
        let source = data.join(std::ffi::OsStr::from_bytes(&entry.path));
        let Some(found) = examine(&source)?.filter(|found| found.key == key) else {
            return Ok(());
        };
        if matches!(self.kept[position], Kept::Nothing) && found.bytes == 0 {
            return Ok(());
        }
        entry.bytes = found.bytes;
        self.gone.insert(position);
        self.take(entry, source, into)
    }
}

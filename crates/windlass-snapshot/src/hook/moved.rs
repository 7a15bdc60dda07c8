//! Where the data directory of a snapshot is today, if it has another name than it had.
//!
//!   /srv/main --> /srv/old     somebody renamed it, or the link that leads to it
//!
//! The server has its snapshots by the number of the data directory's inode, so it goes on keeping
//! pages for them. Only the paths in the document of a snapshot are those of its making.
//!
//! Looked at are the data directories that somebody named to this process, and those beside the old
//! name. Which of them it is, the memory of its server says.
//!
//! Never does: take another directory as long as the snapshot's server has the old name.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::control::{Control, identity};

/// So many directories are remembered that somebody named.
const NAMED_MAX: usize = 64;
/// So many entries are looked at beside the old name.
const BESIDE_MAX: usize = 1000;
/// What every data directory has.
const VERSION: &str = "PG_VERSION";

static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Notes a database that somebody named: it may have snapshots that know its old name.
pub(crate) fn note_named(database: &Path) {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.iter().any(|known| known == database) {
        return;
    }
    if named.len() == NAMED_MAX {
        named.remove(0);
    }
    named.push(database.to_owned());
}

/// A data directory that has another name by now.
pub(crate) struct Moved {
    was: PathBuf,
    today: PathBuf,
}

impl Moved {
    /// Of the data directory of a snapshot; `None` if it has its name, or if it is not found.
    /// `kept` is what the snapshot has in there, and `is_in` tells the memory that it is in.
    pub(crate) fn of<'a>(
        data: &Path,
        kept: impl Iterator<Item = &'a PathBuf> + Clone,
        is_in: impl Fn(&Control) -> bool,
    ) -> Option<Self> {
        let is_served = |data: &Path| {
            let control = Control::open_any(data).ok().flatten();
            control.is_some_and(|control| is_in(&control))
        };
        if is_served(data) {
            return None;
        }
        let others = others(data);
        let served = others.iter().find(|other| is_served(other));
        let today = match served {
            // The system has started again since. What is left of the snapshot is there.
            None if !has_rest(data, data, kept.clone()) => {
                let mut others = others.iter();
                others.find(|other| has_rest(other, data, kept.clone()))
            }
            served => served,
        };
        today.map(|today| Self {
            was: data.to_owned(),
            today: today.clone(),
        })
    }

    /// The data directory.
    pub(crate) fn today(&self) -> &Path {
        &self.today
    }

    /// Where a path leads today.
    pub(crate) fn lead(&self, path: &mut PathBuf) {
        if let Some(today) = led(path, &self.was, &self.today) {
            *path = today;
        }
    }
}

/// Other data directories.
fn others(data: &Path) -> Vec<PathBuf> {
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let beside = data.parent().and_then(|parent| parent.read_dir().ok());
    let beside = beside.into_iter().flatten().take(BESIDE_MAX);
    let beside = beside.filter_map(|entry| Some(entry.ok()?.path()));
    let all = named.into_iter().chain(beside);
    all.filter(|other| other != data && other.join(VERSION).is_file())
        .collect()
}

/// Whether something that a snapshot keeps in its data directory, which was `data`, is in this one,
/// and not in a copy of it.
fn has_rest<'a>(at: &Path, data: &Path, mut kept: impl Iterator<Item = &'a PathBuf>) -> bool {
    let Ok(own) = identity(at) else {
        return false;
    };
    kept.any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{own}-"))
            && led(path, data, at).is_some_and(|path| path.is_dir())
    })
}

/// Where a path in a data directory is, if that has another name.
fn led(path: &Path, was: &Path, today: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(was).ok()?;
    Some(today.join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a memory, as after a start of the system.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn what_is_left_of_a_snapshot_is_found_under_a_new_name_and_not_in_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (old, new, copy) = (at("old"), at("new"), at("copy"));
        let make = |data: &Path| {
            std::fs::create_dir(data).unwrap();
            std::fs::write(data.join(VERSION), "15").unwrap();
        };
        make(&old);
        let name = format!("{}-7", identity(&old).unwrap());
        let kept = [old.join("links").join(&name), PathBuf::from("/elsewhere")];
        std::fs::create_dir_all(&kept[0]).unwrap();
        make(&copy);
        std::fs::create_dir_all(copy.join("links").join(&name)).unwrap();
        let moved = || Moved::of(&old, kept.iter(), |_| false);
        assert!(moved().is_none(), "it has its name");
        std::fs::rename(&old, &new).unwrap();
        let moved = moved().unwrap();
        assert_eq!(moved.today(), new);
        let [mut inside, mut outside] = kept.clone();
        moved.lead(&mut inside);
        moved.lead(&mut outside);
        assert_eq!(inside, new.join("links").join(&name));
        assert_eq!(outside, kept[1]);
    }
}

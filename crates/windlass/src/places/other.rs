//! What to do about a set that is damaged or not whole: which other set there is, if there is one.
//!
//! Every command that meets such a set says the same. Another set is named only if it is there and
//! sealed; if there is none, that is said too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windlass_engine::media::SetId;
use windlass_engine::{Files, SetEntry, SetState, set_of_stripe};

use super::identity::Identity;
use super::listed::{list, names, short_id, typed};
use super::which::when;
use crate::hints;

/// What to do about a bad set.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The words that choose the bad set on a command line.
    bad: String,
    /// Which set to take instead, in a sentence.
    instead: String,
    /// Whether that is an older one.
    is_older: bool,
}

impl Advice {
    /// The advice about one of these sets, which are in these places.
    pub fn new(sets: &[&SetEntry], bad: &SetEntry, places: &[PathBuf]) -> Self {
        let words = format!("{} --set {}", typed(places), short_id(bad));
        Self::about(sets, bad, places, "").of(words)
    }

    /// The advice about the set of these stripes. The other sets are those of their directories.
    pub fn of_stripes(stripes: &[PathBuf]) -> Option<Self> {
        let is_file = |path: &&PathBuf| !path.is_dir();
        let set_id = |path: &PathBuf| set_of_stripe(&Files, path);
        let bad: SetId = stripes.iter().filter(is_file).find_map(set_id)?;
        let directories: BTreeSet<_> = stripes.iter().map(|path| directory(path)).collect();
        let places: Vec<_> = directories.into_iter().collect();
        let list = list(&places).ok()?;
        let sets: Vec<_> = list.sets.iter().collect();
        let bad = sets.iter().find(|set| set.set_id == bad)?;
        let before = format!("{} ", typed(&places));
        Some(Self::about(&sets, bad, &places, &before).of(typed(stripes)))
    }

    /// `before` are the words that must come before `--set`.
    fn about(sets: &[&SetEntry], bad: &SetEntry, places: &[PathBuf], before: &str) -> Self {
        let moment = |set: &SetEntry| (set.begun_nanos, set.set_id.0);
        let (older, newer): (Vec<_>, Vec<_>) = sound(sets, bad)
            .into_iter()
            .partition(|set| moment(set) < moment(bad));
        let (which, set) = match (older.last(), newer.last()) {
            (Some(older), _) => ("The next older sound set", Some(older)),
            (None, Some(newer)) => (
                "No older sound set is there. The newest sound set",
                Some(newer),
            ),
            (None, None) => ("", None),
        };
        let instead = match set {
            None => {
                let place = match names(places) {
                    place if place == "." => "the current directory".to_owned(),
                    place => place,
                };
                format!("No other sound set of this database is in {place}.")
            }
            Some(set) => {
                let (id, begun) = (short_id(set), when(set.begun_nanos));
                format!("{which} is {id}, begun {begun}: take it with {before}--set {id}.")
            }
        };
        Self {
            bad: String::new(),
            instead,
            is_older: !older.is_empty(),
        }
    }

    fn of(self, bad: String) -> Self {
        Self { bad, ..self }
    }

    /// Whether there is an older set.
    pub fn is_older(&self) -> bool {
        self.is_older
    }

    /// Which set to take instead.
    pub fn instead(&self) -> &str {
        &self.instead
    }

    /// The hint of a failure that damage of the set causes. `own` is what else can be done.
    pub fn hint(&self, own: Option<&str>) -> String {
        let Self { bad, instead, .. } = self;
        match own.filter(|own| *own != hints::DAMAGED) {
            Some(own) => format!("{own} {instead}"),
            None => format!("{instead} `windlass verify {bad}` lists what is lost."),
        }
    }
}

/// The directory of a stripe, or the directory itself.
fn directory(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// The sealed sets but this one, and of the same database as far as that is known, oldest first.
fn sound<'a>(sets: &[&'a SetEntry], bad: &SetEntry) -> Vec<&'a SetEntry> {
    let of = Identity::of(bad);
    let is_sound = |set: &&&SetEntry| {
        let same = match (&of, Identity::of(set)) {
            (Some(of), Some(other)) => other.is_same(of),
            _ => true,
        };
        same && set.set_id != bad.set_id && matches!(set.state, SetState::Sealed)
    };
    sets.iter().filter(is_sound).copied().collect()
}

//! Which files with parity are used: those that say the same of the set as its stripes do, and the
//! same of its groups as each other.
//!
//!   files --root, lengths--> those of this set --groups--> those whose parities are of one group
//!
//! A set has two groupings if all its parity was lost and computed anew, and an old file comes
//! back. Each file is right for itself, but their parities are sums of different members. So those
//! of the larger number are used together, and another is asked only for what these cannot rebuild.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use windlass_media::{MemberEntry, fitted};

use super::file::ParityFile;
use super::find::Device;

/// What a file with parity says of its set and of its groups, as far as its directory tells it. It
/// does not grow with the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    truth: Truth,
    /// A hash of where groups and blocks are. Files of one grouping differ in their sums only.
    grouping: [u8; 32],
}

/// What devices say of a set: its root, and how long each stripe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) root: [u8; 32],
    pub(super) lengths: Vec<u64>,
}

/// A file that may be one parity of the set.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) is_there: bool,
    pub(super) opened: Result<ParityFile, String>,
}

/// The files with parity of a set, after the choice.
pub(super) struct Chosen {
    /// One for each parity.
    pub(super) devices: Vec<Device>,
    /// Those that are used together, each of another parity.
    pub(super) files: Vec<ParityFile>,
    /// Others that are right, too.
    pub(super) spare: Vec<ParityFile>,
}

/// What a file says of its groups: enough to tell two groupings from each other. The rest is
/// compared when a group is used.
#[derive(Debug)]
struct Grouping {
    member_bytes: u32,
    /// Of each block, how many groups it has, and where they begin on each stripe.
    blocks: Vec<(u32, Vec<u64>)>,
    /// The members of the first block, if it can be read.
    first: Option<Vec<MemberEntry>>,
}

impl Said {
    pub(crate) fn of(file: &ParityFile) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(&file.header.member_bytes.to_le_bytes());
        for entry in &file.directory.entries {
            let places = [entry.offset, entry.region_offset, entry.first_group];
            let counts = [entry.bytes, entry.groups].map(u64::from);
            let numbers = places.iter().chain(&counts).chain(&entry.starts);
            numbers.for_each(|number| {
                hash.update(&number.to_le_bytes());
            });
        }
        Self {
            truth: Truth::of(file),
            grouping: *hash.finalize().as_bytes(),
        }
    }

    /// How many of these parities go together, whatever else there is: those that say of the set
    /// what most devices say, and of its groups what most of these say. `seals` has the number, the
    /// root and the length of each stripe that is sealed.
    pub(crate) fn together(
        said: &[(u16, &Self)],
        stripes: u16,
        seals: &[(u16, ([u8; 32], u64))],
    ) -> usize {
        let parities = |is_it: &dyn Fn(&Self) -> bool| {
            let found = said.iter().filter(|(_, one)| is_it(one));
            let numbers: BTreeSet<_> = found.map(|(number, _)| *number).collect();
            numbers.len()
        };
        let votes = |one: &Self| {
            let agrees = |(stripe, seal): &&(u16, _)| one.truth.has(*stripe, *seal);
            let seals = seals.iter().filter(agrees).count();
            parities(&|other| other.truth == one.truth) + seals
        };
        let best = said.iter().map(|(_, one)| {
            let own = parities(&|other| other == *one);
            (votes(one), own)
        });
        let (most, own) = best.max().unwrap_or_default();
        match Truth::of_seals(stripes, seals) {
            // All stripes say something else, and they are more.
            Some(truth) if truth.lengths.len() > most => 0,
            _ => own,
        }
    }
}

impl Truth {
    /// What the stripes say, if each is sealed and all say the same.
    fn of_seals(stripes: u16, seals: &[(u16, ([u8; 32], u64))]) -> Option<Self> {
        let lengths = seals.iter().map(|(stripe, (_, bytes))| (*stripe, *bytes));
        let lengths: BTreeMap<_, _> = lengths.collect();
        let root = seals.first().map(|(_, (root, _))| *root)?;
        let is_one = seals.iter().all(|(_, (other, _))| *other == root);
        (is_one && lengths.len() == usize::from(stripes)).then(|| Self {
            root,
            lengths: lengths.into_values().collect(),
        })
    }

    fn of(file: &ParityFile) -> Self {
        Self {
            root: file.end.set_root,
            lengths: file.directory.stripe_bytes.clone(),
        }
    }

    /// Whether a stripe is sealed as this says.
    pub(super) fn has(&self, stripe: u16, sealed: ([u8; 32], u64)) -> bool {
        let length = self.lengths.get(usize::from(stripe));
        (Some(&sealed.1), sealed.0) == (length, self.root)
    }

    /// What most devices say. None if no file with parity can be opened, and a stripe has no seal.
    pub(super) fn of_most(found: &[Vec<Candidate>], stripes: &[Device]) -> Option<Self> {
        let opened = |candidates: &Vec<Candidate>| -> Vec<Self> {
            let files = candidates.iter();
            let files = files.filter_map(|one| one.opened.as_ref().ok());
            files.map(Self::of).collect()
        };
        let said: Vec<_> = found.iter().map(opened).collect();
        let votes = |truth: &Self| {
            let parities = said.iter().filter(|all| all.contains(truth)).count();
            let stripes = (0..).zip(stripes);
            let agrees = |(at, stripe): (u16, &Device)| {
                stripe.sealed.is_some_and(|sealed| truth.has(at, sealed))
            };
            parities + stripes.filter(|one| agrees(*one)).count()
        };
        let sealed = (0u16..).zip(stripes);
        let seals: Vec<_> = sealed
            .filter_map(|(at, stripe)| Some((at, stripe.sealed?)))
            .collect();
        let of_stripes = Self::of_seals(fitted(stripes.len()), &seals);
        // Of two with as many votes, the first.
        let all: Vec<_> = said.iter().flatten().chain(&of_stripes).collect();
        let all = all.into_iter().rev();
        all.max_by_key(|truth| votes(truth)).cloned()
    }
}

impl Grouping {
    /// A file that is alone is compared with none, so nothing of it is read for that.
    fn of(file: &ParityFile, is_alone: bool) -> Self {
        let entries = file.directory.entries.iter();
        let first = || file.block(0).ok().map(|block| block.members);
        Self {
            member_bytes: file.header.member_bytes,
            blocks: entries.map(|it| (it.groups, it.starts.clone())).collect(),
            first: if is_alone { None } else { first() },
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_unread = self.first.is_none() || other.first.is_none();
        (self.member_bytes, &self.blocks) == (other.member_bytes, &other.blocks)
            && (is_unread || self.first == other.first)
    }
}

/// A file that agrees with the set: its parity, its place among the candidates, and the number of
/// its grouping.
type Agreeing = (usize, usize, usize);

/// Chooses among the files of each parity. `truth` is what the set is known to be.
pub(super) fn chosen(mut found: Vec<Vec<Candidate>>, truth: Option<&Truth>) -> Chosen {
    let agreeing = agreeing(&mut found, truth);
    let main = largest(&agreeing);
    let (mut devices, mut files, mut spare) = (Vec::new(), Vec::new(), Vec::new());
    for (number, candidates) in found.into_iter().enumerate() {
        let own = agreeing.iter().filter(|(parity, ..)| *parity == number);
        let place = |is_main: bool| {
            let mut own = own.clone();
            own.find(|it| !is_main || Some(it.2) == main)
                .map(|it| (it.1, Some(it.2) == main))
        };
        let (at, is_used) = place(true).or_else(|| place(false)).unwrap_or((0, false));
        for (place, one) in candidates.into_iter().enumerate() {
            let fault = match &one.opened {
                Ok(_) if is_used => None,
                Ok(_) => Some("its groups are not those of the other parity".to_owned()),
                Err(fault) => Some(fault.clone()),
            };
            if place == at {
                devices.push(Device {
                    path: one.path,
                    is_there: one.is_there,
                    fault,
                    sealed: None,
                });
            }
            match one.opened {
                Ok(file) if place == at && is_used => files.push(file),
                Ok(file) => spare.push(file),
                Err(_) => {}
            }
        }
    }
    Chosen {
        devices,
        files,
        spare,
    }
}

/// The files that agree with the set. The others are faulty from now on.
fn agreeing(found: &mut [Vec<Candidate>], truth: Option<&Truth>) -> Vec<Agreeing> {
    let opened = found.iter().flatten().filter(|one| one.opened.is_ok());
    let is_alone = opened.count() < 2;
    let mut groupings: Vec<Grouping> = Vec::new();
    let mut agreeing = Vec::new();
    for (number, candidates) in found.iter_mut().enumerate() {
        for (place, one) in candidates.iter_mut().enumerate() {
            let Ok(file) = &one.opened else { continue };
            if truth.is_some_and(|truth| *truth != Truth::of(file)) {
                one.opened = Err("it is of another state of the set".to_owned());
                continue;
            }
            let own = Grouping::of(file, is_alone);
            let known = groupings.iter().position(|other| own.is_same(other));
            let grouping = known.unwrap_or_else(|| {
                groupings.push(own);
                groupings.len() - 1
            });
            agreeing.push((number, place, grouping));
        }
    }
    agreeing
}

/// The grouping that files of most parities have. Of two with as many, the first.
fn largest(agreeing: &[Agreeing]) -> Option<usize> {
    let parities = |grouping: usize| {
        let own = agreeing.iter().filter(|it| it.2 == grouping);
        let mut numbers: Vec<_> = own.map(|it| it.0).collect();
        numbers.dedup();
        numbers.len()
    };
    let groupings = agreeing.iter().rev().map(|it| it.2);
    groupings.max_by_key(|grouping| parities(*grouping))
}

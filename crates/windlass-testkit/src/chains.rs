//! Chains of sets of files that change at random: pages are written, files grow, shrink, go, and
//! come again under the same name. The content at each set is kept, to compare with.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use windlass_engine::media::{
    BackupType, Base, Codec, Facts, FileEntry, FileNo, FileTable, Inherited, InheritedFiles, SetId,
};
use windlass_engine::{
    BackupRun, BufferRequest, Cancel, FoundSet, METADATA_LIMIT_DEFAULT, OpenSet,
};

use crate::runs::{
    Setup, begin, bytes_spec, entry, facts, file_devices, stripe_path, stripe_paths,
};
use crate::sets::text;
use crate::sqlite::Random;

/// The unit in which files change.
pub const PAGE_BYTES: usize = 512;

/// A file at some moment.
#[derive(Clone, Debug)]
struct Live {
    content: Vec<u8>,
    /// Which file it is. One that comes again under the same name is another one.
    born: u64,
}

/// What a set holds, and what has happened to its files since.
struct Link {
    stripes: Vec<PathBuf>,
    files: BTreeMap<String, (FileNo, Live)>,
    /// By birth: the shortest that the file has been since.
    lows: BTreeMap<u64, usize>,
}

/// Files that change, and the sets that were made of them.
pub struct History {
    random: Random,
    files: BTreeMap<String, Live>,
    births: u64,
    links: Vec<Link>,
}

impl History {
    /// A history without files. The same seed makes the same history.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            files: BTreeMap::new(),
            births: 0,
            links: Vec::new(),
        }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.random.bits() % bound.max(1) as u64) as usize
    }

    /// Changes files a few times.
    pub fn live(&mut self) {
        for _ in 0..1 + self.below(8) {
            let name = format!("f{}", self.below(6));
            match self.below(10) {
                0 if self.files.len() > 1 => drop(self.files.remove(&name)),
                1 => self.resize(&name),
                2 => {
                    self.files.remove(&name);
                    self.write(&name);
                }
                _ => self.write(&name),
            }
        }
    }

    fn write(&mut self, name: &str) {
        let pages = self.below(120) * PAGE_BYTES;
        let odd = self.below(4) / 3 * self.below(PAGE_BYTES);
        let births = &mut self.births;
        let live = self.files.entry(name.to_owned()).or_insert_with(|| {
            *births += 1;
            Live {
                content: vec![0; pages + odd],
                born: *births,
            }
        });
        let count = live.content.len().div_ceil(PAGE_BYTES) as u64;
        for _ in 0..self.random.bits() % 12 {
            let page = (self.random.bits() % count.max(1)) as usize;
            let from = page * PAGE_BYTES;
            let to = live.content.len().min(from + PAGE_BYTES);
            let fill = match self.random.bits() % 3 {
                // A page that becomes zeros must not show what it was before.
                0 => 0,
                _ => self.random.bits() as u8,
            };
            live.content[from.min(to)..to].fill(fill);
        }
    }

    fn resize(&mut self, name: &str) {
        let bytes = self.below(120 * PAGE_BYTES);
        let Some(live) = self.files.get_mut(name) else {
            return;
        };
        // A file is cut off, and may grow again later: what comes then is new.
        live.content.resize(bytes, 7);
        for link in &mut self.links {
            let low = link.lows.entry(live.born).or_insert(usize::MAX);
            *low = bytes.min(*low);
        }
    }

    /// The files of a set, with their content.
    pub fn content(&self, link: usize) -> BTreeMap<String, Vec<u8>> {
        let files = self.links[link].files.iter();
        files
            .map(|(name, (_, live))| (name.clone(), live.content.clone()))
            .collect()
    }

    /// The stripes of a set.
    pub fn stripes(&self, link: usize) -> &[PathBuf] {
        &self.links[link].stripes
    }

    /// How many sets there are.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// True when no set was made.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Backs the files up to `dir`: all of them, or what changed since an earlier set.
    pub fn back_up(&mut self, dir: &Path, base: Option<usize>, setup: &Setup) -> usize {
        std::fs::create_dir_all(dir).unwrap();
        let number = self.links.len();
        let setup = Setup {
            set_id: SetId([number as u8 + 1; 16]),
            created_nanos: number as i64 + 1,
            ..setup.clone()
        };
        let mut run = begin(&setup, file_devices(dir, &setup), &Cancel::new()).unwrap();
        let mut pushed = Pushed::default();
        let first = self.below(5);
        let files: Vec<_> = self.files.clone().into_iter().collect();
        for (at, (name, live)) in files.into_iter().enumerate() {
            let file = first + 2 * at;
            self.push(&mut run, (file, &name, &live), base, &mut pushed);
        }
        run.drain().unwrap();
        for entry in &mut pushed.entries {
            let outcome = run.outcome(entry.file).unwrap_or_default();
            let is_whole = !pushed.inherited.iter().any(|one| one.file == entry.file);
            entry.flags.crc_known = is_whole && !pushed.layered.contains(&entry.file);
            entry.crc32c = u32::from(entry.flags.crc_known) * outcome.crc32c;
        }
        let mut about = facts();
        if let Some(base) = base {
            let (base, parents) = self.base(base, pushed.inherited);
            about.parents = parents;
            about.backup_type = if number.is_multiple_of(2) {
                BackupType::Diff
            } else {
                BackupType::Incr
            };
            run.build_on(base);
        }
        self.finish(run, pushed.entries, about);
        self.links.push(Link {
            stripes: stripe_paths(dir, &setup),
            files: pushed.files,
            lows: BTreeMap::new(),
        });
        number
    }

    fn finish(&self, run: BackupRun, entries: Vec<FileEntry>, about: Facts) {
        run.finish(FileTable(entries), about).unwrap();
    }

    /// What a set says of this base.
    fn base(&self, base: usize, inherited: Vec<Inherited>) -> (Base, Vec<String>) {
        let stripes = self.stripes(base);
        let open = OpenSet::open(stripes, METADATA_LIMIT_DEFAULT).unwrap();
        let parents = open.links().map(|set: &FoundSet| set.set_id().to_string());
        let location = |path: &PathBuf| path.to_string_lossy().into_owned().into_bytes();
        let base = Base {
            set: open.set_id(),
            root: open.root(),
            locations: stripes.iter().map(location).collect(),
            files: InheritedFiles::new(inherited),
        };
        (base, parents.collect())
    }

    fn push(
        &mut self,
        run: &mut BackupRun,
        (file, name, live): (usize, &str, &Live),
        base: Option<usize>,
        pushed: &mut Pushed,
    ) {
        let mut spec = bytes_spec(file, &live.content);
        spec.needed_bytes = spec.bytes;
        let number = spec.file;
        let length = live.content.len();
        match base.and_then(|base| self.parts(base, name, live)) {
            Some((base_file, limit, parts)) => {
                let parts = parts
                    .into_iter()
                    .map(|part| part.start as u64..part.end as u64);
                run.push_parts(spec.clone(), parts).unwrap();
                pushed.inherited.push(Inherited {
                    file: number,
                    base_file,
                    bytes: limit as u64,
                });
            }
            None => run.push(spec.clone()).unwrap(),
        }
        // Some ranges are written a second time, as a copy of a file that changes meanwhile is.
        if self.below(4) == 0 && length > 0 {
            run.drain().unwrap();
            let from = self.below(length);
            let to = from + 1 + self.below(length - from);
            run.push_range(&spec, from as u64, (to - from) as u64, 1)
                .unwrap();
            pushed.layered.push(number);
        }
        pushed.entries.push(entry(file, name, length));
        pushed.files.insert(name.to_owned(), (number, live.clone()));
    }

    /// What a set has of a file: its number there, how much of it counts, and the parts of the file
    /// that must be read, which are those that changed and a few more.
    fn parts(
        &mut self,
        base: usize,
        name: &str,
        live: &Live,
    ) -> Option<(FileNo, usize, Vec<Range<usize>>)> {
        let link = &self.links[base];
        let (file, before) = link
            .files
            .get(name)
            .filter(|(_, it)| it.born == live.born)?;
        let low = link.lows.get(&live.born).copied().unwrap_or(usize::MAX);
        let length = live.content.len();
        let limit = low.min(before.content.len()).min(length);
        if limit == 0 {
            return None;
        }
        let mut parts: Vec<Range<usize>> = Vec::new();
        for from in (0..length).step_by(PAGE_BYTES) {
            let to = length.min(from + PAGE_BYTES);
            let same = to <= limit && live.content[from..to] == before.content[from..to];
            if same && !self.random.bits().is_multiple_of(16) {
                continue;
            }
            match parts.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => parts.push(from..to),
            }
        }
        Some((*file, limit, parts))
    }
}

#[derive(Default)]
struct Pushed {
    entries: Vec<FileEntry>,
    files: BTreeMap<String, (FileNo, Live)>,
    inherited: Vec<Inherited>,
    layered: Vec<FileNo>,
}

/// How long a frame of a [`long_pair`] is.
const LONG_FRAME_BYTES: usize = 4096;
/// An index block describes about 5,400 frames.
const LONG_FRAMES: usize = 6000;

/// Two sets of two files: a full one in `dir/1`, and in `dir/2` one that builds on it and has all
/// of each file but its last frame. The newest set has index blocks that tell only of the first
/// file, and some that tell only of the second. Returns what is in the files then.
pub fn long_pair(dir: &Path) -> [Vec<u8>; 2] {
    let bytes = LONG_FRAMES * LONG_FRAME_BYTES;
    let kept = bytes - LONG_FRAME_BYTES;
    let files = [text(bytes, 1), text(bytes, 2)];
    let start = |number: u8| {
        let setup = Setup {
            codec: Codec::None,
            request: BufferRequest {
                transfer_bytes: Some(64 * 1024),
                frame_bytes: Some(LONG_FRAME_BYTES),
                ..BufferRequest::default()
            },
            set_id: SetId([number; 16]),
            ..Setup::default()
        };
        let place = dir.join(number.to_string());
        std::fs::create_dir(&place).unwrap();
        begin(&setup, file_devices(&place, &setup), &Cancel::new()).unwrap()
    };
    let entries = || FileTable(vec![entry(0, "f0", bytes), entry(1, "f1", bytes)]);
    let mut run = start(1);
    for (file, content) in files.iter().enumerate() {
        let mut older = vec![0; kept];
        older.extend_from_slice(&content[kept..]);
        run.push(bytes_spec(file, &older)).unwrap();
    }
    run.drain().unwrap();
    run.finish(entries(), facts()).unwrap();
    let base = OpenSet::open(&[stripe_path(&dir.join("1"), 0)], METADATA_LIMIT_DEFAULT).unwrap();
    let inherited = |file: u32| Inherited {
        file: FileNo(file),
        base_file: FileNo(file),
        bytes: bytes as u64,
    };
    let mut run = start(2);
    for (file, content) in files.iter().enumerate() {
        let mut spec = bytes_spec(file, content);
        spec.needed_bytes = spec.bytes;
        run.push_parts(spec, std::iter::once(0..kept as u64))
            .unwrap();
    }
    run.drain().unwrap();
    run.build_on(Base {
        files: InheritedFiles::new(vec![inherited(0), inherited(1)]),
        ..base.as_base()
    });
    let about = Facts {
        backup_type: BackupType::Incr,
        parents: vec![base.set_id().to_string()],
        ..facts()
    };
    run.finish(entries(), about).unwrap();
    files
}

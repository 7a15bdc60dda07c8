//! Sets whose footers say what each index block has: each page is what a restore gives.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use windlass_engine::media::{
    BackupType, Base, BlockSpans, Codec, Facts, FileNo, FileTable, Inherited, InheritedFiles, SetId,
};
use windlass_engine::{Cancel, Files, Keyed, METADATA_LIMIT_DEFAULT, OpenSet, OpenStripe};
use windlass_image::{CompareOptions, Image, SetImage, SetImageOptions, compare};
use windlass_testkit::encrypted::{encryption, one_key};
use windlass_testkit::reforge::reforge;
use windlass_testkit::runs::{Setup, begin, bytes_spec, entry, facts, file_devices, stripe_paths};

use crate::chains::through_restore;
use crate::support::{open_set, stripe_path};

const PAGE: usize = 512;
const NAME: &str = "database";
/// The number of the data key of every set.
const KEY: u8 = 3;

/// What a set has of a database: how many bytes of its base may stay, and which parts are written;
/// and the parts that are written once more.
type Written<'a> = (usize, &'a [Range<u64>], Option<(usize, usize)>);

/// Opens a set, encrypted or not.
fn open(stripes: &[PathBuf]) -> OpenSet {
    let storage = Keyed {
        storage: &Files,
        keys: &one_key(KEY),
    };
    OpenSet::open_in(&storage, stripes, METADATA_LIMIT_DEFAULT).unwrap()
}

/// What becomes of a database of one file until its next set is made.
#[derive(Clone, Debug)]
struct Step {
    /// How many pages it has then.
    pages: usize,
    /// Pages that are written: the first and how many.
    written: Vec<(usize, usize)>,
    /// Pages that are written again while the set is made.
    again: Option<(usize, usize)>,
    stripes: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let pages = || (0usize..300, 1usize..20);
    let written = proptest::collection::vec(pages(), 0..8);
    let again = proptest::option::of(pages());
    (1usize..300, written, again, 1usize..5).prop_map(|(pages, written, again, stripes)| Step {
        pages,
        written,
        again,
        stripes,
    })
}

/// A database of one file, and the sets that were made of it, each of which builds on the one
/// before.
struct Database {
    content: Vec<u8>,
    writes: usize,
    sets: Vec<(Vec<PathBuf>, Vec<u8>)>,
    encrypted: bool,
}

impl Database {
    fn new(encrypted: bool) -> Self {
        Self {
            content: Vec::new(),
            writes: 0,
            sets: Vec::new(),
            encrypted,
        }
    }

    /// Writes pages: no two writes of a page write the same bytes.
    fn write(&mut self, pages: Range<usize>) {
        let count = self.content.len() / PAGE;
        for page in pages.start.min(count)..pages.end.min(count) {
            self.writes += 1;
            let bytes = &mut self.content[page * PAGE..(page + 1) * PAGE];
            bytes.fill(page as u8);
            bytes[..8].copy_from_slice(&self.writes.to_le_bytes());
        }
    }

    /// Lets a step pass, and makes a set in `dir` of what it changed.
    fn back_up(&mut self, dir: &Path, step: &Step, setup: &Setup) {
        let before = self.content.len();
        self.content.resize(step.pages * PAGE, 0);
        let kept = before.min(self.content.len());
        let written = step
            .written
            .iter()
            .map(|(first, count)| *first..first + count);
        let mut changed: Vec<_> = written.collect();
        changed.push(kept / PAGE..step.pages);
        changed.iter().for_each(|pages| self.write(pages.clone()));
        let is_changed = |page: &usize| changed.iter().any(|pages| pages.contains(page));
        let parts = (0..step.pages).filter(is_changed);
        let parts: Vec<_> = parts.map(|page| bytes_of(&(page..page + 1))).collect();
        self.make_set(dir, (kept, &parts, step.again), setup);
    }

    fn make_set(&mut self, dir: &Path, (kept, parts, again): Written<'_>, setup: &Setup) {
        std::fs::create_dir(dir).unwrap();
        let set_id = SetId([self.sets.len() as u8 + 1; 16]);
        let setup = Setup {
            set_id,
            encryption: self.encrypted.then(|| encryption(KEY, set_id)),
            ..setup.clone()
        };
        let mut run = begin(&setup, file_devices(dir, &setup), &Cancel::new()).unwrap();
        let mut about = facts();
        let mut spec = bytes_spec(0, &self.content);
        spec.needed_bytes = spec.bytes;
        match self.sets.last() {
            None => run.push(spec).unwrap(),
            Some((below, _)) => {
                run.push_parts(spec, parts.iter().cloned()).unwrap();
                let base = open(below);
                about = Facts {
                    backup_type: BackupType::Incr,
                    parents: base.links().map(|set| set.set_id().to_string()).collect(),
                    ..about
                };
                run.build_on(Base {
                    files: InheritedFiles::new(vec![Inherited {
                        file: FileNo(0),
                        base_file: FileNo(0),
                        bytes: kept as u64,
                    }]),
                    ..base.as_base()
                });
            }
        }
        run.drain().unwrap();
        let count = self.content.len() / PAGE;
        let again = again.map(|(first, pages)| first..count.min(first + pages));
        if let Some(pages) = again.filter(|pages| !pages.is_empty()) {
            self.write(pages.clone());
            let again = bytes_of(&pages);
            let spec = bytes_spec(0, &self.content);
            run.push_range(&spec, again.start, again.end - again.start, 1)
                .unwrap();
            run.drain().unwrap();
        }
        let files = FileTable(vec![entry(0, NAME, self.content.len())]);
        run.finish(files, about).unwrap();
        let stripes = stripe_paths(dir, &setup);
        self.sets.push((stripes, self.content.clone()));
    }
}

/// The bytes of pages.
fn bytes_of(pages: &Range<usize>) -> Range<u64> {
    (pages.start * PAGE) as u64..(pages.end * PAGE) as u64
}

/// Reads each page, the last one first.
fn assert_pages(image: &SetImage, content: &[u8]) {
    for page in (0..content.len() / PAGE).rev() {
        let mut found = [0xee; PAGE];
        let at = page * PAGE;
        assert_eq!(image.read(FileNo(0), at as u64, &mut found).unwrap(), PAGE);
        assert!(found[..] == content[at..at + PAGE], "page {page}");
    }
}

fn spans_of(set: &OpenSet) -> Vec<BlockSpans> {
    let of = |stripe: &OpenStripe| {
        let blocks = 0..stripe.directory().len();
        let spans = blocks.map(|block| -> BlockSpans { stripe.spans(block).map(Into::into) });
        spans.collect::<Vec<_>>()
    };
    set.stripes().iter().flat_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn each_page_of_a_database_read_by_spans_is_what_a_restore_gives(
        steps in proptest::collection::vec(step(), 2..6),
        encrypted in any::<bool>(),
        frame in 12u32..15,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::new(encrypted);
        for (number, step) in steps.iter().enumerate() {
            let mut setup = Setup::small(step.stripes, Codec::Lz4);
            setup.request.frame_bytes = Some(1 << frame);
            database.back_up(&dir.path().join(number.to_string()), step, &setup);
        }
        for (number, (stripes, content)) in database.sets.iter().enumerate() {
            let set = Arc::new(open(stripes));
            // A full set without layers needs none.
            if number > 0 {
                prop_assert!(spans_of(&set).iter().all(Option::is_some));
            }
            let image = SetImage::open(Arc::clone(&set), &SetImageOptions::default()).unwrap();
            assert_pages(&image, content);
            image.check_layers(FileNo(0)).unwrap();
            let restored = through_restore(&set, &dir.path().join(format!("into{number}")));
            prop_assert!(restored[NAME] == *content);
        }
    }
}

/// A chain of two sets of one stripe. The newer one has every other page of the file, in more than
/// one index block.
fn of_two_sets(dir: &Path) -> Database {
    let mut setup = Setup::small(1, Codec::Lz4);
    setup.request.frame_bytes = Some(4096);
    let mut database = Database::new(false);
    let pages = 30_000;
    let step = Step {
        pages,
        written: Vec::new(),
        again: None,
        stripes: 1,
    };
    database.back_up(&dir.join("1"), &step, &setup);
    let odd: Vec<_> = (1..pages).step_by(2).map(|page| page..page + 1).collect();
    odd.iter().for_each(|page| database.write(page.clone()));
    let parts: Vec<_> = odd.iter().map(bytes_of).collect();
    database.make_set(&dir.join("2"), (pages * PAGE, &parts, None), &setup);
    database
}

#[test]
fn pages_of_many_blocks_are_right_with_spans_and_without_them_and_a_hidden_one_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let database = of_two_sets(dir.path());
    let newest = dir.path().join("2");
    let (_, content) = &database.sets[1];
    let open_image = || SetImage::open(open_set(&newest), &SetImageOptions::default()).unwrap();
    let image = open_image();
    let mut spans = spans_of(image.set());
    assert!(spans.len() > 1 && spans.iter().all(Option::is_some));
    assert_pages(&image, content);
    drop(image);
    let stripe = stripe_path(&newest, 0);
    // As an older version wrote it.
    reforge(&stripe, |_| {});
    let image = open_image();
    assert!(spans_of(image.set()).iter().all(Option::is_none));
    assert_pages(&image, content);
    drop(image);
    // The last block states only the first of its pages.
    let [span] = spans.last_mut().unwrap().as_deref_mut().unwrap() else {
        panic!("one file")
    };
    span.end = span.first + 1;
    reforge(&stripe, |parts| parts.spans = spans);
    let image = open_image();
    assert!(image.check_layers(FileNo(0)).unwrap_err().is_damage());
    // Whoever reads all of it does that first, and so gets nothing at all.
    let base = SetImage::open(open_set(&dir.path().join("1")), &SetImageOptions::default());
    let image = open_image();
    let compared = compare(&image, &base.unwrap(), &CompareOptions::default());
    assert!(compared.unwrap_err().is_damage());
    let found = image.read(FileNo(0), 0, &mut [0; PAGE]);
    assert!(found.unwrap_err().is_damage());
}

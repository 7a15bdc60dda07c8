//! Overlays without a mount: what is left of them after a kill, a power cut or damage.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_image::layout::Geometry;
use windlass_image::{DirectoryImage, Image, ImageError, NodeNo, Overlay, SetImage, View};

use crate::support::*;

const PAGE: usize = 8192;

struct Fixture {
    dir: tempfile::TempDir,
    image: Arc<SetImage>,
    content: Vec<u8>,
}

impl Fixture {
    fn new() -> Self {
        let content = text(40 * PAGE, 1);
        let (dir, image) = image_of(&vec![("a".into(), content.clone())], &Setup::default());
        let image = Arc::new(image);
        Self {
            dir,
            image,
            content,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn create(&self) -> Overlay {
        Overlay::create(Arc::clone(&self.image) as _, &self.path("overlay")).unwrap()
    }

    fn open(&self, name: &str) -> Result<Overlay, ImageError> {
        Overlay::open(Arc::clone(&self.image) as _, &self.path(name))
    }

    /// Copies the files of the overlay as they are now.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.path(name);
        fs::create_dir(&to).unwrap();
        for file in ["overlay", "pages", "journal"] {
            fs::copy(self.path("overlay").join(file), to.join(file)).unwrap();
        }
        to
    }
}

fn node(overlay: &Overlay) -> NodeNo {
    overlay.lookup(NodeNo::ROOT, b"a").unwrap().node
}

fn read(overlay: &Overlay) -> Vec<u8> {
    let node = node(overlay);
    let mut into = vec![0; overlay.attributes(node).unwrap().bytes as usize];
    overlay.read(node, 0, &mut into).unwrap();
    into
}

/// Where the page of a slot is in the store.
fn page_offset(slot: u32) -> u64 {
    Geometry::new(8192).unwrap().page_offset(slot)
}

fn store(overlay: &Path) -> File {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .open(overlay.join("pages"))
        .unwrap()
}

#[test]
fn what_was_written_after_a_sync_does_not_harm_what_was_synced() {
    let fixture = Fixture::new();
    let overlay = fixture.create();
    let node = node(&overlay);
    let mut expected = fixture.content.clone();
    for (offset, seed) in [(0, 2), (3 * PAGE + 100, 3), (20 * PAGE, 4)] {
        let bytes = text(3 * PAGE, seed);
        overlay.write(node, offset as u64, &bytes).unwrap();
        expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
    overlay.sync().unwrap();
    let synced = fixture.copy("synced");
    // The same pages again, in whole and in part, and a file that is cut and grows.
    overlay.write(node, 0, &text(2 * PAGE, 5)).unwrap();
    overlay
        .write(node, 4 * PAGE as u64 + 7, b"in part")
        .unwrap();
    let change = |bytes| windlass_image::Change {
        bytes: Some(bytes),
        ..Default::default()
    };
    overlay.change(node, &change(21 * PAGE as u64 + 5)).unwrap();
    overlay.change(node, &change(50 * PAGE as u64)).unwrap();
    overlay.write(node, 30 * PAGE as u64, b"far").unwrap();
    let now = read(&overlay);
    // A power cut that kept the journal of the sync, and all pages that were written since.
    let later = fixture.copy("later");
    fs::copy(later.join("pages"), synced.join("pages")).unwrap();
    assert!(read(&fixture.open("synced").unwrap()) == expected);
    // A kill keeps everything.
    assert!(read(&fixture.open("later").unwrap()) == now);
    drop(overlay);
    assert!(read(&fixture.open("overlay").unwrap()) == now);
}

#[test]
fn pages_are_written_in_place_until_the_next_sync() {
    let fixture = Fixture::new();
    let overlay = fixture.create();
    let node = node(&overlay);
    let write = |seed| overlay.write(node, 5, &text(4 * PAGE, seed)).unwrap();
    let sizes = || {
        let found = overlay.statistics();
        (found.pages, found.idle_pages)
    };
    (0..10).for_each(write);
    assert_eq!(sizes(), (5, 0));
    overlay.sync().unwrap();
    (10..20).for_each(write);
    assert_eq!(sizes(), (5, 5));
    // From then on, the slots of the sync before are used again.
    for seed in 20..30 {
        overlay.sync().unwrap();
        write(seed);
        assert_eq!(sizes(), (5, 5));
    }
}

/// A kill can cut off a write in place between the bytes of the page and its checksum.
#[test]
fn a_page_that_a_kill_tore_can_be_read_and_one_that_was_synced_cannot() {
    let fixture = Fixture::new();
    let overlay = fixture.create();
    let node = node(&overlay);
    overlay.write(node, 0, &text(PAGE, 2)).unwrap();
    overlay.sync().unwrap();
    overlay
        .write(node, 8 * PAGE as u64, &text(PAGE, 3))
        .unwrap();
    let killed = fixture.copy("killed");
    let torn = store(&killed);
    torn.write_all_at(b"torn", page_offset(1) + 77).unwrap();
    let opened = fixture.open("killed").unwrap();
    let mut into = [0; 4];
    opened.read(node, 8 * PAGE as u64 + 77, &mut into).unwrap();
    assert_eq!(&into, b"torn");
    drop(opened);
    // It was accepted once. From now on it counts as it is.
    torn.write_all_at(b"rot!", page_offset(1) + 77).unwrap();
    torn.write_all_at(b"rot!", page_offset(0) + 77).unwrap();
    let opened = fixture.open("killed").unwrap();
    for (page, slot) in [(0, 0), (8, 1)] {
        let read = opened.read(node, page * PAGE as u64, &mut [0; 10]);
        let expected = page_offset(slot);
        let found =
            matches!(&read, Err(ImageError::OverlayPage { offset, .. }) if *offset == expected);
        assert!(found, "{read:?}");
    }
    // Every other page is there, and what is written as a whole heals.
    let mut into = vec![0; 7 * PAGE];
    opened.read(node, PAGE as u64, &mut into).unwrap();
    assert!(into == fixture.content[PAGE..8 * PAGE]);
    assert!(opened.write(node, 100, b"a part").is_err());
    opened.write(node, 0, &text(PAGE, 9)).unwrap();
    opened.read(node, 0, &mut into[..PAGE]).unwrap();
    assert!(into[..PAGE] == text(PAGE, 9));
}

#[test]
fn an_overlay_of_another_version_is_refused_by_that_name() {
    let fixture = Fixture::new();
    drop(fixture.create());
    let path = fixture.path("overlay").join("overlay");
    let mut header = fs::read(&path).unwrap();
    header[8] = 1;
    let crc = windlass_engine::media::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, header).unwrap();
    let error = fixture.open("overlay").err().unwrap();
    assert!(
        matches!(error, ImageError::OverlayVersion { .. }),
        "{error}"
    );
}

#[test]
fn an_overlay_for_once_takes_any_image_and_is_never_opened_again() {
    let fixture = Fixture::new();
    let root = fixture.path("root");
    plant(&vec![("a".into(), text(100, 1))], &root);
    let image: Arc<dyn Image> = Arc::new(DirectoryImage::open(&root).unwrap());
    let path = fixture.path("overlay");
    let refused = Overlay::create(Arc::clone(&image), &path).err().unwrap();
    assert!(matches!(refused, ImageError::NoIdentity), "{refused}");
    let overlay = Overlay::create_once(Arc::clone(&image), &path).unwrap();
    overlay.write(node(&overlay), 0, b"new").unwrap();
    assert!(read(&overlay).starts_with(b"new"));
    drop(overlay);
    assert!(matches!(
        Overlay::open(image, &path),
        Err(ImageError::NoIdentity)
    ));
    let foreign = fixture.open("overlay").err().unwrap();
    assert!(
        matches!(foreign, ImageError::OverlayForeign { .. }),
        "{foreign}"
    );
    assert!(fs::read(root.join("a")).unwrap() == text(100, 1));
}

/// Everything that the names of a directory's files lead to.
fn contents(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn a_file_of_the_overlay_that_leads_elsewhere_is_refused_and_stays_as_it_is() {
    let fixture = Fixture::new();
    drop(fixture.create());
    let victim = fixture.path("precious");
    fs::write(&victim, text(3 * PAGE, 9)).unwrap();
    let before = contents(std::slice::from_ref(&victim));
    for name in ["pages", "journal", "overlay"] {
        for is_hard in [true, false] {
            let copy = fixture.copy("copy");
            fs::remove_file(copy.join(name)).unwrap();
            match is_hard {
                true => fs::hard_link(&victim, copy.join(name)).unwrap(),
                false => std::os::unix::fs::symlink(&victim, copy.join(name)).unwrap(),
            }
            let error = fixture.open("copy").err().unwrap().to_string();
            assert!(error.contains("link"), "{name}, {is_hard}: {error}");
            assert!(contents(std::slice::from_ref(&victim)) == before, "{name}");
            fs::remove_dir_all(copy).unwrap();
        }
        // A pipe has no end, and nobody writes to it.
        let copy = fixture.copy("copy");
        fs::remove_file(copy.join(name)).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(copy.join(name))
            .status();
        assert!(made.unwrap().success());
        let error = fixture.open("copy").err().unwrap().to_string();
        assert!(error.contains("not a regular file"), "{name}: {error}");
        fs::remove_dir_all(copy).unwrap();
    }
}

#[test]
fn a_new_overlay_takes_over_only_empty_files_of_one_name() {
    let fixture = Fixture::new();
    let at = fixture.path("overlay");
    fs::create_dir(&at).unwrap();
    let victim = fixture.path("precious");
    fs::write(&victim, b"").unwrap();
    fs::hard_link(&victim, at.join("pages")).unwrap();
    let image = Arc::clone(&fixture.image) as Arc<dyn Image>;
    let error = Overlay::create(Arc::clone(&image), &at).err().unwrap();
    assert!(matches!(error, ImageError::OverlayPlace { .. }), "{error}");
    assert_eq!(fs::read(&victim).unwrap(), b"");
    // What a creation left that was cut off is no obstacle.
    fs::remove_file(victim).unwrap();
    drop(fixture.create());
}

#[test]
fn a_file_of_another_kind_in_the_place_of_pages_or_journal_stays_as_it_is() {
    let fixture = Fixture::new();
    let overlay = fixture.create();
    for is_used in [false, true] {
        if is_used {
            overlay.write(node(&overlay), 0, &text(PAGE, 2)).unwrap();
            overlay.sync().unwrap();
        }
        for name in ["pages", "journal"] {
            for foreign in [text(100, 9), text(3 * PAGE, 9), vec![0; 3 * PAGE]] {
                let copy = fixture.copy("copy");
                fs::write(copy.join(name), &foreign).unwrap();
                let before = contents(&[copy.join("pages"), copy.join("journal")]);
                let error = fixture.open("copy").err();
                let error = error.unwrap_or_else(|| panic!("{name}, {}", foreign.len()));
                let is_damage = matches!(
                    error,
                    ImageError::OverlayPage { offset: 0, .. }
                        | ImageError::OverlayDamaged { offset: 0, .. }
                );
                assert!(is_damage, "{name}: {error}");
                let after = contents(&[copy.join("pages"), copy.join("journal")]);
                assert!(after == before, "{name}, {}", foreign.len());
                fs::remove_dir_all(copy).unwrap();
            }
        }
    }
}

#[test]
fn an_overlay_whose_first_opening_was_cut_off_is_opened() {
    let fixture = Fixture::new();
    drop(fixture.create());
    let whole = [("pages", PAGE), ("journal", 37)];
    for (name, bytes) in whole {
        for zeros in [0, 1, bytes - 1] {
            let copy = fixture.copy("copy");
            // As `create` left them, and of one of them a part that has reached the disk.
            fs::write(copy.join("pages"), b"").unwrap();
            fs::write(copy.join("journal"), b"").unwrap();
            fs::write(copy.join(name), vec![0; zeros]).unwrap();
            let overlay = fixture.open("copy").unwrap();
            assert!(read(&overlay) == fixture.content, "{name}, {zeros}");
            drop(overlay);
            fs::remove_dir_all(copy).unwrap();
        }
    }
}

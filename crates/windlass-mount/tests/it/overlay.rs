//! Overlays: what is written is there, now and when it is opened again, and the set is as it was.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_image::{ImageError, Overlay};
use windlass_mount::{Mount, MountOptions};

use crate::support::*;

impl Place {
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("overlay")
    }

    pub fn overlay(&self) -> Result<Overlay, ImageError> {
        let (image, store) = (self.image(), self.store());
        if Overlay::is_at(&store) {
            Overlay::open(image, &store)
        } else {
            Overlay::create(image, &store)
        }
    }

    pub fn mount_overlay(&self) -> Mount {
        let overlay = Arc::new(self.overlay().unwrap());
        Mount::overlay(overlay, &self.at(), &MountOptions::default()).unwrap()
    }
}

fn rename_file(from: &Path, to: &Path) -> std::io::Result<()> {
    rustix::fs::rename(from, to).map_err(Into::into)
}

fn place() -> Place {
    Place::new(sample(), &two_stripes())
}

#[test]
fn what_is_written_is_there_after_it_is_opened_again_and_the_set_is_unchanged() {
    let place = place();
    let before = set_bytes(&place.set());
    let mount = place.mount_overlay();
    let page = place.path("base/page");
    let file = File::options().write(true).open(&page).unwrap();
    file.write_all_at(b"changed", 100).unwrap();
    file.write_all_at(b"longer", 20_000).unwrap();
    fs::remove_file(place.path("base/odd")).unwrap();
    fs::create_dir(place.path("new")).unwrap();
    rename_file(&place.path("large"), &place.path("new/large")).unwrap();
    File::create(place.path("new/file"))
        .unwrap()
        .write_all(b"hello")
        .unwrap();
    fs::hard_link(place.path("new/file"), place.path("new/twin")).unwrap();
    std::os::unix::fs::symlink("../base", place.path("new/link")).unwrap();
    fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).unwrap();
    let mut expected = place.tree[3].content.clone();
    expected[100..107].copy_from_slice(b"changed");
    expected.resize(20_000, 0);
    expected.extend_from_slice(b"longer");
    let check = || {
        assert!(fs::read(&page).unwrap() == expected);
        assert_eq!(
            page.metadata().unwrap().permissions().mode() & 0o7777,
            0o640
        );
        assert!(!place.path("base/odd").exists());
        assert!(!place.path("large").exists());
        assert!(fs::read(place.path("new/large")).unwrap() == place.tree[6].content);
        assert_eq!(fs::read(place.path("new/twin")).unwrap(), b"hello");
        let (one, other) = (place.path("new/file"), place.path("new/twin"));
        let (one, other) = (one.metadata().unwrap(), other.metadata().unwrap());
        assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
        assert_eq!(
            fs::read_link(place.path("new/link")).unwrap(),
            Path::new("../base")
        );
    };
    check();
    drop(file);
    mount.unmount().unwrap();
    let mount = place.mount_overlay();
    check();
    mount.unmount().unwrap();
    assert!(set_bytes(&place.set()) == before);
    // Once the overlay is deleted, the files are again those of the set.
    fs::remove_dir_all(place.store()).unwrap();
    let _mount = place.mount();
    assert!(fs::read(&page).unwrap() == place.tree[3].content);
}

#[test]
fn bytes_that_were_cut_off_never_come_back() {
    let place = place();
    let mount = place.mount_overlay();
    let path = place.path("base/odd");
    let content = place.tree[4].content.clone();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let check = |expected: &[u8]| assert!(fs::read(&path).unwrap() == expected);
    // Each round cuts the file within a page of the image, then within a page of the store, and
    // then writes behind the end.
    for cut in [100_001, 50_003] {
        file.set_len(cut).unwrap();
        file.set_len(200_000).unwrap();
        let mut expected = content[..cut as usize].to_vec();
        expected.resize(200_000, 0);
        check(&expected);
        file.write_all_at(&content[cut as usize - 10..cut as usize + 9000], cut - 10)
            .unwrap();
        file.set_len(cut + 5).unwrap();
        file.write_all_at(b"x", 150_000).unwrap();
        let mut expected = content[..cut as usize + 5].to_vec();
        expected.resize(150_000, 0);
        expected.push(b'x');
        check(&expected);
        file.set_len(cut).unwrap();
    }
    let before = fs::read(&path).unwrap();
    drop(file);
    mount.unmount().unwrap();
    let _mount = place.mount_overlay();
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_removed_file_lives_until_it_is_closed_and_its_pages_are_used_again() {
    let place = place();
    let overlay = Arc::new(place.overlay().unwrap());
    let options = MountOptions::default();
    let mount = Mount::overlay(Arc::clone(&overlay), &place.at(), &options).unwrap();
    let path = place.path("large");
    let other = place.path("other");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[9; 100_000], 0).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    file.write_all_at(&[8; 100_000], 50_000).unwrap();
    let mut into = vec![0; 200_000];
    file.read_exact_at(&mut into, 0).unwrap();
    let mut expected = place.tree[6].content[..200_000].to_vec();
    expected[..100_000].fill(9);
    expected[50_000..150_000].fill(8);
    assert!(into == expected);
    let pages = overlay.statistics().pages;
    assert_eq!(pages, 150_000_u64.div_ceil(8192));
    drop(file);
    File::open(place.at()).unwrap().sync_all().unwrap();
    // The kernel reports the last close a moment later.
    while overlay.statistics().pages > 0 {
        std::thread::yield_now();
    }
    File::open(place.at()).unwrap().sync_all().unwrap();
    let idle = overlay.statistics().idle_pages;
    assert_eq!(idle, pages);
    File::create(&other)
        .unwrap()
        .write_all(&[7; 100_000])
        .unwrap();
    let statistics = overlay.statistics();
    assert_eq!(statistics.pages + statistics.idle_pages, pages);
    assert!(fs::read(&other).unwrap() == [7; 100_000]);
    mount.unmount().unwrap();
}

#[test]
fn an_overlay_belongs_to_one_set_and_one_process() {
    let place = place();
    drop(place.overlay().unwrap());
    let other = Place::second(
        sample(),
        &Setup {
            set_id: windlass_engine::media::SetId([8; 16]),
            ..two_stripes()
        },
    );
    let foreign = Overlay::open(other.image(), &place.store()).err().unwrap();
    assert!(
        matches!(foreign, ImageError::OverlayForeign { .. }),
        "{foreign}"
    );
    let own = place.overlay().unwrap();
    let second = place.overlay().err().unwrap();
    assert!(
        matches!(second, ImageError::OverlayInUse { .. }),
        "{second}"
    );
    drop(own);
    place.overlay().unwrap();
    let taken = Overlay::create(place.image(), &place.set()).err().unwrap();
    assert!(matches!(taken, ImageError::OverlayPlace { .. }), "{taken}");
    let none = Overlay::open(place.image(), &place.set()).err().unwrap();
    assert!(matches!(none, ImageError::NoOverlay { .. }), "{none}");
}

#[test]
fn names_are_refused_as_a_file_system_refuses_them() {
    let place = place();
    let _mount = place.mount_overlay();
    let number = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    let rename = |from: &str, to: &str| rename_file(&place.path(from), &place.path(to));
    assert_eq!(number(fs::create_dir(place.path("base"))), libc::EEXIST);
    assert_eq!(number(fs::remove_dir(place.path("base"))), libc::ENOTEMPTY);
    assert_eq!(number(fs::remove_file(place.path("nothing"))), libc::ENOENT);
    assert_eq!(number(rename("base", "base/within")), libc::EINVAL);
    assert_eq!(number(rename("base", "large")), libc::ENOTDIR);
    assert_eq!(number(rename("large", "base")), libc::EISDIR);
    assert_eq!(number(rename("pg_tblspc", "base")), libc::ENOTEMPTY);
    let long = "n".repeat(256);
    assert_eq!(
        number(File::create(place.path(&long)).map(|_| ())),
        libc::ENAMETOOLONG
    );
    let noreplace = rustix::fs::RenameFlags::NOREPLACE;
    let (from, to) = (place.path("large"), place.path("base/page"));
    let refused =
        rustix::fs::renameat_with(rustix::fs::CWD, &from, rustix::fs::CWD, &to, noreplace);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
}

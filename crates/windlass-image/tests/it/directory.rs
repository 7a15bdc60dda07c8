//! A directory as an image.

use std::os::unix::fs::{FileExt, symlink};

use windlass_engine::media::FileKind;
use windlass_image::{DirectoryImage, Image, ImageError};

use crate::support::*;

fn names(image: &dyn Image) -> Vec<String> {
    image
        .files()
        .0
        .iter()
        .map(|entry| entry.path_lossy())
        .collect()
}

#[test]
fn files_directories_and_links_are_listed_parents_first() {
    let dir = tempfile::tempdir().unwrap();
    let tree = vec![
        ("z".into(), text(10, 1)),
        ("base/1/7".into(), text(9000, 2)),
    ];
    plant(&tree, dir.path());
    symlink("/nowhere", dir.path().join("link")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let image = DirectoryImage::open(dir.path()).unwrap();
    assert_eq!(names(&image), ["base", "base/1", "base/1/7", "link", "z"]);
    let link = &image.files().0[3];
    assert_eq!(
        (link.kind, link.link_target.as_slice()),
        (FileKind::Symlink, &b"/nowhere"[..])
    );
    let mut into = vec![0; 9001];
    let file = image.files().0[2].file;
    assert_eq!(image.read(file, 0, &mut into).unwrap(), 9000);
    assert!(into[..9000] == tree[1].1);
    assert_eq!(image.read(file, 8990, &mut into).unwrap(), 10);
    assert_eq!(image.read(file, 9000, &mut into).unwrap(), 0);
    assert_eq!(image.read(file, u64::MAX, &mut into).unwrap(), 0);
}

#[test]
fn a_mounted_directory_stands_in_for_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let (root, space) = (dir.path().join("root"), dir.path().join("space"));
    plant(&vec![("a".into(), text(10, 1))], &root);
    plant(&vec![("PG/5".into(), text(20, 2))], &space);
    std::fs::create_dir(root.join("tblspc")).unwrap();
    symlink(&space, root.join("tblspc/16384")).unwrap();
    let plain = DirectoryImage::open(&root).unwrap();
    assert_eq!(names(&plain), ["a", "tblspc", "tblspc/16384"]);
    let mounts = [(b"tblspc/16384".to_vec(), space)];
    let image = DirectoryImage::open_with(&root, &mounts).unwrap();
    let expected = [
        "a",
        "tblspc",
        "tblspc/16384",
        "tblspc/16384/PG",
        "tblspc/16384/PG/5",
    ];
    assert_eq!(names(&image), expected);
    assert_eq!(
        image
            .read(image.files().0[4].file, 0, &mut [0; 50])
            .unwrap(),
        20
    );
}

#[test]
fn a_file_that_grows_keeps_its_length_and_one_that_shrinks_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    plant(&vec![("a".into(), text(10_000, 1))], dir.path());
    let image = DirectoryImage::open(dir.path()).unwrap();
    let (file, mut into) = (image.files().0[0].file, vec![0; 20_000]);
    let open = std::fs::File::options()
        .write(true)
        .open(dir.path().join("a"))
        .unwrap();
    open.write_all_at(&[1; 100], 10_000).unwrap();
    assert_eq!(image.read(file, 0, &mut into).unwrap(), 10_000);
    open.set_len(5000).unwrap();
    let error = image.read(file, 0, &mut into).unwrap_err();
    assert!(matches!(
        error,
        ImageError::Shrunk {
            listed_bytes: 10_000,
            found_bytes: 5000,
            ..
        }
    ));
}

//! What is mounted is what is in the set.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use windlass_engine::CodecRange;
use windlass_engine::media::{Codec, FileKind};
use windlass_model::Emulation;
use windlass_mount::{Mount, MountOptions, Unmounted};
use windlass_testkit::sqlite::Random;

use crate::support::*;

/// Every path below a directory, without the directory itself.
fn paths(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let own = path.strip_prefix(root).unwrap();
            found.insert(own.to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            }
        }
    }
    found
}

#[test]
fn the_tree_is_equal_by_names_kinds_modes_owners_times_links_and_content() {
    let place = Place::new(sample(), &two_stripes());
    let mount = place.mount();
    let names: BTreeSet<_> = place.tree.iter().map(|node| node.path.clone()).collect();
    assert_eq!(paths(&place.at()), names);
    let us = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    for (number, node) in place.tree.iter().enumerate() {
        let path = place.path(&node.path);
        let found = fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), us, "{path:?}");
        let nanos = 1_700_000_000_000_000_000 + number as i64;
        assert_eq!(found.mtime() * 1_000_000_000 + found.mtime_nsec(), nanos);
        match node.kind {
            FileKind::File => {
                assert!(found.is_file());
                assert_eq!(found.len(), node.content.len() as u64);
                assert_eq!(found.permissions().mode() & 0o7777, node.mode, "{path:?}");
                assert!(fs::read(&path).unwrap() == node.content, "{path:?}");
            }
            FileKind::Directory => {
                assert!(found.is_dir());
                assert_eq!(found.permissions().mode() & 0o7777, node.mode, "{path:?}");
            }
            // The set knows what is inside a tablespace, so the view has a directory in place of
            // the link.
            FileKind::Symlink if node.path.starts_with("pg_tblspc") => assert!(found.is_dir()),
            // No link of a mount leads out of it.
            FileKind::Symlink if node.path == "outside" => {
                assert!(found.is_dir());
                assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
            }
            FileKind::Symlink => {
                let target = fs::read_link(&path).unwrap();
                assert_eq!(target.to_str().unwrap().as_bytes(), node.content);
            }
        }
    }
    mount.unmount().unwrap();
    assert_eq!(paths(&place.at()), BTreeSet::new());
}

#[test]
fn a_set_whose_codec_changed_in_its_making_reads_as_its_source_was() {
    let files = (0..10).map(|n| Planted::file(&format!("base/{n}"), text(1 << 20, n)));
    let tree = [Planted::directory("base")].into_iter().chain(files);
    let spec = Setup {
        codec: Codec::None,
        range: CodecRange::new(Codec::None, Codec::Zstd(9)),
        pacing: Emulation::parse(["target=rate:6MB/s"]).unwrap().pacing(),
        ..two_stripes()
    };
    let place = Place::new(tree.collect(), &spec);
    let blocks = index_blocks(&open_set(&place.set()));
    let frames = blocks.iter().flat_map(|(_, block)| &block.frames);
    let codecs: BTreeSet<_> = frames.map(|frame| frame.codec.number()).collect();
    assert!(codecs.len() > 1, "{codecs:?}");
    let _mount = place.mount();
    // Random reads come first: after the reads in sequence, the kernel has all pages.
    let mut random = Random(3);
    for _ in 0..100 {
        let node = &place.tree[1 + random.below(10) as usize];
        let offset = random.below((1 << 20) - 8192) as usize;
        let mut page = vec![0; 8192];
        let file = File::open(place.path(&node.path)).unwrap();
        file.read_exact_at(&mut page, offset as u64).unwrap();
        assert!(page == node.content[offset..offset + 8192], "{offset}");
    }
    for node in &place.tree[1..] {
        assert!(fs::read(place.path(&node.path)).unwrap() == node.content);
    }
}

/// How far the kernel reads ahead in the file system at a path, and whether we may change that.
fn kernel_read_ahead(at: &Path) -> (u64, bool) {
    let device = fs::metadata(at).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let kib = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
    (kib, File::options().write(true).open(path).is_ok())
}

#[test]
fn the_kernel_reads_further_ahead_in_a_mount_where_we_may_tell_it_and_nowhere_else() {
    let place = Place::new(sample(), &two_stripes());
    let below = kernel_read_ahead(place.dir.path());
    let _mount = place.mount();
    let (kib, may) = kernel_read_ahead(&place.at());
    assert_eq!(kib, if may { 512 } else { 128 });
    assert_eq!(kernel_read_ahead(place.dir.path()), below);
}

#[test]
fn nothing_can_be_written() {
    let place = Place::new(sample(), &two_stripes());
    let _mount = place.mount();
    let refused = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS));
    };
    refused(File::create(place.path("new")).map(|_| ()));
    refused(
        File::options()
            .write(true)
            .open(place.path("base/page"))
            .map(|_| ()),
    );
    refused(fs::remove_file(place.path("base/page")));
    refused(fs::create_dir(place.path("dir")));
    refused(std::os::unix::fs::symlink("x", place.path("link")));
    refused(rustix::fs::rename(place.path("base/page"), place.path("p")).map_err(Into::into));
    refused(fs::set_permissions(
        place.path("large"),
        fs::Permissions::from_mode(0o600),
    ));
}

#[test]
fn readers_in_parallel_and_at_random_get_the_right_bytes() {
    let place = Place::new(sample(), &two_stripes());
    for direct_io in [false, true] {
        let mount = place.mount_as(direct_io);
        read_in_parallel(&place);
        mount.unmount().unwrap();
    }
}

fn read_in_parallel(place: &Place) {
    let large = &place.tree[6];
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut random = Random(thread);
                let file = File::open(place.path("large")).unwrap();
                for _ in 0..300 {
                    let offset = random.below(5_100_000) as usize;
                    let mut into = vec![0; random.below(300_000) as usize];
                    let count = file.read_at(&mut into, offset as u64).unwrap();
                    let from = offset.min(large.content.len());
                    let end = (offset + into.len()).clamp(from, large.content.len());
                    // A read of a local file is short at the end of the file only.
                    assert_eq!(count, end - from);
                    assert!(into[..count] == large.content[from..end], "at {offset}");
                }
            });
            scope.spawn(move || {
                let mut all = Vec::new();
                let mut file = File::open(place.path("large")).unwrap();
                file.read_to_end(&mut all).unwrap();
                assert!(all == large.content);
            });
        }
    });
}

#[test]
fn what_was_read_is_kept_by_the_kernel_unless_the_mount_goes_past_its_cache() {
    let place = Place::new(sample(), &two_stripes());
    let large = &place.tree[6];
    let bytes = large.content.len() as u64;
    for direct_io in [false, true] {
        let mount = place.mount_as(direct_io);
        let path = place.path("large");
        for _ in 0..2 {
            assert!(fs::read(&path).unwrap() == large.content);
        }
        let given = mount.statistics().read_bytes;
        // The kernel may have dropped a page in between, but not all of them.
        let kept = (bytes..2 * bytes).contains(&given);
        assert_eq!(kept, !direct_io, "{given} of {bytes} bytes");
        assert!(!direct_io || given == 2 * bytes);
        // Programs that copy files read as much at a time as the file system recommends.
        let told = if direct_io { 1024 } else { 128 };
        assert_eq!(fs::metadata(&path).unwrap().blksize(), told * 1024);
        mount.unmount().unwrap();
    }
}

#[test]
fn a_mount_takes_an_empty_directory_and_nothing_else() {
    let place = Place::new(sample(), &two_stripes());
    let try_at = |at: &Path| Mount::image(place.image(), at, &MountOptions::default());
    let error = try_at(&place.path("nothing")).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    let error = try_at(&place.set()).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    assert!(error.hint().is_some());
    let error = try_at(&stripe_path(&place.set(), 0)).unwrap_err();
    assert!(error.to_string().contains("ot a directory"), "{error}");
}

#[test]
fn twenty_mounts_of_one_set_at_once() {
    let place = Place::new(sample(), &two_stripes());
    let mounts: Vec<_> = (0..20)
        .map(|index| {
            let at = place.dir.path().join(format!("at{index}"));
            fs::create_dir(&at).unwrap();
            Mount::image(place.image(), &at, &MountOptions::default()).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for mount in &mounts {
            let large = &place.tree[6];
            scope.spawn(move || {
                assert!(fs::read(mount.at().join("large")).unwrap() == large.content);
            });
        }
    });
    for mount in mounts {
        let at = mount.at().to_owned();
        mount.unmount().unwrap();
        assert_eq!(paths(&at), BTreeSet::new());
    }
}

#[test]
fn a_mount_in_use_is_detached_and_serves_what_is_open_to_its_end() {
    let place = Place::new(sample(), &two_stripes());
    let mount = place.mount();
    let file = File::open(place.path("large")).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Detached);
    assert_eq!(paths(&place.at()), BTreeSet::new());
    let mut into = vec![0; 1_000_000];
    file.read_exact_at(&mut into, 4_000_000).unwrap();
    assert!(into == place.tree[6].content[4_000_000..]);
    // The directory is free for another mount.
    let again = place.mount();
    drop(file);
    assert_eq!(again.unmount().unwrap(), Unmounted::Gone);
}

#[test]
fn a_mount_that_somebody_else_takes_away_ends() {
    let place = Place::new(sample(), &two_stripes());
    let mount = place.mount();
    let taken = if rustix::process::geteuid().is_root() {
        Command::new("umount").arg(place.at()).status()
    } else {
        Command::new("fusermount3")
            .arg("-u")
            .arg(place.at())
            .status()
    };
    assert!(taken.unwrap().success());
    mount.wait().unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Gone);
}

/// A container that begins while a mount is there may get a copy of it. The end here does not wait
/// for the end of the container.
#[test]
fn a_copy_of_a_mount_in_another_namespace_holds_nobody_up() {
    let place = Place::alone(sample(), &two_stripes());
    let mount = place.mount();
    let mut container = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        container.args(["--user", "--map-root-user"]);
    }
    container.args(["--mount", "--propagation", "private"]);
    container.args(["sh", "-c", "echo begun; read line"]);
    container.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut container = container.spawn().unwrap();
    let mut begun = [0; 6];
    let mut output = container.stdout.take().unwrap();
    output.read_exact(&mut begun).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Detached);
    assert_eq!(paths(&place.at()), BTreeSet::new());
    drop(container.stdin.take());
    container.wait().unwrap();
}

/// The first mount is detached while a file of it is open. So it ends after the second has begun.
#[test]
fn a_mount_that_ends_late_leaves_the_next_one_on_its_place_alone() {
    let place = Place::new(sample(), &two_stripes());
    let path = place.path("base/byte");
    let first = place.mount();
    let open = File::open(&path).unwrap();
    assert_eq!(first.detach().unwrap(), Unmounted::Detached);
    let second = place.mount();
    // Whoever asks the first one again to end does not mean the second one.
    assert_eq!(first.detach().unwrap(), Unmounted::Detached);
    assert_eq!(fs::read(&path).unwrap(), [42]);
    drop(open);
    first.wait().unwrap();
    drop(first);
    assert_eq!(fs::read(&path).unwrap(), [42]);
    assert_eq!(second.unmount().unwrap(), Unmounted::Gone);
}

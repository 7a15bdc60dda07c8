//! Cleaning up: what is proven unsealed goes, what is sealed gets its name, the rest stays.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::media::Codec;
use windlass_engine::{
    CleanedUp, FileDevice, FileDeviceOptions, METADATA_LIMIT_DEFAULT, clean_up, clean_up_within,
    partial_path,
};

use crate::support::*;

const SEAL_BYTES: u64 = 512;

struct Fixture {
    dir: tempfile::TempDir,
    tree: Tree,
    /// The stripes' own names. No file has them yet.
    names: Vec<PathBuf>,
}

/// A set of `stripes` stripes, all sealed and none renamed. A run that is killed before it renames
/// leaves it like this.
fn sealed(stripes: usize) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let tree = mixed_tree(1);
    let names = make_set(&tree, dir.path(), &Setup::small(stripes, Codec::Zstd(1)));
    for name in &names {
        rename(name, &partial_path(name));
    }
    Fixture { dir, tree, names }
}

impl Fixture {
    fn clean(&self) -> Vec<CleanedUp> {
        clean_up(self.dir.path()).unwrap()
    }

    fn partial(&self, index: usize) -> PathBuf {
        partial_path(&self.names[index])
    }

    /// Changes bytes of a left-over stripe, from the end if `offset` is negative. If they are there
    /// by chance, as in a checksum of a drawn id, it writes the opposite.
    fn poke(&self, index: usize, offset: i64, bytes: &[u8]) {
        let file = File::options()
            .read(true)
            .write(true)
            .open(self.partial(index))
            .unwrap();
        let length = file.metadata().unwrap().len();
        let from = if offset < 0 { length } else { 0 };
        let at = from.checked_add_signed(offset);
        let at = at.expect("the stripe is that long");
        let mut bytes = bytes.to_vec();
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, at).unwrap();
        if found == bytes {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        file.write_all_at(&bytes, at).unwrap();
    }

    /// Removes a stripe's seal, as if it had not been written yet.
    fn unseal(&self, index: usize) {
        self.poke(index, -(SEAL_BYTES as i64), &[0; SEAL_BYTES as usize]);
    }

    fn assert_left(&self, why: &str) {
        let before = contents(self.dir.path());
        let done = self.clean();
        assert!(!done.is_empty(), "it says so");
        for one in &done {
            let CleanedUp::Left(path, _) = one else {
                panic!("{why}: {one}")
            };
            assert!(path.exists(), "{why}");
        }
        assert!(before == contents(self.dir.path()), "{why}");
    }
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let mut found: Vec<_> = entries
        .map(|path| (path.clone(), fs::read(path).unwrap_or_default()))
        .collect();
    found.sort();
    found
}

#[test]
fn a_sealed_set_gets_its_names_however_many_it_had_already() {
    for named in 0..3 {
        let fixture = sealed(3);
        for name in &fixture.names[..named] {
            rename(&partial_path(name), name);
        }
        let done = fixture.clean();
        assert_eq!(done.len(), 3 - named);
        let is_published = |one: &CleanedUp| matches!(one, CleanedUp::Published(_));
        assert!(done.iter().all(is_published), "{done:?}");
        let into = tempfile::tempdir().unwrap();
        let set = open(&[fixture.dir.path().to_owned()]).unwrap();
        bring_back(&set, into.path()).unwrap();
        assert_same(&fixture.tree, into.path());
        assert!(fixture.clean().is_empty());
    }
}

#[test]
fn a_set_of_which_one_stripe_was_never_sealed_goes_as_a_whole() {
    for unsealed in 0..3 {
        let fixture = sealed(3);
        fixture.unseal(unsealed);
        let done = fixture.clean();
        let is_removed = |one: &CleanedUp| matches!(one, CleanedUp::Removed(_));
        assert!(done.len() == 3 && done.iter().all(is_removed), "{done:?}");
        assert_eq!(contents(fixture.dir.path()), []);
    }
}

#[test]
fn a_stripe_cut_off_while_it_was_written_goes() {
    // The header alone is as long as a seal here, and has the set's id where a seal has it.
    for bytes in [512, 4096, 5000, 20_000] {
        // The second length is that of a file with room allocated ahead.
        for length in [bytes, 1 << 20] {
            let fixture = sealed(1);
            let file = File::options()
                .write(true)
                .open(fixture.partial(0))
                .unwrap();
            file.set_len(bytes).unwrap();
            file.set_len(length).unwrap();
            let done = fixture.clean();
            let removed = CleanedUp::Removed(fixture.partial(0));
            assert_eq!(done, [removed], "{bytes} of {length}");
        }
    }
}

#[test]
fn what_may_be_sealed_is_left_alone() {
    let damages: [(&str, i64, &[u8]); 8] = [
        ("the header is damaged", 40, b"\xff"),
        ("the header is of a newer version", 8, b"\x02"),
        ("the seal's magic is damaged", -512, b"\x00"),
        ("the seal's magic is gone", -512, &[0; 8]),
        ("the seal's set id is damaged", -490, b"\xaa\x55\xaa"),
        ("the seal is of a newer version", -504, b"\x02"),
        ("the seal's checksum is wrong", -1, b"\xaa"),
        ("the footer is damaged", -512 - 300, &[0xaa; 200]),
    ];
    for (why, offset, bytes) in damages {
        for damaged in [0, 1] {
            let fixture = sealed(2);
            fixture.poke(damaged, offset, bytes);
            fixture.assert_left(why);
        }
    }
}

/// Frames go to whichever stripe is free, so one of two may have none, and no index. The longer one
/// has both.
#[test]
fn what_has_a_damaged_index_is_not_removed() {
    let fixture = sealed(2);
    let length = |index: &usize| fs::metadata(fixture.partial(*index)).unwrap().len();
    let longer = [0, 1].into_iter().max_by_key(length).unwrap();
    fixture.poke(longer, -4396, &[0xaa; 200]);
    let done = fixture.clean();
    let removed = |one: &CleanedUp| matches!(one, CleanedUp::Removed(_));
    assert!(done.len() == 2 && !done.iter().any(removed), "{done:?}");
}

#[test]
fn a_set_too_large_to_be_looked_at_is_left_alone() {
    let fixture = sealed(2);
    let before = contents(fixture.dir.path());
    let done = clean_up_within(fixture.dir.path(), 100).unwrap();
    let is_left = |one: &CleanedUp| matches!(one, CleanedUp::Left(..));
    assert!(done.len() == 2 && done.iter().all(is_left), "{done:?}");
    assert!(before == contents(fixture.dir.path()));
    let done = clean_up_within(fixture.dir.path(), METADATA_LIMIT_DEFAULT).unwrap();
    assert_eq!(done.len(), 2);
}

#[test]
fn a_sealed_stripe_whose_sibling_cannot_be_seen_is_left_alone() {
    let fixture = sealed(2);
    let away = tempfile::tempdir().unwrap();
    rename(&fixture.partial(1), &away.path().join("unmounted"));
    fixture.assert_left("its sibling is elsewhere");
}

#[test]
fn a_stripe_that_lost_its_seal_after_its_set_got_a_name_is_left_alone() {
    let fixture = sealed(2);
    rename(&fixture.partial(0), &fixture.names[0]);
    fixture.unseal(1);
    fixture.assert_left("a sibling has its name");
}

#[test]
fn a_stripe_that_a_run_writes_is_passed_over() {
    let fixture = sealed(2);
    fixture.unseal(0);
    let file = File::open(fixture.partial(0)).unwrap();
    file.lock().unwrap();
    assert_eq!(fixture.clean(), []);
    // A process that another test is starting has a copy of the descriptor, which would hold it.
    file.unlock().unwrap();
    assert_eq!(fixture.clean().len(), 2);
}

#[test]
fn a_name_that_is_taken_is_given_only_over_an_older_stripe() {
    let fixture = sealed(1);
    write(&fixture.names[0], b"eggs, milk");
    fixture.assert_left("a file of somebody's has the name");
    // The copy is of the same set and so was begun at the same time. It is not older.
    fs::copy(fixture.partial(0), &fixture.names[0]).unwrap();
    fixture.assert_left("a stripe has the name that is not older");
}

/// Where no rename refuses to replace, a hard link gives the name. A crash may leave both names.
#[test]
fn a_stripe_that_has_both_of_its_names_keeps_the_right_one() {
    let fixture = sealed(2);
    for index in 0..2 {
        fs::hard_link(fixture.partial(index), &fixture.names[index]).unwrap();
    }
    let done = fixture.clean();
    let named = |index: usize| CleanedUp::Published(fixture.names[index].clone());
    assert_eq!(done, [named(0), named(1)]);
    assert_eq!(names(fixture.dir.path()), fixture.names);
    assert_eq!(fixture.clean(), []);
}

#[test]
fn what_is_no_stripe_of_ours_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let ours = "shop-20261121T081500Z-1f0c9a2e.1of1.windlass.partial";
    write(&at("download.partial"), b"");
    write(&at("zeros.partial"), &[0; 100_000]);
    write(&at("page.partial"), b"<!doctype html>");
    write(&at(&format!("other-{ours}")), b"not zeros");
    fs::create_dir(at("directory.partial")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("link.partial")).unwrap();
    std::os::unix::fs::symlink("/dev/tty", at("terminal.partial")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.partial")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe.partial"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let names = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries.count()
    };
    let before = names();
    assert_eq!(clean_up(dir.path()).unwrap(), []);
    assert_eq!(names(), before);
    // The name is one that runs give, and there is nothing in the file: its run was killed at once.
    for nothing in [vec![], vec![0; 100_000]] {
        write(&at(ours), &nothing);
        let done = clean_up(dir.path()).unwrap();
        assert_eq!(done, [CleanedUp::Removed(at(ours))]);
    }
}

#[test]
fn a_set_that_was_named_partial_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let tree = mixed_tree(1);
    let names = make_set(&tree, dir.path(), &Setup::small(1, Codec::Lz4));
    // A user may give such a name to a copy.
    let copy = dir.path().join("copy.partial");
    rename(&names[0], &copy);
    assert_eq!(clean_up(dir.path()).unwrap(), []);
    assert!(copy.exists());
}

#[test]
fn what_the_directory_keeps_fails_no_later_run() {
    // Root may rename and remove everything, unless a mount is in the way.
    let fixture = sealed(1);
    let before = contents(fixture.dir.path());
    let script = "mount --bind \"$1\" \"$1\" && shift && exec \"$@\"";
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", script, "sh"]);
    unshare.arg(fixture.partial(0));
    unshare.arg(std::env::current_exe().unwrap());
    unshare.args(["--ignored", "--exact", "cleanup::cleans_what_is_named"]);
    unshare.env("WINDLASS_TEST_CLEAN", fixture.dir.path());
    let output = unshare.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(contents(fixture.dir.path()), before);
}

/// What the test above runs where the stripe is a mount point.
#[test]
#[ignore = "another test runs it"]
fn cleans_what_is_named() {
    let directory = std::env::var_os("WINDLASS_TEST_CLEAN").unwrap();
    let done = clean_up(Path::new(&directory)).unwrap();
    let [CleanedUp::Left(_, why)] = done.as_slice() else {
        panic!("{done:?}")
    };
    assert!(why.contains("it cannot get its name"), "{why}");
}

/// A run has its file from the moment on at which it begins, whatever others clean up meanwhile.
#[test]
fn runs_that_begin_are_not_disturbed_by_clean_ups() {
    let dir = tempfile::tempdir().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    clean_up(dir.path()).unwrap();
                }
            });
        }
        let begun = std::panic::catch_unwind(|| {
            for number in 0..500 {
                let name = format!("shop-20261121T081500Z-{number:08x}.1of1.windlass");
                let name = dir.path().join(name);
                let device = FileDevice::create(&name, FileDeviceOptions::default()).unwrap();
                clean_up(dir.path()).unwrap();
                assert!(partial_path(&name).exists(), "{number}");
                drop(device);
            }
        });
        is_over.store(true, Ordering::Relaxed);
        begun.unwrap();
    });
}

//! A process that is killed while it reads its own mount dies.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::media::{FileNo, FileTable};
use windlass_image::{Image, ImageError, SetImage};
use windlass_mount::{Mount, MountOptions, apart};

use crate::support::{Place, open_image, sample};

/// Where the child mounts its set.
const PLACE: &str = "WINDLASS_TEST_PLACE";
/// The child says so when somebody waits for an answer of its mount.
const WAITING: &str = "a read waits";
/// If the child waits for itself, it does so for ever.
const LIMIT: Duration = Duration::from_secs(60);

/// An image that never answers a read.
struct Silent(Arc<SetImage>);

impl Image for Silent {
    fn files(&self) -> &FileTable {
        self.0.files()
    }

    fn read(&self, _: FileNo, _: u64, _: &mut [u8]) -> Result<usize, ImageError> {
        println!("\n{WAITING}");
        loop {
            std::thread::park();
        }
    }
}

/// The child of the other tests.
#[test]
#[ignore = "only as the child of another test"]
fn reads_its_own_mount() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let place = Path::new(&place);
    let options = MountOptions {
        direct_io: true,
        ..MountOptions::default()
    };
    let silent = Arc::new(Silent(open_image(&place.join("set"))));
    let mount = Mount::image(silent, &place.join("at"), &options).unwrap();
    let file = mount.at().join("large");
    let read = apart(|| std::fs::read(file)).unwrap();
    unreachable!("{read:?}");
}

#[test]
fn a_process_that_is_killed_while_it_reads_its_own_mount_dies() {
    let place = Place::new(sample(), &Default::default());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([
        "--exact",
        "apart::reads_its_own_mount",
        "--ignored",
        "--nocapture",
    ]);
    child.env(PLACE, place.dir.path()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    // The pipe stays until the child has ended: nobody who writes there may get an error.
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == WAITING));
    child.kill().unwrap();
    let killed = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if killed.elapsed() > LIMIT => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // Otherwise nothing would ever end the child.
    if ended.is_none() {
        let mut unmount = Command::new("umount");
        unmount.arg("--force").arg(place.at()).status().unwrap();
        child.wait().unwrap();
    }
    drop(said);
    windlass_mount::detach(&place.at()).unwrap();
    assert_eq!(ended.expect("it waits for itself").signal(), Some(9));
}

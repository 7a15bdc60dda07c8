//! Servers load the hook, and every process of theirs has it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use windlass_layout::hook::{CONTROL_BYTES, MAGIC, VERSION};
use windlass_testkit::installed::{hooked_versions, library};

use crate::support::{Hooked, wait_until};

const STARTS_AT: u64 = 9 * 4;

fn word(file: &File, at: u64) -> u32 {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).unwrap();
    u32::from_le_bytes(bytes)
}

#[test]
fn every_process_of_every_version_has_the_hook() {
    for (major, bin) in hooked_versions() {
        let mut hooked = Hooked::start(&bin, &[]);
        let path = hooked.memory();
        let memory = File::open(&path).unwrap();
        let found = memory.metadata().unwrap();
        assert_eq!(found.len(), CONTROL_BYTES);
        assert_eq!(found.mode() & 0o777, 0o600);
        assert!(found.blocks() * 512 < 1 << 20, "almost all of it is a hole");
        assert_eq!((word(&memory, 0), word(&memory, 4)), (MAGIC, VERSION));
        assert_eq!(word(&memory, STARTS_AT), 1);
        let shown = path.display().to_string();
        for process in hooked.processes() {
            // One that has ended maps nothing any more: a session that asked, or a worker.
            let is_seen = || {
                let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
                maps.is_ok_and(|maps| maps.contains(&shown))
            };
            let what = format!("the hook in {process} of version {major}");
            wait_until(&what, || {
                is_seen() || !hooked.processes().contains(&process)
            });
        }
        hooked.server.sql(
            "postgres",
            "CREATE TABLE t AS SELECT generate_series(1, 1000) i",
        );
        hooked.server.stop("fast");
        hooked.server.run();
        assert_eq!(word(&memory, STARTS_AT), 2, "the same memory");
        assert_eq!(
            hooked.server.sql("postgres", "SELECT sum(i) FROM t"),
            "500500"
        );
        assert!(
            !hooked.server.log().contains("windlass"),
            "{}",
            hooked.server.log()
        );
    }
}

#[test]
fn a_session_that_loads_the_library_later_changes_nothing() {
    let (_, bin) = hooked_versions().pop().unwrap();
    let hooked = Hooked::start(&bin, &["session_preload_libraries = ''"]);
    let library = library();
    let copy = hooked.server.place().join("late.so");
    std::fs::copy(library, &copy).unwrap();
    let load = format!("LOAD '{}'", copy.display());
    hooked.server.sql("postgres", &load);
    let memory = File::open(hooked.memory()).unwrap();
    assert_eq!(word(&memory, STARTS_AT), 1);
}

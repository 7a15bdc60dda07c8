//! The map of changes: every block whose bytes differ from those of an earlier moment is named, and
//! so is every block that the log or a page's own position names.

use std::collections::HashMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_engine::media::crc32c;
use windlass_postgres::{ChangeMark, ChangeWitness};
use windlass_snapshot::hook::ChangeMap;
use windlass_testkit::installed::all_versions;
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster};

use crate::support::{Source, kill_checkpointer};

const BLOCK: usize = 8192;

/// What the blocks of a cluster were when a mark was begun.
pub struct Watched {
    map: ChangeMap,
    mark: ChangeMark,
    data: PathBuf,
    /// Where the server was.
    lsn: u64,
    before: Blocks,
}

/// A checksum of each block of each file, and the position that it has.
type Blocks = HashMap<PathBuf, Vec<(u32, u64)>>;

impl Watched {
    pub fn begin(source: &Source) -> Self {
        let data = source.server.data().to_owned();
        let map = ChangeMap::of(&data).unwrap().unwrap();
        Self::begin_of(map, data, &source.server)
    }

    fn begin_of(map: ChangeMap, data: PathBuf, server: &PrivateCluster) -> Self {
        let mark = map.begin(1 << 26).unwrap();
        Self {
            map,
            mark,
            lsn: lsn(server),
            before: blocks(&data),
            data,
        }
    }

    /// Asserts that every block is named that somebody has changed, and begins again.
    pub fn next(self, server: &PrivateCluster, what: &str) -> Self {
        let map = ChangeMap::of(&self.data).unwrap().unwrap();
        let next = Self::begin_of(map, self.data.clone(), server);
        self.assert_seen(&next.before, what);
        next
    }

    /// The map does not go on, and no other one begins. Says why.
    pub fn refused(&self, source: &Source) -> String {
        assert!(!self.map.has_seen(&self.mark));
        let map = ChangeMap::of(source.server.data()).unwrap();
        map.as_ref()
            .unwrap_or(&self.map)
            .begin(1 << 26)
            .unwrap_err()
    }

    /// The blocks of a file that the map names, of so many.
    fn named(&self, path: &Path, blocks: usize) -> Vec<u64> {
        let found = std::fs::metadata(path).unwrap();
        let blocks = (blocks as u64, BLOCK as u64);
        self.map.changed(&self.mark, (path, &found), blocks)
    }

    /// Every block that differs is named, and every block with a later position. Returns how many
    /// blocks are named, of how many. Nobody may write.
    pub fn assert_named(&self) -> (usize, usize) {
        self.assert_seen(&blocks(&self.data), "")
    }

    fn assert_seen(&self, now: &Blocks, what: &str) -> (usize, usize) {
        assert!(self.map.has_seen(&self.mark), "{what}");
        let (mut named, mut all) = (0, 0);
        for (path, blocks) in now {
            let Some(before) = self.before.get(path) else {
                continue;
            };
            let both = before.len().min(blocks.len());
            let found = self.named(path, both);
            for (block, (now, before)) in (0_u64..).zip(blocks.iter().zip(before)) {
                let is_new = now.0 != before.0 || now.1 >= self.lsn;
                let is_named = found.binary_search(&block).is_ok();
                let at = path.display();
                assert!(is_named || !is_new, "{what} {at}: block {block}");
            }
            (named, all) = (named + found.len(), all + both);
        }
        (named, all)
    }
}

fn lsn(server: &PrivateCluster) -> u64 {
    let sql = "SELECT pg_current_wal_insert_lsn() - '0/0'";
    server.sql("postgres", sql).parse().unwrap()
}

/// The position in the header of a page; 0 in a free space map, which has none.
fn position(path: &Path, page: &[u8]) -> u64 {
    if path.to_str().unwrap().ends_with("_fsm") {
        return 0;
    }
    let half = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    u64::from(half(0)) << 32 | u64::from(half(4))
}

fn blocks(data: &Path) -> Blocks {
    let blocks = files(data).map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let pages = bytes.chunks_exact(BLOCK);
        let blocks = pages.map(|page| (crc32c(page), position(&path, page)));
        let blocks = blocks.collect();
        (path, blocks)
    });
    blocks.collect()
}

/// The files of relations.
fn files(data: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = |path: PathBuf| std::fs::read_dir(path).unwrap().flatten();
    let below = |path: PathBuf| entries(path).map(|entry| entry.path());
    let spaces = below(data.join("pg_tblspc")).flat_map(below);
    // The links of snapshots are beside the server's own directory of a tablespace.
    let spaces = spaces.filter(|path| !path.ends_with("windlass"));
    let databases = below(data.join("base")).chain(spaces.flat_map(below));
    let directories = databases.chain([data.join("global")]);
    let files: Vec<_> = directories.flat_map(entries).collect();
    let is_relation = |name: &str| name.starts_with(|letter: char| letter.is_ascii_digit());
    let files = files.into_iter().map(|entry| entry.path());
    files.filter(move |path| is_relation(path.file_name().unwrap().to_str().unwrap()))
}

fn prepare(source: &Source) {
    for sql in [
        "CREATE TABLE large AS SELECT i, repeat('x', 200) AS x FROM generate_series(1, 40000) i",
        "CREATE INDEX ON large (i)",
        "CREATE TABLE cut AS SELECT i, repeat('y', 200) AS y FROM generate_series(1, 9000) i",
        "CREATE TABLE emptied AS SELECT generate_series(1, 9000) i",
        "CREATE TABLE hints AS SELECT i, repeat('z', 200) AS z FROM generate_series(1, 9000) i",
        "CREATE TABLE gone AS SELECT generate_series(1, 9000) i",
        "CREATE DATABASE template",
        "CHECKPOINT",
    ] {
        source.server.sql("postgres", sql);
    }
}

/// What changes pages: with and without the log, by all kinds of processes, and over a crash of
/// them.
fn change(server: &PrivateCluster) {
    for sql in [
        // Hint bits, which nobody logs here.
        "SELECT count(*) FROM hints",
        "UPDATE large SET x = 'short' WHERE i % 4001 = 0",
        "DELETE FROM cut WHERE i > 3000",
        "VACUUM cut",
        "INSERT INTO cut SELECT i, 'again' FROM generate_series(1, 200) i",
        "TRUNCATE emptied",
        "INSERT INTO emptied SELECT generate_series(1, 500)",
        "DROP TABLE gone",
        "CREATE TABLE new AS SELECT generate_series(1, 9000) i",
        "VACUUM FULL pg_class",
        "VACUUM (FREEZE) hints",
        "CREATE DATABASE copy TEMPLATE template",
    ] {
        server.sql("postgres", sql);
    }
    crash_a_process(server);
    server.sql("postgres", "UPDATE large SET x = 'late' WHERE i = 17");
    server.sql("postgres", "CHECKPOINT");
}

/// The server ends all its other processes, and recovers.
fn crash_a_process(server: &PrivateCluster) {
    server.sql("postgres", "INSERT INTO new VALUES (-1)");
    kill_checkpointer(server);
    assert_eq!(
        server.sql("postgres", "SELECT count(*) FROM new WHERE i = -1"),
        "1"
    );
}

#[test]
fn every_block_that_differs_is_named() {
    let is_tried = |version: &(u32, PathBuf)| [14, 15, 19].contains(&version.0);
    for (major, bin) in all_versions().into_iter().filter(is_tried) {
        let source = Source::start_of(&bin, &["autovacuum = off"], &[]);
        prepare(&source);
        let watched = Watched::begin(&source);
        change(&source.server);
        let (named, all) = watched.assert_named();
        let control = watched.data.join("global/pg_control");
        assert_eq!(watched.named(&control, 1), [0], "{major}");
        // Version 19 writes more: whoever reads a page says in it that its rows are visible.
        assert!(named * 4 < all * 3, "{major}: {named} of {all}");
        assert!(named > 20, "{major}: {named}");
    }
}

#[test]
fn every_block_that_the_summaries_of_the_log_name_is_in_the_map() {
    let bin = windlass_testkit::installed::of_version(all_versions(), 18);
    let settings = ["summarize_wal = on", "autovacuum = off"];
    let source = Source::start_of(&bin, &settings, &[]);
    prepare(&source);
    let server = &source.server;
    let watched = Watched::begin(&source);
    // A summary begins here.
    server.sql("postgres", "CHECKPOINT");
    let end = {
        change(server);
        lsn(server)
    };
    let summarized =
        format!("SELECT summarized_lsn - '0/0' >= {end} FROM pg_get_wal_summarizer_state()");
    server.sql("postgres", "SELECT pg_switch_wal()");
    server.sql("postgres", "CHECKPOINT");
    server.wait_until(&summarized, "t");
    let sql = format!(
        "SELECT DISTINCT reldatabase, relfilenode, relblocknumber \
         FROM pg_available_wal_summaries() s, \
              pg_wal_summary_contents(s.tli, s.start_lsn, s.end_lsn) \
         WHERE s.start_lsn - '0/0' >= {} AND relforknumber = 0 AND NOT is_limit_block",
        watched.lsn
    );
    let named = server.sql("postgres", &sql);
    let mut compared = 0;
    for line in named.lines() {
        let mut fields = line.split('|').map(|field| field.parse::<u64>().unwrap());
        let mut field = || fields.next().unwrap();
        let (database, file, block) = (field(), field(), field());
        let path = match database {
            0 => watched.data.join(format!("global/{file}")),
            _ => watched.data.join(format!("base/{database}/{file}")),
        };
        let length = std::fs::metadata(&path).map_or(0, |found| found.size()) / BLOCK as u64;
        if !watched.before.contains_key(&path) || block >= length {
            continue;
        }
        let found = watched.named(&path, usize::try_from(length).unwrap());
        assert!(found.binary_search(&block).is_ok(), "{line}");
        compared += 1;
    }
    assert!(compared > 20, "{compared}: {named}");
}

#[test]
fn a_server_that_starts_ends_the_map() {
    let mut source = Source::start_of(DEFAULT_BIN.as_ref(), &[], &[]);
    for how in ["fast", "immediate", "kill"] {
        let watched = Watched::begin(&source);
        source.end(how);
        assert!(!watched.map.has_seen(&watched.mark), "{how}");
        source.server.run();
        assert!(!watched.map.has_seen(&watched.mark), "{how}");
        let map = ChangeMap::of(&watched.data).unwrap().unwrap();
        assert_eq!(map.go_on(), Ok(None), "{how}");
        let next = Watched::begin(&source);
        assert_ne!(next.mark.epoch, watched.mark.epoch, "{how}");
        assert_eq!(next.mark.generation, 1, "{how}");
    }
    // Without the hook there is none.
    let watched = Watched::begin(&source);
    source.server.stop("fast");
    source.server.configure(&["shared_preload_libraries = ''"]);
    source.server.run();
    assert!(ChangeMap::of(&watched.data).unwrap().is_none());
    assert!(!watched.map.has_seen(&watched.mark));
    watched.map.begin(0).unwrap_err();
    watched.map.go_on().unwrap_err();
}

/// A machine is set back to an earlier moment together with its memory, and goes on otherwise.
#[test]
fn a_mark_of_a_future_that_did_not_come_is_not_one_of_the_map() {
    let source = Source::start_of(DEFAULT_BIN.as_ref(), &["autovacuum = off"], &[]);
    let first = Watched::begin(&source);
    let memory = source.memory().unwrap();
    let memory = std::fs::File::options()
        .read(true)
        .write(true)
        .open(memory)
        .unwrap();
    // Everything of the map is in these words of the header, but for the cells.
    let mut kept = [0; 5 * 4];
    memory.read_exact_at(&mut kept, 3 * 4).unwrap();
    let second = first.map.begin(0).unwrap();
    assert!(first.map.has_seen(&second));
    memory.write_all_at(&kept, 3 * 4).unwrap();
    assert!(!first.map.has_seen(&second));
    let again = first.map.go_on().unwrap().unwrap();
    assert_eq!(
        (&again.epoch, again.generation),
        (&second.epoch, second.generation)
    );
    assert!(first.map.has_seen(&again) && !first.map.has_seen(&second));
    assert!(first.map.has_seen(&first.mark));
    first.assert_named();
}

#[test]
fn marks_follow_each_other_while_snapshots_come_and_go() {
    let source = Source::start_of(DEFAULT_BIN.as_ref(), &["autovacuum = off"], &[]);
    prepare(&source);
    let server = &source.server;
    let first = Watched::begin(&source);
    let snapshot = source.snapshot("one");
    server.sql("postgres", "UPDATE large SET x = 'one' WHERE i < 50");
    server.sql("postgres", "CHECKPOINT");
    let second = Watched::begin(&source);
    assert_eq!(
        (&second.mark.epoch, second.mark.generation),
        (&first.mark.epoch, 2)
    );
    source.pause("two");
    windlass_snapshot::hook::remove(&snapshot.directory).unwrap();
    server.sql("postgres", "UPDATE large SET x = 'two' WHERE i > 39950");
    server.sql("postgres", "CHECKPOINT");
    let (newer, _) = second.assert_named();
    let (older, _) = first.assert_named();
    assert!(newer < older, "{newer} {older}");
}

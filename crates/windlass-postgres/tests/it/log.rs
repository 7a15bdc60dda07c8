//! The log reader on logs of real servers, compared with PostgreSQL's own reader; and what it finds
//! in the log of copies that other tools made.

use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_engine::media::{FileNo, FileTable};
use windlass_image::{DirectoryImage, Image};
use windlass_postgres::{
    ClusterFiles, DatabaseFacts, LogRecords, Lsn, OpenRequest, PostgresError, Programs, ReadError,
    ReplayedTablespace, SegmentFiles, Server, replayed_tablespaces,
};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{Wish, try_backup};

/// Resource managers in the order of their numbers, with the names that pg_waldump uses.
const MANAGERS: [&str; 22] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];
const SEGMENT_BYTES: u64 = 1 << 20;

/// Makes many kinds of records, some of them longer than a page, and fills more than one segment.
const WORKLOAD: &str = "CREATE TABLE t (i int PRIMARY KEY, s text, a int[]);
    INSERT INTO t SELECT i, repeat(md5(i::text), 40), ARRAY[i, i % 7] \
        FROM generate_series(1, 4000) i;
    CREATE INDEX ON t USING hash (s);
    CREATE INDEX ON t USING gin (a);
    CREATE INDEX ON t USING brin (i);
    CREATE INDEX ON t USING gist (point(i, i));
    CREATE INDEX ON t USING spgist (s);
    CREATE SEQUENCE q;
    SELECT nextval('q');
    UPDATE t SET s = s || 'x' WHERE i % 3 = 0;
    DELETE FROM t WHERE i % 5 = 0;
    SELECT count(*) FROM (SELECT * FROM t WHERE i < 50 FOR SHARE) locked;
    CHECKPOINT;
    UPDATE t SET s = s || 'y' WHERE i % 11 = 0;
    VACUUM FULL t;
    VACUUM FULL pg_class;
    SELECT pg_logical_emit_message(false, 'x', repeat('long', 300000));
    SELECT pg_switch_wal();
    CREATE DATABASE logged TEMPLATE template0;
    CREATE DATABASE copied TEMPLATE template0 STRATEGY file_copy;
    DROP DATABASE logged;
    TRUNCATE t;
    CHECKPOINT;
    SELECT pg_switch_wal()";

/// Position, length and manager of each record, in one line.
fn read_ours(directory: &Path, start: Lsn) -> Vec<String> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.len() == 24 {
            let word = |at: usize| u64::from_str_radix(&name[at..at + 8], 16).unwrap();
            let number = word(8) * (0x1_0000_0000 / SEGMENT_BYTES) + word(16);
            segments.push((number, directory.join(name)));
        }
    }
    let mut files = SegmentFiles::new(segments);
    let mut records = LogRecords::open(&mut files, SEGMENT_BYTES, start, &[]).unwrap();
    assert_eq!(records.major(), 15);
    let mut found = Vec::new();
    while let Some(record) = records.read_next().unwrap() {
        let manager = MANAGERS[usize::from(record.manager)];
        found.push(format!("{} {manager} {}", record.start, record.bytes));
    }
    found
}

/// The same from pg_waldump's lines: `rmgr: Heap  len (rec/tot): 54/ 150, tx: 3, lsn: 0/1000028,
/// ...`
fn read_theirs(said: &str) -> Vec<String> {
    let parse = |line: &str| {
        let rest = line.strip_prefix("rmgr: ")?;
        let manager = rest.split_whitespace().next()?;
        let total = rest.split_once('/')?.1.split_once('/')?.1;
        let total: u32 = total.split(',').next()?.trim().parse().ok()?;
        let lsn = rest.split_once("lsn: ")?.1.split(',').next()?;
        Some(format!("{} {manager} {total}", Lsn::parse(lsn)?))
    };
    said.lines().filter_map(parse).collect()
}

#[test]
fn every_record_of_a_real_log_is_read_as_pg_waldump_reads_it() {
    become_server_user();
    let options = ClusterOptions::default()
        .initdb("--wal-segsize=1")
        .setting("wal_keep_size = 1GB")
        .setting("min_wal_size = 2MB");
    let mut source = PrivateCluster::start(&options);
    source.sql("postgres", "CHECKPOINT");
    let redo = "SELECT redo_lsn FROM pg_control_checkpoint()";
    let start = Lsn::parse(&source.sql("postgres", redo)).unwrap();
    for statement in WORKLOAD.split(';') {
        source.sql("postgres", statement);
    }
    source.stop("fast");
    let directory = source.data().join("pg_wal");
    let ours = read_ours(&directory, start);
    let mut tool = source.tool("pg_waldump");
    tool.arg("--path").arg(&directory);
    tool.arg("--start").arg(start.to_string());
    // pg_waldump ends where the log ends, and reports that as an error.
    let said = tool.output().unwrap();
    let theirs = read_theirs(&String::from_utf8_lossy(&said.stdout));
    assert!(
        theirs.len() > 20_000,
        "{} records prove little",
        theirs.len()
    );
    let kinds = MANAGERS.iter().filter(|name| {
        let name = format!(" {name} ");
        theirs.iter().any(|line| line.contains(&name))
    });
    assert!(kinds.count() > 15);
    let differs = ours
        .iter()
        .zip(&theirs)
        .find(|(ours, theirs)| ours != theirs);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

/// A directory in the form that the readers of an image take.
struct Files<'a>(&'a DirectoryImage);

impl ClusterFiles for Files<'_> {
    fn files(&self) -> &FileTable {
        self.0.files()
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        Ok(self.0.read(file, offset, into)?)
    }
}

/// A data directory like one from another tool's backup: the server created a tablespace and was
/// then killed, and the label belongs to a backup that began earlier. Also returns the facts of a
/// set of it, as an older version of Windlass would have made them.
fn copy_with_late_tablespace(place: &Path) -> (PrivateCluster, DatabaseFacts, PathBuf) {
    let mut source = PrivateCluster::start(&ClusterOptions::default());
    let outcome = try_backup(&source, &place.join("set"), &Wish::default()).unwrap();
    assert!(outcome.facts.log_surveyed);
    source.sql("postgres", "CHECKPOINT");
    let redo = source.sql("postgres", "SELECT redo_lsn FROM pg_control_checkpoint()");
    let live = place.join("live");
    std::fs::create_dir(&live).unwrap();
    let sql = format!("CREATE TABLESPACE late LOCATION '{}'", live.display());
    source.sql("postgres", &sql);
    source.stop("immediate");
    let label = format!("START WAL LOCATION: {redo} (file x)\nSTART TIMELINE: 1\n");
    write(&source.data().join("backup_label"), label.as_bytes());
    let facts = DatabaseFacts {
        start_lsn: Lsn::parse(&redo).unwrap(),
        log_surveyed: false,
        ..outcome.facts
    };
    (source, facts, live)
}

#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_restore_that_would_replay_into_an_existing_path_is_refused() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (source, mut facts, live) = copy_with_late_tablespace(place.path());
    let image = DirectoryImage::open(source.data()).unwrap();
    let found = replayed_tablespaces(&Files(&image), &facts).unwrap();
    let [space] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(space.location, live);
    let refused = |space: &ReplayedTablespace, map: &[(PathBuf, PathBuf)]| {
        let error = space.check(map).unwrap_err();
        assert!(matches!(error, PostgresError::ReplaysOutside { .. }));
        assert!(error.hint().unwrap().contains("Make a new backup"));
        error.to_string()
    };
    assert!(refused(space, &[]).ends_with("this path exists"));
    let map = [(live.clone(), place.path().join("elsewhere"))];
    assert!(refused(space, &map).ends_with("cannot be mapped"));
    // If nothing exists there, replay cannot overwrite anything.
    std::fs::remove_dir_all(&live).unwrap();
    space.check(&[]).unwrap();
    space.prepare().unwrap();
    assert!(live.is_dir());
    // If the log was searched when the set was made, the log is not read again.
    facts.log_surveyed = true;
    assert_eq!(replayed_tablespaces(&Files(&image), &facts).unwrap(), []);
}

#[test]
fn a_directory_whose_log_creates_a_tablespace_is_not_opened() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (source, _, live) = copy_with_late_tablespace(place.path());
    let scratch = place.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let request = OpenRequest {
        data: source.data().into(),
        was: source.data().into(),
        scratch,
        programs: Programs::find(15, Some(source.bin())).unwrap(),
        writable: false,
        port: None,
        listen: String::new(),
        preload: String::new(),
        settings: Vec::new(),
        role: None,
        owner: "postgres".into(),
        recovery: None,
        run_as: None,
        lock: None,
    };
    let error = Server::start(request, &Cancel::new()).unwrap_err();
    let named =
        matches!(&error, PostgresError::ReplaysOutside { location, .. } if *location == live);
    assert!(named, "{error}");
}

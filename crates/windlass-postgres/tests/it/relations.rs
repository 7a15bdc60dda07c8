//! Names of relations, read from files and compared with what the server says through SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use windlass_engine::media::{FileKind, FileNo, FileTable};
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_image::{DirectoryImage, Image, SetImage, SetImageOptions};
use windlass_postgres::{
    ClusterFiles, Fork, ReadError, RelationKind, RelationNames, RelationPattern,
};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::backup;
use crate::versions::versions;

struct Files<'a>(&'a dyn Image);

impl ClusterFiles for Files<'_> {
    fn files(&self) -> &FileTable {
        self.0.files()
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        Ok(self.0.read(file, offset, into)?)
    }
}

fn names(image: &dyn Image) -> RelationNames {
    let names = RelationNames::read(&Files(image));
    assert_eq!(names.faults(), []);
    names
}

/// Everything that gives a relation another file, or gives its old name to another relation.
const HISTORY: &[&str] = &[
    "CREATE TABLE public.kept (id int PRIMARY KEY, words text)",
    "INSERT INTO kept SELECT i, repeat('word ' || i, 400) FROM generate_series(1, 500) i",
    "CREATE TABLE vacuumed AS SELECT generate_series(1, 3000) i",
    "CREATE INDEX ON vacuumed (i)",
    "VACUUM FULL vacuumed",
    "CREATE TABLE truncated AS SELECT generate_series(1, 3000) i",
    "TRUNCATE truncated",
    "CREATE TABLE moved AS SELECT generate_series(1, 3000) i",
    "CREATE INDEX moved_i ON moved (i)",
    "ALTER TABLE moved SET TABLESPACE away",
    "CREATE TABLE again AS SELECT 1 i",
    "DROP TABLE again",
    "CREATE TABLE again AS SELECT generate_series(1, 9) i",
    "CREATE TABLE renamed (i int)",
    "ALTER TABLE renamed RENAME TO \"Has A new.name\"",
    "CREATE SCHEMA other",
    "ALTER TABLE \"Has A new.name\" SET SCHEMA other",
    "CREATE UNLOGGED TABLE unlogged (i int PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW seen AS SELECT * FROM again",
    "REFRESH MATERIALIZED VIEW seen",
    "CREATE SEQUENCE counter",
    "ALTER SEQUENCE counter RESTART",
    "CREATE TABLE parts (i int) PARTITION BY RANGE (i)",
    "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10) TABLESPACE away",
    "BEGIN; CREATE TABLE never (i int); ROLLBACK",
    "BEGIN; ALTER TABLE kept RENAME TO never; ROLLBACK",
    "REINDEX TABLE kept",
];

/// Gives new files to the mapped catalogs, and to those from which the names come.
const CATALOGS: &[&str] = &[
    "VACUUM FULL pg_class",
    "VACUUM FULL pg_namespace",
    "VACUUM FULL pg_index",
    "VACUUM FULL pg_database",
];

fn eventful(bin: &Path, place: &Path) -> PrivateCluster {
    let options = ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default()
    };
    let server = PrivateCluster::start(&options);
    let space = place.join("space");
    std::fs::create_dir(&space).unwrap();
    let location = space.display();
    server.sql(
        "postgres",
        &format!("CREATE TABLESPACE away LOCATION '{location}'"),
    );
    server.sql("postgres", "CREATE DATABASE plain");
    server.sql("postgres", "CREATE DATABASE travelled");
    for database in ["postgres", "plain", "travelled"] {
        HISTORY
            .iter()
            .for_each(|sql| drop(server.sql(database, sql)));
    }
    CATALOGS
        .iter()
        .for_each(|sql| drop(server.sql("plain", sql)));
    // Everything in the new tablespace must first be moved out of it.
    for table in ["moved", "part_1"] {
        server.sql(
            "travelled",
            &format!("ALTER TABLE {table} SET TABLESPACE pg_default"),
        );
    }
    server.sql("travelled", "ALTER INDEX moved_i SET TABLESPACE pg_default");
    server.sql("postgres", "ALTER DATABASE travelled SET TABLESPACE away");
    server.sql(
        "travelled",
        "CREATE TABLE back (i int) TABLESPACE pg_default",
    );
    server.sql("postgres", "CHECKPOINT");
    server
}

/// For each path that the server knows: database, schema, name, kind letter.
type Truth = BTreeMap<String, (String, String, String, String)>;

fn truth(server: &PrivateCluster) -> Truth {
    let sql = "SELECT pg_relation_filepath(c.oid), CASE WHEN relisshared THEN '' \
        ELSE current_database() END, nspname, relname, relkind FROM pg_class c \
        JOIN pg_namespace n ON n.oid = relnamespace WHERE pg_relation_filepath(c.oid) IS NOT NULL";
    let mut truth = Truth::new();
    for database in ["postgres", "plain", "travelled", "template1"] {
        for line in server.sql(database, sql).lines() {
            let fields: Vec<&str> = line.split('|').collect();
            let [path, database, schema, name, kind] = fields[..] else {
                panic!("{line}")
            };
            let words = (database.into(), schema.into(), name.into(), kind.into());
            truth.insert(path.to_owned(), words);
        }
    }
    truth
}

fn letter(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Table => "r",
        RelationKind::Index => "i",
        RelationKind::Toast => "t",
        RelationKind::MaterializedView => "m",
        RelationKind::Sequence => "S",
        RelationKind::WithoutFiles => "none",
    }
}

/// Each file that the server knows has the name that the server says, and every relation file has a
/// name.
fn check(names: &RelationNames, truth: &Truth, files: &FileTable) {
    for (path, expected) in truth {
        let named = names
            .of_path(path.as_bytes())
            .unwrap_or_else(|| panic!("{path}"));
        let relation = named.relation;
        let found = (
            relation.database.clone(),
            relation.schema.clone(),
            relation.name.clone(),
            letter(relation.kind).to_owned(),
        );
        assert_eq!(found, *expected, "{path}");
        assert!(relation.current, "{path}");
        assert_eq!((named.fork, named.segment), (Fork::Main, 0));
    }
    // template0 takes no connections, so the server cannot name its files, but the catalogs in its
    // files can.
    let is_relation = |path: &str| {
        let name = path.rsplit('/').next().unwrap();
        let place = ["base/", "global/", "pg_tblspc/"];
        place.iter().any(|place| path.starts_with(place)) && name.as_bytes()[0].is_ascii_digit()
    };
    let entries = files.0.iter();
    let with_bytes = entries.filter(|entry| entry.kind == FileKind::File && entry.bytes > 0);
    let nameless: Vec<_> = with_bytes
        .filter(|entry| names.of_path(&entry.path).is_none())
        .map(|entry| entry.path_lossy())
        .filter(|path| is_relation(path))
        .collect();
    assert!(nameless.is_empty(), "{nameless:?}");
}

fn set_image(directory: &Path) -> SetImage {
    let set = OpenSet::open(&[directory.to_path_buf()], METADATA_LIMIT_DEFAULT).unwrap();
    SetImage::open(Arc::new(set), &SetImageOptions::default()).unwrap()
}

/// The data directory with its tablespaces.
fn directory_image(server: &PrivateCluster) -> DirectoryImage {
    let links = std::fs::read_dir(server.data().join("pg_tblspc")).unwrap();
    let mount = |link: PathBuf| {
        let name = link.file_name().unwrap().to_str().unwrap().to_owned();
        (
            format!("pg_tblspc/{name}").into_bytes(),
            link.read_link().unwrap(),
        )
    };
    let mounts: Vec<_> = links.map(|link| mount(link.unwrap().path())).collect();
    DirectoryImage::open_with(server.data(), &mounts).unwrap()
}

fn paths(names: &RelationNames, files: &FileTable, pattern: &str) -> BTreeSet<String> {
    let pattern = RelationPattern::parse(pattern).unwrap();
    let found = names.find(&pattern);
    assert_eq!(found.len(), 1, "{pattern:?}: {found:?}");
    let parts = names.parts(found[0]);
    let own = |path: &[u8]| {
        names
            .of_path(path)
            .is_some_and(|file| parts.contains(&file.relation))
    };
    let files = files.0.iter().filter(|entry| own(&entry.path));
    files.map(|entry| entry.path_lossy()).collect()
}

/// The files of a table, of its TOAST table and of the indexes of both, as the server names them.
fn paths_truth(server: &PrivateCluster, database: &str, table: &str) -> BTreeSet<String> {
    let sql = format!(
        "WITH RECURSIVE w(o) AS (SELECT '{table}'::regclass::oid UNION \
         SELECT unnest(ARRAY[c.reltoastrelid, i.indexrelid]) FROM w \
         JOIN pg_class c ON c.oid = o LEFT JOIN pg_index i ON i.indrelid = o) \
         SELECT pg_relation_filepath(o) FROM w WHERE o <> 0"
    );
    let paths = server.sql(database, &sql);
    paths
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn names_are_the_servers_whatever_has_moved() {
    become_server_user();
    let mut all = versions();
    all.push((15, windlass_testkit::postgres::DEFAULT_BIN.into()));
    for (major, bin) in all {
        let place = tempfile::tempdir().unwrap();
        let server = eventful(&bin, place.path());
        let truth = truth(&server);
        assert!(truth.len() > 900, "{major}: {} relations", truth.len());
        let directory = directory_image(&server);
        let live = names(&directory);
        check(&live, &truth, directory.files());
        backup(&server, &place.path().join("set"));
        let set = set_image(&place.path().join("set"));
        let stored = names(&set);
        check(&stored, &truth, set.files());

        // The server names only main forks; compare the other forks and the set's empty files
        // separately.
        let ours = paths(&live, directory.files(), "plain.public.kept");
        let main: BTreeSet<_> = ours
            .iter()
            .filter(|path| !path.contains('_'))
            .cloned()
            .collect();
        assert_eq!(main, paths_truth(&server, "plain", "kept"), "{major}");
        assert!(ours.len() > main.len(), "{ours:?}");
        assert_eq!(
            main.len(),
            4,
            "a table, its key, its TOAST table and that one's index"
        );
        let quoted = paths(&stored, set.files(), r#"plain.other."Has A new.name""#);
        assert_eq!(quoted.len(), 1);
        assert!(
            live.find(&RelationPattern::parse("plain.public.never").unwrap())
                .is_empty()
        );
        let everywhere = live.find(&RelationPattern::parse("public.again").unwrap());
        assert_eq!(everywhere.len(), 3, "one in each database");
        let toast = "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'kept'";
        let toast = format!("plain.{}_index", server.sql("plain", toast));
        let index = live.find(&RelationPattern::parse(&toast).unwrap())[0];
        assert_eq!(live.served(index).unwrap().name, "kept");
    }
}

/// The files of a real cluster with changed bytes, often in some of the catalogs.
struct Garbled<'a> {
    image: &'a DirectoryImage,
    salt: u64,
}

impl ClusterFiles for Garbled<'_> {
    fn files(&self) -> &FileTable {
        self.image.files()
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ReadError> {
        let found = self.image.read(file, offset, into)?;
        // Leave pg_control and the maps intact: they have checksums, and the test must get behind
        // them.
        if into.len() <= 8192 && self.salt.is_multiple_of(4) || found <= 524 {
            return Ok(found);
        }
        let mut state = self.salt ^ offset ^ u64::from(file.0) << 20 | 1;
        for _ in 0..found / 50 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state >> 16).unwrap() % found;
            into[at] = state.to_le_bytes()[0];
        }
        Ok(found)
    }
}

#[test]
fn garbled_catalogs_give_faults_or_other_names_but_never_a_panic() {
    become_server_user();
    let mut server = PrivateCluster::start(&ClusterOptions::default());
    server.stop("fast");
    let image = DirectoryImage::open(server.data()).unwrap();
    let mut config = ProptestConfig::with_cases(64);
    config.failure_persistence = None;
    proptest!(config, |(salt in any::<u64>())| {
        let names = RelationNames::read(&Garbled { image: &image, salt });
        for entry in &image.files().0 {
            if let Some(named) = names.of_path(&entry.path) {
                names.served(named.relation);
                prop_assert!(!named.relation.name.is_empty());
            }
        }
    });
}

#[test]
fn a_directory_that_is_no_cluster_has_no_names_and_says_why() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("PG_VERSION"), "15\n").unwrap();
    let image = DirectoryImage::open(place.path()).unwrap();
    let names = RelationNames::read(&Files(&image));
    assert_eq!(names.faults().len(), 1);
    assert_eq!(names.faults()[0].path, "global/pg_control");
    assert!(names.of_path(b"base/1/1259").is_none());
}

//! Page checksums: our computation against PostgreSQL's, on pages that PostgreSQL wrote.

use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_postgres::{Lsn, PageState, Warning, judge_page, page_checksum};
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, succeed};

use crate::support::{backup, restore_set};

const PAGE: usize = 8192;

fn cluster_with_table() -> PrivateCluster {
    // Nobody else reads the pages that are damaged, or writes to their file.
    let options = ClusterOptions::default().initdb("--data-checksums");
    let cluster = PrivateCluster::start(&options.setting("autovacuum = off"));
    let sql = "CREATE TABLE t AS SELECT i, repeat(md5(i::text), 10) AS x \
        FROM generate_series(1, 20000) i; CREATE INDEX ON t (i); CREATE INDEX ON t USING gin \
        (string_to_array(x, 'a')); VACUUM t; CHECKPOINT";
    sql.split(';')
        .for_each(|statement| drop(cluster.sql("postgres", statement)));
    cluster
}

/// Checks every page of the relation files below `directory`. Returns how many there are, and how
/// many are bad.
fn judge_directory(directory: &Path) -> (u64, u64) {
    let (mut pages, mut bad) = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let (more, worse) = judge_directory(&path);
            (pages, bad) = (pages + more, bad + worse);
        } else if name.starts_with(|first: char| first.is_ascii_digit()) {
            let bytes = std::fs::read(&path).unwrap();
            for (block, page) in (0_u32..).zip(bytes.chunks_exact(PAGE)) {
                pages += 1;
                bad += u64::from(judge_page(page, block, Lsn(u64::MAX)) != PageState::Good);
            }
        }
    }
    (pages, bad)
}

#[test]
fn every_page_of_a_real_cluster_is_good_and_as_many_as_pg_checksums_counts() {
    let mut cluster = cluster_with_table();
    cluster.stop("fast");
    let report = succeed(
        cluster
            .tool("pg_checksums")
            .arg("--check")
            .arg("-D")
            .arg(cluster.data()),
    );
    let scanned = report
        .lines()
        .find_map(|line| line.strip_prefix("Blocks scanned:"));
    let scanned: u64 = scanned.unwrap().trim().parse().unwrap();
    let parts = ["base", "global"].map(|part| judge_directory(&cluster.data().join(part)));
    let (pages, bad) = (parts[0].0 + parts[1].0, parts[0].1 + parts[1].1);
    assert_eq!((pages, bad), (scanned, 0));
    assert!(pages > 1000, "{pages} pages prove little");
}

#[test]
fn damaged_pages_are_reported_by_file_and_block_and_the_backup_succeeds() {
    let mut cluster = cluster_with_table();
    let path = cluster.sql("postgres", "SELECT pg_relation_filepath('t')");
    cluster.stop("fast");
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .open(cluster.data().join(&path))
        .unwrap();
    for block in [3, 7] {
        let mut byte = [0];
        let at = block * PAGE as u64 + 5000;
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
    // A page that lost its header but not its content is not a new page.
    file.write_all_at(&[0; 24], 9 * PAGE as u64).unwrap();
    cluster.run();

    let place = tempfile::tempdir().unwrap();
    let outcome = backup(&cluster, &place.path().join("set"));
    let found = &outcome.facts.checksums;
    assert!(found.enabled && found.verified && found.pages_checked > 1000);
    assert_eq!((found.files.len(), found.pages_bad), (1, 3));
    assert_eq!(
        (found.files[0].path.as_str(), &found.files[0].blocks[..]),
        (&*path, &[3, 7, 9][..])
    );
    let warning = Warning::PageChecksums { pages: 3, files: 1 };
    assert!(outcome.facts.warnings.contains(&warning));

    let restored = place.path().join("restored");
    restore_set(&place.path().join("set"), &restored, &[]);
    let bytes = |root: &Path| std::fs::read(root.join(&path)).unwrap();
    assert!(
        bytes(&restored) == bytes(cluster.data()),
        "damage is kept as it was found"
    );
}

#[test]
fn a_page_that_claims_to_be_newer_than_the_log_is_damage_unless_its_checksum_is_right() {
    let mut cluster = cluster_with_table();
    let path = cluster.sql("postgres", "SELECT pg_relation_filepath('t')");
    let end = cluster.sql("postgres", "SELECT pg_current_wal_insert_lsn()");
    let end = Lsn::parse(&end).unwrap();
    cluster.stop("fast");
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true);
    let file = options.open(cluster.data().join(&path)).unwrap();
    // A page of bytes without a meaning, and two of a log that was never written: a copy from
    // another cluster, say, with one wrong byte. Such a page is whole if somebody reset the log.
    file.write_all_at(&[0xA5; PAGE], 4 * PAGE as u64).unwrap();
    for (block, is_damaged) in [(6, true), (8, false)] {
        let mut page = [0; PAGE];
        let at = u64::from(block) * PAGE as u64;
        file.read_exact_at(&mut page, at).unwrap();
        let lsn = Lsn(end.0 + (1 << 30));
        page[..8].copy_from_slice(&lsn.0.rotate_left(32).to_le_bytes());
        let checksum = page_checksum(&page, block);
        page[8..10].copy_from_slice(&checksum.to_le_bytes());
        page[5000] ^= u8::from(is_damaged);
        file.write_all_at(&page, at).unwrap();
    }
    cluster.run();

    let place = tempfile::tempdir().unwrap();
    let outcome = backup(&cluster, &place.path().join("set"));
    let found = &outcome.facts.checksums;
    assert_eq!((found.files.len(), found.pages_bad), (1, 2), "{found:?}");
    assert_eq!(found.files[0].blocks, [4, 6], "{found:?}");
}

#[test]
fn no_page_of_a_busy_server_is_called_damaged() {
    let cluster = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    succeed(
        cluster
            .tool("pgbench")
            .args(["-i", "-q", "-s", "5", "postgres"]),
    );
    cluster.sql("postgres", "CREATE TABLE kept (n bigint)");
    let place = tempfile::tempdir().unwrap();
    under_load(&cluster, || {
        for number in 0..5 {
            let outcome = backup(&cluster, &place.path().join(number.to_string()));
            let found = &outcome.facts.checksums;
            assert!(found.verified && found.pages_bad == 0, "{found:?}");
        }
    });
}

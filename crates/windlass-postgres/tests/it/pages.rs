//! Backups that take pages apart, while tables change.

use windlass_engine::media::LAYOUT_STREAMS;
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{Wish, check_relations, restore_set, try_backup, verify_backup};

const TABLES: &str = "
    CREATE TABLE first (id bigint PRIMARY KEY, name text, amount numeric(12, 2));
    INSERT INTO first SELECT n, 'row ' || n % 1000, n / 7.0 FROM generate_series(1, 300000) n;
    CREATE TABLE second (LIKE first INCLUDING ALL);
    INSERT INTO second SELECT * FROM first";

/// Every row of both tables with other columns in the same files: rows get longer, and lose a
/// column that the layouts still have.
const CHANGES: &str = "
    ALTER TABLE first ADD COLUMN more int DEFAULT 7;
    ALTER TABLE first DROP COLUMN name;
    ALTER TABLE second DROP COLUMN amount, ADD COLUMN late jsonb;
    UPDATE first SET more = id % 100 WHERE id % 3 = 0;
    UPDATE second SET late = jsonb_build_object('n', id) WHERE id % 2 = 0;
    TRUNCATE second;
    INSERT INTO second SELECT id, 'again' FROM first;
    CHECKPOINT";

const HASH: &str = "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM";

fn hashes(cluster: &PrivateCluster) -> [String; 2] {
    ["first", "second"].map(|table| cluster.sql("postgres", &format!("{HASH} {table} t")))
}

#[test]
fn columns_that_change_between_listing_and_reading_come_back() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let cluster = PrivateCluster::start(&ClusterOptions::default());
    cluster.sql("postgres", TABLES);
    let (set, gate) = (place.path().join("set"), Gate::default());
    let wish = Wish {
        gate: Some(gate.clone()),
        pages: true,
        ..Wish::default()
    };
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&cluster, &set, &wish));
        gate.wait_reached();
        cluster.sql("postgres", CHANGES);
        gate.open();
        backup.join().unwrap().unwrap()
    });
    let pages = outcome.report.pages.unwrap();
    assert!(pages.apart_bytes > 10_000_000, "{pages:?}");
    assert_eq!(pages.wrong_frames, 0);
    let before = hashes(&cluster);
    let restored = place.path().join("restored");
    restore_set(&set, &restored, &[]);
    verify_backup(&cluster, &restored);
    let server = PrivateCluster::adopt(&restored, cluster.bin());
    check_relations(&server);
    assert_eq!(hashes(&server), before);
    assert!(laid_out_frames(&set) > 50);
}

fn laid_out_frames(directory: &std::path::Path) -> usize {
    let set = OpenSet::open(&[directory.to_owned()], METADATA_LIMIT_DEFAULT).unwrap();
    let stripes = set.stripes().iter();
    let frames = stripes.flat_map(|stripe| {
        let blocks = stripe.directory().iter();
        blocks.flat_map(|entry| stripe.index_block(entry).unwrap().frames)
    });
    frames
        .filter(|frame| frame.page.unwrap().layout == LAYOUT_STREAMS)
        .count()
}

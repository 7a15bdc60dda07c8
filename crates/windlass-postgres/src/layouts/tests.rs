//! Layouts of real tables and indexes, compared with what the server says.

use windlass_testkit::installed::other_versions;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use super::*;
use crate::cluster::Cluster;
use crate::control::Control;
use crate::scan::{ScanRules, scan};

const TABLES: &str = "
    CREATE TABLE wide (a int, b bigint, c text, d numeric(9, 2), e uuid, f boolean, g timestamptz,
        h char(3), i real[], j jsonb, k name, l smallint, m \"char\");
    INSERT INTO wide (a, b, c) SELECT n, n, repeat('x', 90) FROM generate_series(1, 30000) n;
    ALTER TABLE wide DROP COLUMN f;
    ALTER TABLE wide ADD COLUMN n date;
    ALTER TABLE wide ALTER COLUMN a TYPE bigint;
    CREATE INDEX wide_index ON wide (b, c) INCLUDE (a);
    CREATE INDEX wide_hash ON wide USING hash (b);
    CREATE TABLE small (a int);
    CREATE MATERIALIZED VIEW seen AS SELECT a, d FROM wide;
    CHECKPOINT";

fn layouts(cluster: &PrivateCluster) -> PageLayouts {
    let connected = Cluster::connect(&cluster.conninfo()).unwrap();
    let facts = connected.facts();
    let rules = ScanRules::of(facts);
    let control = Control::read(cluster.data()).unwrap();
    let form = CatalogForm::of(facts.major(), &control);
    let catalogs = Catalogs {
        place: Place::Directory(cluster.data()),
        version_directory: &rules.version_directory,
        form: &form,
    };
    PageLayouts::read(&catalogs, &scan(&rules).unwrap().listing)
}

/// The columns of a relation, as its server says.
fn columns(cluster: &PrivateCluster, relation: &str) -> Vec<Column> {
    let sql = format!(
        "SELECT concat_ws(' ', attlen, attalign, atttypid) FROM pg_attribute
         WHERE attrelid = '{relation}'::regclass AND attnum > 0 ORDER BY attnum"
    );
    let rows = cluster.sql("postgres", &sql);
    let column = |row: &str| {
        let fields: Vec<&str> = row.split(' ').collect();
        let align = fields[1].as_bytes()[0];
        Column::postgres(
            fields[0].parse().unwrap(),
            align,
            fields[2].parse().unwrap(),
        )
        .unwrap()
    };
    rows.lines().map(column).collect()
}

fn layout<'a>(
    layouts: &'a PageLayouts,
    cluster: &PrivateCluster,
    relation: &str,
) -> Option<&'a Layout> {
    let path = cluster.sql(
        "postgres",
        &format!("SELECT pg_relation_filepath('{relation}')"),
    );
    layouts
        .class(path.as_bytes())
        .map(|class| class.layout().layout())
}

fn check(options: &ClusterOptions) {
    let cluster = PrivateCluster::start(options);
    assert!(layouts(&cluster).0.is_empty(), "catalogs are small");
    cluster.sql("postgres", TABLES);
    let layouts = layouts(&cluster);
    for (relation, count) in [
        ("wide", 14),
        ("seen", 2),
        ("pg_class", 30),
        ("pg_attribute", 20),
    ] {
        let layout = layout(&layouts, &cluster, relation).unwrap();
        assert!(matches!(layout, Layout::PostgresHeap { .. }), "{relation}");
        let expected = columns(&cluster, relation);
        assert!(expected.len() >= count, "{relation}");
        assert_eq!(layout.columns(), expected, "{relation}");
    }
    let index = layout(&layouts, &cluster, "wide_index").unwrap();
    assert!(matches!(index, Layout::PostgresBtree { .. }));
    assert_eq!(index.columns(), columns(&cluster, "wide_index"));
    assert_eq!(layout(&layouts, &cluster, "small"), None);
    let connected = Cluster::connect(&cluster.conninfo()).unwrap();
    let relations = connected.page_relations().unwrap();
    assert_eq!(relations[0].name, "wide");
    assert!(relations.is_sorted_by_key(|relation| std::cmp::Reverse(relation.bytes)));
    assert_eq!(layout(&layouts, &cluster, "wide_hash"), None);
}

#[test]
fn the_columns_of_large_relations_are_those_that_the_server_knows() {
    check(&ClusterOptions::default());
}

#[test]
fn the_columns_are_found_in_every_version() {
    for (_, bin) in other_versions() {
        check(&ClusterOptions {
            bin,
            ..ClusterOptions::default()
        });
    }
}

//! Pages that PostgreSQL wrote: every relation of a cluster comes back, also torn and damaged.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use windlass_pages::{Column, Layout};
use windlass_testkit::installed::hooked_versions;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::support::{Codec, Draw, damage, page_size};

const FRAME_BYTES: usize = 131_072;
pub const MANY_TYPES: &str = include_str!("many_types.sql");

/// Every relation: file, kind, access method and the columns of each.
const RELATIONS: &str = "SELECT pg_relation_filepath(c.oid), c.relkind, coalesce(m.amname, ''),
    coalesce((SELECT string_agg(concat(attlen, ' ', attalign, ' ', atttypid), ',' ORDER BY attnum)
        FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0), '')
    FROM pg_class c LEFT JOIN pg_am m ON m.oid = c.relam
    WHERE pg_relation_filepath(c.oid) IS NOT NULL";

/// The layouts of the relations of a database, by the path of their files.
pub fn layouts(cluster: &PrivateCluster, database: &str, block: u32) -> HashMap<String, Layout> {
    let answer = cluster.sql(database, RELATIONS);
    let relation = |line: &str| -> Option<(String, Layout)> {
        let fields: Vec<&str> = line.split('|').collect();
        let columns = fields[3].split(',').filter(|column| !column.is_empty());
        let columns: Option<Vec<Column>> = columns.map(column).collect();
        let columns = columns.unwrap_or_default();
        let page_size = page_size(block);
        let layout = match fields[2] {
            "heap" => Layout::PostgresHeap { page_size, columns },
            "btree" => Layout::PostgresBtree { page_size, columns },
            _ => return None,
        };
        Some((fields[0].to_owned(), layout))
    };
    answer.lines().filter_map(relation).collect()
}

fn column(text: &str) -> Option<Column> {
    let fields: Vec<&str> = text.split(' ').collect();
    let (length, kind) = (fields[0].parse().unwrap(), fields[2].parse().unwrap());
    Column::postgres(length, fields[1].as_bytes()[0], kind)
}

fn build() -> Vec<(Layout, Vec<u8>)> {
    let plain = ClusterOptions::default();
    let mut frames = frames_of(plain.clone());
    frames.extend(frames_of(plain.initdb("--data-checksums")));
    frames
}

/// Frames of a cluster that is made for that.
fn frames_of(options: ClusterOptions) -> Vec<(Layout, Vec<u8>)> {
    let mut cluster = PrivateCluster::start(&options.setting("autovacuum = off"));
    // One by one: VACUUM runs in no transaction.
    for statement in MANY_TYPES.split_inclusive(";\n") {
        cluster.sql("postgres", statement);
    }
    let layouts = layouts(&cluster, "postgres", 8192);
    cluster.stop("fast");
    read_frames(cluster.data(), &layouts)
}

fn read_frames(data: &Path, layouts: &HashMap<String, Layout>) -> Vec<(Layout, Vec<u8>)> {
    let mut paths: Vec<_> = layouts.keys().collect();
    paths.sort();
    let mut frames = Vec::new();
    for path in paths {
        let bytes = fs::read(data.join(path)).unwrap();
        let cut = bytes.chunks(FRAME_BYTES).map(<[u8]>::to_vec);
        frames.extend(cut.map(|frame| (layouts[path].clone(), frame)));
    }
    frames
}

/// Frames of two clusters, with and without checksums; made once.
pub fn frames() -> &'static [(Layout, Vec<u8>)] {
    static FRAMES: OnceLock<Vec<(Layout, Vec<u8>)>> = OnceLock::new();
    FRAMES.get_or_init(build)
}

/// Every frame comes back, and most become much shorter.
fn assert_short(frames: &[(Layout, Vec<u8>)], of: &str) {
    let mut codec = Codec::default();
    let (mut heaps, mut btrees) = ((0, 0), (0, 0));
    for (layout, raw) in frames {
        let streams = codec.round_trip(layout, raw);
        let sum = match layout {
            Layout::PostgresHeap { .. } => &mut heaps,
            _ => &mut btrees,
        };
        sum.0 += raw.len();
        sum.1 += streams.unwrap_or(raw.len());
    }
    // Without any codec behind it.
    assert!(heaps.1 * 10 < heaps.0 * 6, "{of}: heaps: {heaps:?}");
    assert!(btrees.1 * 10 < btrees.0 * 6, "{of}: B-trees: {btrees:?}");
}

#[test]
fn every_relation_of_a_cluster_comes_back_and_most_become_much_shorter() {
    assert_short(frames(), "Debian's");
}

#[test]
fn every_relation_of_the_other_versions_comes_back_and_most_become_much_shorter() {
    let versions = hooked_versions();
    // Debian's is the last one.
    for (major, bin) in &versions[..versions.len() - 1] {
        let options = ClusterOptions {
            bin: bin.clone(),
            ..ClusterOptions::default()
        };
        assert_short(&frames_of(options), &major.to_string());
    }
}

#[test]
fn damaged_pages_of_a_cluster_come_back() {
    let mut codec = Codec::default();
    let mut draw = Draw::new(3);
    for (layout, raw) in frames() {
        let mut raw = raw.clone();
        for _ in 0..4 {
            for _ in 0..=draw.below(30) {
                damage(&mut raw, &mut draw);
            }
            codec.round_trip(layout, &raw);
        }
    }
}

#[test]
fn torn_pages_of_a_cluster_come_back() {
    let mut codec = Codec::default();
    let all = frames();
    for pair in all.windows(2) {
        let ((layout, raw), (_, other)) = (&pair[0], &pair[1]);
        // Half of each page is from another time: here, from another table.
        let torn: Vec<u8> = raw
            .chunks(4096)
            .zip(other.chunks(4096).cycle())
            .enumerate()
            .flat_map(|(half, (raw, other))| if half % 2 == 0 { raw } else { other })
            .copied()
            .collect();
        codec.round_trip(layout, &torn);
    }
}

#[test]
fn pages_come_back_with_layouts_of_other_tables() {
    let mut codec = Codec::default();
    let all = frames();
    for (number, (_, raw)) in all.iter().enumerate() {
        for step in [1, 7, 40] {
            let (layout, _) = &all[(number + step) % all.len()];
            codec.round_trip(layout, raw);
        }
    }
}

/// One page each of a table and of an index with posting lists: every bit of their headers, and of
/// the rows in a part of them.
#[test]
fn pages_come_back_with_any_bit_changed() {
    let mut codec = Codec::default();
    let is_list = |row: &[u8]| row[7] & 0x20 != 0 && row[5] & 0x20 != 0;
    let lists = |raw: &[u8]| {
        let rows = raw[6000..7000].chunks_exact(8).filter(|row| is_list(row));
        rows.count() > 1
    };
    let (mut heaps, mut btrees) = (0, 0);
    for (layout, raw) in frames() {
        let page = &raw[raw.len() / 2 / 8192 * 8192..][..8192];
        let done = match layout {
            Layout::PostgresHeap { .. } => &mut heaps,
            _ if lists(page) => &mut btrees,
            _ => continue,
        };
        if *done == 2 || codec.round_trip(layout, page).is_none() {
            continue;
        }
        *done += 1;
        let mut page = page.to_vec();
        for at in (0..120).chain(6000..6600) {
            for bit in 0..8 {
                page[at] ^= 1 << bit;
                codec.round_trip(layout, &page);
                page[at] ^= 1 << bit;
            }
        }
    }
    assert_eq!((heaps, btrees), (2, 2), "pages of both kinds were changed");
}

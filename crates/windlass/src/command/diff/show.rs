//! Shows a difference: a line for each relation or file, or one JSON document.

use std::collections::BTreeMap;
use std::ops::Range;

use windlass_engine::media::FileKind;
use windlass_postgres::{Fork, RelationKind};

use windlass_operations::diff::{
    ComparedImage, DatabaseDiff, DiffOutcome, DiffReport, FileDiff, Pages, RelationDiff,
};

use crate::output::{self, count};
use windlass_engine::show_size;

/// The number of ranges shown for each fork by default.
const RANGES_SHOWN: usize = 4;

/// The words for what only the first image has, and for what only the second one has.
const ONLY: [&str; 2] = ["only first", "only second"];

/// Prints the report for people. With `all` it prints every range of pages.
pub(super) fn lines(report: &DiffReport, all: bool) {
    let limit = if all { usize::MAX } else { RANGES_SHOWN };
    // A database has hundreds of catalogs, and each would say the same.
    let none = BTreeMap::new();
    let whole = if all { &none } else { &report.databases };
    for (name, database) in whole {
        output::line(&database_line(name, database));
    }
    let relations = report.relations.iter();
    for relation in relations.filter(|one| !whole.contains_key(&one.database)) {
        output::line(&relation_line(relation, report.page_bytes, limit));
    }
    for file in &report.files {
        output::line(&file_line(file, report.page_bytes, limit));
    }
    let compared = format!(
        "{}: {} taken for the same by their checksums, {} read",
        count(report.file_count as u64, "file"),
        show_size(report.bytes_believed),
        show_size(report.bytes_read)
    );
    if report.is_same() {
        output::line(&format!("same          {compared}"));
        return;
    }
    output::line(&format!("compared      {compared}"));
    let relations = report.relations.iter().flat_map(|one| one.forks.values());
    let pages = relations.chain(report.files.iter().map(|file| &file.pages));
    output::line(&format!(
        "different     {}, {}; {} changed in place",
        count(report.relations.len() as u64, "relation"),
        count(report.files.len() as u64, "other file"),
        count(pages.map(|pages| pages.changed).sum(), "page")
    ));
}

fn database_line(name: &str, database: &DatabaseDiff) -> String {
    format!(
        "{:<13} database {name}  {} in {}, {}",
        ONLY[database.side],
        count(database.relations, "relation"),
        count(database.files, "file"),
        show_size(database.bytes)
    )
}

fn relation_line(relation: &RelationDiff, page_bytes: u32, limit: usize) -> String {
    let mut words = vec![format!("{:<13} {}", word(relation), relation.name)];
    if let Some(other) = &relation.renamed {
        words.push(format!("(in the second image {other})"));
    }
    if let Some(table) = &relation.serves {
        words.push(format!("({} of {table})", kind(relation.kind)));
    }
    let forks = relation.forks.iter().map(|(fork, pages)| {
        let ranges = ranges(&pages.ranges, limit);
        match fork {
            Fork::Main => changed_of(pages, relation.pages, limit),
            fork => format!("{}: {ranges}", fork_name(*fork)),
        }
    });
    let only = relation.only.iter().zip(["first", "second"]);
    let only = only
        .filter(|(files, _)| !files.is_empty())
        .map(|(files, which)| {
            let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
            let pages = count(bytes.div_ceil(u64::from(page_bytes.max(1))), "page");
            let paths: Vec<_> = files.iter().map(|(path, _)| path.as_str()).collect();
            let (shown, rest) = paths.split_at(paths.len().min(limit));
            let more = match rest.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            format!("only in the {which}: {pages} in {}{more}", shown.join(", "))
        });
    words.push(forks.chain(only).collect::<Vec<_>>().join("; "));
    if relation.unsteady {
        words.push("(changed while it was compared)".to_owned());
    }
    words.join("  ")
}

/// `3 of 200 pages: 17-19`.
fn changed_of(pages: &Pages, total: u64, limit: usize) -> String {
    let ranges = ranges(&pages.ranges, limit);
    format!("{} of {}: {ranges}", pages.changed, count(total, "page"))
}

/// What happened to a relation.
fn word(relation: &RelationDiff) -> &'static str {
    let is_in_both = relation.only.iter().all(|files| !files.is_empty());
    match relation.side() {
        Some(side) => ONLY[side],
        None if is_in_both && relation.forks.is_empty() => "rewritten",
        None => "differs",
    }
}

fn file_line(file: &FileDiff, page_bytes: u32, limit: usize) -> String {
    let path = &file.path;
    let text = match file.there {
        [Some((_, bytes)), None] => {
            format!("{:<13} {path}  {}", ONLY[0], output::count(bytes, "byte"))
        }
        [None, Some((_, bytes))] => {
            format!("{:<13} {path}  {}", ONLY[1], output::count(bytes, "byte"))
        }
        [Some((first, one)), Some((second, other))] => {
            let what = match (first, second) {
                (FileKind::File, FileKind::File) => {
                    let total = one.max(other).div_ceil(u64::from(page_bytes.max(1)));
                    changed_of(&file.pages, total, limit)
                }
                (FileKind::Symlink, FileKind::Symlink) => "links to different places".to_owned(),
                (first, second) => format!("a {} and a {}", noun(first), noun(second)),
            };
            let lengths = if one == other {
                String::new()
            } else {
                format!("  {one} and {other} bytes")
            };
            format!("differs       {path}  {what}{lengths}")
        }
        [None, None] => String::new(),
    };
    if file.unsteady {
        return format!("{text}  (changed while it was compared)");
    }
    text
}

fn noun(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
    }
}

fn kind(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Table => "table",
        RelationKind::Index => "index",
        RelationKind::Toast => "TOAST",
        RelationKind::MaterializedView => "materialized view",
        RelationKind::Sequence => "sequence",
        RelationKind::WithoutFiles => "without files",
    }
}

fn fork_name(fork: Fork) -> &'static str {
    match fork {
        Fork::Main => "main",
        Fork::FreeSpace => "free space map",
        Fork::Visibility => "visibility map",
        Fork::Init => "init",
    }
}

/// `17-30, 99 and 12 more ranges`.
fn ranges(ranges: &[Range<u64>], limit: usize) -> String {
    let shown: Vec<_> = ranges.iter().take(limit).map(range).collect();
    let shown = shown.join(", ");
    match ranges.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} and {}", output::count(more as u64, "more range")),
    }
}

fn range(range: &Range<u64>) -> String {
    let last = range.end.saturating_sub(1);
    if last <= range.start {
        return range.start.to_string();
    }
    format!("{}-{last}", range.start)
}

/// The report for programs. With `all` it has every range of pages.
pub(super) fn json(outcome: &DiffOutcome, all: bool) -> serde_json::Value {
    let report = &outcome.report;
    let side = |image: &ComparedImage| {
        let fetched = image.statistics.as_ref().map(|found| found.fetched_bytes);
        serde_json::json!({
            "place": image.place.to_string_lossy(),
            "set": image.is_set,
            "bytes_fetched": fetched,
        })
    };
    let relation = |one: &RelationDiff| relation_json(one, all);
    let file = |one: &FileDiff| file_json(one, all);
    serde_json::json!({
        "same": report.is_same(),
        "first": side(&outcome.images[0]),
        "second": side(&outcome.images[1]),
        "page_bytes": report.page_bytes,
        "files_compared": report.file_count,
        "bytes_by_checksum": report.bytes_believed,
        "bytes_read": report.bytes_read,
        "relations": report.relations.iter().map(relation).collect::<Vec<_>>(),
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
        "warnings": report.faults,
    })
}

fn relation_json(relation: &RelationDiff, all: bool) -> serde_json::Value {
    let forks = relation.forks.iter().map(|(fork, pages)| {
        let mut document = pages_json(pages, all);
        document["fork"] = fork_name(*fork).into();
        document
    });
    let only = |files: &[(String, u64)]| {
        let files = files.iter();
        files
            .map(|(path, bytes)| serde_json::json!({"path": path, "bytes": bytes}))
            .collect::<Vec<_>>()
    };
    serde_json::json!({
        "name": relation.name,
        "database": relation.database,
        "kind": kind(relation.kind),
        "serves": relation.serves,
        "renamed": relation.renamed,
        "pages": relation.pages,
        "forks": forks.collect::<Vec<_>>(),
        "only_first": only(&relation.only[0]),
        "only_second": only(&relation.only[1]),
        "unsteady": relation.unsteady,
    })
}

fn file_json(file: &FileDiff, all: bool) -> serde_json::Value {
    let mut document = pages_json(&file.pages, all);
    let there = file.there.map(|there| {
        there.map(|(kind, bytes)| serde_json::json!({"kind": noun(kind), "bytes": bytes}))
    });
    document["path"] = file.path.clone().into();
    document["first"] = serde_json::json!(there[0]);
    document["second"] = serde_json::json!(there[1]);
    document["unsteady"] = file.unsteady.into();
    document
}

fn pages_json(pages: &Pages, all: bool) -> serde_json::Value {
    let mut document = serde_json::json!({"pages_changed": pages.changed});
    if all {
        let ranges = pages.ranges.iter();
        let pairs = ranges.map(|range| [range.start, range.end.saturating_sub(1)]);
        document["ranges"] = serde_json::json!(pairs.collect::<Vec<_>>());
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_shown_by_their_first_and_last_pages() {
        let many = [17..31, 99..100, 120..122, 200..201, 300..301, 400..402];
        assert_eq!(ranges(&many[..2], 4), "17-30, 99");
        assert_eq!(
            ranges(&many[..5], 4),
            "17-30, 99, 120-121, 200 and 1 more range"
        );
        assert_eq!(
            ranges(&many, 4),
            "17-30, 99, 120-121, 200 and 2 more ranges"
        );
        assert_eq!(ranges(&many[..1], usize::MAX), "17-30");
    }
}

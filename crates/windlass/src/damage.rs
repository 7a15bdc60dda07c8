//! Damage in words: each damaged place, and what was lost by it.

use serde_json::Value;
use windlass_engine::{Damage, DamageReport, DamagedPart, LostFile};

use crate::hints::places::advice;
use crate::output;
use crate::places::LocatedSet;
use windlass_engine::show_size;

/// Says what to do about damage of this set that has been reported.
pub fn say_advice(found: &LocatedSet) {
    if let Some(found) = found.advice() {
        output::note(&format!("hint: {}", advice(&found, None)));
    }
}

/// How much of each list is printed. After a lost disk nearly every file has lost something, and
/// what matters must stay on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Damaged places, and files that lost bytes.
    entries: usize,
    /// Ranges of one file.
    ranges: usize,
}

impl Limits {
    /// With `--details`: everything that is kept.
    pub fn new(details: bool) -> Self {
        match details {
            true => Self {
                entries: usize::MAX,
                ranges: usize::MAX,
            },
            false => Self {
                entries: 10,
                ranges: 3,
            },
        }
    }
}

/// How a database counts its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    bytes: u64,
    first: u64,
    /// Only files below these directories have pages. If the list is empty, all files have.
    below: &'static [&'static str],
}

impl Pages {
    /// Reads the page size from the facts of a set.
    pub fn of(database: &Value) -> Self {
        let size = |key: &str| database[key].as_u64().unwrap_or(0);
        match database["kind"].as_str() {
            Some("sqlite") => Self {
                bytes: size("page_bytes"),
                first: 1,
                below: &[],
            },
            Some(windlass_postgres::KIND) => Self {
                bytes: size("block_bytes"),
                first: 0,
                below: &["base/", "global/", "pg_tblspc/"],
            },
            _ => Self {
                bytes: 0,
                first: 0,
                below: &[],
            },
        }
    }

    /// A range of a file in bytes. If the file has pages of this kind, the page numbers are added.
    fn range(&self, path: &str, offset: u64, bytes: u64) -> String {
        let text = format!("{} at {offset}", output::count(bytes, "byte"));
        let paged = self.below.is_empty() || self.below.iter().any(|dir| path.starts_with(dir));
        if self.bytes == 0 || bytes == 0 || !paged {
            return text;
        }
        let page = |byte: u64| byte / self.bytes + self.first;
        match (page(offset), page(offset + bytes - 1)) {
            (from, to) if from == to => format!("{text} (page {from})"),
            (from, to) => format!("{text} (pages {from} to {to})"),
        }
    }
}

/// Prints the findings: damaged places, files that lost bytes, and the sum.
pub fn print_damage(report: &DamageReport, pages: &Pages, limits: Limits) {
    output::line("");
    let shown = limits.entries.min(report.damage.len());
    let places = &report.damage[..shown];
    places
        .iter()
        .for_each(|damage| print_place(damage, pages, limits));
    more(report.damage_count, shown, "more damaged place");
    output::line("");
    // Those that lost most come first, if not all can be shown.
    let mut lost: Vec<_> = report.lost.iter().collect();
    if lost.len() > limits.entries {
        lost.sort_by_key(|file| std::cmp::Reverse(file.lost_bytes));
    }
    let shown = limits.entries.min(lost.len());
    lost[..shown]
        .iter()
        .for_each(|file| print_lost(file, pages, limits));
    more(report.lost_file_count, shown, "more file");
    print_sum(report);
    let all_shown = shown == lost.len() && places.len() == report.damage.len();
    if !all_shown {
        output::line("              --details lists more of it");
    }
}

fn more(count: u64, shown: usize, what: &str) {
    let rest = count - shown as u64;
    if rest > 0 {
        output::line(&format!("              and {}", output::count(rest, what)));
    }
}

fn print_place(damage: &Damage, pages: &Pages, limits: Limits) {
    let Damage {
        stripe,
        location,
        part,
        offset,
        bytes,
        fault,
        ..
    } = damage;
    let name = part.name();
    output::line(&match part {
        DamagedPart::Set => format!("damage        {fault}"),
        DamagedPart::Stripe => format!("damage        stripe {stripe}  {location}  {fault}"),
        _ => format!(
            "damage        stripe {stripe}  {location}  {name} at offset {offset}, {}: {fault}",
            output::count(*bytes, "byte")
        ),
    });
    let listed = limits.ranges.min(damage.files.len());
    for range in &damage.files[..listed] {
        let text = pages.range(&range.path, range.offset, range.bytes);
        output::line(&format!("                held {}: {text}", range.path));
    }
    if damage.range_count > listed as u64 {
        let rest = damage.range_count - listed as u64;
        let rest = output::count(rest, "more range");
        output::line(&format!("                held {rest} of files"));
    }
}

fn print_lost(file: &LostFile, pages: &Pages, limits: Limits) {
    let LostFile {
        path,
        file_bytes,
        lost_bytes,
        ..
    } = file;
    output::line(&format!(
        "lost          {path}: {lost_bytes} of {}",
        output::count(*file_bytes, "byte")
    ));
    let listed = limits.ranges.min(file.ranges.len());
    for range in &file.ranges[..listed] {
        let text = pages.range(path, range.offset, range.bytes);
        output::line(&format!("                {text}"));
    }
    if file.range_count > listed as u64 {
        let rest = file.range_count - listed as u64;
        let rest = output::count(rest, "more range");
        output::line(&format!("                and {rest}"));
    }
}

fn print_sum(report: &DamageReport) {
    let (bytes, files) = (show_size(report.lost_bytes), report.lost_file_count);
    output::line(&match (report.files_known, files) {
        (false, _) => {
            "sum           no list of files can be read: nobody can say what is lost".to_owned()
        }
        (true, 0) => "sum           no byte of any file is lost".to_owned(),
        (true, _) => format!(
            "sum           {bytes} of {} are lost",
            output::count(files, "file")
        ),
    });
    if report.maybe_older {
        output::line(
            "              what is lost includes newer versions of bytes: parts of other files may be older",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_are_counted_as_the_database_counts_them() {
        let sqlite = Pages::of(&json!({"kind": "sqlite", "page_bytes": 4096}));
        assert_eq!(sqlite.range("x.db", 0, 4096), "4096 bytes at 0 (page 1)");
        assert_eq!(
            sqlite.range("x.db", 4000, 5000),
            "5000 bytes at 4000 (pages 1 to 3)"
        );
        let postgres = Pages::of(&json!({"kind": "postgresql", "block_bytes": 8192}));
        assert_eq!(
            postgres.range("base/1/2", 8192, 8192),
            "8192 bytes at 8192 (page 1)"
        );
        assert_eq!(postgres.range("pg_wal/x", 0, 9), "9 bytes at 0");
        let unknown = Pages::of(&Value::Null);
        assert_eq!(unknown.range("x", 1, 2), "2 bytes at 1");
    }
}

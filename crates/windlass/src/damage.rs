//! Damage in words: each damaged place, and what was lost by it.

use serde_json::Value;
use windlass_engine::{Damage, DamageReport, DamagedPart, LostFile};

use crate::output;
use windlass_engine::show_size;

/// At most this many lines of each list are printed; `--json` has more.
pub const LINES_MAX: usize = 100;
/// At most this many ranges of one file are printed.
const RANGES_SHOWN: usize = 8;

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
pub fn print_damage(report: &DamageReport, pages: &Pages) {
    output::line("");
    report
        .damage
        .iter()
        .take(LINES_MAX)
        .for_each(|damage| print_place(damage, pages));
    let listed = report.damage.len().min(LINES_MAX) as u64;
    more(report.damage_count - listed, "more damaged place");
    output::line("");
    for file in report.lost.iter().take(LINES_MAX) {
        print_lost(file, pages);
    }
    let listed = report.lost.len().min(LINES_MAX) as u64;
    more(report.lost_file_count - listed, "more file");
    print_sum(report);
}

fn more(count: u64, what: &str) {
    if count > 0 {
        output::line(&format!("              and {}", output::count(count, what)));
    }
}

fn print_place(damage: &Damage, pages: &Pages) {
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
    for range in &damage.files {
        let text = pages.range(&range.path, range.offset, range.bytes);
        output::line(&format!("                held {}: {text}", range.path));
    }
    let shown = damage.files.len() as u64;
    if damage.range_count > shown {
        let rest = damage.range_count - shown;
        let rest = output::count(rest, "more range");
        output::line(&format!("                held {rest} of files"));
    }
}

fn print_lost(file: &LostFile, pages: &Pages) {
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
    for range in file.ranges.iter().take(RANGES_SHOWN) {
        let text = pages.range(path, range.offset, range.bytes);
        output::line(&format!("                {text}"));
    }
    let shown = file.ranges.len().min(RANGES_SHOWN) as u64;
    if file.range_count > shown {
        let rest = file.range_count - shown;
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

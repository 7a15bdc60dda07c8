//! The names of the files that a server archives.

use std::fmt;

use windlass_postgres::Timeline;

/// A file that `archive_command` or `restore_command` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFileName {
    /// A segment: 24 hexadecimal digits.
    Segment(String),
    /// Where a timeline comes from: `0000000A.history`.
    History(Timeline),
    /// Anything else that belongs to the log: what a backup left (`.backup`), or the last segment
    /// of an abandoned timeline (`.partial`). Nobody asks for it but by its own name.
    Other(String),
}

impl LogFileName {
    /// What a name means; `None` if no file of a log has it.
    pub fn parse(name: &str) -> Option<Self> {
        let is_hex = |text: &str| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
            text.bytes().all(is_digit)
        };
        let (stem, end) = name.split_once('.').unwrap_or((name, ""));
        match (stem.len(), end) {
            _ if !is_hex(stem) => None,
            (24, "") if !name.contains('.') => Some(Self::Segment(name.to_owned())),
            (8, "history") => {
                let number = u32::from_str_radix(stem, 16).ok()?;
                Some(Self::History(Timeline(number)))
            }
            (24, "partial") => Some(Self::Other(name.to_owned())),
            (24, end) => {
                let offset = end.strip_suffix(".backup")?;
                (offset.len() == 8 && is_hex(offset)).then(|| Self::Other(name.to_owned()))
            }
            _ => None,
        }
    }

    /// The timeline in the name.
    pub fn timeline(&self) -> Timeline {
        match self {
            Self::History(timeline) => *timeline,
            Self::Segment(name) | Self::Other(name) => {
                Timeline(u32::from_str_radix(&name[..8], 16).unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for LogFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::History(timeline) => f.write_str(&timeline.history_name()),
            Self::Segment(name) | Self::Other(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_servers_archive_is_known_and_no_other() {
        let segment = "000000020000000100000023";
        let history = LogFileName::parse("0000000A.history").unwrap();
        assert_eq!(history, LogFileName::History(Timeline(10)));
        assert_eq!(history.to_string(), "0000000A.history");
        let found = LogFileName::parse(segment).unwrap();
        assert_eq!(found, LogFileName::Segment(segment.into()));
        assert_eq!(found.timeline(), Timeline(2));
        for end in [".00000028.backup", ".partial"] {
            let name = format!("{segment}{end}");
            let found = LogFileName::parse(&name).unwrap();
            assert_eq!(found, LogFileName::Other(name.clone()));
        }
        for name in [
            "",
            "x",
            "00000002000000010000002",
            "000000020000000100000023.",
            "000000020000000100000023.backup",
            "000000020000000100000023.0000002.backup",
            "000000020000000100000023.partial.gz",
            "00000002000000010000002a",
            "0000000a.history",
            ".history",
            "../000000020000000100000023",
            "RECOVERYXLOG",
        ] {
            assert_eq!(LogFileName::parse(name), None, "{name}");
        }
    }
}

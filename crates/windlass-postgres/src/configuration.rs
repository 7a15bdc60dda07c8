//! PostgreSQL's configuration files, read as the server reads them. Assignments come in order, and
//! the last one for a name wins. Files may include other files.
//!
//! Invariants
//! - Nothing outside the data directory is read unless the caller says that this is the source.
//! - The number of files, their size and their depth are bounded, because a set may be forged.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{IoContext, PostgresError};

/// The server itself follows includes to this depth (CONF_FILE_MAX_DEPTH).
const DEPTH_MAX: u32 = 10;
const FILES_MAX: u32 = 1000;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where to read a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The data directory.
    pub(crate) root: &'a Path,
    /// Where the data directory was when somebody wrote the configuration: absolute paths begin
    /// with this.
    pub(crate) was: &'a Path,
    /// Also read files outside the directory. This is for the source itself, where an unreadable
    /// file is the server's concern.
    pub(crate) everywhere: bool,
}

/// What configuration files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Names in lower case with their values, in the order in which the server takes them.
    pub(crate) assignments: Vec<(String, String)>,
    /// Included files and directories that lie outside the data directory.
    pub(crate) outside: Vec<PathBuf>,
    files: u32,
}

impl Configuration {
    /// Reads a file and what it includes, after the files read before. A missing file is no
    /// error here: it is the server that has to complain about it.
    pub(crate) fn read(&mut self, file: &Path, place: Place<'_>) -> Result<(), PostgresError> {
        self.read_at(file, place, 0)
    }

    fn read_at(&mut self, file: &Path, place: Place<'_>, depth: u32) -> Result<(), PostgresError> {
        self.files += 1;
        if depth > DEPTH_MAX || self.files > FILES_MAX {
            return Ok(());
        }
        let text = match read_text(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound || place.everywhere => return Ok(()),
            other => other.doing("read", file)?,
        };
        for (name, value) in text.lines().filter_map(assignment) {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "include" | "include_if_exists" => {
                    let path = included(file, &value, place);
                    if path.is_file() && self.may_read(&path, place) {
                        self.read_at(&path, place, depth + 1)?;
                    }
                }
                "include_dir" => {
                    let directory = included(file, &value, place);
                    let files = files_in(&directory);
                    if !files.is_empty() && self.may_read(&directory, place) {
                        for file in files {
                            self.read_at(&file, place, depth + 1)?;
                        }
                    }
                }
                _ => self.assignments.push((name, value)),
            }
        }
        Ok(())
    }

    /// Records a path outside the directory. Returns whether the file may be read.
    fn may_read(&mut self, path: &Path, place: Place<'_>) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let inside = match real(place.root) {
            // The backup follows a link in the source's directory, so the set holds what the link
            // points to. A set has no such links.
            _ if place.everywhere && plain(path).starts_with(place.root) => true,
            Some(root) => real(path).is_some_and(|path| path.starts_with(root)),
            None => false,
        };
        if !inside && !self.outside.iter().any(|known| known == path) {
            self.outside.push(plain(path));
        }
        inside || place.everywhere
    }

    /// The value that wins.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut found = self.assignments.iter().rev();
        let found = found.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The path that an include names. A relative path starts at the directory of the including file.
fn included(file: &Path, value: &str, place: Place<'_>) -> PathBuf {
    let named = Path::new(value);
    match named.strip_prefix(place.was) {
        Ok(inside) => place.root.join(inside),
        Err(_) => file.parent().unwrap_or(place.root).join(named),
    }
}

/// The files of an include_dir, as the server picks and orders them.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let wanted = |name: &OsStr| {
        let name = name.as_bytes();
        name.ends_with(b".conf") && name.len() > 5 && !name.starts_with(b".")
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.file_name().is_some_and(wanted) && path.is_file())
        .collect();
    files.sort();
    files
}

/// A path without `.` and `..`, computed from its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Parses `name = value`, `name value`, `name 'it''s'`. `None` for comments, and for lines that the
/// server would not take either.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    let end = line.find(|letter: char| !is_name(letter))?;
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    if name.is_empty() || rest.is_empty() {
        return None;
    }
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquoted(quoted)?,
        None => {
            let stop = |letter: char| letter == '#' || letter.is_whitespace();
            rest.split(stop).next()?.to_owned()
        }
    };
    Some((name.to_owned(), value))
}

/// The text before the closing quote. A quote inside the text is doubled or has a backslash before
/// it.
fn unquoted(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' if letters.peek() != Some(&'\'') => return Some(value),
            '\'' | '\\' => value.push(letters.next()?),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(root: &Path, everywhere: bool) -> Configuration {
        let mut read = Configuration::default();
        let was = Path::new("/was/data");
        let place = Place {
            root,
            was,
            everywhere,
        };
        read.read(&root.join("postgresql.conf"), place).unwrap();
        read
    }

    #[test]
    fn includes_are_followed_where_they_stand_and_the_last_of_a_name_wins() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("data");
        write(
            &root.join("postgresql.conf"),
            "a = 1\nINCLUDE 'more/one.conf'\na.b = x # an extension's\ninclude_dir = 'conf.d'\n\
             include_if_exists 'absent'\ninclude '/was/data/two.conf'\nc = 3",
        );
        write(&root.join("more/one.conf"), "a = 2\ninclude 'beside'\n");
        write(&root.join("more/beside"), "beside = yes\n");
        write(&root.join("conf.d/20.conf"), "d = 20\n");
        write(&root.join("conf.d/10.conf"), "d = 10\n");
        write(&root.join("conf.d/.30.conf"), "d = 30\n");
        write(&root.join("conf.d/40.conf~"), "d = 40\n");
        write(&root.join("two.conf"), "two = 'it''s'\n");
        let read = read(&root, false);
        let value = |name: &str| read.value(name).unwrap_or_default().to_owned();
        assert_eq!([value("a"), value("d"), value("c")], ["2", "20", "3"]);
        let others = [value("beside"), value("two"), value("a.b")];
        assert_eq!(others, ["yes", "it's", "x"]);
        assert!(read.outside.is_empty(), "{read:?}");
    }

    #[test]
    fn what_lies_outside_is_named_and_read_of_the_source_only() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("data");
        let (away, empty) = (place.path().join("away.conf"), place.path().join("empty"));
        std::fs::create_dir_all(&empty).unwrap();
        write(&away, "a = away\n");
        let text = format!(
            "a = here\ninclude '../away.conf'\ninclude_dir '{}'\ninclude_if_exists '/absent'\n",
            empty.display()
        );
        write(&root.join("postgresql.conf"), &text);
        let copy = read(&root, false);
        assert_eq!(copy.value("a"), Some("here"));
        let source = read(&root, true);
        assert_eq!(source.value("a"), Some("away"));
        assert_eq!([copy.outside, source.outside], [[away.clone()], [away]]);
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let place = tempfile::tempdir().unwrap();
        let text = "include 'postgresql.conf'\ninclude 'postgresql.conf'\na = 1\n";
        write(&place.path().join("postgresql.conf"), text);
        assert_eq!(read(place.path(), false).value("a"), Some("1"));
    }

    #[test]
    fn quotes_that_do_not_end_are_no_value() {
        assert_eq!(assignment("datestyle = 'iso"), None);
        assert_eq!(assignment("datestyle = 'iso''"), None);
        let hidden = assignment(r"datestyle = 'i\'so'").map(|(_, value)| value);
        assert_eq!(hidden.as_deref(), Some("i'so"));
    }
}

//! Writes a database's options into the configuration. Everything else stays as it is.
//!
//! Comments, order and other tables stay. The file is replaced as a whole, durably, and keeps its
//! owner and its rights. A new file that holds a password is for its owner alone.

use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, Value};
use windlass_engine::read_at_most;

use super::file::{BYTES_MAX, DIRECTORY, PATH, has_password};
use crate::exit::{Code, Failure};
use crate::outputs::{CONFIGURATION, outputs};

/// The file that options are written to: the named one, or else a separate file of Windlass beside
/// the others.
pub fn file(named: Option<&Path>) -> PathBuf {
    match named {
        Some(path) => path.to_owned(),
        None if Path::new(DIRECTORY).is_dir() => Path::new(DIRECTORY).join("tuned.toml"),
        None => PathBuf::from(PATH),
    }
}

/// Options of a database, by their keys.
pub type Options = Vec<(&'static str, Value)>;

/// Sets options of the database `name` in the configuration at `path`. `whose` says where the
/// database is and where its backups go. Only a table that is made anew gets it: an existing table
/// keeps what its owner wrote there.
pub fn set(path: &Path, name: &str, whose: Options, options: Options) -> Result<(), Failure> {
    let fault = |what: String| {
        let message = format!("configuration {}: {what}", path.display());
        Failure::new(Code::Failed, message, "Name another file with --config.")
    };
    let outputs = outputs();
    outputs.check(path)?;
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(fault("it is not a regular file".to_owned()));
    }
    let text = match read_at_most(path, BYTES_MAX) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| fault("it is not text".to_owned()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fault(error.to_string())),
    };
    let text = changed(&text, name, whose, options).map_err(&fault)?;
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|error| fault(error.to_string()))?;
    }
    let old = path.metadata().ok();
    let mode = match &old {
        Some(old) => old.mode() & 0o777,
        None if has_password(&text) => 0o600,
        None => 0o644,
    };
    outputs.replace(path, &CONFIGURATION, text.as_bytes(), mode)?;
    keep_rights(path, old.as_ref(), mode).map_err(|error| fault(error.to_string()))
}

/// Gives the new file the owner that the old one had, and exactly this mode: the umask has taken
/// bits away.
fn keep_rights(path: &Path, old: Option<&Metadata>, mode: u32) -> std::io::Result<()> {
    let Some(old) = old.filter(|old| old.is_file()) else {
        return Ok(());
    };
    let new = path.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::chown(path, Some(old.uid()), Some(old.gid()))?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

fn changed(text: &str, name: &str, whose: Options, options: Options) -> Result<String, String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| error.to_string())?;
    let mut implicit = Table::new();
    implicit.set_implicit(true);
    let databases = document
        .entry("database")
        .or_insert(Item::Table(implicit))
        .as_table_mut()
        .ok_or("database is no table")?;
    let whose = match databases.contains_key(name) {
        true => Vec::new(),
        false => whose,
    };
    let database = databases
        .entry(name)
        .or_insert(Item::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| format!("database.{name} is no table"))?;
    for (key, value) in whose.into_iter().chain(options) {
        database.insert(key, Item::Value(value));
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays() {
        let old = "# Ours.\n[backup]\ncompress = \"lz4\" # fast\n\n[database.shop]\n\
                   source = \"/srv/shop.db\"\nbuffers = 9\n";
        let whose = vec![("source", "/other.db".into()), ("to", "/other".into())];
        let new = changed(old, "shop", whose, vec![("buffers", 24.into())]).unwrap();
        assert_eq!(new, old.replace("buffers = 9", "buffers = 24"));
    }

    #[test]
    fn a_new_database_has_a_table_of_its_own() {
        let whose = vec![("source", "/a.db".into())];
        let new = changed("", "a", whose, vec![("compress", "none".into())]).unwrap();
        assert_eq!(
            new,
            "[database.a]\nsource = \"/a.db\"\ncompress = \"none\"\n"
        );
    }

    #[test]
    fn a_password_is_seen_in_both_kinds_of_connection_string() {
        for text in [
            "source = \"host=/run user=u password=x\"",
            "source = \"postgresql://u:secret@host/db\"",
        ] {
            assert!(has_password(text), "{text}");
        }
        for text in [
            "source = \"/srv/shop.db\"",
            "source = \"postgresql://u@host:5432/db\"",
            "source = \"postgresql:///db?host=/run:1@2\"",
        ] {
            assert!(!has_password(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("windlass.toml");
        for bad in ["database = 3\n", "[database\n", "[database]\nshop = 1\n"] {
            windlass_engine::durable::write(&path, bad.as_bytes(), 0o600).unwrap();
            assert!(
                set(&path, "shop", Vec::new(), vec![("buffers", 1.into())]).is_err(),
                "{bad}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
        }
    }
}

//! Where DATABASE@NAME is divided. DATABASE may be a connection string, which can have an `@`, too.
//!
//! libpq's own rules say which `@` is part of a connection string:
//! - In a URI, the user stands before the first `@`, unless a `/` comes before that:
//!   `postgres://me@db` is a server.
//! - In `keyword=value`, an `@` between quotes or behind a backslash is part of the value.
//!
//! Any other `@` divides the word if the name of a snapshot or a set stands behind it. Behind a
//! password, nobody knows which of both was meant: then it is an error.

use std::path::Path;

use windlass_snapshot::SnapshotName;

use crate::error::DatabaseError;
use crate::places::Which;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const SECRETS: [&str; 2] = ["password", "sslpassword"];

/// The two parts of a word; none if it is not DATABASE@NAME.
pub(crate) fn divided(word: &str) -> Result<Option<(&str, &str)>, DatabaseError> {
    let Some((database, name)) = word.rsplit_once('@') else {
        return Ok(None);
    };
    let is_name = SnapshotName::parse(name).is_ok() || Which::parse(name).is_ok();
    if database.is_empty() || !is_name {
        return Ok(None);
    }
    match end_of(database) {
        End::Here => Ok(Some((database, name))),
        End::Later => Ok(None),
        End::Unclear => Err(DatabaseError::Divided {
            text: word.to_owned(),
        }),
    }
}

/// DATABASE@NAME for this database, whatever stands at its end.
pub fn with_name(database: &str, name: &str) -> String {
    let is_uri = uri(database).is_some();
    let between = match end_of(database) {
        End::Later if is_uri => "/",
        End::Unclear if is_uri => "&",
        End::Unclear => " ",
        End::Here | End::Later => "",
    };
    format!("{database}{between}@{name}")
}

/// Whether a database that is followed by an `@` ends before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Here,
    /// The `@` is part of it.
    Later,
    /// It is part of a password, or not.
    Unclear,
}

fn end_of(database: &str) -> End {
    if Path::new(database).symlink_metadata().is_ok() {
        return End::Here;
    }
    match uri(database) {
        Some(rest) => end_of_uri(rest),
        None => end_of_keywords(database),
    }
}

/// What follows the scheme of a URI.
fn uri(database: &str) -> Option<&str> {
    let mut schemes = SCHEMES.iter();
    schemes.find_map(|scheme| database.strip_prefix(scheme))
}

fn end_of_uri(rest: &str) -> End {
    if !rest.contains(['/', '?', '@']) {
        return End::Later;
    }
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let last = query.rsplit('&').next().unwrap_or_default();
    match last.split_once('=') {
        Some((keyword, _)) if SECRETS.contains(&keyword) => End::Unclear,
        _ => End::Here,
    }
}

fn end_of_keywords(text: &str) -> End {
    let (mut rest, mut end) = (text, End::Here);
    while let Some((keyword, value)) = rest.split_once('=') {
        let value = value.trim_start();
        let (bytes, of_value) = end_of_value(value);
        end = match of_value {
            End::Unclear if !SECRETS.contains(&keyword.trim()) => End::Here,
            other => other,
        };
        rest = &value[bytes..];
    }
    end
}

/// The length of a value, and whether its end is sure: one without quotes may go on.
fn end_of_value(text: &str) -> (usize, End) {
    let is_quoted = text.starts_with('\'');
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(usize::from(is_quoted)) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' if is_quoted => return (at + 1, End::Here),
            letter if !is_quoted && letter.is_whitespace() => return (at, End::Here),
            _ => {}
        }
    }
    let end = match is_quoted || is_escaped {
        true => End::Later,
        false => End::Unclear,
    };
    (text.len(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_at_divides_unless_it_is_part_of_a_connection_string() {
        for (database, name) in [
            ("shop.db", "before"),
            ("shop", "latest"),
            ("host=/var/run/postgresql", "before"),
            ("host=/run password=a@b user=me", "before"),
            ("host=/run password='a@b'", "before"),
            ("host=/run password = 'it\\'s'", "before"),
            ("password=secret ", "before"),
            ("postgres://me@db", "before"),
            ("postgres://me:a@b@db", "before"),
            ("postgres://db/", "before"),
            ("postgresql:///shop", "before"),
            ("postgresql:///shop?password=a%40b&user=me", "before"),
        ] {
            let word = format!("{database}@{name}");
            assert_eq!(divided(&word).unwrap(), Some((database, name)), "{word}");
        }
        for word in [
            "shop.db",
            "@before",
            "shop.db@a/b",
            "postgres://me@db",
            "postgres://me:a%40b@db",
            "postgres://me:secret@db/shop",
            "postgres://me:a@b@db/shop",
            "host=/run password='a@b'",
            "host=/run password='a@b",
            "host=/run password=a\\@b",
            "password=a@b host=/run",
            "password=a@b port=5432",
        ] {
            assert_eq!(divided(word).unwrap(), None, "{word}");
        }
        for word in [
            "host=/run password=a@b",
            "host=/run password=a@b@before",
            "password = a@b",
            "sslpassword=@b",
            "postgresql:///shop?user=me&password=a@b",
        ] {
            let error = divided(word).unwrap_err().to_string();
            assert!(error.contains("password=***"), "{word}: {error}");
            assert!(!error.contains("a@b"), "{word}: {error}");
        }
    }

    #[test]
    fn a_name_behind_any_database_is_found_again() {
        for database in [
            "shop.db",
            "host=/run",
            "host=/run password=secret",
            "host=/run password='a@b'",
            "postgres://db",
            "postgres://me@db",
            "postgres://db/shop?password=a@b",
        ] {
            let word = with_name(database, "before");
            let (found, name) = divided(&word).unwrap().unwrap();
            assert_eq!(name, "before");
            let found = found.trim_end_matches([' ', '&']);
            assert_eq!(found.trim_end_matches('/'), database, "{word}");
        }
    }
}

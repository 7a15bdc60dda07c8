//! The name of a snapshot: what stands behind the `@` of DATABASE@NAME, and the name of its
//! directory.

use std::fmt;

use crate::error::SnapshotError;

/// The longest name. A path has to have room for it.
const BYTES_MAX: usize = 64;
/// What `@latest` means already: the newest set.
const RESERVED: [&str; 1] = ["latest"];

/// The name of a snapshot.
///
/// ```
/// use windlass_snapshot::SnapshotName;
///
/// assert!(SnapshotName::parse("before-upgrade").is_ok());
/// assert!(SnapshotName::parse("../elsewhere").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName(String);

impl SnapshotName {
    /// Takes a name: letters, digits, `-`, `_` and `.`, up to 64 of them.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let what = if text.is_empty() {
            "it is empty"
        } else if text.len() > BYTES_MAX {
            "it has more than 64 letters"
        } else if !text.bytes().all(is_plain) {
            "a name has letters, digits, - _ and ."
        } else if text.starts_with(['.', '-']) {
            "a name begins with a letter, a digit or _"
        } else if RESERVED.contains(&text) {
            "that word means the newest set"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(SnapshotError::Name {
            text: text.to_owned(),
            what,
        })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_a_directory_and_nothing_else() {
        for name in ["a", "before-upgrade", "2026-11-23", "v1.2_x", "_1"] {
            assert_eq!(SnapshotName::parse(name).unwrap().as_str(), name);
        }
        let long = "a".repeat(BYTES_MAX + 1);
        for name in [
            "", ".", "..", ".a", "-a", "a/b", "a b", "ä", "a\n", "latest", &long,
        ] {
            assert!(SnapshotName::parse(name).is_err(), "{name:?}");
        }
    }
}

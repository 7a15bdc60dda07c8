//! The environment of a server: its archive_command may need keys from there.
//!
//! Never does: show a value. They may be secret.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// What pg_ctl tells the server that it starts.
const OF_PG_CTL: &str = "PG_GRANDPARENT_PID";

/// The names and values that a process was started with.
#[derive(Clone)]
pub(super) struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Of a process. `None` if the system does not tell.
    pub(super) fn of(process: i32) -> Option<Self> {
        let bytes = std::fs::read(format!("/proc/{process}/environ")).ok()?;
        let found = Self::parse(&bytes);
        (!found.0.is_empty()).then_some(found)
    }

    fn parse(bytes: &[u8]) -> Self {
        let words = bytes.split(|byte| *byte == 0);
        let pairs = words.filter_map(|word| {
            let at = word.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&word[..at], &word[at + 1..]);
            let is_meant = !name.is_empty() && name != OF_PG_CTL.as_bytes();
            is_meant.then(|| {
                (
                    OsStr::from_bytes(name).into(),
                    OsStr::from_bytes(value).into(),
                )
            })
        });
        Self(pairs.collect())
    }

    /// Gives it to a command, and nothing else.
    pub(super) fn give_to(&self, command: &mut Command) {
        let pairs = self.0.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(pairs);
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Environment({} names)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read_and_no_value_is_shown() {
        let bytes = b"TZ=Asia/Tokyo\0KEY=a=b\0EMPTY=\0PG_GRANDPARENT_PID=7\0odd\0=x\0";
        let found = Environment::parse(bytes);
        let pairs = [("TZ", "Asia/Tokyo"), ("KEY", "a=b"), ("EMPTY", "")];
        assert_eq!(
            found.0,
            pairs.map(|(name, value)| (name.into(), value.into()))
        );
        assert_eq!(format!("{found:?}"), "Environment(3 names)");
    }
}

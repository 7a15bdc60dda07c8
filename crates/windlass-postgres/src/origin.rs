//! Which restores a cluster comes from. A restored server has the system identifier of its source,
//! and may have its timeline, too; but what they write from then on is not the same.
//!
//!   source  ------ F ------ I ------>      F, I: sets
//!                   \
//!   restored         +------------->       F is a base for both, I only for the source
//!
//! A restore writes them into postgresql.auto.conf, as a setting of Windlass's own, with the end of
//! the set that was restored. The server keeps the setting, copies of the server have it, too, and
//! each set records it.
//!
//! Invariant: a set is a base only for a server that comes from all restores that the set comes
//! from, in the same order. If the server comes from another one after these, the set must end
//! where that one begins, or before.

use std::fmt;

use windlass_media::SetId;

use crate::lsn::Lsn;

/// The setting.
pub(crate) const SETTING: &str = "windlass.restored";
const INTRODUCTION: &str = "\n# Written by Windlass when it restored this cluster: which restores \
     it comes from, and where each begins. Backups that build on others need it.\n";
/// How many restores are kept, one after the other. With more, the oldest are forgotten, and no set
/// from before is a base.
const RESTORES_MAX: usize = 64;

/// Whether what a set has, which ends there, is from the past of a server. Both say which restores
/// they come from.
pub fn is_from_past((base, stop): (&str, Lsn), server: &str) -> bool {
    let both = Origin::parse(base).zip(Origin::parse(server));
    both.is_some_and(|(base, server)| base.is_before(stop, &server))
}

/// Names one restore: random bytes, shown as 32 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreId(pub [u8; 16]);

/// The restores that a cluster comes from, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin(Vec<Restored>);

/// A restore, and the end of the set that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restored {
    id: RestoreId,
    at: Lsn,
}

impl Origin {
    /// Reads the value of the setting. None if Windlass did not write it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.split_ascii_whitespace()
            .map(Restored::parse)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// With one more restore.
    pub(crate) fn then(mut self, id: RestoreId, at: Lsn) -> Self {
        self.0.push(Restored { id, at });
        self.0.drain(..self.0.len().saturating_sub(RESTORES_MAX));
        self
    }

    /// Whether a set of a cluster of this origin, which ends there, is from the past of a server.
    pub(crate) fn is_before(&self, stop: Lsn, server: &Self) -> bool {
        let later = server.0.strip_prefix(self.0.as_slice());
        later.is_some_and(|later| later.first().is_none_or(|next| stop <= next.at))
    }

    /// Lines for the end of postgresql.auto.conf.
    pub(crate) fn block(&self) -> String {
        format!("{INTRODUCTION}{SETTING} = '{self}'\n")
    }
}

impl Restored {
    fn parse(word: &str) -> Option<Self> {
        let (id, at) = word.split_once('@')?;
        Some(Self {
            id: RestoreId(SetId::parse(id)?.0),
            at: Lsn::parse(at)?,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Restored { id, at }) in self.0.iter().enumerate() {
            let space = if number == 0 { "" } else { " " };
            write!(out, "{space}{}@{at}", SetId(id.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(restores: &[(u8, u64)]) -> Origin {
        let one =
            |origin: Origin, (id, at): &(u8, u64)| origin.then(RestoreId([*id; 16]), Lsn(*at));
        restores.iter().fold(Origin::default(), one)
    }

    #[test]
    fn a_set_is_from_the_past_of_servers_that_were_restored_from_it_or_later() {
        let (source, restored) = (origin(&[]), origin(&[(1, 100)]));
        let (other, again) = (origin(&[(2, 100)]), origin(&[(1, 100), (3, 200)]));
        let is_before = |of: &Origin, stop, server| of.is_before(Lsn(stop), server);
        assert!(is_before(&source, 500, &source));
        assert!(is_before(&source, 100, &restored));
        assert!(!is_before(&source, 101, &restored));
        assert!(!is_before(&source, 101, &again));
        assert!(is_before(&restored, 500, &restored));
        assert!(is_before(&restored, 200, &again));
        assert!(!is_before(&restored, 201, &again));
        assert!(!is_before(&restored, 50, &source));
        assert!(!is_before(&restored, 50, &other));
        assert!(!is_before(&other, 150, &again));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is() {
        let origin = origin(&[(1, 0x300_0138), (2, 0x1_0000_0000)]);
        let text = origin.to_string();
        assert_eq!(Origin::parse(&text), Some(origin));
        assert_eq!(Origin::parse(""), Some(Origin::default()));
        for wrong in [
            "x",
            "1@0/1",
            &text[1..],
            &text.replace('@', ""),
            &text.replace('@', "'"),
        ] {
            assert_eq!(Origin::parse(wrong), None, "{wrong}");
        }
        let many = (0..70).fold(Origin::default(), |all, at| {
            all.then(RestoreId([9; 16]), Lsn(at))
        });
        assert_eq!((many.0.len(), many.0[0].at), (64, Lsn(6)));
    }
}

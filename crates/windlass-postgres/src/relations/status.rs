//! Decides whether a tuple is valid, by its hint bits, or by pg_xact if they say nothing.

use std::collections::HashMap;

use super::heap::Tuple;
use super::relation::Certainty;

/// Bits of `t_infomask` (PostgreSQL's htup_details.h).
const LOCK_KEY_SHARE: u16 = 0x0010;
const LOCK_EXCLUSIVE: u16 = 0x0040;
const ENDED_LOCK_ONLY: u16 = 0x0080;
const INSERTED_COMMITTED: u16 = 0x0100;
const INSERTED_INVALID: u16 = 0x0200;
const ENDED_COMMITTED: u16 = 0x0400;
const ENDED_INVALID: u16 = 0x0800;
const ENDED_BY_MANY: u16 = 0x1000;
/// The first transaction that pg_xact records; the two before it always count as committed.
const FIRST_NORMAL: u32 = 3;
/// How many transactions' states one byte of pg_xact holds.
const STATES_A_BYTE: u32 = 4;
/// Pages in a segment file of pg_xact.
const SEGMENT_PAGES: u32 = 32;
/// At most this many pages of pg_xact are kept, because garbage transaction ids must not fill
/// memory.
const PAGES_MAX: usize = 64;

/// What became of a transaction, as far as pg_xact shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    Aborted,
    /// Still running, a part of a larger transaction, or not recorded.
    Unknown,
}

/// Reads a page of a file of pg_xact: name, offset, length. `None` if it does not exist.
pub(crate) type ReadPage<'a> = &'a dyn Fn(&str, u64, usize) -> Option<Vec<u8>>;

/// The states of transactions, read only when they are needed.
pub(crate) struct Transactions<'a> {
    read: ReadPage<'a>,
    page_bytes: u32,
    pages: HashMap<u32, Option<Vec<u8>>>,
}

impl<'a> Transactions<'a> {
    pub(crate) fn new(page_bytes: u32, read: ReadPage<'a>) -> Self {
        Self {
            read,
            page_bytes,
            pages: HashMap::new(),
        }
    }

    /// How sure it is that a tuple is valid; `None` if it was never inserted.
    pub(crate) fn judge(&mut self, tuple: &Tuple<'_>) -> Option<Certainty> {
        let flags = tuple.flags;
        let inserted = if flags & INSERTED_COMMITTED != 0 {
            // If INSERTED_INVALID is also set, the tuple is frozen.
            Outcome::Committed
        } else if flags & INSERTED_INVALID != 0 {
            Outcome::Aborted
        } else {
            self.outcome(tuple.inserted_by)
        };
        match inserted {
            Outcome::Aborted => None,
            Outcome::Unknown => Some(Certainty::Unsure),
            Outcome::Committed => Some(self.judge_end(tuple)),
        }
    }

    fn judge_end(&mut self, tuple: &Tuple<'_>) -> Certainty {
        let flags = tuple.flags;
        let locks = flags & (ENDED_BY_MANY | LOCK_EXCLUSIVE | LOCK_KEY_SHARE);
        let only_locked = flags & ENDED_LOCK_ONLY != 0 || locks == LOCK_EXCLUSIVE;
        if flags & ENDED_INVALID != 0 || tuple.ended_by == 0 || only_locked {
            return Certainty::Live;
        }
        if flags & ENDED_BY_MANY != 0 {
            // Several transactions locked it, and one of them replaced it or was about to.
            return Certainty::Unsure;
        }
        if flags & ENDED_COMMITTED != 0 {
            return Certainty::Dead;
        }
        match self.outcome(tuple.ended_by) {
            Outcome::Committed => Certainty::Dead,
            Outcome::Aborted | Outcome::Unknown => Certainty::Live,
        }
    }

    fn outcome(&mut self, transaction: u32) -> Outcome {
        match transaction {
            0 => return Outcome::Aborted,
            1..FIRST_NORMAL => return Outcome::Committed,
            _ => {}
        }
        let a_page = self.page_bytes.saturating_mul(STATES_A_BYTE).max(1);
        let page = transaction / a_page;
        let within = transaction % a_page;
        let byte = self
            .page(page)
            .and_then(|page| page.get((within / STATES_A_BYTE) as usize));
        match byte.map(|byte| byte >> (within % STATES_A_BYTE * 2) & 3) {
            Some(1) => Outcome::Committed,
            Some(2) => Outcome::Aborted,
            _ => Outcome::Unknown,
        }
    }

    fn page(&mut self, page: u32) -> Option<&Vec<u8>> {
        if self.pages.len() >= PAGES_MAX && !self.pages.contains_key(&page) {
            self.pages.clear();
        }
        let (read, bytes) = (self.read, self.page_bytes);
        let load = || {
            let name = format!("pg_xact/{:04X}", page / SEGMENT_PAGES);
            let offset = u64::from(page % SEGMENT_PAGES) * u64::from(bytes);
            read(&name, offset, bytes as usize)
        };
        self.pages.entry(page).or_insert_with(load).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(inserted_by: u32, ended_by: u32, flags: u16) -> Tuple<'static> {
        Tuple {
            inserted_by,
            ended_by,
            flags,
            columns: &[],
        }
    }

    #[test]
    fn hint_bits_count_first_and_pg_xact_where_they_are_missing() {
        // 700 has committed, 701 has aborted, 702 is running.
        let read = |name: &str, offset: u64, length: usize| {
            let mut page = vec![0; length];
            page[175] = 0b00_00_10_01;
            (name == "pg_xact/0000" && offset == 0).then_some(page)
        };
        let mut judge = Transactions::new(8192, &read);
        let (live, dead, unsure) = (
            Some(Certainty::Live),
            Some(Certainty::Dead),
            Some(Certainty::Unsure),
        );
        for (inserted_by, ended_by, flags, expected) in [
            (700, 0, 0, live),
            (701, 0, 0, None),
            (702, 0, 0, unsure),
            (0, 0, 0, None),
            (2, 0, 0, live),
            (701, 0, INSERTED_COMMITTED, live),
            (700, 0, INSERTED_INVALID, None),
            (9, 0, INSERTED_COMMITTED | INSERTED_INVALID, live),
            (700, 700, 0, dead),
            (700, 701, 0, live),
            (700, 702, 0, live),
            (700, 700, ENDED_INVALID, live),
            (700, 700, ENDED_LOCK_ONLY, live),
            (700, 700, LOCK_EXCLUSIVE, live),
            (700, 702, ENDED_COMMITTED, dead),
            (700, 5, ENDED_BY_MANY, unsure),
            // This page of pg_xact does not exist.
            (900_000_000, 0, 0, unsure),
        ] {
            let found = judge.judge(&tuple(inserted_by, ended_by, flags));
            assert_eq!(found, expected, "{inserted_by} {ended_by} {flags:#x}");
        }
    }
}

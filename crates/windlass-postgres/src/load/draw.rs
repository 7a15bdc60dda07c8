//! Which transaction comes next, and with which rows. Each session has a sequence of its own.

use std::fmt::Write;

use super::tables::LoadTables;
use super::{TYPES, Transaction};

/// Items of stock that an order changes.
const ITEMS: usize = 5;
/// Items of stock that a look reads.
const LOOKED_AT: u64 = 200;

/// A sequence of transactions.
pub(super) struct Draw {
    tables: LoadTables,
    state: u64,
    only_instants: bool,
}

impl Draw {
    pub(super) fn new(tables: LoadTables, seed: u64) -> Self {
        Self {
            tables,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d,
            only_instants: false,
        }
    }

    /// Nothing but the time, again and again.
    pub(super) fn instants() -> Self {
        Self {
            only_instants: true,
            ..Self::new(LoadTables::of_scale(1), 0)
        }
    }

    /// A number from 1 to `end`, by SplitMix64.
    fn number(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end + 1
    }

    fn kind(&mut self) -> Transaction {
        let mut left = self.number(100);
        for kind in Transaction::ALL {
            match left.checked_sub(kind.share()) {
                None | Some(0) => return kind,
                Some(rest) => left = rest,
            }
        }
        Transaction::ALL[TYPES - 1]
    }

    /// The next transaction: its type, and its statements.
    pub(super) fn transaction(&mut self) -> (Transaction, String) {
        if self.only_instants {
            let sql = "INSERT INTO instant VALUES (clock_timestamp())".to_owned();
            return (Transaction::Note, sql);
        }
        let kind = self.kind();
        let (rows, branches) = (self.tables.rows(), self.tables.branches());
        let (row, amount) = (self.number(rows), self.number(100));
        let account = format!("UPDATE account SET balance = balance + {amount} WHERE id = {row}");
        let note = format!("INSERT INTO history (account, amount) VALUES ({row}, {amount})");
        let sql = match kind {
            Transaction::Order => self.order(rows, row),
            Transaction::Payment => {
                let branch = self.number(branches);
                format!(
                    "BEGIN; {account}; UPDATE branch SET balance = balance + {amount} \
                     WHERE id = {branch}; {note}; COMMIT"
                )
            }
            Transaction::Touch => account,
            Transaction::Note => note,
            Transaction::Look => format!(
                "SELECT sum(quantity) FROM stock WHERE id BETWEEN {row} AND {}",
                row + LOOKED_AT
            ),
        };
        (kind, sql)
    }

    /// The items are in order, so that two orders do not wait for each other in a circle.
    fn order(&mut self, rows: u64, account: u64) -> String {
        let mut items: Vec<u64> = (0..ITEMS).map(|_| self.number(rows)).collect();
        items.sort_unstable();
        items.dedup();
        let mut sql = "BEGIN".to_owned();
        for item in &items {
            let change = "UPDATE stock SET quantity = quantity - 1 WHERE id";
            write!(sql, "; {change} = {item}").expect("a string takes everything");
        }
        let count = items.len();
        let insert = format!("INSERT INTO orders (account, items) VALUES ({account}, {count})");
        format!("{sql}; {insert}; COMMIT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_share_and_the_sequence_is_the_same_each_time() {
        let draws = || {
            let mut draw = Draw::new(LoadTables::of_scale(1), 3);
            (0..10_000).map(|_| draw.transaction()).collect::<Vec<_>>()
        };
        let drawn = draws();
        for kind in Transaction::ALL {
            let count = drawn.iter().filter(|(one, _)| *one == kind).count() as u64;
            let expected = kind.share() * 100;
            assert!(count.abs_diff(expected) < 200, "{kind:?}: {count}");
        }
        assert!(drawn == draws());
    }
}

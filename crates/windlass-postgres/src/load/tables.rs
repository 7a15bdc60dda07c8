//! The tables of the laboratory: what the load works on, and what experiments change by pages.
//!
//! | table | for |
//! |---|---|
//! | account, branch, stock, orders, history | the load |
//! | instant | inserting the time |
//! | large | building indexes and rebuilding; the load does not touch it |
//! | page | changing an exact share of pages: one row in each, with room for its next version |

use crate::error::PostgresError;
use crate::own_cluster::OwnSession;

/// Rows of each of `account` and `stock` for one of scale: about 6 MiB each.
const ROWS_OF_SCALE: u64 = 50_000;
const BRANCHES_OF_SCALE: u64 = 10;
/// Pages of the table `page` for one of scale.
pub const PAGES_OF_SCALE: u64 = 1_000;
/// A row and its next version fill a page of 8 KiB.
const PAGE_ROW_BYTES: u64 = 3_600;

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTables {
    scale: u64,
}

impl LoadTables {
    /// Tables of this scale.
    pub fn of_scale(scale: u32) -> Self {
        Self {
            scale: u64::from(scale.max(1)),
        }
    }

    pub(super) fn rows(self) -> u64 {
        ROWS_OF_SCALE * self.scale
    }

    pub(super) fn branches(self) -> u64 {
        BRANCHES_OF_SCALE * self.scale
    }

    /// Rows, and pages, of the table `page`.
    pub fn pages(self) -> u64 {
        PAGES_OF_SCALE * self.scale
    }

    /// Makes and fills all tables.
    pub fn fill(self, session: &mut OwnSession) -> Result<(), PostgresError> {
        let (rows, branches, pages) = (self.rows(), self.branches(), self.pages());
        let twice = 2 * rows;
        let sql = format!(
            "CREATE TABLE account (id int, balance bigint NOT NULL, filler char(84)) \
               WITH (fillfactor = 90);
             CREATE TABLE stock (LIKE account) WITH (fillfactor = 90);
             ALTER TABLE stock RENAME balance TO quantity;
             CREATE TABLE branch (id int PRIMARY KEY, balance bigint NOT NULL)
               WITH (fillfactor = 50);
             CREATE TABLE orders (account int, items int, at timestamptz DEFAULT now());
             CREATE TABLE history (account int, amount int, at timestamptz DEFAULT now());
             CREATE TABLE instant (at timestamptz);
             CREATE TABLE large (id int, value int, filler char(84));
             CREATE TABLE page (id int, n int NOT NULL, filler text) WITH (fillfactor = 45);
             ALTER TABLE page ALTER filler SET STORAGE PLAIN;
             INSERT INTO account SELECT i, 0, '' FROM generate_series(1, {rows}) i;
             INSERT INTO stock SELECT i, 1000, '' FROM generate_series(1, {rows}) i;
             INSERT INTO branch SELECT i, 0 FROM generate_series(1, {branches}) i;
             INSERT INTO large SELECT i, (i::bigint * 48271 % 2147483647)::int, ''
               FROM generate_series(1, {twice}) i;
             INSERT INTO page SELECT i, 0, repeat('x', {PAGE_ROW_BYTES})
               FROM generate_series(1, {pages}) i;
             ALTER TABLE account ADD PRIMARY KEY (id);
             ALTER TABLE stock ADD PRIMARY KEY (id);
             ALTER TABLE large ADD PRIMARY KEY (id);
             ALTER TABLE page ADD PRIMARY KEY (id)"
        );
        session.run(&sql)?;
        session.run("VACUUM ANALYZE")?;
        session.run("CHECKPOINT")
    }

    /// Removes what the load has added, so that the next run begins like the first.
    pub fn reset(self, session: &mut OwnSession) -> Result<(), PostgresError> {
        session.run("TRUNCATE orders, history, instant")?;
        session.run("VACUUM account, stock, branch")?;
        session.run("CHECKPOINT")
    }
}

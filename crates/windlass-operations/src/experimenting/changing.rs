//! Changing an exact share of the pages of a table: how a snapshot grows, and how long it takes to
//! go back.

use windlass_postgres::OwnSession;

use super::error::ExperimentError;
use super::laboratory::Laboratory;
use super::measured::{Measured, bytes, seconds};

use crate::error::OperationError;

/// PostgreSQL's default, which the laboratory's server has.
const PAGE_BYTES: u64 = 8192;
/// Times that pages are changed which change again.
const AGAIN: usize = 5;

/// Which pages change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Pages from all over the table.
    Spread,
    /// The first pages.
    InOneRun,
    /// The first pages, five times, with a checkpoint after each.
    AgainAndAgain,
}

impl Pattern {
    pub(super) const ALL: [Self; 3] = [Self::Spread, Self::InOneRun, Self::AgainAndAgain];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Spread => "spread over the table",
            Self::InOneRun => "in one run",
            Self::AgainAndAgain => "in one run, five times",
        }
    }

    /// Changes so many of the pages. Each has one row.
    fn change(
        self,
        session: &mut OwnSession,
        pages: u64,
        share: f64,
    ) -> Result<(), OperationError> {
        let percent = (share * 100.0).round();
        let chosen = match self {
            // 37 has no divisor in common with 100, so each hundred rows has its percentage.
            Self::Spread => format!("id * 37 % 100 < {percent}"),
            Self::InOneRun | Self::AgainAndAgain => {
                format!("id <= {pages}::bigint * {percent} / 100")
            }
        };
        let times = if self == Self::AgainAndAgain {
            AGAIN
        } else {
            1
        };
        for _ in 0..times {
            session.run(&format!("UPDATE page SET n = n + 1 WHERE {chosen}"))?;
            session.run("CHECKPOINT")?;
        }
        Ok(())
    }
}

/// Makes a snapshot, changes pages, and looks how large the snapshot has become.
pub(super) fn growth(
    laboratory: &Laboratory<'_>,
    pattern: Pattern,
    share: f64,
) -> Result<Vec<Measured>, OperationError> {
    laboratory.create("s1")?;
    let pages = laboratory.tables.pages();
    pattern.change(&mut laboratory.session()?, pages, share)?;
    let (grown, disk) = laboratory.sizes("s1")?;
    laboratory.cancel().check()?;
    Ok(vec![Measured {
        values: vec![
            bytes("growth", grown),
            bytes("changed", changed_bytes(pages, share)),
            bytes("size on disk", disk),
        ],
        ..Measured::default()
    }])
}

/// Makes a snapshot, changes pages, and goes back. The data must be those of the snapshot then.
pub(super) fn revert(
    laboratory: &Laboratory<'_>,
    share: f64,
) -> Result<Vec<Measured>, OperationError> {
    let pages = laboratory.tables.pages();
    let expected = sum(&mut laboratory.session()?)?;
    laboratory.create("s1")?;
    Pattern::Spread.change(&mut laboratory.session()?, pages, share)?;
    let (_, disk) = laboratory.sizes("s1")?;
    let (took, down) = laboratory.revert("s1")?;
    let found = sum(&mut laboratory.session()?)?;
    if found != expected {
        return Err(ExperimentError::NotReverted { found, expected }.into());
    }
    Ok(vec![Measured {
        values: vec![
            seconds("revert", took),
            seconds("server stopped", down),
            bytes("size on disk", disk),
            bytes("changed", changed_bytes(pages, share)),
        ],
        ..Measured::default()
    }])
}

/// Every change of a row changes this.
fn sum(session: &mut OwnSession) -> Result<i64, OperationError> {
    Ok(session.number("SELECT sum(n)::bigint FROM page")?)
}

fn changed_bytes(pages: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the pages is not negative, and not more than all"
    )]
    let changed = (windlass_lab::to_f64(pages) * share) as u64;
    changed * PAGE_BYTES
}

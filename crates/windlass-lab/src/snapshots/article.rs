//! What the article found about snapshots of SQL Server, and whether the runs here show the same
//! shape.
//!
//! The figures are those of an article on database snapshots under load, with a source of 1 TB and
//! 100 to 500 users. A shape is a direction: it rises, falls or stays. Numbers are not compared.

use super::compared::{Evaluated, Group};
use super::experiment::{Compared, SnapshotExperiment, names};

/// The direction of a measure along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trend {
    Rises,
    Falls,
    Stays,
}

/// Which groups a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    All,
    Lowest,
    Highest,
    /// Those that have this in common.
    With(&'static str),
}

/// A finding of the article that can be held against the runs.
pub(super) struct Claim {
    pub(super) says: &'static str,
    pub(super) what: Compared,
    pub(super) trend: Trend,
    pub(super) of: Where,
}

const fn claim(
    says: &'static str,
    (measure, axis): (&'static str, &'static str),
    trend: Trend,
    of: Where,
) -> Claim {
    Claim {
        says,
        what: Compared { measure, axis },
        trend,
        of,
    }
}

const LOAD: [Claim; 1] = [claim(
    "making a snapshot takes longer, the more is written",
    (names::CREATION, names::CLIENTS),
    Trend::Rises,
    Where::All,
)];
const STEPS: [Claim; 1] = [claim(
    "recovery (analysis, redo, undo) takes longer, the more is written",
    (names::OPENING, names::CLIENTS),
    Trend::Rises,
    Where::All,
)];
const CHAIN: [Claim; 1] = [claim(
    "each later snapshot takes longer",
    (names::CREATION, names::ORDINAL),
    Trend::Rises,
    Where::All,
)];
const THROUGHPUT: [Claim; 2] = [
    claim(
        "at the lower load, throughput hardly changes with the number of snapshots",
        (names::THROUGHPUT, names::SNAPSHOTS),
        Trend::Stays,
        Where::Lowest,
    ),
    claim(
        "at the higher load, throughput falls with every snapshot",
        (names::THROUGHPUT, names::SNAPSHOTS),
        Trend::Falls,
        Where::Highest,
    ),
];
const LATENCY: [Claim; 1] = [claim(
    "snapshots do not change the response time of transactions that only read",
    (names::RESPONSE, names::SNAPSHOTS),
    Trend::Stays,
    Where::With("look"),
)];
const REBUILD: [Claim; 1] = [claim(
    "a rebuild takes longer with every snapshot",
    (names::STATEMENT_TOOK, names::SNAPSHOTS),
    Trend::Rises,
    Where::All,
)];
const REVERT: [Claim; 1] = [claim(
    "the time to go back is nearly proportional to the size of the snapshot on disk",
    (names::REVERT, names::CHANGED),
    Trend::Rises,
    Where::All,
)];
const GROWTH: [Claim; 1] = [claim(
    "a snapshot grows with the share of pages that change (documentation of SQL Server)",
    (names::GROWTH, names::CHANGED),
    Trend::Rises,
    Where::All,
)];

impl SnapshotExperiment {
    /// The figure of the article that is drawn again.
    pub(super) fn figure(self) -> &'static str {
        match self {
            Self::Load => "Figure 1: time to create a snapshot, by load",
            Self::Steps => "Figure 2: where the time to create a snapshot goes",
            Self::Chain => "Figure 3: time to create the first to the fifth snapshot",
            Self::Timeline => "Figure 4: the database while a snapshot is created",
            Self::Throughput => "Figure 5: throughput with snapshots",
            Self::Latency => "Figure 6: response time by type of transaction, with snapshots",
            Self::Index => "Figure 7: creating a snapshot while an index is built",
            Self::Rebuild => "Figure 8: rebuilding with snapshots",
            Self::AsOf => "Figure 9: the instant of the data",
            Self::Revert => "Figure 10: time to revert, by the size of the snapshot",
            Self::Growth => "Size of a snapshot by pattern of updates",
        }
    }

    pub(super) fn claims(self) -> &'static [Claim] {
        match self {
            Self::Load => &LOAD,
            Self::Steps => &STEPS,
            Self::Chain => &CHAIN,
            Self::Throughput => &THROUGHPUT,
            Self::Latency => &LATENCY,
            Self::Rebuild => &REBUILD,
            Self::Revert => &REVERT,
            Self::Growth => &GROWTH,
            Self::Timeline | Self::Index | Self::AsOf => &[],
        }
    }
}

/// What the article says of where the time goes.
pub(super) const MOSTLY_RECOVERY: &str = "recovery (analysis, redo, undo) takes most of the time";

/// What is said of an experiment whose figure the article describes without a finding that has a
/// direction.
pub(super) fn without_claim(of: SnapshotExperiment) -> Option<&'static str> {
    match of {
        SnapshotExperiment::Timeline | SnapshotExperiment::Index => Some(
            "the article shows this figure and says of nothing in it that it rises, falls or \
             stays, so the runs here are held against nothing",
        ),
        _ => None,
    }
}

/// Each of the article's findings beside what the runs show.
pub(super) fn beside(evaluated: &[Evaluated<'_>], of: SnapshotExperiment) -> Vec<String> {
    let held = |claim: &Claim| {
        let found = evaluated.iter().find(|one| one.what == claim.what)?;
        let groups = chosen(found, claim.of);
        let words: Vec<_> = groups
            .iter()
            .map(|group| judged(found, group, claim.trend))
            .collect();
        (!words.is_empty()).then(|| format!("{}; {}", claim.says, words.join("; ")))
    };
    of.claims().iter().filter_map(held).collect()
}

fn chosen<'a>(found: &'a Evaluated<'_>, of: Where) -> Vec<&'a Group> {
    let groups: Vec<&Group> = found.groups.iter().collect();
    match of {
        Where::All => groups,
        Where::Lowest => groups.first().copied().into_iter().collect(),
        Where::Highest if groups.len() > 1 => groups.last().copied().into_iter().collect(),
        Where::Highest => Vec::new(),
        Where::With(word) => {
            let has = |group: &&Group| group.common.contains(word);
            groups.into_iter().filter(has).collect()
        }
    }
}

/// What the runs of a group show, between its first and its last place.
fn judged(found: &Evaluated<'_>, group: &Group, trend: Trend) -> String {
    let (first, last) = (group.cases[0], group.cases[group.cases.len() - 1]);
    let difference = found.compare(first, last);
    let common = match group.common.as_str() {
        "" => String::new(),
        common => format!("{common}: "),
    };
    let seen = match (difference.apart, difference.ratio > 1.0) {
        (false, _) => Trend::Stays,
        (true, true) => Trend::Rises,
        (true, false) => Trend::Falls,
    };
    let by = format!("{:+.0} %", (difference.ratio - 1.0) * 100.0);
    let ends = format!("from {} to {}", found.label(first), found.label(last));
    if !difference.needed.is_finite() {
        return format!("here {common}one round cannot tell ({by} {ends})");
    }
    match (seen == trend, seen) {
        (true, Trend::Stays) => format!("here too: {common}no difference {ends}"),
        (true, _) => format!("here too: {common}{by} {ends}"),
        (false, Trend::Stays) => {
            let needed = (difference.needed - 1.0) * 100.0;
            format!("the runs here do not tell: {common}{by} {ends}; {needed:.0} % were needed")
        }
        (false, _) => format!("not here: {common}{by} {ends}"),
    }
}

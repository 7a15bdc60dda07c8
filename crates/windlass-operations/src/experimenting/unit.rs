//! Units: what is run at once, and the cases that it gives a run each.

use windlass_lab::snapshots::{SnapshotCase, SnapshotExperiment, SnapshotSetting};
use windlass_postgres::Transaction;
use windlass_snapshot::Method;
use windlass_snapshot::hook::HookStart;

use super::changing::Pattern;
use super::course::PHASES;
use super::making::CHAIN;
use super::measured::named;
use super::request::{ExperimentRequest, clients_of};
use super::standing::Statement;

/// Numbers of snapshots whose cost is compared.
const COUNTS: [usize; 4] = [0, 1, 3, 5];
/// Shares of pages that are changed before a revert.
const SHARES: [f64; 5] = [0.01, 0.1, 0.3, 0.6, 1.0];
/// Shares whose growth is compared.
const GROWN: [f64; 2] = [0.3, 0.8];

/// What is run at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// A snapshot under a load, which is opened too if the steps are asked for.
    Making { clients: usize, opens: bool },
    /// The first to the fifth under a load.
    Chain { clients: usize },
    /// Before, while and after one is made.
    Course { clients: usize },
    /// A load with so many snapshots.
    Standing { clients: usize, count: usize },
    /// A statement, with or without a snapshot that is made beside it.
    Beside {
        statement: Statement,
        clients: usize,
        makes: bool,
    },
    /// A statement with so many snapshots.
    Rebuild { statement: Statement, count: usize },
    /// A snapshot while the time is inserted.
    AsOf { start: HookStart },
    /// Back to a snapshot after this share of the pages has changed.
    Revert { share: f64 },
    /// This share of the pages changes.
    Growth { pattern: Pattern, share: f64 },
}

impl Unit {
    /// The units of an experiment.
    pub(super) fn all(request: &ExperimentRequest) -> Vec<Self> {
        let loads = clients_of(request);
        let highest = loads.last().copied().unwrap_or(0);
        match request.experiment {
            SnapshotExperiment::Load | SnapshotExperiment::Steps => {
                let opens = request.experiment == SnapshotExperiment::Steps;
                let unit = |clients: &usize| Self::Making {
                    clients: *clients,
                    opens,
                };
                loads.iter().map(unit).collect()
            }
            SnapshotExperiment::Chain => {
                let unit = |clients: &usize| Self::Chain { clients: *clients };
                loads.iter().map(unit).collect()
            }
            SnapshotExperiment::Timeline => vec![Self::Course { clients: highest }],
            SnapshotExperiment::Throughput | SnapshotExperiment::Latency => {
                let of = |clients: &usize| COUNTS.map(|count| (*clients, count));
                let all = loads.iter().flat_map(of);
                all.map(|(clients, count)| Self::Standing { clients, count })
                    .collect()
            }
            SnapshotExperiment::Index => loads.iter().flat_map(|it| Self::beside(*it)).collect(),
            SnapshotExperiment::Rebuild => {
                let of = |statement| [0, 1, 2].map(|count| Self::Rebuild { statement, count });
                [Statement::Reindex, Statement::VacuumFull]
                    .into_iter()
                    .flat_map(of)
                    .collect()
            }
            SnapshotExperiment::AsOf if request.method == Method::Hook => {
                let starts = [HookStart::Checkpoint, HookStart::Pause];
                starts.map(|start| Self::AsOf { start }).to_vec()
            }
            SnapshotExperiment::AsOf => vec![Self::AsOf {
                start: HookStart::Checkpoint,
            }],
            SnapshotExperiment::Revert => SHARES.map(|share| Self::Revert { share }).to_vec(),
            SnapshotExperiment::Growth => {
                let of = |pattern| GROWN.map(|share| Self::Growth { pattern, share });
                Pattern::ALL.into_iter().flat_map(of).collect()
            }
        }
    }

    fn beside(clients: usize) -> Vec<Self> {
        let of = |(statement, makes)| Self::Beside {
            statement,
            clients,
            makes,
        };
        let pairs = [
            (Statement::Nothing, true),
            (Statement::CreateIndex, false),
            (Statement::CreateIndex, true),
            (Statement::Cluster, false),
            (Statement::Cluster, true),
        ];
        pairs.map(of).to_vec()
    }

    /// The cases that it gives a run each.
    pub(super) fn cases(&self, request: &ExperimentRequest) -> Vec<SnapshotCase> {
        let is_latency = request.experiment == SnapshotExperiment::Latency;
        match self {
            Self::Chain { clients } => {
                let case = |number| vec![of_clients(*clients), of_ordinal(number)];
                (1..=CHAIN).map(case).map(SnapshotCase).collect()
            }
            Self::Course { clients } => {
                let case = |(place, label): (usize, &&str)| {
                    SnapshotCase(vec![of_clients(*clients), named("phase", place, label)])
                };
                PHASES.iter().enumerate().map(case).collect()
            }
            Self::Standing { clients, count } if is_latency => {
                let case = |(place, kind): (usize, Transaction)| {
                    let kind = named("transaction", place, kind.name());
                    SnapshotCase(vec![kind, of_clients(*clients), of_count(*count)])
                };
                Transaction::ALL.into_iter().enumerate().map(case).collect()
            }
            other => vec![SnapshotCase(other.settings())],
        }
    }

    /// The settings of a unit with one case.
    fn settings(&self) -> Vec<SnapshotSetting> {
        match self {
            Self::Making { clients, .. } | Self::Chain { clients } | Self::Course { clients } => {
                vec![of_clients(*clients)]
            }
            Self::Standing { clients, count } => vec![of_clients(*clients), of_count(*count)],
            Self::Beside {
                statement,
                clients,
                makes,
            } => {
                let beside = if *makes { "a snapshot" } else { "nothing" };
                let beside = named("beside it", usize::from(*makes), beside);
                vec![statement.setting(), of_clients(*clients), beside]
            }
            Self::Rebuild { statement, count } => vec![statement.setting(), of_count(*count)],
            Self::AsOf { start } => vec![match start {
                HookStart::Pause => named("begins with", 1, "a pause"),
                _ => named("begins with", 0, "a checkpoint"),
            }],
            Self::Revert { share } => vec![of_share(*share)],
            Self::Growth { pattern, share } => {
                let place = Pattern::ALL.iter().position(|one| one == pattern);
                let pattern = named("pattern", place.unwrap_or(0), pattern.words());
                vec![pattern, of_share(*share)]
            }
        }
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        SnapshotCase(self.settings()).words(None)
    }
}

fn of_clients(clients: usize) -> SnapshotSetting {
    let label = match clients {
        0 => "idle".to_owned(),
        1 => "1 client".to_owned(),
        more => format!("{more} clients"),
    };
    named("clients", clients, &label)
}

fn of_count(count: usize) -> SnapshotSetting {
    let label = match count {
        1 => "1 snapshot".to_owned(),
        more => format!("{more} snapshots"),
    };
    named("snapshots", count, &label)
}

fn of_ordinal(number: usize) -> SnapshotSetting {
    let end = match number {
        1 => "st",
        2 => "nd",
        3 => "rd",
        _ => "th",
    };
    named("snapshot", number, &format!("the {number}{end}"))
}

fn of_share(share: f64) -> SnapshotSetting {
    SnapshotSetting {
        axis: "changed".to_owned(),
        place: share,
        label: format!("{:.0} % of the pages", share * 100.0),
    }
}

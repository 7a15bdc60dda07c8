//! What an experiment is asked for.

use std::path::PathBuf;

use windlass_lab::snapshots::SnapshotExperiment;
use windlass_snapshot::Method;

/// What to find out.
#[derive(Clone, Debug)]
pub struct ExperimentRequest {
    /// The experiment.
    pub experiment: SnapshotExperiment,
    /// A server: the cluster of the experiment has its version and its settings.
    pub database: String,
    /// The directory for the cluster; without it, one for temporary files.
    pub into: Option<PathBuf>,
    /// The directory for the snapshots; without it, beside the cluster.
    pub to: Option<PathBuf>,
    /// The method of snapshots.
    pub method: Method,
    /// The library with the hook, or its directory.
    pub library: Option<PathBuf>,
    /// The directory of the server's programs.
    pub programs: Option<PathBuf>,
    /// How large the tables are.
    pub scale: u32,
    /// How long a load runs before something is measured, or is measured.
    pub seconds: f64,
    /// Rounds.
    pub repeat: usize,
    /// Numbers of sessions of the load, the lowest first; without any, those of the experiment.
    pub clients: Vec<usize>,
    /// Settings of the server, after those of the user's.
    pub settings: Vec<(String, String)>,
    /// The directory of the series and its report.
    pub out: Option<PathBuf>,
}

/// The loads of an experiment, the lowest first.
pub(super) fn clients_of(request: &ExperimentRequest) -> Vec<usize> {
    if !request.clients.is_empty() {
        return request.clients.clone();
    }
    match request.experiment {
        SnapshotExperiment::Load | SnapshotExperiment::Steps => vec![0, 1, 2, 4, 8],
        SnapshotExperiment::Chain
        | SnapshotExperiment::Throughput
        | SnapshotExperiment::Latency => vec![2, 8],
        SnapshotExperiment::Index => vec![0, 4],
        SnapshotExperiment::AsOf | SnapshotExperiment::Timeline => vec![4],
        _ => vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(experiment: SnapshotExperiment, clients: &[usize]) -> ExperimentRequest {
        ExperimentRequest {
            experiment,
            database: String::new(),
            into: None,
            to: None,
            method: Method::Hook,
            library: None,
            programs: None,
            scale: 1,
            seconds: 1.0,
            repeat: 1,
            clients: clients.to_vec(),
            settings: Vec::new(),
            out: None,
        }
    }

    #[test]
    fn what_depends_on_the_load_is_tried_at_two_loads_unless_others_are_asked_for() {
        for experiment in [
            SnapshotExperiment::Chain,
            SnapshotExperiment::Throughput,
            SnapshotExperiment::Latency,
        ] {
            let loads = clients_of(&request(experiment, &[]));
            assert_eq!(loads.len(), 2, "{experiment:?}");
            assert!(loads[0] < loads[1], "the lowest first");
            assert_eq!(clients_of(&request(experiment, &[3])), [3]);
        }
    }
}

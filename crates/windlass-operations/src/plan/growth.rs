//! How fast a snapshot would grow, and by which method it would be made, without making it.
//!
//!   counters of the server --every second--> look --> model --> sizes
//!
//! Nothing is changed: the server is asked for its counters, and for the method a file is cloned
//! beside the database and removed again.

use std::time::{Duration, Instant};

use windlass_engine::Cancel;
use windlass_lab::snapshots::{GrowthLook, GrowthModel};
use windlass_postgres::{Cluster, ServerCounters};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::experimenting::ExperimentError;
use crate::snapshots::{CreateRequest, Method, PassedOver, SnapshotsOf, method_of};

/// The pause between two looks at the counters. Sessions tell the server theirs once a second.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two looks at the flag to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What to foresee.
#[derive(Clone, Debug)]
pub struct GrowthRequest {
    /// The database.
    pub database: String,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// How long to look at the server.
    pub look: Duration,
    /// The size at which the snapshot would end.
    pub max_bytes: Option<u64>,
}

/// What was foreseen.
pub struct GrowthOutcome {
    /// What was seen.
    pub look: GrowthLook,
    /// The curve of growth.
    pub model: GrowthModel,
    /// The method that a snapshot would be made by.
    pub method: Method,
    /// The cheaper methods, and why they cannot be used.
    pub passed_over: Vec<PassedOver>,
    /// Bytes of the cluster's files.
    pub cluster_bytes: u64,
    /// The server's version.
    pub version: String,
    /// After how many seconds the snapshot has `max_bytes`; none if never.
    pub reaches_max_seconds: Option<f64>,
}

/// Looks at a server for a while, and foresees how a snapshot would grow.
pub fn plan_snapshot(
    caller: &Caller,
    request: &GrowthRequest,
    cancel: &Cancel,
) -> Result<GrowthOutcome, OperationError> {
    let name = DatabaseName::resolve_named(&request.database, request.name.as_deref())?;
    let DatabaseName::Postgres(conninfo) = &name else {
        return Err(ExperimentError::NoCounters.into());
    };
    let (method, passed_over) = method_of(
        caller,
        &CreateRequest {
            of: SnapshotsOf {
                database: request.database.clone(),
                name: request.name.clone(),
            },
            ..CreateRequest::default()
        },
    )?;
    let mut cluster = Cluster::connect(conninfo)?;
    if cluster.facts().standby {
        return Err(ExperimentError::Standby.into());
    }
    let cluster_bytes = cluster.estimate_bytes()?;
    let page_bytes = u64::from(cluster.facts().block_bytes);
    let seen = watch(&mut cluster, request.look, cancel)?;
    let look = GrowthLook {
        page_bytes,
        cluster_pages: cluster_bytes / page_bytes.max(1),
        ..of_counters(&seen)
    };
    let model = GrowthModel::of(&look);
    let reaches = |bytes: u64| model.seconds_until(windlass_lab::to_f64(bytes));
    Ok(GrowthOutcome {
        reaches_max_seconds: request.max_bytes.and_then(reaches),
        model,
        look,
        method,
        passed_over,
        cluster_bytes,
        version: cluster.facts().version.clone(),
    })
}

/// The counters, every second. There are at least two.
fn watch(
    cluster: &mut Cluster,
    time: Duration,
    cancel: &Cancel,
) -> Result<Vec<ServerCounters>, OperationError> {
    let begun = Instant::now();
    let mut seen = vec![cluster.counters()?];
    while begun.elapsed() < time || seen.len() < 2 {
        let next = Instant::now() + PAUSE.min(time);
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            cancel.check()?;
            std::thread::sleep(left.min(LOOK));
        }
        seen.push(cluster.counters()?);
    }
    Ok(seen)
}

/// What the counters say. If a checkpoint ended meanwhile, only the longer part of the look counts.
fn of_counters(seen: &[ServerCounters]) -> GrowthLook {
    let differs =
        |pair: &[ServerCounters]| pair[0].checkpoint_log_bytes != pair[1].checkpoint_log_bytes;
    let changed = seen.windows(2).rposition(differs).map(|index| index + 1);
    let (part, begins_here) = match changed {
        Some(at) if at * 2 <= seen.len() => (&seen[at..], true),
        Some(at) if at > 1 => (&seen[..at], false),
        _ => (seen, false),
    };
    let (first, last) = (part[0], part[part.len() - 1]);
    let seconds = |from: i64, to: i64| {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a look")]
        let micros = (to - from).max(1) as f64;
        micros / 1e6
    };
    let more = |from: i64, to: i64| (to - from).max(0).unsigned_abs();
    let first_changes = more(first.whole_pages, last.whole_pages);
    // The checkpoint that ended in the look may have begun long before it.
    let is_young = seconds(first.checkpoint_at_micros, first.at_micros) < 2.0;
    #[expect(clippy::cast_precision_loss, reason = "seconds of at most a day")]
    let timeout = last.checkpoint_timeout_seconds as f64;
    GrowthLook {
        seconds: seconds(first.at_micros, last.at_micros),
        first_changes,
        row_changes: more(first.row_changes, last.row_changes),
        log_bytes: more(first.log_bytes, last.log_bytes),
        checkpoint_age_seconds: seconds(last.checkpoint_at_micros, last.at_micros),
        checkpoint_log_bytes: more(last.checkpoint_log_bytes, last.log_bytes),
        checkpoint_timeout_seconds: timeout,
        checkpoint_changes: (begins_here && is_young).then_some(first_changes),
        full_page_writes: last.full_page_writes,
        compresses: last.compresses,
        ..GrowthLook::default()
    }
}

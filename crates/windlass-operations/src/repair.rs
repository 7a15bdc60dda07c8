//! A repair: damaged pages of a stopped cluster, replaced by what its chain and its log say.
//!
//!   stopped cluster --checksums, or names--> damaged pages
//!   its last log --> place; set, log --private server--> the cluster at its very end
//!   both --compared, file by file--> pages that are safe to take --> kept aside, written
//!
//! Invariants
//! - No server runs on the cluster from the first look to the last write, and none can start.
//! - A page is written only if all other pages of its file were last changed by the same records as
//!   those of the chain: then the chain is this cluster's own past, and nothing is missing in it.
//! - What is overwritten is durable elsewhere before. Nothing else in the data directory changes.

mod error;
mod judge;
mod put;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{Codec, SetId};
use windlass_engine::{Cancel, Progress};
use windlass_postgres::{
    Checksums, DatabaseFacts, Lsn, PageAt, RecoveryPoint, RecoveryTimeline, StoppedCluster,
    damaged_pages,
};
use windlass_repository::{ContentKey, CopyRequest, LogPlace, copy, log_systems};

use crate::archive;
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::places::SetRequest;
use crate::privilege;
use crate::recovered::{ChosenMoment, MomentRequest, RecoveredImage};
use crate::stored::{log_at, log_into};
pub use error::{RepairError, Unsafe};
use judge::{Judge, Taken};

/// What to repair, and from where.
#[derive(Clone, Debug)]
pub struct RepairRequest {
    /// The data directory of a stopped cluster.
    pub data: PathBuf,
    /// Its damaged pages; all that its checksums show, if none is named.
    pub pages: Vec<PageAt>,
    /// The place of the sets.
    pub sets: SetRequest,
    /// Who can read the end of the log that is stored there, as words for keys.
    pub encrypt: Vec<String>,
    /// Where the log is, and how the private server is run. The point is that of the cluster.
    pub moment: MomentRequest,
    /// The directory where the damaged pages are kept. Without it, nothing is written, also not in
    /// the place.
    pub keep: Option<PathBuf>,
}

/// A page that was repaired.
#[derive(Clone, Debug)]
pub struct RepairedPage {
    /// The page.
    pub page: PageAt,
    /// The last record that changed it.
    pub lsn: Lsn,
    /// Where its damaged bytes are.
    pub kept: PathBuf,
}

/// What a repair did.
#[derive(Debug)]
pub struct RepairOutcome {
    /// The damaged pages that were found or named.
    pub damaged: Vec<PageAt>,
    /// Bytes that were read to find them.
    pub searched_bytes: u64,
    /// The set whose chain was used; none if nothing was written.
    pub set: Option<SetId>,
    /// Where the log of the cluster ends.
    pub end: Lsn,
    /// What was repaired.
    pub repaired: Vec<RepairedPage>,
    /// What was not, and why.
    pub refused: Vec<(PageAt, Unsafe)>,
}

impl RepairOutcome {
    /// How the operation ends: with damage if there is some that was not repaired.
    pub fn ending(&self) -> Ending {
        match self.damaged.len() == self.repaired.len() {
            true => Ending::Done,
            false => Ending::Damage,
        }
    }
}

/// Repairs pages.
pub fn repair(
    caller: &Caller,
    request: &RepairRequest,
    cancel: &Cancel,
) -> Result<RepairOutcome, OperationError> {
    let data = &request.data;
    if !data.join("PG_VERSION").is_file() {
        return Err(RepairError::NotACluster { path: data.clone() }.into());
    }
    if let Some((uid, gid)) = privilege::owner(data) {
        privilege::become_user(caller.process, uid, gid)?;
    }
    let cluster = StoppedCluster::hold(data)?;
    if let Some(keep) = &request.keep {
        put::check_place(keep, cluster.data())?;
    }
    let (damaged, searched_bytes) = find(caller, request, &cluster, cancel)?;
    let mut outcome = RepairOutcome {
        damaged,
        searched_bytes,
        set: None,
        end: cluster.log_end(),
        repaired: Vec::new(),
        refused: Vec::new(),
    };
    if let (Some(keep), false) = (&request.keep, outcome.damaged.is_empty()) {
        replace((caller, request, keep), &cluster, cancel, &mut outcome)?;
    }
    Ok(outcome)
}

/// Takes what is safe to take out of the chain, and writes it.
fn replace(
    (caller, request, keep): (&Caller, &RepairRequest, &Path),
    cluster: &StoppedCluster,
    cancel: &Cancel,
    outcome: &mut RepairOutcome,
) -> Result<(), OperationError> {
    let (recovered, set) = recover(caller, request, cluster, cancel)?;
    outcome.set = Some(set);
    let judge = Judge::new(cluster, &*recovered.image);
    let mut safe = Vec::new();
    for (file, pages) in by_file(cluster, &outcome.damaged) {
        for taken in judge.file(&file, &pages, cancel)? {
            match taken {
                Taken::Safe(page) => safe.push(page),
                Taken::Unsafe(page, why) => outcome.refused.push((page, why)),
            }
        }
    }
    cancel.check()?;
    outcome.repaired = put::put(cluster, keep, &safe)?;
    Ok(())
}

/// The damaged pages, and how many bytes were read to find them.
fn find(
    caller: &Caller,
    request: &RepairRequest,
    cluster: &StoppedCluster,
    cancel: &Cancel,
) -> Result<(Vec<PageAt>, u64), OperationError> {
    if !request.pages.is_empty() {
        let mut pages = request.pages.clone();
        pages.sort();
        pages.dedup();
        return Ok((pages, 0));
    }
    if cluster.control().checksums() != Checksums::On {
        return Err(RepairError::NoChecksums.into());
    }
    let progress = Arc::<Progress>::default();
    let _shown = caller.observer.watch(&progress);
    progress.set_phase("reading pages");
    let mut bytes = 0;
    let found = damaged_pages(cluster.data(), cluster.control(), cancel, |read| {
        bytes += read;
    })?;
    Ok((found, bytes))
}

/// The cluster at the end of its own log, recovered from a set.
fn recover(
    caller: &Caller,
    request: &RepairRequest,
    cluster: &StoppedCluster,
    cancel: &Cancel,
) -> Result<(RecoveredImage, SetId), OperationError> {
    let control = cluster.control();
    let mut moment = request.moment.clone();
    moment.recovery.point = RecoveryPoint::Lsn(control.checkpoint);
    moment.recovery.inclusive = true;
    moment.recovery.timeline = RecoveryTimeline::Number(control.checkpoint_timeline);
    copy_log(request, cluster)?;
    let chosen = ChosenMoment::find(caller, &request.sets, &moment.recovery)?;
    let facts = DatabaseFacts::of_set(&chosen.set.description().facts.database)?;
    if facts.system_identifier != control.system_identifier.to_string() {
        return Err(RepairError::OtherCluster {
            set: chosen.set.set_id().to_string(),
        }
        .into());
    }
    let set = chosen.set.set_id();
    Ok((chosen.recover(caller, &moment.settings, cancel)?, set))
}

/// The place among these that has log of a cluster; if none has, the first one.
fn place_of_log(places: &[PathBuf], system: u64) -> &Path {
    let has_log = |place: &&PathBuf| {
        let systems = log_systems(&log_at(place));
        systems.is_ok_and(|systems| systems.contains(&system))
    };
    let found = places.iter().find(has_log).or(places.first());
    found.map_or(Path::new("."), PathBuf::as_path)
}

/// Brings the end of the log into the place: the server may have ended before it was archived.
fn copy_log(request: &RepairRequest, cluster: &StoppedCluster) -> Result<(), OperationError> {
    let control = cluster.control();
    let place = match &request.moment.recovery.log {
        Some(log) => log,
        None => place_of_log(&request.sets.words, control.system_identifier),
    };
    let place = log_into(place, &request.encrypt)?;
    let place = place.comparing_with(ContentKey::of(control));
    let log = LogPlace::new(&place, control.system_identifier);
    let segment_bytes = u64::from(control.wal_segment_bytes);
    copy(
        &log,
        &CopyRequest {
            directory: cluster.data().join("pg_wal"),
            segment_bytes,
            from: Lsn(0),
            end: (control.checkpoint_timeline, cluster.log_end()),
            history: cluster.history()?,
            codec: Codec::Zstd(1),
            threads: archive::threads(None),
        },
    )?;
    Ok(())
}

/// The pages of each file.
fn by_file(cluster: &StoppedCluster, pages: &[PageAt]) -> BTreeMap<String, Vec<PageAt>> {
    let mut files: BTreeMap<String, Vec<PageAt>> = BTreeMap::new();
    for page in pages {
        let (path, _) = page.file(cluster.control());
        files.entry(path).or_default().push(page.clone());
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_log_goes_to_the_place_that_has_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| dir.path().join(name));
        for (place, system) in places.iter().zip(["1", "77"]) {
            std::fs::create_dir_all(place.join("log").join(system)).unwrap();
        }
        assert_eq!(place_of_log(&places, 77), places[1]);
        assert_eq!(place_of_log(&places, 1), places[0]);
        assert_eq!(place_of_log(&places, 5), places[0]);
        assert_eq!(place_of_log(&[], 5), Path::new("."));
    }
}

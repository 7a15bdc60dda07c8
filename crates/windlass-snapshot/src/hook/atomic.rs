//! Makes a snapshot of one moment without a checkpoint: the server stands still between two calls.
//!
//!   pin the log --> list, link --> PAUSE: list again, index, publish, copies, log --> document
//!
//! What the snapshot shows is what a crash of the server at this moment would leave. So a server
//! that opens it recovers as after a crash.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use windlass_image::layout::hook::{Snapshot, pause, publish, resume};
use windlass_postgres::{Cluster, CrashState, Pinned};

use super::control::{Locked, Patience};
use super::create::{HookMade, HookRequest, ensure_store, publish_document};
use super::durable;
use super::error::HookError;
use super::index::Room;
use super::links::Links;
use super::record::make_copied;
use super::remove::waited;
use super::taken::{Known, Taken};

/// The server's processes wait for no longer than three seconds. The controller gives up earlier.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Files and blocks that may come between the listing and the pause.
const FILES_SPARE: u32 = 1000;
const BLOCKS_SPARE: u64 = 64 * 1024;

/// The numbers of the files of the log are far from those of the listings.
const LOG_FIRST: u32 = 1 << 31;

/// What is prepared before the pause.
struct Prepared<'a> {
    request: &'a HookRequest<'a>,
    number: u32,
    page_bytes: u32,
    room: Room,
    /// 0 if it is not durable.
    tag: u64,
    known: Known,
    /// Segments of the log that are complete and copied.
    segments: HashSet<String>,
}

pub(super) fn attempt(
    locked: &Locked<'_>,
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    number: u32,
) -> Result<HookMade, HookError> {
    let step = |name| request.progress.set_phase(name);
    step("listing files");
    let mut pinned = cluster.pin()?;
    if pinned.cluster().standby {
        return Err(HookError::Standby);
    }
    let page_bytes = pinned.cluster().block_bytes;
    let mut links = Links::new(&pinned.cluster().data_directory, number)?;
    let mut known = Known::new();
    let files = pinned.list()?;
    step("linking files");
    let taken = Taken::link(&files, &mut links, &mut known, page_bytes)?;
    ensure_store(locked, request.store, page_bytes)?;
    make_copied(request.directory)?;
    let files = u32::try_from(taken.tracked.len()).map_err(|_| HookError::TooLarge)?;
    let files = files.saturating_add(files / 8).saturating_add(FILES_SPARE);
    let blocks = taken.blocks();
    let blocks = blocks
        .saturating_add(blocks / 8)
        .saturating_add(BLOCKS_SPARE);
    let mut prepared = Prepared {
        request,
        number,
        page_bytes,
        room: Room::allocate(locked, files, blocks)?,
        tag: durable::tag(locked, request.durable)?,
        known,
        segments: HashSet::new(),
    };
    step("copying the log");
    let mut log = Taken::numbered_from(LOG_FIRST);
    prepared.copy_log(&mut log, &pinned.crash_state()?)?;
    pinned.note_end()?;
    step("pausing the server");
    let taken = paused(locked, number, || {
        prepared.take(locked, &pinned, &mut links, log)
    });
    if taken.is_err() && Snapshot::numbered(locked.memory(), number).is_none() {
        prepared.room.free(locked)?;
    }
    let ((snapshot, taken, state, as_of), stood_still) = taken?;
    step("publishing");
    let linked_files = taken.tracked.len() as u64;
    let database = pinned.facts(state.redo, request.label)?;
    let made = HookMade {
        database: database.clone(),
        as_of,
        writers_stopped_seconds: stood_still.as_secs_f64(),
        linked_files,
    };
    publish_document(locked, &snapshot, taken, links, (request, database))?;
    Ok(made)
}

/// Runs something while the server stands still. Fails if a process did not wait for it.
fn paused<T>(
    locked: &Locked<'_>,
    token: u32,
    work: impl FnOnce() -> Result<T, HookError>,
) -> Result<(T, Duration), HookError> {
    let began = Instant::now();
    let memory = locked.memory();
    waited(pause(memory, token, &mut Patience::of(PAUSE_MAX)))?;
    let done = work();
    let whole = resume(memory, token);
    let stood_still = began.elapsed();
    match (done, whole) {
        (Ok(done), true) => Ok((done, stood_still)),
        (Ok(_), false) => Err(HookError::PauseBroken),
        (Err(error), _) => Err(error),
    }
}

impl Prepared<'_> {
    /// Copies the segments that are complete: all but the last one.
    fn copy_log(&mut self, log: &mut Taken, state: &CrashState) -> Result<(), HookError> {
        let complete = state.segments.len().saturating_sub(1);
        for (name, path) in &state.segments[..complete] {
            log.add_segment(self.request.directory, name, path)?;
            self.segments.insert(name.clone());
        }
        Ok(())
    }

    /// Takes everything while nobody writes.
    fn take<'a>(
        &mut self,
        locked: &Locked<'a>,
        pinned: &Pinned,
        links: &mut Links,
        log: Taken,
    ) -> Result<(Snapshot<'a>, Taken, CrashState, jiff::Timestamp), HookError> {
        let as_of = jiff::Timestamp::now();
        let files = pinned.list()?;
        let mut taken = Taken::link(&files, links, &mut self.known, self.page_bytes)?;
        let limits = self.request.limits.words(self.page_bytes);
        let built = self
            .room
            .fill(locked, (self.number, self.tag, &limits), &taken.tracked)?;
        let snapshot = publish(locked.memory(), built);
        taken.copy(self.request.directory)?;
        let state = pinned.crash_state()?;
        taken.append(log);
        for (name, path) in &state.segments {
            if !self.segments.contains(name) {
                taken.add_segment(self.request.directory, name, path)?;
            }
        }
        taken.add_control(self.request.directory, &state.control)?;
        Ok((snapshot, taken, state, as_of))
    }
}

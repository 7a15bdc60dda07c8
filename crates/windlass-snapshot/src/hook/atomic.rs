//! Makes a snapshot of one moment without a checkpoint: the server stands still between two calls.
//!
//!   pin the log --> journal --> list, link, index --> PAUSE: what changed, publish, copies, log
//!                                                     --> document
//!
//! From the beginning on the hook keeps a journal of what changes. So the pause looks only at that.
//!
//! What the snapshot shows is what a crash of the server at this moment would leave. So a server
//! that opens it recovers as after a crash.

use std::collections::HashSet;

use windlass_image::layout::hook::{Snapshot, publish};
use windlass_postgres::{Cluster, CrashState, Lsn, Pinned};

use super::create::{HookMade, HookRequest, begin_links, ensure_store, publish_document};
use super::durable;
use super::error::HookError;
use super::index::{Filled, HasSpare};
use super::journal::{Changes, Journal};
use super::links::Links;
use super::locked::Locked;
use super::orphans::Orphans;
use super::pauses::Pauses;
use super::record::make_copied;
use super::renewed::Roll;
use super::tail::Tail;
use super::taken::{Into, Known, Taken};

/// The numbers of the files of the log are far from those of the listings.
const LOG_FIRST: u32 = 1 << 31;

/// What is prepared before the pause.
struct Prepared<'a> {
    request: &'a HookRequest<'a>,
    page_bytes: u32,
    links: Links,
    known: Known,
    /// What was there before the pause, and where it is.
    taken: Taken,
    roll: Roll,
    /// How many files and names were looked at in the pause.
    files_in_pause: u64,
    /// Segments of the log that are complete and copied.
    segments: HashSet<String>,
    /// The copy of the last one.
    tail: Option<Tail>,
}

pub(super) fn attempt(
    locked: &Locked<'_>,
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    (number, pauses): (u32, &Pauses),
) -> Result<HookMade, HookError> {
    if cluster.facts().standby {
        return Err(HookError::Standby);
    }
    let step = |name| request.progress.set_phase(name);
    step("listing files");
    let mut pinned = cluster.pin()?;
    let journal = Journal::begin(locked)?;
    let mut prepared = prepare(&mut pinned, request, number)?;
    ensure_store(locked, request.store, prepared.page_bytes)?;
    make_copied(request.directory)?;
    step("building the map");
    let mut filled = prepared.fill(locked, number)?;
    step("copying the log");
    let mut log = Taken::numbered_from(LOG_FIRST);
    let flushed = pinned.note_end()?;
    prepared.copy_log(&mut log, (&pinned.crash_state()?, flushed))?;
    pinned.note_end()?;
    step("waiting for writers");
    let taken = pauses.during(locked, number, || {
        prepared.take((locked, &journal), &mut pinned, &mut filled, log)
    });
    drop(journal);
    let (taken, state, as_of) = taken?;
    step("publishing");
    let snapshot = Snapshot::numbered(locked.memory(), number);
    let snapshot = snapshot.ok_or(HookError::PauseBroken)?;
    let linked_files = taken.linked_files();
    let database = pinned.facts(state.redo, request.label)?;
    let made = HookMade {
        database: database.clone(),
        as_of,
        writers_stopped_seconds: pauses.stood_still().as_secs_f64(),
        linked_files,
        files_in_pause: prepared.files_in_pause,
        orphans: Orphans::default(),
    };
    publish_document(
        locked,
        &snapshot,
        taken,
        prepared.links,
        (request, database),
    )?;
    Ok(made)
}

/// Lists the files, and keeps them.
fn prepare<'a>(
    pinned: &mut Pinned,
    request: &'a HookRequest<'a>,
    number: u32,
) -> Result<Prepared<'a>, HookError> {
    let page_bytes = pinned.cluster().block_bytes;
    let mut links = Links::new(&pinned.cluster().data_directory, number)?;
    let files = pinned.list()?;
    begin_links(&mut links, (&files, true), request);
    let mut known = Known::new();
    let taken = Taken::pin(
        &files,
        &mut Into {
            links: &mut links,
            known: &mut known,
            page_bytes,
        },
    )?;
    Ok(Prepared {
        request,
        page_bytes,
        links,
        known,
        roll: Roll::of(&taken),
        taken,
        files_in_pause: 0,
        segments: HashSet::new(),
        tail: None,
    })
}

impl Prepared<'_> {
    /// Builds the index of what was there before the pause, with room for what may come.
    fn fill<'l>(&self, locked: &Locked<'l>, number: u32) -> Result<Filled<'l>, HookError> {
        let limits = self.request.limits.words(self.page_bytes);
        let tag = durable::tag(locked, self.request.durable)?;
        let of = (number, tag, &limits);
        Filled::of(locked, of, &self.taken.tracked, HasSpare(true))
    }

    /// Copies the log, as far as it does not change any more.
    fn copy_log(
        &mut self,
        log: &mut Taken,
        (state, flushed): (&CrashState, Lsn),
    ) -> Result<(), HookError> {
        let directory = self.request.directory;
        let last = state.segments.len().saturating_sub(1);
        for ((name, path), position) in state.segments.iter().zip(0..) {
            let mut tail = Tail::begin(directory, (name, path), (log.reserve(), flushed))?;
            if position == last {
                self.tail = Some(tail);
                break;
            }
            tail.end()?;
            log.add_segment(directory, &tail)?;
            self.segments.insert(name.clone());
        }
        Ok(())
    }

    /// Takes everything while nobody writes.
    fn take<'l>(
        &mut self,
        (locked, journal): (&Locked<'l>, &Journal<'_, '_>),
        pinned: &mut Pinned,
        filled: &mut Filled<'l>,
        log: Taken,
    ) -> Result<(Taken, CrashState, jiff::Timestamp), HookError> {
        let step = |name| self.request.progress.set_phase(name);
        let as_of = jiff::Timestamp::now();
        step("looking at what changed");
        let mut taken = self.take_files(journal.read(), pinned, filled)?;
        step("flipping the map");
        publish(locked.memory(), filled.built());
        step("copying small files");
        taken.copy(self.request.directory)?;
        step("copying the end of the log");
        let state = pinned.crash_state()?;
        taken.append(log);
        self.copy_tail(&mut taken, &state)?;
        taken.add_control(self.request.directory, &state.control)?;
        Ok((taken, state, as_of))
    }

    /// Copies what came to the log since [`Self::copy_log`].
    fn copy_tail(&mut self, taken: &mut Taken, state: &CrashState) -> Result<(), HookError> {
        let directory = self.request.directory;
        let mut begun = self.tail.take();
        for (name, path) in &state.segments {
            if self.segments.contains(name) {
                continue;
            }
            let mut tail = match begun.take_if(|tail| tail.name == *name) {
                Some(tail) => tail,
                None => Tail::begin(directory, (name, path), (taken.reserve(), state.redo))?,
            };
            tail.end()?;
            taken.add_segment(directory, &tail)?;
        }
        // A checkpoint ended meanwhile, and nobody needs that segment.
        begun.map_or(Ok(()), Tail::discard)
    }

    /// Brings the files and the index up to date. Without a journal of what has changed, every file
    /// is looked at again.
    fn take_files(
        &mut self,
        changes: Option<Changes>,
        pinned: &mut Pinned,
        filled: &mut Filled<'_>,
    ) -> Result<Taken, HookError> {
        let changed = match &changes {
            Some(changes) => pinned.list_changed(changes.paths.iter().map(Vec::as_slice))?,
            None => None,
        };
        let data = pinned.cluster().data_directory.clone();
        let mut into = Into {
            links: &mut self.links,
            known: &mut self.known,
            page_bytes: self.page_bytes,
        };
        let (Some(changes), Some(changed)) = (changes, changed) else {
            let taken = Taken::pin(&pinned.list()?, &mut into)?;
            filled.refill(&taken.tracked)?;
            self.files_in_pause = taken.linked_files();
            return Ok(taken);
        };
        let mut taken = std::mem::take(&mut self.taken);
        self.files_in_pause = (changes.files.len() + changes.paths.len()) as u64;
        let files = changes.files.into_iter();
        let mut new = taken.renew(&self.roll, (files, &changed), (&data, &mut into))?;
        if filled.amend(&new).is_err() {
            new.extend(&taken.tracked);
            filled.refill(&new)?;
        }
        Ok(taken)
    }
}

//! Makes a snapshot: links, index, map, one store that makes it visible, and then what is small.
//!
//!   checkpoint, link --> list, link --> index --> publish --grace--> copies --> stop --> log
//!          --> document
//!
//! Until the document is written and the entry is marked complete, the next controller undoes
//! everything. So a creation that is killed leaves nothing that counts.

use std::io::ErrorKind;
use std::path::Path;

use windlass_engine::{Cancel, Progress};
use windlass_image::layout::hook::Snapshot;
use windlass_postgres::{Bracket, BracketEnd, BracketFiles, Cluster, DatabaseFacts, WindowCause};

use super::atomic;
use super::control::Control;
use super::durable::{self, Durable};
use super::early::{self, Early};
use super::error::{HookError, HookIo};
use super::homes;
use super::index::{Filled, HasSpare};
use super::journal::Journal;
use super::libraries::Libraries;
use super::limits::HookLimits;
use super::links::Links;
use super::locked::Locked;
use super::orphans::{self, Orphans};
use super::pauses::Pauses;
use super::publishing::{Window, publish_at_once, publish_in_pause};
use super::record::{Document, make_copied, sum_copies};
use super::remove::{finish, take_out};
use super::state::why_lost;
use super::store::PreservedPages;
use super::taken::{Into, Taken};
use crate::cluster::server_time;

/// How often a window is tried again if the log says that replay would go wrong.
const TRIES: u32 = 5;

/// How a snapshot begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookStart {
    /// With a checkpoint at once: a server that opens the snapshot starts at once.
    #[default]
    Checkpoint,
    /// The same, with a checkpoint that spares the disks.
    SpreadCheckpoint,
    /// With a pause of a few milliseconds: the snapshot is made at once, and a server that opens it
    /// recovers as after a crash.
    Pause,
}

/// What to make.
#[derive(Clone, Copy)]
pub struct HookRequest<'a> {
    /// An empty directory for the snapshot.
    pub directory: &'a Path,
    /// The directory for the preserved pages. It counts for the first snapshot of a database; the
    /// later ones share its store.
    pub store: &'a Path,
    /// The directory with an entry for each snapshot of the database. The server forgets what has
    /// none there. Without it, no entry is missed.
    pub home: Option<&'a Path>,
    /// How it begins.
    pub start: HookStart,
    /// When it ends.
    pub limits: HookLimits,
    /// Whether it outlives a power cut.
    pub durable: bool,
    /// A snapshot of a database with more files has no links at first; the hook makes one when the
    /// server removes a file.
    pub links_max: usize,
    /// A label for the server.
    pub label: &'a str,
    /// Whoever watches; each step is a phase.
    pub progress: &'a Progress,
}

/// A snapshot that was made.
#[derive(Clone, Debug)]
pub struct HookMade {
    /// What the files are.
    pub database: DatabaseFacts,
    /// As of when the data are. Through the backup API it is asked for right after the stop has
    /// ended the log, so nothing of a primary is newer.
    pub as_of: jiff::Timestamp,
    /// How long the server's writes stood still, in all tries together.
    pub writers_stopped_seconds: f64,
    /// How many files the snapshot shares with the database.
    pub linked_files: u64,
    /// How many files and names were looked at while the server stood still.
    pub files_in_pause: u64,
    /// What somebody had removed of older snapshots.
    pub orphans: Orphans,
}

/// Makes a snapshot.
pub fn create(
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    cancel: &Cancel,
) -> Result<HookMade, HookError> {
    create_with(Some(&mut Libraries::default()), cluster, request, cancel)
}

/// Makes a snapshot. The libraries that are known already are not looked into again. Without any,
/// the server was just checked: that reads a list of mappings for each of its processes.
pub(super) fn create_with(
    libraries: Option<&mut Libraries>,
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    cancel: &Cancel,
) -> Result<HookMade, HookError> {
    request.progress.set_phase("checking the server");
    let control = Control::open(&cluster.facts().data_directory)?;
    if let Some(libraries) = libraries {
        control.check_libraries(libraries)?;
    }
    request.limits.check_free(request.store)?;
    let locked = control.lock()?;
    finish(&locked, &cluster.facts().data_directory)?;
    let before = locked.snapshots().count();
    let orphans = orphans::take_out_all(&locked, request.home)?;
    if locked.snapshots().count() < before {
        // Their links.
        finish(&locked, &cluster.facts().data_directory)?;
    }
    let pauses = Pauses::default();
    let made = tried(request, (&pauses, cancel), |tries| {
        if tries > 1 {
            // What the last one could not free.
            finish(&locked, &cluster.facts().data_directory)?;
        }
        attempt(&locked, cluster, request, (&pauses, cancel))
    });
    Ok(HookMade { orphans, ..made? })
}

/// Tries until a snapshot is there. Counts the tries from 1.
fn tried<T>(
    request: &HookRequest<'_>,
    (pauses, cancel): (&Pauses, &Cancel),
    mut attempt: impl FnMut(u32) -> Result<(T, Option<WindowCause>), HookError>,
) -> Result<T, HookError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(tries) {
            Ok((made, None)) => return Ok(made),
            Ok((_, Some(cause))) if tries == TRIES => {
                let cause = Box::new(cause);
                return Err(HookError::Disturbed { cause, tries });
            }
            Err(error) if tries == TRIES => return Err(error),
            Err(error) => {
                let is_tried = lacks_log(request, &error)
                    || pauses.are_to_go_on(&error, (request.progress, cancel))?;
                if !is_tried {
                    return Err(error);
                }
            }
            Ok((_, Some(_))) => {}
        }
        cancel_check(cancel)?;
    }
}

/// Whether a checkpoint has recycled log meanwhile that the snapshot would have begun with. The
/// next attempt begins with that checkpoint.
fn lacks_log(request: &HookRequest<'_>, error: &HookError) -> bool {
    let (HookStart::Pause, HookError::Io { path, source, .. }) = (request.start, error) else {
        return false;
    };
    let is_log = path.components().any(|part| part.as_os_str() == "pg_wal");
    is_log && source.kind() == ErrorKind::NotFound
}

fn cancel_check(cancel: &Cancel) -> Result<(), HookError> {
    let checked = cancel.check();
    checked.map_err(|error| HookError::Postgres(error.into()))
}

type Attempt = (HookMade, Option<WindowCause>);

fn attempt(
    locked: &Locked<'_>,
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    (pauses, cancel): (&Pauses, &Cancel),
) -> Result<Attempt, HookError> {
    let number = locked.memory().take_number();
    let made = match request.start {
        HookStart::Pause => {
            let made = atomic::attempt(locked, cluster, request, (number, pauses));
            made.map(|made| (made, None))
        }
        HookStart::Checkpoint | HookStart::SpreadCheckpoint => {
            bracketed(locked, cluster, (request, pauses), (number, cancel))
        }
    };
    if !matches!(made, Ok((_, None))) {
        take_out(locked, number)?;
        empty(request.directory)?;
        // A home that was noted for it may go with it. What stays, the next controller removes.
        durable::sweep(locked).unwrap_or_default();
    }
    made
}

/// Waits for the checkpoint, and links meanwhile what is there so far.
fn begun(
    cluster: &mut Cluster,
    request: &HookRequest<'_>,
    (number, cancel): (u32, &Cancel),
) -> Result<(Bracket, Early), HookError> {
    let progress = request.progress;
    let fast = request.start == HookStart::Checkpoint;
    let facts = cluster.facts().clone();
    early::meanwhile((&facts, number), links_max(request), || {
        let begun = cluster.begin_bracket((request.label, fast), (progress, cancel))?;
        // The checkpoint has ended, and perhaps not all links are made.
        progress.set_phase("waiting for the first links");
        Ok(begun)
    })
}

/// Makes it through the backup API.
fn bracketed(
    locked: &Locked<'_>,
    cluster: &mut Cluster,
    (request, pauses): (&HookRequest<'_>, &Pauses),
    (number, cancel): (u32, &Cancel),
) -> Result<Attempt, HookError> {
    let step = |name| request.progress.set_phase(name);
    let (mut bracket, early) = begun(cluster, request, (number, cancel))?;
    let (mut links, mut known) = (early.links, early.known);
    step("listing files");
    // Without links, a name that goes before the hook sees the snapshot takes its file with it.
    let journal = (!early.are_few).then(|| Journal::begin(locked));
    let journal = journal.transpose()?;
    let files = bracket.list()?;
    let is_late = begin_links(&mut links, (&files, journal.is_some()), request);
    let journal = journal.filter(|_| is_late);
    let page_bytes = bracket.cluster().block_bytes;
    let mut into = Into {
        links: &mut links,
        known: &mut known,
        page_bytes,
    };
    let mut taken = Taken::pin(&files, &mut into)?;
    into.links.leave(&taken.links())?;
    step("building the map");
    ensure_store(locked, request.store, page_bytes)?;
    let tag = durable::tag(locked, request.durable)?;
    let of = (number, tag, &request.limits.words(page_bytes));
    let filled = Filled::of(locked, of, &taken.tracked, HasSpare(is_late))?;
    let published = match journal {
        None => publish_at_once(locked, request, filled)?,
        Some(journal) => {
            let window = Window::new(&bracket, &mut taken, &mut into);
            publish_in_pause((locked, journal, number), (request, pauses), window, filled)?
        }
    };
    step("copying small files");
    make_copied(request.directory)?;
    taken.copy(request.directory)?;
    let end = ended((bracket, &files), (locked, request), cancel)?;
    step("copying the log");
    taken.add_end(&end, request.directory)?;
    end.check_log()?;
    step("publishing");
    let made = HookMade {
        database: end.facts.clone(),
        as_of: server_time(&end.facts.stop_time),
        writers_stopped_seconds: pauses.stood_still().as_secs_f64(),
        linked_files: taken.linked_files(),
        files_in_pause: published.files_in_pause,
        orphans: Orphans::default(),
    };
    if end.cause.is_some() {
        return Ok((made, end.cause));
    }
    let snapshot = published.snapshot;
    publish_document(locked, &snapshot, taken, links, (request, end.facts))?;
    Ok((made, None))
}

/// Ends the backup on the server. That waits for the disk, and so does the note of where the
/// snapshot has its entry, which is made meanwhile.
fn ended(
    (bracket, files): (Bracket, &BracketFiles),
    (locked, request): (&Locked<'_>, &HookRequest<'_>),
    cancel: &Cancel,
) -> Result<BracketEnd, HookError> {
    let phase = "ending the backup on the server";
    request.progress.set_phase(phase);
    let (data, home) = (locked.control().data(), request.home);
    let end = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(home) = home {
                // What goes wrong goes wrong again when the document is published.
                homes::note(data, home).unwrap_or_default();
            }
        });
        bracket.end(files, cancel)
    });
    Ok(end?)
}

/// Says how the files are kept. True if the hook makes the links: if there are many files, and a
/// journal of the names that change (`is_noted`).
pub(super) fn begin_links(
    links: &mut Links,
    (files, is_noted): (&BracketFiles, bool),
    request: &HookRequest<'_>,
) -> bool {
    let is_late = is_noted && files.count() > links_max(request);
    match is_late {
        true => {
            request.progress.set_phase("examining files");
            links.late();
        }
        false => request.progress.set_phase("linking files"),
    }
    is_late
}

/// How many files are linked at once. If there are more, the hook makes the links.
fn links_max(request: &HookRequest<'_>) -> usize {
    match request.durable {
        // A link outlives a power cut with its file; what the hook does later may not.
        true => usize::MAX,
        false => request.links_max,
    }
}

/// Writes the document. From then on the snapshot exists.
pub(super) fn publish_document(
    locked: &Locked<'_>,
    snapshot: &Snapshot<'_>,
    taken: Taken,
    links: Links,
    (request, database): (&HookRequest<'_>, DatabaseFacts),
) -> Result<(), HookError> {
    let (number, directory) = (snapshot.number(), request.directory);
    // A module that came before the snapshot was published has lost only those that were there.
    locked.control().check_seeing()?;
    if let Some(why) = why_lost(locked.control(), number, |_| None) {
        return Err(HookError::Lost { why });
    }
    let mut document = Document::new(number, locked.control().inode()?, database)?;
    let (mut table, kept) = taken.table();
    document.kept = kept;
    document.links = links.directories();
    document.graves = links.graves();
    document.durable = Durable::of(snapshot);
    std::thread::scope(|scope| {
        // A segment of the log takes some milliseconds.
        let summing = scope.spawn(|| sum_copies(directory, &mut table, &document.kept));
        let noted = links.list_places().and_then(|()| match request.home {
            Some(home) => homes::note(locked.control().data(), home),
            None => Ok(()),
        });
        let summed = summing.join();
        noted.and(summed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    document.write(directory, &table)?;
    if request.durable {
        request.progress.set_phase("making it durable");
        durable::keep(locked, snapshot, (&document.links, directory))?;
        // Whoever lost it meanwhile has removed what was not there yet.
        if let Some(why) = why_lost(locked.control(), number, |_| None) {
            durable::removed(locked.control().data(), snapshot.index())?;
            return Err(HookError::Lost { why });
        }
    }
    snapshot.complete();
    links.keep();
    Ok(())
}

/// Makes a store, unless snapshots share one already.
pub(super) fn ensure_store(
    locked: &Locked<'_>,
    place: &Path,
    page_bytes: u32,
) -> Result<(), HookError> {
    let memory = locked.memory();
    if locked.snapshots().next().is_some() {
        return Ok(());
    }
    // The store of snapshots that are gone.
    PreservedPages::remove(memory)?;
    let place = place.canonicalize().doing("resolve", place)?;
    let name = locked.control().path().file_name().unwrap_or_default();
    let name = format!(".{}.pages", name.to_string_lossy());
    let path = place.join(name);
    PreservedPages::make_room(&path)?;
    PreservedPages::create(memory, &path, page_bytes)
}

/// Removes what an attempt left in the snapshot's directory.
fn empty(directory: &Path) -> Result<(), HookError> {
    for entry in std::fs::read_dir(directory).doing("list", directory)? {
        let path = entry.doing("list", directory)?.path();
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        removed.doing("remove", &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How tries that end like this end together, and how many there were.
    fn tried_with(end: impl Fn(u32) -> Result<(), HookError>) -> (Result<(), HookError>, u32) {
        let (directory, progress) = (Path::new("/nowhere"), Progress::default());
        let request = HookRequest {
            directory,
            store: directory,
            home: None,
            start: HookStart::Pause,
            limits: HookLimits::default(),
            durable: false,
            links_max: 0,
            label: "",
            progress: &progress,
        };
        let (pauses, mut count) = (Pauses::default(), 0);
        let made = tried(&request, (&pauses, &Cancel::new()), |tries| {
            count = tries;
            end(tries).map(|()| ((), None))
        });
        (made, count)
    }

    #[test]
    fn a_pause_that_fails_is_tried_again_a_few_times() {
        for failed in [
            || HookError::PauseBroken,
            || HookError::PauseBusy { pid: 7 },
        ] {
            let (made, count) = tried_with(|tries| match tries {
                1 | 2 => Err(failed()),
                _ => Ok(()),
            });
            assert_eq!((made.is_ok(), count), (true, 3));
            let (made, count) = tried_with(|_| Err(failed()));
            let error = made.unwrap_err().to_string();
            assert_eq!((error, count), (failed().to_string(), 3));
        }
    }

    #[test]
    fn only_what_may_go_well_the_next_time_is_tried_again() {
        // A process that keeps the last try from being undone is no matter of pauses.
        let (made, count) = tried_with(|_| Err(HookError::Busy { pid: 7 }));
        assert!(matches!(made, Err(HookError::Busy { .. })));
        assert_eq!(count, 1);
        let recycled = |path: &str| {
            let path = Path::new(path);
            HookError::io("copy", path, ErrorKind::NotFound.into())
        };
        let (made, count) = tried_with(|_| Err(recycled("/data/pg_wal/000000010000000000000001")));
        assert_eq!((made.is_err(), count), (true, TRIES));
        let (made, count) = tried_with(|_| Err(recycled("/data/base/5/4711")));
        assert_eq!((made.is_err(), count), (true, 1));
    }
}

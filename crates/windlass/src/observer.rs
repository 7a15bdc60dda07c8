//! Shows on the terminal, and writes to the log, what an operation tells.

mod lab;
pub mod mending;
mod point;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::SetId;
use windlass_engine::{Progress, SetEntry};
use windlass_lab::Prediction;
use windlass_operations::owners::this_user;
use windlass_operations::places::{How, Identity, TimeFault, short_id};
use windlass_operations::snapshots::Settled;
use windlass_operations::{
    FilePlan, Notice, Observer, OperationError, RecoveryError, RecoveryPlan, chain,
};
use windlass_postgres::{NameFault, Timeline, user_shown};

use crate::cli::Global;
use crate::hints::metrics::unwritten;
use crate::progress::{Show, Shown};
use crate::words::{self, local_time, when};
use crate::{checks, hints, log, output, table};

/// How the terminal shows an operation.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Nothing but warnings and errors.
    silent: bool,
    /// Whether to show threads and layout before a run.
    details: bool,
    /// Without a terminal, a line is printed each time that this many more percent are done.
    percent: u8,
    /// Whether to leave the settings of the run out: it is one of several.
    brief: bool,
}

impl Terminal {
    /// As the command line asks for it.
    pub fn new(global: &Global, details: bool, percent: u8) -> Self {
        Self {
            silent: global.is_silent(),
            details,
            percent,
            brief: false,
        }
    }

    /// The same without the settings of each run.
    pub fn brief(self, brief: bool) -> Self {
        Self { brief, ..self }
    }

    fn note(&self, text: &str) {
        if !self.silent {
            output::note(text);
        }
    }

    /// What was found before a run: the set, and what an earlier run left.
    fn found(&self, notice: &Notice<'_>) {
        match notice {
            Notice::SetChosen { set, how } => self.note(&chosen(set, how)),
            Notice::SetOfFuture { set, before } => of_future(set, *before),
            Notice::WrongTime { set, other, fault } => {
                output::note(&wrong_time(set, other, *fault));
            }
            Notice::FilesOfOthers { count, first } => {
                let (path, user) = (first.display(), user_shown(this_user()));
                let files = output::count(*count, "newer file");
                output::note(&format!(
                    "note: {files} of another user there cannot be read by {user}, the first is \
                     {path}"
                ));
            }
            Notice::Checked(check) => checks::log(check),
            Notice::HoldsWriters(path) => output::note(&format!(
                "note: nobody can commit to {} until this ends",
                path.display()
            )),
            Notice::UnreadNames(NameFault { path, what }) => {
                output::note(&format!("warning: relation names: {path}: {what}"));
            }
            Notice::MountInUse(path) => output::note(&format!(
                "{} is in use: it is detached, and ends when the last file of it is closed; a \
                 second signal ends it now",
                path.display()
            )),
            Notice::SnapshotRemoved(path) => self.note(&format!(
                "removed {}: its snapshot was cut off",
                path.display()
            )),
            Notice::DatabaseGone(path) => output::note(&format!(
                "note: {} is not there; its snapshots are",
                path.display()
            )),
            Notice::RevertSettled {
                settled,
                data,
                start,
            } => self.note(&settled_words(*settled, data, *start)),
            Notice::RemovesLeft(path) => output::note(&format!(
                "note: a restore that was cut off had left {}: this one removes it",
                path.display()
            )),
            Notice::KeepsLeft(path) => output::note(&format!(
                "note: an earlier restore left {}: this one keeps it until its own is complete",
                path.display()
            )),
            other => self.logged(other),
        }
    }

    /// What becomes of a database's log.
    fn logged(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Receives {
                system,
                timeline,
                from,
            } => self.note(&format!(
                "receives the log of cluster {system} from {from} on timeline {timeline}"
            )),
            Notice::LogLost(lost) => output::degrade(&format!("{lost}; asking for it again")),
            Notice::LogGap { from, to } => point::log_gap(*from, *to),
            Notice::SlotRenewed(name) => output::note(&format!(
                "warning: the server kept no log for the replication slot {name}: it was made anew"
            )),
            Notice::ReceiveBroken(error) => {
                let message = chain(error.to_string(), error);
                output::note(&format!("warning: {message}; trying again"));
            }
            Notice::NoteGone(error) => {
                output::note(&format!("warning: {error}; looking whether it still does"));
            }
            Notice::CaptureBroken(error) => {
                let message = chain(error.to_string(), error);
                output::note(&format!("warning: {message}; beginning again"));
            }
            Notice::PassedOver {
                database,
                timeline,
                bytes,
            } => point::passed_over(database, *timeline, *bytes),
            Notice::NotKept { log, bytes } => point::not_kept(log, *bytes),
            Notice::Captures {
                database,
                timeline,
                goes_on,
                is_first,
            } => self.captures((database, *timeline), *goes_on, *is_first),
            Notice::Recovers(plan) => {
                self.note(&recovers(plan));
                plan.remarks.iter().for_each(|remark| self.at_point(remark));
            }
            Notice::Replays(plan) => {
                self.note(&replays(plan));
                plan.lost.iter().for_each(point::lost_end);
            }
            Notice::EndsWithSet(why) => self.ends(why),
            Notice::WritesAnew { path, fault } => {
                self.note(&format!("writes {} anew: {fault}", path.display()));
            }
            Notice::BuildsOn(bases) => self.note(&builds_on(bases)),
            Notice::WillTake(prediction) => self.note(&will_take(prediction)),
            other => self.tried(other),
        }
    }

    /// Why a restore takes no log. A place without log needs no word. If the log has transactions
    /// that the result lacks, that is a warning.
    fn ends(&self, why: &OperationError) {
        match why {
            OperationError::Recovery(
                why @ RecoveryError::NotLinked {
                    has_later: true, ..
                },
            ) => {
                output::degrade(&format!("ends with the set: {why}, and it ends later"));
            }
            OperationError::Recovery(why @ RecoveryError::LogAway { .. }) => {
                output::degrade(&format!("ends with the set: {why}"));
            }
            OperationError::Recovery(why) => self.note(&format!("ends with the set: {why}")),
            _ => {}
        }
    }

    /// What a capture goes on from.
    fn captures(&self, (database, timeline): (&Path, Timeline), goes_on: bool, is_first: bool) {
        let path = database.display();
        match goes_on || is_first {
            true => self.note(&format!(
                "captures the transactions of {path} on timeline {timeline}"
            )),
            false => {
                output::note(&format!(
                    "warning: transactions of {path} may be missing before timeline {timeline}: \
                     its log does not go on where the place's ends"
                ));
                output::note("hint: Make a full backup: no earlier set leads to this timeline.");
            }
        }
    }

    /// What an experiment of the laboratory does.
    fn tried(&self, notice: &Notice<'_>) {
        match lab::text(notice) {
            Some(text) => self.note(&text),
            None => recording(notice),
        }
    }
}

impl Observer for Terminal {
    fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::MadeDirectory { path, is_expected } => made(path, *is_expected),
            Notice::NoHooks => {
                self.note("note: no hook runs, because nul keeps nothing: this is no backup");
            }
            Notice::CleanedUp(done) => self.note(&done.to_string()),
            Notice::Settings { plan, codec, more } => {
                log::settings(plan, *codec);
                if !self.silent && !self.brief {
                    table::print_plan(plan, *codec, *more, self.details);
                }
            }
            Notice::Mended(mends) => mending::tell(mends),
            Notice::LogRefused => log::withdraw(),
            Notice::Phase(phase) => log::info(&format!("phase: {phase}")),
            Notice::Verdict(verdict) => log::info(&format!("verdict: {verdict}")),
            // Its parts were told before, and the exit code says the rest.
            Notice::RunEnded(end) => output::run_ended(end),
            Notice::Metrics(address) => {
                self.note(&format!("metrics     http://{address}/metrics"));
            }
            Notice::OfMount(error) => {
                let what = if error.is_of_set() { "damage" } else { "error" };
                output::note(&format!("{what}: {error}"));
            }
            Notice::ScratchLeft { path, error } => {
                let path = path.display();
                output::note(&format!("warning: {path} could not be removed: {error}"));
            }
            Notice::ScratchStays { path, error } => {
                let path = path.display();
                output::note(&format!("warning: {path} is left over and stays: {error}"));
            }
            Notice::Hook { event, words } => {
                log::info(&format!("hook {event}: {}", words.join(" ")));
            }
            Notice::HookFailed(error) => {
                output::note(&format!("warning: {}", hints::operation::hook_text(error)))
            }
            Notice::NoPrediction(error) => {
                self.note(&format!("note: no prediction is kept: {error}"));
            }
            Notice::NoHistory(error) => {
                self.note(&format!("note: no history is kept: {error}"));
            }
            Notice::GuessedSpeeds(error) => {
                self.note(&format!("note: speeds of cores are guessed: {error}"));
            }
            Notice::LostEvents(count) => output::note(&format!(
                "warning: {count} events were lost: the file could not be written fast enough"
            )),
            other => self.found(other),
        }
    }

    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Any>> {
        let show = Show::choose(self.silent, self.percent);
        Some(Box::new(Shown::start(progress, show)))
    }

    fn is_degraded(&self) -> bool {
        output::is_degraded()
    }
}

/// Which set was chosen, and how.
fn chosen(set: &SetEntry, how: &How) -> String {
    let of = Identity::of(set).map_or(String::new(), |of| format!(" of {of}"));
    let (id, begun) = (short_id(set), when(set.begun_nanos));
    let how = match how {
        How::Id(start) => format!("as --set {start} says"),
        How::Newest { count, by, place } => {
            let by = by.map(|bound| format!(" begun by {}", local_time(bound)));
            let by = by.unwrap_or_default();
            match count {
                1 => format!("the only one{by} in {place}"),
                count => format!("the newest of {count}{by} in {place}"),
            }
        }
    };
    format!("set {id}{of}, begun {begun}: {how}")
}

/// The sets that are read besides the one that was chosen.
fn builds_on(bases: &[SetId]) -> String {
    let bases: Vec<_> = bases
        .iter()
        .map(|id| id.to_string()[..8].to_owned())
        .collect();
    format!("it builds on {}: these are read, too", bases.join(", "))
}

/// How long a run will take.
fn will_take(prediction: &Prediction) -> String {
    let time = words::duration(prediction.seconds);
    let bound = words::bound(prediction.limit.stage);
    format!("will take     about {time}, {bound}")
}

/// Which transactions go over a restored SQLite database.
fn replays(plan: &FilePlan) -> String {
    let (point, place, timeline) = (&plan.point, plan.place.display(), plan.timeline());
    let (after, by) = plan.moment;
    let commits = output::count(plan.commits(), "transaction");
    format!(
        "recovers up to {point}: {commits} behind the set, on timeline {timeline} in {place}; the \
         last one came between {after} and {by}"
    )
}

/// Which log a restored cluster will use, and up to where.
fn recovers(plan: &RecoveryPlan) -> String {
    let (from, to, timeline) = (plan.from, plan.to, plan.timeline);
    let (point, place) = (&plan.recovery.point, plan.place.display());
    format!(
        "recovers up to {point}, with the log from {from} to {to} on timeline {timeline} in {place}"
    )
}

/// Warns of a set from the future. The command then ends with the code of warnings.
fn of_future(set: &SetEntry, before: Option<&SetEntry>) {
    let (id, begun) = (short_id(set), local_time(set.begun_nanos));
    output::degrade(&format!(
        "set {id} says that it was begun at {begun}, which is in the future: the clock of its \
         machine was wrong, so it need not be the newest"
    ));
    if let Some(other) = before {
        let (id, begun) = (short_id(other), when(other.begun_nanos));
        output::note(&format!(
            "hint: The newest set that was not begun in the future is {id}, begun {begun}: take \
             it with --set {id}."
        ));
    }
}

/// Which of two sets has a wrong time, and how the other one shows it. The choice is right.
fn wrong_time(set: &SetEntry, other: &SetEntry, fault: TimeFault) -> String {
    let (id, begun) = (short_id(set), local_time(set.begun_nanos));
    let (by, then) = (short_id(other), local_time(other.begun_nanos));
    let shown = match fault {
        TimeFault::FutureBase => "builds on it",
        TimeFault::FutureLog => "ends behind it in the log",
        TimeFault::BeforeBase => {
            return format!(
                "note: set {id} says that it was begun at {begun}, but it builds on set {by}, \
                 which was begun at {then}: one of these times is wrong, and {id} counts as the \
                 newer one"
            );
        }
    };
    format!(
        "note: set {id} says that it was begun at {begun}, which is in the future, but set {by} \
         {shown} and was begun at {then}: the time of {id} is wrong, so it counts as older than \
         {by}"
    )
}

/// A mistyped name, or a disk that is not mounted, must not stay unseen: this is also for --quiet.
/// A directory is made once.
fn made(directory: &Path, is_expected: bool) {
    let text = format!("made the directory {}", directory.display());
    if is_expected {
        return output::degrade(&format!(
            "{text}, which the configuration names. If a disk belongs there, it is not mounted"
        ));
    }
    log::info(&text);
    output::unlogged(&text);
}

/// What cannot be recorded of a run. The run goes on.
fn recording(notice: &Notice<'_>) {
    match notice {
        Notice::EventsUnwritten { path, error } => {
            let path = path.display();
            let text = format!("the events of this run are not in {path}: {error}");
            output::degrade(&match hints::engine(error) {
                Some(hint) => format!("{text}. {}", hint.trim_end_matches('.')),
                None => text,
            });
        }
        Notice::EventsFailed(error) => output::degrade(&error.to_string()),
        Notice::HistoryUnwritten(error) => {
            let hint = hints::history::catalog(error).trim_end_matches('.');
            output::degrade(&format!("this run is not in the history: {error}. {hint}"));
        }
        Notice::HistoryDamaged { aside } => output::degrade(&format!(
            "the history was damaged, and begins anew; the damaged file is {}. `windlass history \
             --rebuild` reads what the sets know of it",
            aside.display()
        )),
        Notice::MetricsUnserved { address, error } => {
            output::degrade(&format!("this run serves no metrics on {address}: {error}"));
        }
        Notice::MetricsUnwritten {
            path,
            error,
            foreign,
            is_early,
        } => {
            let text = unwritten(path, error, foreign.as_ref());
            match is_early {
                true => output::note(&format!("warning: {text}")),
                false => output::degrade(&text),
            }
        }
        Notice::MetricsStillUnwritten => output::degrade_silently(),
        Notice::MetricsOfFailure(error) => {
            output::note(&format!("warning: no metrics of this run: {error}"));
        }
        other => output::note(&format!("note: {other:?}")),
    }
}

/// What became of a revert, or of an undo, that was cut off.
fn settled_words(settled: Settled, data: &Path, start: Option<&str>) -> String {
    let what = match settled.is_undo {
        true => "an undo",
        false => "a revert",
    };
    let (done, now) = match settled.is_finished {
        true => ("finished", ""),
        false => ("undid", ": the cluster is as it was before"),
    };
    let next = start.map_or(String::new(), |start| {
        format!("; start the server: {start}")
    });
    format!(
        "{done} {what} that was cut off{now}, in {}{next}",
        data.display()
    )
}

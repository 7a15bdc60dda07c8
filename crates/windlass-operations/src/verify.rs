//! A verification: reads everything, checks everything, and lists all damage. If it is asked to, it
//! also checks the database in the set.
//!
//!   request --> sets --> each: survey --> read --> opened? --> what was found

mod all;
mod image;
mod inspect;
mod log;
mod moment;
mod outcome;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::{
    Cancel, DamageReport, EngineError, FoundSet, KeyFault, METADATA_LIMIT_DEFAULT, OpenStripe,
    RunReport, SetEntry, Survey, Verification, check_locked, is_removed, verify_index,
};
use windlass_lab::state_directory;

use crate::caller::Caller;
use crate::devices::{STORAGE, is_place};
use crate::ended::RunEnd;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::held::Held;
use crate::history::RunAbout;
use crate::hooks::HookCommands;
use crate::notice::{MoreMemory, Notice};
use crate::opened::OpenSettings;
use crate::outputs;
use crate::places::{self, LocatedSet, Named, SetRequest, Which};
use crate::probed::Ends;
use crate::recovered::MomentRequest;
use crate::run::Run;
use crate::settings::RunSettings;
use crate::snapshots::SnapshotImage;
use crate::stored::absolute;
use crate::watch::{Ended, Watching};

pub(crate) use inspect::{ask, first_answer, inspect_and_ask};
pub use outcome::{
    BadSets, Findings, Inspected, NotRead, Opening, SetResult, VerifiedImage, VerifiedLog,
    VerifiedMoment, VerifiedSet, VerifiedSets, VerifyOutcome, VerifyStep,
};

/// What to verify, and how.
#[derive(Clone, Debug, Default)]
pub struct VerifyRequest {
    /// The sets: all of the places that are named, or the one that is chosen.
    pub set: SetRequest,
    /// A moment in the log. Then the sets and the log that lead there are verified.
    pub at: Option<MomentRequest>,
    /// Whether to choose the newest set.
    pub latest: bool,
    /// Of all sets of some places, only those that no verification has read since then.
    pub new_since: Option<Timestamp>,
    /// Whether to check only seals and indexes.
    pub quick: bool,
    /// Whether to open each set, too, and let the database's own tools check it; and how.
    pub open: Option<OpenSettings>,
    /// The most bytes per second that are read from the devices.
    pub max_rate: Option<u64>,
    /// How the runs are recorded.
    pub watching: Watching,
    /// Buffers, threads, storage.
    pub settings: RunSettings,
}

/// Verifies sets. It fails if it cannot say of a set whether it is damaged.
pub fn verify(
    caller: &Caller,
    request: &VerifyRequest,
    cancel: &Cancel,
) -> Result<VerifyOutcome, OperationError> {
    let job = Job {
        caller,
        request,
        cancel,
        of: None,
        well_so_far: true,
    };
    if let Some(at) = &request.at {
        return Ok(VerifyOutcome::All(job.verify_moment(at)?));
    }
    if let Some(snapshot) = SnapshotImage::of_request(caller, &request.set)? {
        let verified = image::verify(&job, &snapshot)?;
        return Ok(VerifyOutcome::Image(Box::new(verified)));
    }
    let mut named = Named::new(caller, &request.set)?;
    if request.latest {
        named.choice.which = Some(Which::Latest);
    }
    if named.choice.which.is_none() && named.are_directories() {
        return Ok(VerifyOutcome::All(all::verify(&job, &named)?));
    }
    let found = places::find_named(caller, &named)?;
    Ok(VerifyOutcome::One(Box::new(job.verify(&found)?)))
}

/// Tells metrics of a verification that could not be begun, because what was asked for is wrong.
pub fn verify_not_begun(
    (caller, watching): (&Caller, &Watching),
    set: &SetRequest,
    (ending, text): (Ending, &str),
) {
    let series = series_of(set);
    let about = (caller, watching, &HookCommands::default());
    let run = Run::new(about, "verify", (&series, &series), &Cancel::new());
    run.failed(ending, text);
}

/// The subject of the metrics of a run that reads these sets.
pub(crate) fn series_of(request: &SetRequest) -> String {
    series(request, request.words.first().map(PathBuf::as_path))
}

/// The subject of the metrics: the names in the configuration, else the directory of this stripe,
/// or this directory.
fn series(request: &SetRequest, place: Option<&Path>) -> String {
    if let Some(names) = request.configured_names() {
        return names;
    }
    let place = place.and_then(|path| absolute(path).ok());
    let directory = place.and_then(|path| match is_place(&path) {
        true => Some(path),
        false => path.parent().map(PathBuf::from),
    });
    let directory = directory.map_or(String::new(), |path| path.display().to_string());
    match &request.choice.of {
        Some(database) => format!("{database} in {directory}"),
        None => directory,
    }
}

/// How sets are verified.
struct Job<'a> {
    caller: &'a Caller,
    request: &'a VerifyRequest,
    cancel: &'a Cancel,
    /// The set, if it is one of several.
    of: Option<&'a SetEntry>,
    /// Whether no earlier set was damaged. The metrics describe all sets together.
    well_so_far: bool,
}

impl Job<'_> {
    /// Verifies what leads to a moment. The sets of the chain are opened together, at the moment.
    fn verify_moment(&self, moment: &MomentRequest) -> Result<VerifiedSets, OperationError> {
        let request = VerifyRequest {
            open: None,
            ..self.request.clone()
        };
        let asked = moment::Asked {
            caller: self.caller,
            sets: &request.set,
            moment,
            quick: request.quick,
            open: self.request.open.is_some(),
            is_recorded: request.watching.events.is_some(),
            cancel: self.cancel,
        };
        moment::verify(&asked, |found, well_so_far| {
            let each = Job {
                request: &request,
                well_so_far,
                ..*self
            };
            each.verify(found)
        })
    }

    /// Verifies the set that these stripes belong to.
    fn verify(&self, found: &LocatedSet) -> Result<VerifiedSet, OperationError> {
        self.tell(VerifyStep::Begins { of: self.of });
        let survey = Survey::among(
            STORAGE,
            &found.stripes,
            &found.places,
            METADATA_LIMIT_DEFAULT,
        );
        let survey = match survey {
            Ok(survey) => survey,
            Err(EngineError::Locked {
                fault: KeyFault::NoKey,
                ..
            }) => return self.without_key(found),
            Err(error) => return Err(found.explained(error)),
        };
        let refused = refused(&survey)?;
        let (run, damage) = self.examine(&survey, found, refused.as_ref())?;
        let set = survey.set();
        let mends = set.mends().filter(|mends| !mends.is_empty());
        let mut verified = VerifiedSet {
            id: set.set_id(),
            stripes: set.stripes().len(),
            stripe_bytes: set.stripe_bytes(),
            database: set.description().facts.database.clone(),
            run,
            damage,
            mends,
            refused,
            locked: None,
            opened: None,
            advice: None,
        };
        let of = self.of;
        self.tell(VerifyStep::Read {
            of,
            verified: &verified,
        });
        if let Some(settings) = &self.request.open {
            verified.opened = Some(self.open(settings, found, &verified)?);
            let verified = &verified;
            self.tell(VerifyStep::Opened { of, verified });
        }
        let is_wrong = verified.ending() == Ending::Damage;
        verified.advice = is_wrong.then(|| found.advice()).flatten();
        Ok(verified)
    }

    /// Checks what can be checked of an encrypted set without its key.
    fn without_key(&self, found: &LocatedSet) -> Result<VerifiedSet, OperationError> {
        let missing = || {
            let set = found.stripes.first();
            let location = set.map(|path| path.display().to_string());
            EngineError::NoSet {
                location: location.unwrap_or_default(),
            }
        };
        let locked = check_locked(STORAGE, &found.stripes, METADATA_LIMIT_DEFAULT)?;
        let locked = locked.ok_or_else(missing)?;
        let verified = VerifiedSet {
            id: locked.set_id,
            stripes: locked.stripes.len(),
            stripe_bytes: locked.bytes,
            database: serde_json::Value::Null,
            run: None,
            locked: Some(locked.lock.recipients()),
            damage: locked.damage,
            mends: None,
            refused: None,
            opened: None,
            advice: None,
        };
        let of = self.of;
        self.tell(VerifyStep::Read {
            of,
            verified: &verified,
        });
        Ok(verified)
    }

    /// Opens the set. Goes on after damage: what is opened can still say which relations it is in,
    /// and that nothing can be opened is a finding, too.
    fn open(
        &self,
        settings: &OpenSettings,
        found: &LocatedSet,
        verified: &VerifiedSet,
    ) -> Result<Opening, OperationError> {
        match inspect::inspect(self.caller, found, settings, self.cancel) {
            Ok(inspected) => Ok(Opening::Inspected(inspected)),
            // The damage that was found is why the set cannot be opened.
            Err(error) if !verified.damage.is_empty() && !self.cancel.is_cancelled() => {
                Ok(Opening::Failed(error))
            }
            Err(error) if error.is_damage() => Ok(Opening::Failed(match self.request.quick {
                true => error,
                false => OperationError::OfSource(Box::new(error)),
            })),
            Err(error) => Err(error),
        }
    }

    fn tell(&self, step: VerifyStep<'_>) {
        self.caller.tell(&Notice::Verifying(step));
    }

    /// What is wrong with a set; and the run, if everything was read.
    fn examine(
        &self,
        survey: &Survey,
        found: &LocatedSet,
        refused: Option<&OperationError>,
    ) -> Result<(Option<RunReport>, DamageReport), OperationError> {
        let refused = refused.map(ToString::to_string);
        let (run, mut damage) = if self.request.quick {
            let mut damage = still_there(survey.set(), verify_index(survey)?)?;
            refused.iter().for_each(|one| damage.add(one));
            (None, damage)
        } else {
            let Verification { run, damage, .. } = self.read(survey, refused.as_deref())?;
            (Some(run), damage)
        };
        // A stripe in this place is damaged, and a copy elsewhere was read. Who keeps a copy of a
        // set wants to know about this copy.
        if let Some(known) = found.known.as_ref().filter(|_| damage.is_empty()) {
            damage.add(known);
        }
        Ok((run, damage))
    }

    /// The subject of the metrics: the configured name, else the directory of the set, with the
    /// database if one was chosen. The id would be another one every night.
    fn series(&self, set: &FoundSet) -> String {
        let first = set.stripes().first().map(OpenStripe::location);
        series(&self.request.set, first)
    }

    /// Reads every byte. `refused` is what the description of the set shows.
    fn read(&self, survey: &Survey, refused: Option<&str>) -> Result<Verification, OperationError> {
        let about = (
            self.caller,
            &self.request.watching,
            &HookCommands::default(),
        );
        let (subject, series) = (survey.set().set_id().to_string(), self.series(survey.set()));
        let names = (subject.as_str(), series.as_str());
        let run = Run::new(about, "verify", names, self.cancel);
        run.about(RunAbout::of_set(survey.set().description()));
        let (verified, _) = run.go(|run| self.run(run, names, (survey, refused)))?;
        Ok(verified)
    }

    fn run(
        &self,
        run: &Run<'_>,
        names: (&str, &str),
        (survey, refused): (&Survey, Option<&str>),
    ) -> Result<(Verification, RunEnd), OperationError> {
        let (request, set) = (self.request, survey.set());
        let settings = &request.settings;
        let options = settings.restore_options(set, request.max_rate, false)?;
        self.caller.tell(&Notice::Settings {
            plan: &options.plan,
            codec: None,
            more: MoreMemory::default(),
        });
        let watch = run.watch(&outputs::of_set(set)?, names)?;
        let verified = windlass_engine::verify(survey, &options, watch.progress(), self.cancel);
        let verified = verified.and_then(|verified| {
            let damage = still_there(set, verified.damage)?;
            Ok(Verification { damage, ..verified })
        });
        let verified = verified.map(|mut verified| {
            refused.iter().for_each(|one| verified.damage.add(one));
            verified
        });
        let ending = |done: &Verification| match (done.damage.is_empty(), &done.mends) {
            (false, _) => Ending::Damage,
            (true, Some(mends)) if !mends.is_empty() => Ending::Warnings,
            (true, _) => Ending::Done,
        };
        let (mut verified, end) = watch.end(verified, |done| Ended {
            report: &done.run,
            ending: ending(done),
            are_all_well: done.damage.is_empty() && self.well_so_far,
        })?;
        let ends = Ends {
            database: vec![],
            stripes: set.stripes().iter().map(OpenStripe::location).collect(),
            is_backup: false,
            emulation: &settings.emulation,
        };
        ends.judge(state_directory().as_deref(), &mut verified.run);
        let end = end.judged(ending(&verified), &verified.run);
        Ok((verified, end))
    }
}

/// The damage of a set, unless it has gone meanwhile: then it is none.
fn still_there(set: &FoundSet, damage: DamageReport) -> Result<DamageReport, EngineError> {
    match !damage.is_empty() && is_removed(STORAGE, set)? {
        true => Err(EngineError::SetRemoved { set: set.set_id() }),
        false => Ok(damage),
    }
}

/// What every restore of the set would refuse, although its checksums are right. Fails if this
/// version does not know the kind of database: then nothing here is damage.
fn refused(survey: &Survey) -> Result<Option<OperationError>, OperationError> {
    // If the list of files is lost, nothing is known about the database.
    if !survey.files_known() {
        return Ok(None);
    }
    match Held::check(survey.set().description()) {
        Err(error) if error.is_damage() => Ok(Some(error)),
        Err(error) => Err(error),
        Ok(()) => Ok(None),
    }
}

//! `windlass verify`: reads everything, checks everything, and lists all damage. With `--open` it
//! also checks the database in the set.

mod all;
mod relations;

use std::path::PathBuf;

use windlass_engine::media::SetId;
use windlass_engine::{
    Cancel, DamageReport, DamagedPart, Files, FoundSet, METADATA_LIMIT_DEFAULT, OpenStripe,
    RunReport, Survey, Verification, show_size, to_json, verify, verify_index,
};

use windlass_lab::state_directory;

use crate::cli::{Global, Layout, Verify};
use crate::damage::{Limits, Pages, print_damage};
use crate::exit::{Code, Failure};
use crate::hints;
use crate::observer::Terminal;
use crate::outputs;
use crate::places::{self, Advice, Named, Which};
use crate::probed::Ends;
use crate::signals;
use crate::table::{self, Finished};
use crate::words::duration;
use crate::{output, requests};
use relations::Checked;
use windlass_operations::Held;
use windlass_operations::watch::{Ended, Watch, Watched};
use windlass_operations::{Ending, Notice};

pub fn run(global: &Global, arguments: &Verify) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let caller = requests::quiet_caller(global);
    let request = requests::sets(global, &arguments.set, &arguments.choice);
    let mut named = Named::new(&request)?;
    if arguments.latest {
        named.choice.which = Some(Which::Latest);
    }
    if named.choice.which.is_none() && named.are_directories() {
        return all::run((global, &caller), arguments, &named, &cancel);
    }
    let found = places::find_named(&caller, &named)?;
    let how = How {
        global,
        arguments,
        title: None,
        well_so_far: true,
    };
    let verified = how.verify(&found, &cancel)?;
    if global.json {
        output::line(&verified.document.to_string());
    }
    verified.complain();
    Ok(verified.code)
}

/// How sets are verified.
struct How<'a> {
    global: &'a Global,
    arguments: &'a Verify,
    /// The beginning of the one line about a set, if it is one of several.
    title: Option<String>,
    /// Whether no earlier set was damaged. The metrics describe all sets together.
    well_so_far: bool,
}

/// The result for a set.
struct Verified {
    code: Code,
    document: serde_json::Value,
    id: SetId,
    stripe_bytes: u64,
    damage: DamageReport,
    /// What to do about the damage, if there is more to say than to use another set.
    hint: Option<String>,
    /// Which set to use instead, if something is wrong with this one.
    advice: Option<Advice>,
    opened: Option<Checked>,
}

impl Verified {
    /// Reports at the end what is wrong.
    fn complain(&self) {
        if self.damage.is_empty() {
            let checked = self.opened.iter();
            return checked.for_each(|one| one.complain(&self.id, self.advice.as_ref()));
        }
        let (what, own) = wrong(&self.damage);
        output::note(&format!("error: set {} is {what}", self.id));
        let instead = self.advice.as_ref().map(hints::places::instead);
        let own = self.hint.as_deref().or(own);
        let instead = instead.as_deref();
        let hint: Vec<_> = own.into_iter().chain(instead).collect();
        if !hint.is_empty() {
            output::note(&format!("hint: {}", hint.join(" ")));
        }
    }
}

/// What is wrong with a set in words that follow `is`, and what can be done about it.
fn wrong(report: &DamageReport) -> (String, Option<&'static str>) {
    let missing = report.damage.iter();
    let missing = missing.filter(|one| one.part == DamagedPart::Stripe);
    let missing: Vec<_> = missing.map(|one| one.stripe.to_string()).collect();
    if missing.len() as u64 != report.damage_count {
        let places = output::count(report.damage_count, "place");
        return (format!("damaged in {places}"), None);
    }
    let what = match missing.as_slice() {
        [one] => format!("incomplete: stripe {one} is missing"),
        several => format!("incomplete: stripes {} are missing", several.join(", ")),
    };
    let own = "Name every place that holds stripes of this set, or copy the missing one back.";
    (what, Some(own))
}

impl How<'_> {
    /// Verifies the set that these stripes belong to.
    fn verify(&self, found: &places::LocatedSet, cancel: &Cancel) -> Result<Verified, Failure> {
        let (global, arguments, stripes) = (self.global, self.arguments, &found.stripes);
        let survey = Survey::of(&Files, stripes, METADATA_LIMIT_DEFAULT);
        let survey = survey.map_err(|error| found.explained(error))?;
        let refused = refused(&survey)?;
        let (run, damage) = self.examine(&survey, (found, refused.as_ref()), cancel)?;
        // The set is named before anything else is printed about it.
        let line = self.line(&survey, &damage);
        let waits = global.json || global.quiet && damage.is_empty();
        let (now, later) = if waits { (None, line) } else { (line, None) };
        now.iter().for_each(|line| output::line(line));
        let brief = self.title.is_some();
        if !(global.json || brief && damage.is_empty()) {
            let run = run.as_ref().filter(|_| !brief);
            show(global, arguments, &survey, run, &damage);
        }
        let mut document = document(&survey, run.as_ref(), &damage);
        // Go on after damage: `--open` can still say which relations it is in.
        let opened = arguments
            .open
            .then(|| relations::check((global, later), arguments, stripes, cancel));
        let opened = match opened {
            // The damage listed above is why the set cannot be opened.
            Some(Err(failure)) if !damage.is_empty() && !cancel.is_cancelled() => {
                output::note(&format!("cannot be opened: {}", failure.message()));
                document["open"] = serde_json::json!({"error": failure.message()});
                None
            }
            Some(Err(failure)) if failure.is_damage() => {
                let failure = match arguments.quick {
                    true => failure,
                    false => failure.hinting(relations::OF_SOURCE),
                };
                return Err(failure.advised(found));
            }
            result => result.transpose()?,
        };
        let mut code = match damage.is_empty() {
            true => Code::Done,
            false => Code::Damage,
        };
        if let Some(checked) = &opened {
            document["ok"] = (damage.is_empty() && checked.code != Code::Damage).into();
            document["open"] = checked.document.clone();
            if damage.is_empty() {
                code = checked.code;
            }
        }
        let is_wrong = code == Code::Damage;
        Ok(Verified {
            code,
            document,
            id: survey.set().set_id(),
            stripe_bytes: survey.set().stripe_bytes(),
            damage,
            hint: refused.and_then(|one| one.hint().map(str::to_owned)),
            advice: is_wrong.then(|| found.advice()).flatten(),
            opened,
        })
    }

    /// What is wrong with a set; and the run, if everything was read.
    fn examine(
        &self,
        survey: &Survey,
        (found, refused): (&places::LocatedSet, Option<&Failure>),
        cancel: &Cancel,
    ) -> Result<(Option<RunReport>, DamageReport), Failure> {
        let (run, mut damage) = if self.arguments.quick {
            let mut damage = verify_index(survey)?;
            refused.iter().for_each(|one| damage.add(one.message()));
            (None, damage)
        } else {
            let Verification { run, damage } = self.read(survey, refused, cancel)?;
            (Some(run), damage)
        };
        // A stripe in this place is damaged, and a copy elsewhere was read. Who keeps a copy of a
        // set wants to know about this copy.
        if let Some(known) = found.known.as_ref().filter(|_| damage.is_empty()) {
            damage.add(known);
        }
        Ok((run, damage))
    }

    /// The one line about a set that is one of several.
    fn line(&self, survey: &Survey, damage: &DamageReport) -> Option<String> {
        let bytes = show_size(survey.set().stripe_bytes());
        let title = self.title.as_ref()?;
        Some(match (damage.is_empty(), self.arguments.quick) {
            (false, _) => format!("{title}  damaged"),
            (true, true) => format!("{title}  sealed, all index blocks right"),
            (true, false) => format!("{title}  all {bytes} read and right"),
        })
    }

    /// The subject of the metrics: the configured name, else the directory of the set, with the
    /// database if `--database` chose one. The id would be another one every night.
    fn series(&self, set: &FoundSet) -> String {
        let arguments = self.arguments;
        let named = requests::sets(self.global, &arguments.set, &arguments.choice);
        if let Some(names) = named.configured_names() {
            return names;
        }
        let first = set.stripes().first().map(OpenStripe::location);
        let directory =
            first.and_then(|path| std::path::absolute(path).ok()?.parent().map(PathBuf::from));
        let directory = directory.map_or(String::new(), |path| path.display().to_string());
        match &arguments.choice.of {
            Some(database) => format!("{database} in {directory}"),
            None => directory,
        }
    }

    /// Reads every byte. `refused` is what the description of the set shows.
    fn read(
        &self,
        survey: &Survey,
        refused: Option<&Failure>,
        cancel: &Cancel,
    ) -> Result<Verification, Failure> {
        let (global, arguments, set) = (self.global, self.arguments, survey.set());
        let settings = requests::settings(&arguments.buffers, &Layout::default())?;
        let options = settings.restore_options(set, arguments.max_rate, false)?;
        let terminal = Terminal::new(global, arguments.watching.details, 10);
        let caller = requests::caller(global, terminal.brief(self.title.is_some()));
        caller.observer.notice(&Notice::Settings {
            plan: &options.plan,
            codec: None,
        });
        let watch = Watch::start(&Watched {
            caller: &caller,
            watching: &requests::watching(&arguments.watching),
            outputs: &outputs::of_set(set)?,
            command: "verify",
            operation: "verify",
            subject: set.set_id().to_string(),
            series: self.series(set),
        })?;
        let verified = verify(survey, &options, watch.progress(), cancel).map(|mut verified| {
            let refused = refused.into_iter();
            refused.for_each(|one| verified.damage.add(one.message()));
            verified
        });
        let mut verified = watch.end(verified, |done| Ended {
            report: &done.run,
            well: done.damage.is_empty() && self.well_so_far,
        })?;
        let ends = Ends {
            database: vec![],
            stripes: set.stripes().iter().map(OpenStripe::location).collect(),
            is_backup: false,
            emulation: &settings.emulation,
        };
        ends.judge(state_directory().as_deref(), &mut verified.run);
        Ok(verified)
    }
}

/// What every restore of the set would refuse, although its checksums are right. Fails if this
/// version does not know the kind of database: then nothing here is damage.
fn refused(survey: &Survey) -> Result<Option<Failure>, Failure> {
    // If the list of files is lost, nothing is known about the database.
    if !survey.files_known() {
        return Ok(None);
    }
    match Held::check(survey.set().description()) {
        Err(error) if error.ending() == Ending::Damage => Ok(Some(error.into())),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(None),
    }
}

/// Prints the findings. `run` is present if everything was read.
fn show(
    global: &Global,
    arguments: &Verify,
    survey: &Survey,
    run: Option<&RunReport>,
    damage: &DamageReport,
) {
    if !damage.is_empty() {
        let facts = &survey.set().description().facts.database;
        let limits = Limits::new(arguments.watching.details);
        print_damage(damage, &Pages::of(facts), limits);
        if let Some(run) = run.filter(|_| !global.quiet) {
            table::print_verdict(run);
            arguments
                .watching
                .details
                .then(|| table::print_details(run));
        }
        return;
    }
    let set = survey.set();
    let id = set.set_id();
    match run {
        None if global.quiet => {}
        None => {
            let stripes = output::count(set.stripes().len() as u64, "stripe");
            output::line(&format!(
                "set {id}: {stripes} sealed, all index blocks right"
            ));
        }
        Some(run) => {
            let (bytes, seconds) = (show_size(set.stripe_bytes()), duration(run.seconds));
            let finished = Finished {
                result: (
                    "verified",
                    format!("set {id}: all {bytes} read and right, in {seconds}"),
                ),
                then: vec![],
                report: run,
                judgement: None,
                remarks: vec![],
                details: arguments.watching.details,
            };
            finished.print(global);
        }
    }
}

fn document(survey: &Survey, run: Option<&RunReport>, damage: &DamageReport) -> serde_json::Value {
    let mut document = match run {
        Some(run) => to_json(run),
        None => serde_json::json!({
            "set_id": survey.set().set_id().to_string(),
            "quick": true,
        }),
    };
    document["ok"] = damage.is_empty().into();
    let found = to_json(damage);
    for (key, value) in found.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
    document
}

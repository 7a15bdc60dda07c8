//! `windlass schedule`: the jobs of the configuration as timers of systemd.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_operations::schedule::{
    Activation, Change, Planned, ScheduleOutcome, ScheduleRequest, UnitPlace, install, list,
    needs_root, program_path, remove,
};

use crate::cli::{Global, Schedule, ScheduleUnits};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::words::{moment, quoted};

/// What the units say of themselves.
const MAKER: &str = "windlass schedule install";
/// The configuration if none is named.
const USUAL: &str = "/etc/windlass";

pub fn run(global: &Global, arguments: &Schedule) -> Result<Code, Failure> {
    let (units, is_dry) = match arguments {
        Schedule::Install(change) | Schedule::Remove(change) => (&change.units, change.dry_run),
        Schedule::List(units) => (units, true),
    };
    let request = request(global, units, is_dry)?;
    let outcome = match arguments {
        Schedule::List(_) => list(&request)?,
        _ if !is_dry && needs_root(&request.place) => return Err(not_root()),
        Schedule::Install(_) => install(&request)?,
        Schedule::Remove(_) => remove(&request)?,
    };
    let removes = matches!(arguments, Schedule::Remove(_));
    if !removes && request.jobs.is_empty() && outcome.files.is_empty() {
        return Err(Failure::new(
            Code::Failed,
            "nothing is scheduled: the configuration has no schedule, and no unit of it is there",
            "Write a table [schedule] with times, as in full = \"Sun 02:00\".",
        ));
    }
    if global.json {
        output::line(&document(&outcome, is_dry).to_string());
    } else {
        show(arguments, &outcome, global.quiet);
    }
    warn(arguments, &outcome, units.user);
    Ok(output::degraded(Code::Done))
}

fn not_root() -> Failure {
    Failure::new(
        Code::Failed,
        "only root may change the units of the machine",
        "Run it as root, or add --user for units of your own, or --dir to write them elsewhere.",
    )
}

fn request(
    global: &Global,
    units: &ScheduleUnits,
    dry_run: bool,
) -> Result<ScheduleRequest, Failure> {
    let configuration = global.config.as_deref().map(configuration).transpose()?;
    let called = std::env::args_os().next().map(PathBuf::from);
    let program = program_path(called.as_deref()).map_err(|error| {
        let what = format!("cannot tell where this program is: {error}");
        Failure::new(Code::Failed, what, "Call it by its whole path.")
    })?;
    let mut jobs = units.jobs.clone();
    for job in &mut jobs {
        job.command.insert(0, text(&program)?);
        if let Some(path) = &configuration {
            // In front of the name, because that may be the end of the options.
            job.command
                .splice(2..2, ["--config".to_owned(), path.clone()]);
        }
        if units.user && job.user.is_some() {
            return Err(Failure::usage(
                format!("{} and --user both say who runs the job", job.origin),
                "Leave user out of the schedule, or install units of the machine.",
            ));
        }
    }
    Ok(ScheduleRequest {
        jobs,
        maker: MAKER.to_owned(),
        configuration: configuration.unwrap_or_else(|| USUAL.to_owned()),
        place: match (&units.dir, units.user) {
            (Some(path), _) => UnitPlace::Other(path.clone()),
            (None, true) => UnitPlace::User,
            (None, false) => UnitPlace::System,
        },
        dry_run,
    })
}

/// The path of a configuration that will still be there when a job begins.
fn configuration(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path);
    match absolute.ok().filter(|path| path.is_file()) {
        Some(path) => text(&path),
        None => Err(Failure::usage(
            format!(
                "{} is no file, and jobs could not read it later",
                path.display()
            ),
            "Name a configuration that stays where it is.",
        )),
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(
            format!("{} is not text in UTF-8, and units are", path.display()),
            "Move it to a path of plain letters.",
        )
    })
}

fn show(arguments: &Schedule, outcome: &ScheduleOutcome, quiet: bool) {
    let is_answer = match arguments {
        Schedule::List(_) => true,
        Schedule::Install(change) | Schedule::Remove(change) => change.dry_run,
    };
    if quiet && !is_answer {
        return;
    }
    let is_list = matches!(arguments, Schedule::List(_));
    for planned in &outcome.jobs {
        show_job(planned, is_list);
    }
    if let Schedule::Install(change) = arguments
        && change.dry_run
    {
        let files = outcome.files.iter();
        for file in files.filter(|file| file.change != Change::Gone) {
            output::line("");
            output::line(&format!(
                "# {}",
                outcome.directory.join(&file.name).display()
            ));
            file.text.lines().for_each(output::line);
        }
        return;
    }
    if is_list {
        return;
    }
    let changed = outcome.jobs.iter().filter(|one| one.change != Change::Kept);
    let changed = output::count(changed.count() as u64, "job");
    let place = outcome.directory.display();
    let all = output::count(outcome.jobs.len() as u64, "job");
    let words = match outcome.is_unchanged() {
        true => format!("nothing: {all} in {place} as before"),
        false => format!("{changed} in {place}"),
    };
    let label = match is_answer {
        true => "would change",
        false => "changed",
    };
    output::entry(label, &words, Tone::Good);
}

fn show_job(planned: &Planned, is_list: bool) {
    let (label, tone) = match (planned.change, is_list) {
        (Change::New, true) => ("missing", Tone::Bad),
        (Change::Changed, true) => ("outdated", Tone::Bad),
        (Change::Kept, true) => ("installed", Tone::Good),
        (Change::Gone, true) => ("left over", Tone::Bad),
        (Change::New, false) => ("new", Tone::Plain),
        (Change::Changed, false) => ("changed", Tone::Plain),
        (Change::Kept, false) => ("as before", Tone::Plain),
        (Change::Gone, false) => ("removed", Tone::Plain),
    };
    let Some(job) = &planned.job else {
        output::entry(label, &planned.unit, tone);
        return;
    };
    let times = job.calendars.join("; ");
    let mut words = format!("{} {:<6}  {times}", job.subject, job.kind.name());
    if let Some(next) = planned.next {
        words.push_str(&format!("  next {}", moment(next)));
    }
    output::entry(label, &words, tone);
}

/// Says what a user would otherwise find out too late.
fn warn(arguments: &Schedule, outcome: &ScheduleOutcome, is_user: bool) {
    let Schedule::Install(change) = arguments else {
        if matches!(arguments, Schedule::List(_)) && !outcome.is_unchanged() {
            output::note("hint: `windlass schedule install` makes them as the configuration says.");
        }
        return;
    };
    if !outcome.is_judged {
        output::degrade(
            "systemd-analyze is not here, so nobody has judged the times and the units",
        );
    }
    if change.dry_run {
        return;
    }
    if let Some(directory) = &change.units.dir {
        let directory = quoted(&directory.display().to_string());
        output::note(&format!(
            "hint: systemd does not know the units in {directory}: move them to a directory of its \
             own, then `systemctl daemon-reload` and `systemctl enable --now` each timer."
        ));
    }
    if outcome.activation == Activation::AtStart {
        output::note("hint: systemd does not run here. The timers begin when it starts.");
    }
    if is_user {
        output::note(
            "hint: Your timers run while you are logged in. `loginctl enable-linger` lets them run \
             always.",
        );
    }
}

fn document(outcome: &ScheduleOutcome, is_dry: bool) -> Value {
    let jobs = outcome.jobs.iter().map(|planned| {
        let job = planned.job.as_ref();
        json!({
            "unit": planned.unit,
            "change": change_name(planned.change),
            "subject": job.map(|job| &job.subject),
            "job": job.map(|job| job.kind.name()),
            "times": job.map(|job| &job.calendars),
            "delay_seconds": job.map(|job| job.delay.as_secs()),
            "command": job.map(|job| &job.command),
            "next": planned.next.map(|next| next.to_string()),
        })
    });
    json!({
        "dry_run": is_dry,
        "directory": outcome.directory.to_string_lossy(),
        "unchanged": outcome.is_unchanged(),
        "jobs": jobs.collect::<Vec<_>>(),
        "timers": match outcome.activation {
            Activation::None => "untouched",
            Activation::AtStart => "enabled",
            Activation::Now => "started",
        },
    })
}

fn change_name(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Changed => "changed",
        Change::Kept => "kept",
        Change::Gone => "gone",
    }
}

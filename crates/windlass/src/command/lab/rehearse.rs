//! `windlass lab rehearse`: how far the plan is off for real runs on emulated storage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_engine::media::Codec;
use windlass_lab::{Corpus, Direction, Rehearsal, SETUPS, measure_codecs, quantile, rehearse};

use crate::cli::{Global, Rehearse};
use crate::exit::{Code, Failure};
use crate::output;
use crate::signals;

/// The bytes of the corpus on which codecs are measured; then the time for all of them together.
const SAMPLE_BYTES: u64 = 16 << 20;
const SAMPLE_TIME: Duration = Duration::from_secs(6);

pub fn run(global: &Global, arguments: &Rehearse) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let median_and_worst = [0, 2].contains(&arguments.at_most.len());
    if !median_and_worst {
        let hint = "Name the largest median error and the largest error: --at-most 0.10,0.25";
        return Err(Failure::usage("--at-most takes two numbers", hint));
    }
    if !arguments.path.is_dir() {
        let message = format!("{} is not a directory", arguments.path.display());
        let hint = "Name a directory with room for three times --bytes; it is left as it was.";
        return Err(Failure::usage(message, hint));
    }
    crate::outputs::outputs().check(&arguments.path)?;
    Corpus::check_space(&arguments.path, arguments.bytes)?;
    let place = Place::create(&arguments.path)?;
    let rehearsals = all(global, arguments, &place.0, &cancel)?;
    if rehearsals.is_empty() {
        let hint = "Leave --only out to see all of them.";
        return Err(Failure::usage(
            "lab rehearse: no set-up has such a name",
            hint,
        ));
    }
    let summary = Summary::of(&rehearsals);
    if global.json {
        let document = serde_json::json!({
            "runs": rehearsals,
            "error_median": summary.median,
            "error_worst": summary.worst,
            "limit_right": summary.limit_right,
        });
        output::line(&document.to_string());
    } else {
        show(&rehearsals, &summary);
    }
    match arguments.at_most[..] {
        [median, worst] if summary.median > median || summary.worst > worst => {
            // The result is printed, and in JSON it is the only object.
            output::note("error: the plan is further off than it may be");
            output::note(
                "hint: Run it again on an idle machine; if it stays so, the simulation is wrong.",
            );
            Ok(Code::Failed)
        }
        _ => Ok(Code::Done),
    }
}

fn all(
    global: &Global,
    arguments: &Rehearse,
    place: &Path,
    cancel: &Cancel,
) -> Result<Vec<Rehearsal>, Failure> {
    let wanted = |name: &str| name.contains(&arguments.only);
    let setups: Vec<_> = SETUPS.iter().filter(|one| wanted(one.name)).collect();
    let corpus = Corpus::write(&place.join("corpus"), arguments.bytes, cancel)?;
    let mut codecs: Vec<Codec> = setups.iter().map(|setup| setup.codec).collect();
    codecs.dedup();
    let speeds = measure_codecs(&corpus.sample(SAMPLE_BYTES)?, &codecs, SAMPLE_TIME, cancel)?;
    let mut rehearsals = Vec::new();
    for (index, setup) in setups.iter().enumerate() {
        if !global.is_silent() {
            let (number, count) = (index + 1, setups.len());
            output::note(&format!("{number:>4} of {count}  {}", setup.name));
        }
        rehearsals.extend(rehearse(setup, &corpus, place, &speeds, cancel)?);
    }
    Ok(rehearsals)
}

struct Summary {
    median: f64,
    worst: f64,
    limit_right: usize,
}

impl Summary {
    fn of(rehearsals: &[Rehearsal]) -> Self {
        let sizes: Vec<f64> = rehearsals.iter().map(|one| one.error().abs()).collect();
        let right = |one: &&Rehearsal| one.predicted_limit == one.measured_limit;
        Self {
            median: quantile(&sizes, 0.5),
            worst: quantile(&sizes, 1.0),
            limit_right: rehearsals.iter().filter(right).count(),
        }
    }
}

fn show(rehearsals: &[Rehearsal], summary: &Summary) {
    output::line("| set-up | run | plan | measured | error | plan: bound by | verdict |");
    output::line("|---|---|---:|---:|---:|---|---|");
    for one in rehearsals {
        output::line(&text(one));
    }
    output::line("");
    output::line(&format!(
        "{} runs: median error {:.1} %, worst {:.1} %; same limit named in {}",
        rehearsals.len(),
        summary.median * 100.0,
        summary.worst * 100.0,
        summary.limit_right
    ));
}

/// A row of the table.
fn text(one: &Rehearsal) -> String {
    let direction = match one.direction {
        Direction::Backup => "backup",
        Direction::Restore => "restore",
    };
    format!(
        "| {} | {direction} | {:.2} s | {:.2} s | {:+.1} % | {} | {} |",
        one.setup,
        one.predicted_seconds,
        one.measured_seconds,
        one.error() * 100.0,
        one.predicted_limit,
        one.measured_limit
    )
}

/// A directory of this rehearsal, removed at the end.
struct Place(PathBuf);

impl Place {
    fn create(at: &Path) -> Result<Self, Failure> {
        let path = at.join(format!("windlass-rehearsal-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).map_err(|error| {
            let message = format!("create {}: {error}", path.display());
            Failure::new(
                Code::Failed,
                message,
                "Name a directory that can be written.",
            )
        })?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If it cannot be removed, its name still says what it is.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

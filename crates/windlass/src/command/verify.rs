//! `windlass verify`: everything read, everything checked, all damage listed.

use windlass_engine::{
    DamageReport, METADATA_LIMIT_DEFAULT, RunReport, Survey, Verification, verify, verify_index,
};

use crate::cli::{Global, Verify};
use crate::damage::{Pages, print_damage};
use crate::exit::{Code, Failure};
use crate::sizes::show_size;
use crate::watch::{Ended, Watch, Watched};
use crate::{output, table};

pub fn run(global: &Global, arguments: &Verify) -> Result<Code, Failure> {
    let cancel = super::cancel_on_signals()?;
    let survey = Survey::of(&arguments.set, METADATA_LIMIT_DEFAULT)?;
    if arguments.quick {
        let damage = verify_index(&survey)?;
        return Ok(conclude(global, &survey, None, &damage));
    }
    let set = survey.set();
    let options = super::restore_options(set, &arguments.buffers, arguments.max_rate, false)?;
    if !super::is_silent(global) {
        table::print_plan(&options.plan, None);
    }
    let watch = Watch::start(&Watched {
        global,
        watching: &arguments.watching,
        command: "verify",
        subject: set.set_id().to_string(),
        percent: 10,
    })?;
    let verified = verify(&survey, &options, watch.progress(), &cancel);
    let Verification { run, damage } = watch.end(verified, |done| Ended {
        report: &done.run,
        well: done.damage.is_empty(),
    })?;
    if !global.json {
        table::print_report(&run);
    }
    Ok(conclude(global, &survey, Some(&run), &damage))
}

/// Prints what was found; `run` is there when everything was read.
fn conclude(
    global: &Global,
    survey: &Survey,
    run: Option<&RunReport>,
    damage: &DamageReport,
) -> Code {
    if global.json {
        output::line(&document(survey, run, damage).to_string());
    } else if damage.is_empty() {
        print_sound(survey, run);
    } else {
        let facts = &survey.set().description().facts.database;
        print_damage(damage, &Pages::of(facts));
    }
    if damage.is_empty() {
        return Code::Done;
    }
    let (id, count) = (survey.set().set_id(), damage.damage_count);
    let places = if count == 1 { "place" } else { "places" };
    output::note(&format!("error: set {id} is damaged in {count} {places}"));
    output::note("hint: Use another set; `windlass info` says what is left of this one.");
    Code::Damage
}

fn print_sound(survey: &Survey, run: Option<&RunReport>) {
    let set = survey.set();
    let (id, stripes) = (set.set_id(), set.stripes().len());
    match run {
        None => output::line(&format!(
            "set {id}: {stripes} stripes sealed, all index blocks right"
        )),
        Some(run) => {
            let (bytes, seconds) = (show_size(set.stripe_bytes()), run.seconds);
            output::line(&format!(
                "verified      set {id}: all {bytes} read and right, in {seconds:.2} s"
            ));
        }
    }
}

fn document(survey: &Survey, run: Option<&RunReport>, damage: &DamageReport) -> serde_json::Value {
    let mut document = match run {
        Some(run) => serde_json::to_value(run).unwrap_or_default(),
        None => serde_json::json!({
            "set_id": survey.set().set_id().to_string(),
            "quick": true,
        }),
    };
    document["ok"] = damage.is_empty().into();
    let found = serde_json::to_value(damage).unwrap_or_default();
    for (key, value) in found.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
    document
}

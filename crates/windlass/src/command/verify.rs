//! `windlass verify`: reads everything, checks everything, and lists all damage. With `--open` it
//! also checks the database in the set.

mod all;
mod image;
mod logs;
mod moment;
pub(super) mod relations;
mod show;

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_engine::{DamageReport, DamagedPart, to_json};
use windlass_operations::verify::{Opening, VerifiedSet, VerifyOutcome, verify};
use windlass_operations::{Caller, OperationError, verify_not_begun};

use crate::cli::{Global, Verify};
use crate::exit::{Code, Failure};
use crate::observer::Terminal;
use crate::{hints, output, requests, signals};
use show::Lines;

pub fn run(global: &Global, arguments: &Verify) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let terminal = Terminal::new(global, arguments.watching.details, 10);
    let caller = Caller {
        observer: Arc::new(Lines::new(global, arguments, terminal)),
        ..requests::caller(global, terminal)
    };
    let request = requests::verify(global, arguments);
    let request =
        request.inspect_err(|failure| tell_failure(&caller, global, arguments, failure))?;
    match verify(&caller, &request, &cancel)? {
        VerifyOutcome::One(verified) => {
            if global.json {
                output::line(&document(&verified).to_string());
            }
            complain(&verified);
            Ok(verified.ending().into())
        }
        VerifyOutcome::All(verified) => Ok(all::show(global, &verified)),
        VerifyOutcome::Image(verified) => Ok(image::show(global, &verified)),
    }
}

/// A value that cannot be used ends the verification before it begins. Its metrics tell so.
fn tell_failure(caller: &Caller, global: &Global, arguments: &Verify, failure: &Failure) {
    let watching = requests::watching_nothing(&arguments.watching);
    let set = requests::sets(global, &arguments.set, &arguments.choice);
    let why = (failure.code().ending(), failure.message());
    verify_not_begun((caller, &watching), &set, why);
}

/// What was found, in JSON.
fn document(verified: &VerifiedSet) -> Value {
    let mut document = match &verified.run {
        Some(run) => to_json(run),
        None => json!({"set_id": verified.id.to_string(), "quick": true}),
    };
    let found = to_json(&verified.damage);
    for (key, value) in found.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
    if let Some(mends) = &verified.mends {
        document["mended"] = to_json(mends);
    }
    document["ok"] = verified.is_sound().into();
    if let Some(recipients) = &verified.locked {
        document["ok"] = false.into();
        document["locked"] = json!({"recipients": recipients});
    }
    match &verified.opened {
        Some(Opening::Inspected(found)) => document["open"] = relations::document(found),
        Some(Opening::Failed(error)) => {
            let (error, hint) = hints::operation::words(error);
            document["open"] = json!({"error": error, "hint": hint});
        }
        None => {}
    }
    document
}

/// What an error says.
fn message(error: &OperationError) -> String {
    hints::operation::words(error).0
}

/// Reports at the end what is wrong.
fn complain(verified: &VerifiedSet) {
    let advice = verified.advice.as_ref();
    if verified.damage.is_empty() {
        return match &verified.opened {
            Some(Opening::Inspected(found)) => relations::complain(found, &verified.id, advice),
            Some(Opening::Failed(error)) => relations::unopened(error, &verified.id, advice),
            None => {}
        };
    }
    let (what, own) = wrong(&verified.damage);
    output::note(&format!("error: set {} is {what}", verified.id));
    let refused = verified.refused.as_ref();
    let refused = refused.and_then(|error| hints::operation::words(error).1);
    let instead = advice.map(hints::places::instead);
    let own = refused.as_deref().or(own);
    let hint: Vec<_> = own.into_iter().chain(instead.as_deref()).collect();
    if !hint.is_empty() {
        output::note(&format!("hint: {}", hint.join(" ")));
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

//! `windlass verify DIRECTORY`: sums up what was found of all its sets.

use serde_json::{Value, json};
use windlass_engine::show_size;
use windlass_operations::verify::{BadSets, NotRead, SetResult, VerifiedSets};

use super::{complain, document};
use crate::cli::Global;
use crate::exit::Code;
use crate::words::typed;
use crate::{hints, output};

/// Prints the sum. Returns how the command ends.
pub(super) fn show(global: &Global, verified: &VerifiedSets) -> Code {
    if verified.sets == 1 {
        let one = verified.results.iter().filter_map(SetResult::verified);
        one.for_each(complain);
    }
    match global.json {
        true => print_document(verified),
        false if global.quiet => {}
        false => {
            print_sum(verified);
            if let Some(moment) = &verified.moment {
                super::moment::print(moment);
            }
        }
    }
    complain_of_all(verified);
    super::logs::complain(&verified.logs);
    if let Some(moment) = &verified.moment {
        super::moment::complain(moment);
    }
    verified.ending().into()
}

fn print_document(verified: &VerifiedSets) {
    let (damaged, failed) = (verified.damaged(), verified.failed());
    let sets: Vec<_> = verified.results.iter().map(result).collect();
    let logs: Vec<_> = verified.logs.iter().map(super::logs::document).collect();
    let are_logs_right = verified
        .logs
        .iter()
        .all(|log| log.faults().next().is_none());
    let document = json!({
        "ok": damaged.is_empty() && failed.is_empty() && are_logs_right,
        "sets": sets,
        "verified_earlier": verified.earlier,
        "logs": logs,
        "damaged": damaged,
        "failed": failed,
        "unfinished": verified.unfinished,
        "moment": verified.moment.as_deref().map(super::moment::document),
    });
    output::line(&document.to_string());
}

fn result(result: &SetResult) -> Value {
    match result {
        SetResult::Verified { verified, .. } => document(verified),
        SetResult::NotRead { name, id, why, .. } => {
            json!({"set_id": id, "name": name, "ok": false, "error": why.to_string()})
        }
    }
}

fn print_sum(verified: &VerifiedSets) {
    match (verified.earlier, verified.sets) {
        (0, _) => {}
        (earlier, 0) => {
            let sets = output::count(earlier as u64, "set");
            output::line(&format!("verified      nothing new: {sets} read earlier"));
        }
        (earlier, _) => {
            let sets = output::count(earlier as u64, "set");
            output::line(&format!("not again     {sets}, read earlier and right"));
        }
    }
    if verified.sets < 2 {
        return;
    }
    let sound = verified.results.iter().filter(|one| !one.is_damaged());
    let sound: Vec<_> = sound.filter_map(SetResult::verified).collect();
    let bytes = show_size(sound.iter().map(|one| one.stripe_bytes).sum());
    let of = verified.results.len();
    let sets = output::count(of as u64, "set");
    match sound.len() {
        // The error that follows says it all.
        0 => {}
        sound if sound == of => {
            output::line(&format!("verified      {sets}, {bytes}: all right"));
        }
        sound => output::line(&format!(
            "verified      {sound} of {sets}, {bytes}: these are right"
        )),
    }
}

/// Reports which sets are damaged.
fn complain_of_all(verified: &VerifiedSets) {
    let is_denied = |one: &SetResult| match one {
        SetResult::NotRead { why, .. } => matches!(why, NotRead::Denied(_)),
        SetResult::Verified { .. } => false,
    };
    let is_denied = verified.results.iter().any(is_denied);
    if verified.sets < 2 && verified.results.len() <= verified.sets && !is_denied {
        return;
    }
    let (damaged, failed) = (verified.damaged(), verified.failed());
    for (what, names) in [("damaged", &damaged), ("not verified", &failed)] {
        if !names.is_empty() {
            let (bad, names) = (names.len(), names.join(", "));
            let of = verified.results.len();
            output::note(&format!("error: {bad} of {of} sets {what}: {names}"));
        }
    }
    if is_denied {
        output::note(
            "hint: Run the command as a user who may read what is not readable, or as root.",
        );
    }
    if !damaged.is_empty() {
        output::note(&format!("hint: {}", instead(&verified.instead)));
    }
}

/// What to do about damaged sets.
fn instead(bad: &BadSets) -> String {
    match bad {
        BadSets::One(advice) => hints::places::advice(advice, None),
        BadSets::None => {
            "Nothing of such a file can be read. If it is no stripe, move it away.".to_owned()
        }
        BadSets::Several(places) => {
            let place = typed(places);
            format!("`windlass verify {place} --set ID` lists what is lost in one of them.")
        }
    }
}

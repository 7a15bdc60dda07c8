//! `windlass verify DIRECTORY`: verifies all of its sets, one after another, and sums up the
//! results.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_engine::{Cancel, SetEntry, SetState, show_size};

use super::{How, Verified};
use crate::cli::{Global, Verify};
use crate::denied;
use crate::exit::{Code, Failure};
use crate::hints;
use crate::output;
use crate::places::{self, Identity, LocatedSet, Named, advice_about, short_id};
use crate::words::{local_time, typed};
use windlass_operations::Caller;

/// The results of all sets.
#[derive(Default)]
struct Outcome {
    documents: Vec<Value>,
    sound: u64,
    bytes: u64,
    /// What is damaged: ids, and files that belong to no set.
    damaged: Vec<String>,
    /// The sets that could not be verified for another reason than damage.
    failed: Vec<String>,
    /// How many of these this user may not read.
    denied: usize,
    warnings: bool,
}

pub(super) fn run(
    (global, caller): (&Global, &Caller),
    arguments: &Verify,
    named: &Named,
    cancel: &Cancel,
) -> Result<Code, Failure> {
    if arguments.watching.events.is_some() {
        let message = "--events records one run, and each set of a directory has its own";
        let hint = "Choose a set with --latest or --set, or name a stripe.";
        return Err(Failure::usage(message, hint));
    }
    let list = places::list(&named.paths)?;
    let all = named.sets(&list)?;
    let (unfinished, sets): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|set| matches!(set.state, SetState::Unfinished));
    if sets.is_empty() && list.unknown.is_empty() {
        // `choose` fails and says why there is no set.
        places::choose(caller, &list, named)?;
    }
    let mut outcome = Outcome::default();
    for unknown in &list.unknown {
        let path = unknown.file.location.display().to_string();
        if let Some((message, _)) = denied::words(&unknown.fault) {
            outcome.not_allowed(global, &path, None, message);
            continue;
        }
        if !global.json {
            output::line(&format!("damaged       {path}: {}", unknown.fault));
        }
        outcome.not_read(&path, None, unknown.fault.to_string());
    }
    let is_sound_so_far = |set: &&SetEntry| set.state.fault().is_none();
    let mut how = How {
        global,
        arguments,
        title: None,
        well_so_far: list.unknown.is_empty() && sets.iter().all(is_sound_so_far),
    };
    for set in &sets {
        how.title = (sets.len() > 1).then(|| title(set));
        let found = LocatedSet::of_list(set, &sets, &named.paths);
        one(&how, (set, &found), &mut outcome, cancel)?;
        how.well_so_far &= outcome.damaged.is_empty() && outcome.failed.is_empty();
    }
    if global.json {
        let unfinished: Vec<_> = unfinished.iter().flat_map(|set| set.locations()).collect();
        outcome.print_document(&unfinished);
    } else {
        outcome.print(sets.len(), global.quiet);
    }
    let hint = outcome.hint(&sets, &named.paths);
    Ok(outcome.end(sets.len(), &hint))
}

/// Verifies one set of several. It returns an error only if the error ends all of them.
fn one(
    how: &How<'_>,
    (set, found): (&SetEntry, &LocatedSet),
    outcome: &mut Outcome,
    cancel: &Cancel,
) -> Result<(), Failure> {
    if let Some((message, _)) = set.state.fault().and_then(denied::words) {
        let id = set.set_id.to_string();
        outcome.not_allowed(how.global, &short_id(set), Some(id), message);
        return Ok(());
    }
    let verified = match how.verify(found, cancel) {
        Ok(verified) => verified,
        // If there is only one set, its failure is reported in full by the caller.
        Err(failure)
            if failure.is_of_one_set()
                && (how.title.is_some() || !outcome.documents.is_empty()) =>
        {
            if !how.global.json {
                output::line(&format!("{}  {}", title(set), failure.message()));
            }
            let id = set.set_id.to_string();
            let message = failure.message().to_owned();
            outcome.not_read(&short_id(set), Some(id), message);
            if !failure.is_damage() {
                outcome.failed.extend(outcome.damaged.pop());
            }
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    outcome.add(set, verified, how.title.is_some());
    Ok(())
}

/// The name of a set at the beginning of a line.
fn title(set: &SetEntry) -> String {
    let of = Identity::of(set).map_or("?".to_owned(), |of| of.name().to_owned());
    let begun = local_time(set.begun_nanos);
    format!("{:<14}{begun}  {of}", short_id(set))
}

impl Outcome {
    fn not_read(&mut self, name: &str, id: Option<String>, fault: String) {
        self.damaged.push(name.to_owned());
        self.documents
            .push(json!({"set_id": id, "name": name, "ok": false, "error": fault}));
    }

    /// What this user may not read is not verified, and not damaged either.
    fn not_allowed(&mut self, global: &Global, name: &str, id: Option<String>, why: String) {
        if !global.json {
            output::line(&format!("not readable  {why}"));
        }
        self.not_read(name, id, why);
        self.failed.extend(self.damaged.pop());
        self.denied += 1;
    }

    fn add(&mut self, set: &SetEntry, verified: Verified, brief: bool) {
        match verified.code {
            Code::Damage => self.damaged.push(short_id(set)),
            code => {
                self.warnings |= code == Code::Warnings;
                self.sound += 1;
                self.bytes += verified.stripe_bytes;
            }
        }
        if !brief {
            verified.complain();
        }
        self.documents.push(verified.document);
    }

    fn print_document(&self, unfinished: &[PathBuf]) {
        let document = json!({
            "ok": self.damaged.is_empty() && self.failed.is_empty(),
            "sets": self.documents,
            "damaged": self.damaged,
            "failed": self.failed,
            "unfinished": unfinished,
        });
        output::line(&document.to_string());
    }

    fn print(&self, count: usize, quiet: bool) {
        if count > 1 && !quiet {
            let (bytes, of) = (show_size(self.bytes), self.documents.len() as u64);
            let sets = output::count(of, "set");
            match self.sound {
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
    }

    /// What to do about damaged sets. Only what was verified is named as sound.
    fn hint(&self, sets: &[&SetEntry], places: &[PathBuf]) -> String {
        let is_in = |names: &[String], set: &SetEntry| names.contains(&short_id(set));
        let bad: Vec<_> = sets
            .iter()
            .filter(|set| is_in(&self.damaged, set))
            .collect();
        let is_usable = |set: &&&SetEntry| !is_in(&self.failed, set) && !is_in(&self.damaged, set);
        let usable: Vec<_> = sets.iter().filter(is_usable).copied().collect();
        match bad.as_slice() {
            [bad] => hints::places::advice(&advice_about(&usable, bad, places), None),
            [] => {
                "Nothing of such a file can be read. If it is no stripe, move it away.".to_owned()
            }
            _ => {
                let place = typed(places);
                format!("`windlass verify {place} --set ID` lists what is lost in one of them.")
            }
        }
    }

    /// Reports which sets are damaged. Returns how the command ends.
    fn end(&self, count: usize, hint: &str) -> Code {
        if count > 1 || self.documents.len() > count || self.denied > 0 {
            for (what, names) in [("damaged", &self.damaged), ("not verified", &self.failed)] {
                if !names.is_empty() {
                    let (bad, names) = (names.len(), names.join(", "));
                    let of = self.documents.len();
                    output::note(&format!("error: {bad} of {of} sets {what}: {names}"));
                }
            }
            if self.denied > 0 {
                output::note(
                    "hint: Run the command as a user who may read what is not readable, or as root.",
                );
            }
            if !self.damaged.is_empty() {
                output::note(&format!("hint: {hint}"));
            }
        }
        match (self.damaged.is_empty(), self.failed.is_empty()) {
            (false, _) => Code::Damage,
            (true, false) => Code::Failed,
            (true, true) if self.warnings => Code::Warnings,
            (true, true) => Code::Done,
        }
    }
}

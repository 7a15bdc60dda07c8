//! `windlass snapshot rotate`: makes a snapshot, and drops the oldest of its kind.

use serde_json::json;
use windlass_operations::snapshots;

use crate::cli::{Global, SnapshotRotate};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::{requests, signals};

pub fn run(global: &Global, arguments: &SnapshotRotate) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = super::shared::request(&arguments.of, &arguments.prefix, &arguments.making);
    let caller = requests::quiet_caller(global);
    let outcome = snapshots::rotate(&caller, &request, arguments.keep, &cancel)?;
    super::shared::warn(&outcome.created);
    if !outcome.held_back.is_empty() {
        output::note(&format!(
            "warning: nothing is dropped because of that, and these stay: {}; if it is meant to \
             be so, --accept its name",
            outcome.held_back.join(", ")
        ));
    }
    for name in &outcome.in_use {
        output::note(&format!(
            "warning: snapshot {name} should have been dropped, and is in use"
        ));
    }
    for one in outcome.with_undo.iter().filter(|one| !one.is_told) {
        let (name, of) = (&one.name, super::shared::typed(&arguments.of));
        let what = match one.has_ended {
            true => {
                ", which nobody can bring back any more, because the snapshot has ended; it stays, \
                 and no later rotation says so, until"
            }
            false => "; when that is not needed any more",
        };
        output::note(&format!(
            "warning: snapshot {name} should have been dropped, and has what a revert \
             overwrote{what}: windlass snapshot drop {of} {name}"
        ));
    }
    if global.json {
        let mut document = super::shared::document(&outcome.created);
        document["dropped"] = outcome.dropped.clone().into();
        document["in_use"] = outcome.in_use.clone().into();
        let with_undo = outcome.with_undo.iter().map(|one| one.name.clone());
        document["with_undo"] = with_undo.collect::<Vec<_>>().into();
        document["held_back"] = outcome.held_back.clone().into();
        output::line(&json!(document).to_string());
    } else if !global.quiet {
        super::shared::show(&arguments.of, &outcome.created);
        for name in &outcome.dropped {
            output::entry("dropped", &format!("snapshot {name}"), Tone::Good);
        }
    }
    Ok(outcome.ending().into())
}

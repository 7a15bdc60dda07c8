//! `windlass snapshot`: makes, lists and drops snapshots, goes back to them, and prepares servers
//! for them.

mod back;
mod enable;
mod list;
mod rotate;
mod shared;

use serde_json::json;
use windlass_operations::snapshots::{self, UndoNumber};

use crate::cli::{Global, Snapshot, SnapshotCreate, SnapshotDrop};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::{requests, signals};
use shared::{document, of, request, show, warn};

pub fn run(global: &Global, arguments: &Snapshot) -> Result<Code, Failure> {
    match arguments {
        Snapshot::Create(create) => make(global, create),
        Snapshot::List(list) => list::run(global, list),
        Snapshot::Drop(drop) => remove(global, drop),
        Snapshot::Enable(arguments) => enable::run(global, arguments),
        Snapshot::Disable(arguments) => enable::undo(global, arguments),
        Snapshot::Rotate(arguments) => rotate::run(global, arguments),
        Snapshot::Revert(arguments) => back::revert(global, arguments),
        Snapshot::Undo(arguments) => back::undo(global, arguments),
    }
}

fn make(global: &Global, arguments: &SnapshotCreate) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = request(&arguments.of, &arguments.snapshot, &arguments.making);
    let outcome = snapshots::create(&requests::quiet_caller(global), &request, &cancel)?;
    warn(&outcome);
    if global.json {
        output::line(&document(&outcome).to_string());
    } else if !global.quiet {
        show(&arguments.of, &outcome);
    }
    Ok(outcome.ending().into())
}

fn remove(global: &Global, arguments: &SnapshotDrop) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let removed = snapshots::remove(&caller, &of(&arguments.of), &arguments.snapshot)?;
    let gone: Vec<_> = removed.undo.iter().map(ToString::to_string).collect();
    let name = &arguments.snapshot;
    if let Some(away) = &removed.away {
        output::note(&format!(
            "warning: {} was not there, so only the entry of snapshot {name} is gone: the \
             directory stays on its disk",
            away.display()
        ));
        output::note("hint: When that disk is back, remove the directory.");
    }
    if global.json {
        let stays = removed.away.as_ref();
        let stays = stays.map(|path| path.display().to_string());
        output::line(&json!({"dropped": name, "undo": gone, "stays": stays}).to_string());
    } else if !global.quiet {
        let text = match (UndoNumber::parse(name), gone.is_empty()) {
            (Some(state), _) => state.to_string(),
            (None, true) => format!("snapshot {name}"),
            (None, false) => format!("snapshot {name}, and with it {}", gone.join(", ")),
        };
        output::entry("dropped", &text, Tone::Good);
    }
    Ok(removed.ending().into())
}

//! `windlass snapshot revert` and `undo`: they say what they would do, ask, and do it.

use std::path::Path;

use serde_json::json;
use windlass_engine::show_size;
use windlass_operations::Caller;
use windlass_operations::snapshots::{
    self, BackOutcome, BackPlan, STATES_KEPT, Settled, SnapshotsOf, UndoNumber, Undoing, is_limit,
    plan_revert, plan_undo,
};

use crate::cli::{Global, SnapshotRevert, SnapshotUndo};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::words::{duration, moment_of, quoted};
use crate::{ask, requests, signals};

pub fn revert(global: &Global, arguments: &SnapshotRevert) -> Result<Code, Failure> {
    let of = SnapshotsOf {
        database: arguments.database.clone(),
        name: None,
    };
    let caller = requests::quiet_caller(global);
    let plan = plan_revert(&caller, &of)?;
    run((global, &caller), &plan, arguments.yes)
}

pub fn undo(global: &Global, arguments: &SnapshotUndo) -> Result<Code, Failure> {
    let of = super::shared::of(&arguments.of);
    let caller = requests::quiet_caller(global);
    match plan_undo(&caller, &of, arguments.state.as_deref())? {
        Undoing::Planned(plan) => run((global, &caller), &plan, arguments.yes),
        Undoing::Settled {
            settled,
            database,
            start_command,
        } => {
            show_settled(global, settled, &database, start_command.as_deref());
            Ok(Code::Done)
        }
    }
}

/// Says that an undo that was cut off is finished, or a revert undone, and that this was all.
fn show_settled(global: &Global, settled: Settled, database: &Path, start: Option<&str>) {
    let database = database.display().to_string();
    let (cut_off, became) = match settled.is_undo {
        true => ("undo", "finished, and no other began"),
        false => ("revert", "undone, and no undo began"),
    };
    if global.json {
        let document = json!({
            "database": database,
            "undo": true,
            "finished": true,
            "cut_off": cut_off,
            "start_command": start,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let what = format!("{database}: the {cut_off} that was cut off is {became}");
        output::entry("undone", &what, Tone::Good);
        if let Some(start) = start {
            output::entry("next", &format!("start the server: {start}"), Tone::Plain);
        }
        let again = format!(
            "what the revert before that overwrote: windlass snapshot undo {}",
            quoted(&database)
        );
        output::entry("undo", &again, Tone::Plain);
    }
}

fn run((global, caller): (&Global, &Caller), plan: &BackPlan, yes: bool) -> Result<Code, Failure> {
    if !yes {
        ask::confirm(&question(plan))?;
    }
    let cancel = signals::cancel_on_signals()?;
    let outcome = plan.run(caller, &cancel)?;
    for (name, why) in &outcome.lost {
        let state = if is_limit(why) {
            "has ended"
        } else {
            "is lost"
        };
        output::note(&format!("warning: the snapshot {name} {state}: {why}"));
    }
    for lack in &outcome.reverted.lacks {
        output::note(&format!(
            "warning: the server has less than before, because this user may not give it more: \
             {lack}"
        ));
    }
    if global.json {
        output::line(&document(plan, &outcome).to_string());
    } else if !global.quiet {
        show(plan, &outcome);
    }
    Ok(outcome.ending().into())
}

/// What is about to happen.
fn question(plan: &BackPlan) -> String {
    let database = plan.database.display();
    let record = plan.snapshot.record();
    let mut text = match &plan.undo {
        None if plan.puts_back() => format!(
            "{database} is not there. Windlass puts it back as it was at {}, in snapshot {}.",
            moment_of(&record.as_of),
            record.name
        ),
        None => format!(
            "{database} becomes what it was at {}, in snapshot {}. What was written since is \
             kept: `windlass snapshot undo` brings it back.",
            moment_of(&record.as_of),
            record.name
        ),
        Some((number, undo)) => format!(
            "{database} becomes what it was at {}, before the {} with snapshot {} ({number}). \
             What was written since is kept under another name.",
            moment_of(&undo.at),
            undo.by,
            record.name
        ),
    };
    if !plan.leaving.is_empty() && !plan.puts_back() {
        text.push_str(&format!(
            " Windlass keeps the newest {STATES_KEPT} of such states, so this one goes: {}.",
            numbers(&plan.leaving)
        ));
    }
    if plan.stops_server() {
        text.push_str(" The server is stopped for that: every session ends.");
    }
    if !plan.newer.is_empty() {
        let names = plan.newer.join(", ");
        text.push_str(&format!(" Newer snapshots stay as they are: {names}."));
    }
    if !plan.limited.is_empty() {
        let names = plan.limited.join(", ");
        text.push_str(&format!(
            " What is written counts as growth of snapshots by the hook, so these may reach their \
             limits and end: {names}."
        ));
    }
    text
}

fn show(plan: &BackPlan, outcome: &BackOutcome) {
    let reverted = &outcome.reverted;
    let name = &plan.snapshot.record().name;
    let database = plan.database.display().to_string();
    let pages = |count: u32| {
        let bytes = u64::from(count) * u64::from(reverted.page_bytes);
        let pages = output::count(u64::from(count), "page");
        format!("{pages} ({})", show_size(bytes))
    };
    let (label, what) = match &plan.undo {
        None if plan.puts_back() => ("put back", format!("{database} from snapshot {name}")),
        None => ("reverted", format!("{database} to snapshot {name}")),
        Some((_, undo)) => (
            "undone",
            format!("{database} is as it was at {}", moment_of(&undo.at)),
        ),
    };
    let took = duration(outcome.took.as_secs_f64());
    output::entry(label, &format!("{what} in {took}"), Tone::Good);
    if reverted.rolled_back {
        let text = "SQLite first rolled back the transaction of a process that had ended within it";
        output::entry("journal", text, Tone::Plain);
    }
    let locked = duration(reverted.locked.as_secs_f64());
    if plan.is_cluster() {
        let stopped = format!("it was stopped for {locked}");
        output::entry("server", &stopped, Tone::Plain);
    }
    if let Some(start) = plan.start_command() {
        output::entry("next", &format!("start the server: {start}"), Tone::Plain);
    }
    let all = output::count(u64::from(reverted.page_count), "page");
    let written = match reverted.written_count {
        0 => "nothing: it was so already".to_owned(),
        count => format!("{} of {all}", pages(count)),
    };
    output::entry("written", &written, Tone::Plain);
    if reverted.written_count > 0 && !plan.is_cluster() && !plan.puts_back() {
        let waited = format!("nobody could commit for {locked}");
        output::entry("writers", &waited, Tone::Plain);
    }
    show_kept(plan, reverted, &pages(reverted.kept_count));
}

/// Says how what was overwritten can be brought back, and what is kept no longer.
fn show_kept(plan: &BackPlan, reverted: &snapshots::Reverted, pages: &str) {
    if let Some(kept) = reverted.kept {
        let database = quoted(&plan.database.display().to_string());
        let name = match plan.undo {
            // Without a name, an undo brings back what a revert overwrote.
            None => String::new(),
            Some(_) => format!(" {kept}"),
        };
        let are = if reverted.kept_count == 1 {
            "is"
        } else {
            "are"
        };
        let undo = format!("{pages} {are} kept as {kept}: windlass snapshot undo {database}{name}");
        output::entry("undo", &undo, Tone::Plain);
    }
    if !reverted.gone.is_empty() {
        let gone = format!(
            "{}: Windlass keeps the newest {STATES_KEPT}",
            numbers(&reverted.gone)
        );
        output::entry("gone", &gone, Tone::Plain);
    }
}

fn numbers(states: &[UndoNumber]) -> String {
    let names: Vec<_> = states.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn document(plan: &BackPlan, outcome: &BackOutcome) -> serde_json::Value {
    let reverted: &snapshots::Reverted = &outcome.reverted;
    json!({
        "database": plan.database.display().to_string(),
        "snapshot": plan.snapshot.record().name,
        "undo": plan.undo.is_some(),
        "finished": false,
        "put_back": plan.puts_back(),
        "as_of": match &plan.undo {
            None => &plan.snapshot.record().as_of,
            Some((_, undo)) => &undo.at,
        },
        "kept": reverted.kept.map(|kept| kept.to_string()),
        "gone": reverted.gone.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "newer": plan.newer,
        "limited": plan.limited,
        "lost": outcome.lost.iter().map(|(name, why)| json!({"name": name, "why": why})).collect::<Vec<_>>(),
        "page_bytes": reverted.page_bytes,
        "pages": reverted.page_count,
        "pages_written": reverted.written_count,
        "pages_kept": reverted.kept_count,
        "pages_compared": reverted.compared_count,
        "seconds": outcome.took.as_secs_f64(),
        "writers_stopped_seconds": reverted.locked.as_secs_f64(),
        "start_command": plan.start_command(),
        "transaction_rolled_back": reverted.rolled_back,
        "lacks": reverted.lacks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

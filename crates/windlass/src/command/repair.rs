//! `windlass repair`: damaged pages out of a chain and its log.

use serde_json::{Value, json};
use windlass_engine::{counted, show_size};
use windlass_operations::{RepairOutcome, RepairRequest, repair};
use windlass_postgres::RecoveryPoint;

use crate::cli::{AtLog, Global, Repair};
use crate::exit::{Code, Failure};
use crate::output::Tone;
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &Repair) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let log = AtLog {
        log_from: arguments.log_from.clone(),
        timeline: None,
    };
    let request = RepairRequest {
        data: arguments.data.clone(),
        pages: arguments.pages.clone(),
        sets: requests::sets(
            global,
            std::slice::from_ref(&arguments.from),
            &arguments.choice,
        ),
        encrypt: requests::log_readers(global, log.place(&arguments.from), &[]),
        moment: log.request(&RecoveryPoint::Latest, &arguments.recovering),
        keep: arguments.keep.clone().filter(|_| !arguments.dry_run),
    };
    let outcome = repair(&requests::quiet_caller(global), &request, &cancel)?;
    match global.json {
        true => output::line(&document(&outcome).to_string()),
        false => show(&outcome, arguments.dry_run),
    }
    Ok(outcome.ending().into())
}

fn document(outcome: &RepairOutcome) -> Value {
    let repaired = outcome.repaired.iter().map(|one| {
        json!({
            "page": one.page.to_string(),
            "lsn": one.lsn.to_string(),
            "kept": one.kept,
        })
    });
    let refused = outcome.refused.iter();
    let refused =
        refused.map(|(page, why)| json!({ "page": page.to_string(), "why": why.to_string() }));
    json!({
        "damaged": outcome.damaged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "searched_bytes": outcome.searched_bytes,
        "set": outcome.set.map(|set| set.to_string()),
        "log_end": outcome.end.to_string(),
        "repaired": repaired.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

fn show(outcome: &RepairOutcome, dry_run: bool) {
    if outcome.searched_bytes > 0 {
        let found = counted(outcome.damaged.len() as u64, "damaged page");
        let text = format!("{} read: {found}", show_size(outcome.searched_bytes));
        output::entry("checksums", &text, Tone::Plain);
    }
    for one in &outcome.repaired {
        let text = format!(
            "{}, as it was changed last at {}; the damaged page is {}",
            one.page,
            one.lsn,
            one.kept.display()
        );
        output::entry("repaired", &text, Tone::Good);
    }
    for (page, why) in &outcome.refused {
        output::entry("not repaired", &format!("{page}: {why}"), Tone::Bad);
    }
    let is_open = outcome.repaired.is_empty() && outcome.refused.is_empty();
    for page in outcome.damaged.iter().filter(|_| is_open) {
        output::entry("damaged", &page.to_string(), Tone::Bad);
    }
    if dry_run && !outcome.damaged.is_empty() {
        output::note(
            "hint: run it again with --keep DIRECTORY instead of --dry-run to repair them.",
        );
    }
    if !outcome.repaired.is_empty() {
        output::note("hint: start the server, and let pg_amcheck check the repaired relations.");
    }
}

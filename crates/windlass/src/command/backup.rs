//! `windlass backup`: a live database to a sealed set, or its log to a place.

mod log;

use windlass_engine::{show_size, to_json};
use windlass_operations::{BackupOutcome, Caller, Mirrored, Remark, back_up, backup_not_begun};

use crate::cli::{Backup, BackupKind, Global, SQLITE_VERSION};
use crate::exit::{Code, Failure};
use crate::observer::Terminal;
use crate::table::Finished;
use crate::{log as run_log, output, requests, signals, warnings, words};

pub fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    if arguments.kind == BackupKind::Log {
        return log::run(global, arguments);
    }
    if arguments.dry_run {
        return super::check::dry_run(global, arguments);
    }
    let cancel = signals::cancel_on_signals()?;
    let terminal = Terminal::new(global, arguments.watching.details, arguments.stats);
    let caller = requests::caller(global, terminal);
    let request = requests::backup(arguments);
    let request = request.inspect_err(|failure| tell_failure(&caller, arguments, failure))?;
    let (outcome, ending) = back_up(&caller, &request, &cancel)?;
    show(global, arguments.watching.details, &outcome);
    Ok(output::degraded(ending.into()))
}

/// A value that cannot be used ends the run before it begins. Its hooks hear of it all the same, if
/// they can be used themselves.
fn tell_failure(caller: &Caller, arguments: &Backup, failure: &Failure) {
    let watching = requests::watching_nothing(&arguments.watching);
    if let Ok(hooks) = requests::hooks(&arguments.hooks) {
        let name = arguments.name.as_deref();
        let what = (arguments.database.as_str(), name, arguments.to.as_slice());
        let why = (failure.code().ending(), failure.message());
        backup_not_begun((caller, &watching, &hooks), what, why);
    }
}

/// Shows what was made.
pub(super) fn show(global: &Global, details: bool, outcome: &BackupOutcome) {
    print_warnings(&outcome.warnings, details);
    let remarks = outcome.remarks.iter();
    let remarks = remarks.filter_map(|remark| remark_text(remark, details || global.json));
    let remarks: Vec<_> = remarks.collect();
    if global.json {
        let document = document(outcome, remarks);
        return output::line(&document.to_string());
    }
    let report = &outcome.report;
    let read = show_size(report.bytes_read);
    let (written, seconds) = (
        show_size(report.bytes_written),
        words::duration(report.seconds),
    );
    let result = match outcome.is_kept_nowhere {
        true => ("nothing kept", format!("{read} read in {seconds}")),
        false => {
            let id = report.set_id.as_deref().unwrap_or_default();
            (
                "sealed",
                format!("set {id}: {read} stored in {written}, in {seconds}"),
            )
        }
    };
    let finished = Finished {
        result,
        then: stripes(outcome),
        report,
        judgement: Some(&outcome.judgement),
        remarks: remarks.into_iter().map(|text| ("source", text)).collect(),
        details,
    };
    finished.print(global.quiet);
}

/// Where the set is, and how to restore it.
fn stripes(outcome: &BackupOutcome) -> Vec<(&'static str, String)> {
    let kept = outcome.stripes.iter();
    let kept: Vec<_> = kept.map(|path| path.display().to_string()).collect();
    let base = outcome.base.iter();
    let base = base.map(|base| ("builds on", format!("set {base}")));
    let data = kept.len().saturating_sub(usize::from(outcome.parities));
    let word = |index| if index < data { "stripe" } else { "parity" };
    let named = kept.iter().enumerate();
    let stripes = named.map(|(index, name)| (word(index), name.clone()));
    let there = outcome.mirrors.iter().filter(|one| one.fault.is_none());
    let mirrors = there.map(|one| ("mirror", mirror_text(one)));
    let mut lines: Vec<_> = base.chain(stripes).chain(mirrors).collect();
    if let (true, Some(first)) = (kept.len() == outcome.report.devices.len(), kept.first()) {
        let stripe = words::quoted(first);
        lines.push(("restore", format!("windlass restore {stripe} --into PATH")));
    }
    lines
}

/// What was copied to a mirror.
fn mirror_text(mirror: &Mirrored) -> String {
    let stripes = output::count(mirror.stripes.len() as u64, "stripe");
    format!(
        "{}: {stripes}, {} in {}",
        mirror.name,
        show_size(mirror.bytes),
        words::duration(mirror.seconds)
    )
}

/// Prints the warnings on standard error: those that are accepted with `details` only.
fn print_warnings(warnings: &warnings::Warnings, details: bool) {
    for warnings::Warning {
        name,
        text,
        accepted,
    } in warnings.iter()
    {
        match (accepted, details) {
            (false, _) => output::note(&format!("warning: {text} ({name})")),
            (true, true) => output::note(&format!("accepted: {text} ({name})")),
            (true, false) => run_log::info(&format!("accepted: {text} ({name})")),
        }
    }
    let names = warnings.open_names();
    if !names.is_empty() {
        let names = names.join(",");
        // A hint in the log would have the level of an error.
        output::unlogged(&format!(
            "hint: If it is meant to be so, add --accept {names} (in the configuration: accept = \
             \"{names}\"). Then it does not change the exit code."
        ));
    }
}

/// A remark in words; nothing if it was accepted and `all` is not asked for.
///
/// The version of SQLite is a remark and not a warning. The backup itself is right, and most
/// systems have such a SQLite. A warning would end every backup there with exit code 3.
fn remark_text(remark: &Remark, all: bool) -> Option<String> {
    Some(match remark {
        Remark::AnotherWindow { cause } => {
            format!("changed files were copied again after the first copy, because {cause}")
        }
        Remark::TablespaceInPlace { name } => format!(
            "tablespace {name:?} lies in pg_tblspc itself; without allow_in_place_tablespaces = on \
             its server does not start again after a crash"
        ),
        Remark::NoMapOfChanges { why } => {
            format!("the write hook's map of changes was not used: {why}")
        }
        Remark::WritersWentOn => "writers were never blocked (WAL mode)".to_owned(),
        Remark::WritersWaited(seconds) => {
            let millis = seconds * 1000.0;
            format!("writers were locked out for {millis:.1} ms (rollback mode)")
        }
        Remark::WalResetBug { accepted, .. } if *accepted && !all => return None,
        Remark::WalResetBug { version, .. } => format!(
            "last written by SQLite {version}, which can corrupt a database in WAL mode in rare \
             cases; 3.51.3, 3.50.7 and 3.44.6 are fixed ({SQLITE_VERSION})"
        ),
    })
}

/// The JSON object at the end of a backup: the report, and what was backed up.
fn document(outcome: &BackupOutcome, remarks: Vec<String>) -> serde_json::Value {
    let mut document = to_json(&outcome.report);
    outcome.judgement.describe(&mut document);
    document["type"] = to_json(&outcome.backup_type);
    document["base"] = to_json(&outcome.base);
    document["parities"] = outcome.parities.into();
    document["database"] = outcome.database.clone();
    document["warnings"] = outcome.warnings.document();
    document["remarks"] = remarks.into();
    let mirrors = outcome.mirrors.iter().map(|one| {
        serde_json::json!({
            "name": one.name,
            "ok": one.fault.is_none() && !one.lacks_base,
            "stripes": one.stripes,
            "bytes": one.bytes,
            "seconds": one.seconds,
            "error": one.fault.as_ref().map(ToString::to_string),
        })
    });
    if !outcome.mirrors.is_empty() {
        document["mirrors"] = mirrors.collect();
    }
    document
}

//! `windlass events`: the content of a file of events as a table, as JSON, or as a page.

use windlass_engine::to_json;
use windlass_lab::chart::Unit;
use windlass_lab::{EventTable, IoRow, Spread, WaitRow};
use windlass_operations::OperationError;
use windlass_operations::recorded::{RecordedRequest, evaluate};

use crate::cli::{Events, Global};
use crate::exit::{Code, Failure};
use crate::output;

pub fn run(global: &Global, arguments: &Events) -> Result<Code, Failure> {
    let request = RecordedRequest {
        file: arguments.file.clone(),
        page: arguments.html.clone(),
    };
    let table = evaluate(&request).map_err(failure)?;
    if global.json {
        let document = to_json(&table);
        output::line(&document.to_string());
    } else {
        print(&table);
    }
    Ok(Code::Done)
}

/// What cannot be read is most likely another file than the one that was meant.
fn failure(error: OperationError) -> Failure {
    let is_of_lab = matches!(error, OperationError::Lab(_));
    let failure = Failure::from(error);
    match is_of_lab {
        true => failure.or_hint("Name a file that --events of an earlier run has written."),
        false => failure,
    }
}

fn print(table: &EventTable) {
    let seconds = Unit::Seconds.show(table.seconds);
    let EventTable {
        command, subject, ..
    } = table;
    let outcome = table.outcome.replace('_', " ");
    output::line(&format!(
        "{command} of {subject}: {outcome}, {seconds} recorded"
    ));
    if table.thinned > 0 {
        let count = table.thinned;
        output::line(&format!(
            "{count} short events are stood for by others: counts are estimates"
        ));
    }
    if table.lost > 0 {
        output::line(&format!("{} events were lost", table.lost));
    }
    output::line("");
    output::line(&format!(
        "{:<14} {:<13} {:>8} {HEADINGS}",
        "cause", "stage", "share"
    ));
    table.waits.iter().for_each(print_wait);
    output::line("");
    output::line(&format!(
        "{:<14} {:>10} {:>6} {HEADINGS}  device",
        "transfers", "bytes", "depth"
    ));
    table.ios.iter().for_each(print_io);
    if let Some(sentence) = table.error.as_ref().or(table.verdict.as_ref()) {
        output::line("");
        output::line(&format!("verdict        {sentence}"));
    }
}

const HEADINGS: &str = "     count      total       mean        p50        p99        max";

fn print_wait(row: &WaitRow) {
    let share = Unit::Share.show(row.share);
    let (cause, stage, times) = (row.cause, &row.stage, times(&row.spread));
    output::line(&format!("{cause:<14} {stage:<13} {share:>8} {times}"));
}

fn print_io(row: &IoRow) {
    let (bytes, times) = (windlass_engine::show_size(row.bytes), times(&row.spread));
    let (operation, depth, device) = (row.operation, row.mean_depth, &row.name);
    output::line(&format!(
        "{operation:<14} {bytes:>10} {depth:>6.1} {times}  {device}"
    ));
}

fn times(spread: &Spread) -> String {
    let show = |seconds| Unit::Seconds.show(seconds);
    format!(
        "{:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        spread.count,
        show(spread.total_seconds),
        show(spread.mean_seconds),
        show(spread.p50_seconds),
        show(spread.p99_seconds),
        show(spread.max_seconds)
    )
}

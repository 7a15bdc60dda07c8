//! `windlass diff`: which files and pages differ between two images, by relation for PostgreSQL.

mod show;

use std::path::Path;

use windlass_operations::SetChoice;
use windlass_operations::diff::{Believe, DiffRequest, diff};

use crate::cli::{Diff, Global};
use crate::exit::{Code, Failure};
use crate::images::ImageRequest;
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &Diff) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let image = |place: &Path| ImageRequest {
        place: place.to_owned(),
        choice: SetChoice {
            of: arguments.of.clone(),
            ..SetChoice::default()
        },
        configured: global.configured.clone(),
    };
    let request = DiffRequest {
        first: image(&arguments.first),
        second: image(&arguments.second),
        believe: match (arguments.every_byte, arguments.quick) {
            (true, _) => Believe::Nothing,
            (false, true) => Believe::All,
            (false, false) => Believe::Pages,
        },
    };
    let outcome = diff(&requests::quiet_caller(global), &request, &cancel)?;
    for fault in &outcome.report.faults {
        output::note(&format!("warning: relation names: {fault}"));
    }
    match global.json {
        true => output::line(&show::json(&outcome, arguments.pages).to_string()),
        false => show::lines(&outcome.report, arguments.pages),
    }
    Ok(outcome.ending().into())
}

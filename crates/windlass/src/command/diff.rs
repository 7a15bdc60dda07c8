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
    let second = match (&arguments.second, arguments.at.len()) {
        (_, 3..) => return Err(too_many()),
        (Some(second), _) => second,
        (None, 2) => &arguments.first,
        (None, _) => return Err(one_image()),
    };
    let moment = |index: usize| {
        let point = arguments.at.get(index);
        point.map(|point| arguments.log.request(point, &arguments.recovering))
    };
    let image = |place: &Path, index: usize| ImageRequest {
        place: place.to_owned(),
        at: moment(index),
        choice: SetChoice {
            of: arguments.of.clone(),
            ..SetChoice::default()
        },
        configured: global.configured.clone(),
    };
    let request = DiffRequest {
        first: image(&arguments.first, 0),
        second: image(second, 1),
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

fn one_image() -> Failure {
    Failure::usage(
        "there is nothing to compare with".to_owned(),
        "Name a second image, or a second moment with --at.",
    )
}

fn too_many() -> Failure {
    Failure::usage(
        "--at: there are two images, so there are no more than two moments".to_owned(),
        "Write --at once for the first image, and a second time for the second one.",
    )
}

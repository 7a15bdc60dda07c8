//! `windlass extract`: reads single files of a set, and only the frames that hold them.

use windlass_engine::show_size;
use windlass_operations::extract::{ExtractOutcome, ExtractRequest, extract};

use crate::cli::{Extract, Global};
use crate::exit::{Code, Failure};
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &Extract) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let words = std::slice::from_ref(&arguments.set);
    let request = ExtractRequest {
        set: requests::sets(global, words, &arguments.choice),
        into: arguments.into.clone(),
        patterns: arguments.patterns.clone(),
        relations: arguments.relation.clone(),
    };
    let outcome = extract(&requests::quiet_caller(global), &request, &cancel)?;
    show(global, arguments, &outcome);
    Ok(outcome.ending().into())
}

fn show(global: &Global, arguments: &Extract, outcome: &ExtractOutcome) {
    for pattern in &outcome.unmatched {
        output::note(&format!("warning: {pattern} matches no file of the set"));
    }
    if outcome.links_skipped > 0 {
        let links = output::count(outcome.links_skipped, "symbolic link");
        output::note(&format!(
            "warning: {links} not made: Windlass extracts files only"
        ));
    }
    if global.json {
        let document = serde_json::json!({
            "files": outcome.files,
            "bytes": outcome.bytes,
            "bytes_fetched": outcome.fetched_bytes,
            "unmatched": outcome.unmatched,
            "links_skipped": outcome.links_skipped,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (bytes, into) = (show_size(outcome.bytes), arguments.into.display());
        output::line(&format!(
            "extracted     {}, {bytes}, into {into}; {} of the set's {} were read",
            output::count(outcome.files, "file"),
            show_size(outcome.fetched_bytes),
            show_size(outcome.set_bytes)
        ));
    }
}

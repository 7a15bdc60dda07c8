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
        at: arguments.at.request(&arguments.recovering),
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
            "bytes_fetched": outcome.read.map(|(fetched, _)| fetched),
            "unmatched": outcome.unmatched,
            "links_skipped": outcome.links_skipped,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (bytes, into) = (show_size(outcome.bytes), arguments.into.display());
        let files = output::count(outcome.files, "file");
        let read = outcome.read.map_or(String::new(), |(fetched, all)| {
            let (fetched, all) = (show_size(fetched), show_size(all));
            format!("; {fetched} of the set's {all} were read")
        });
        output::line(&format!(
            "extracted     {files}, {bytes}, into {into}{read}"
        ));
    }
}

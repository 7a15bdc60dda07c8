//! What `verify --at` shows of the moment to which the sets and the log lead.

use serde_json::{Value, json};
use windlass_operations::verify::{Opening, VerifiedMoment};

use super::relations;
use crate::hints;
use crate::output::{self, Tone};

/// Prints that it can be reached, and what the database's own tools found there.
pub(super) fn print(moment: &VerifiedMoment) {
    let words = match &moment.opened {
        Some(Opening::Failed(_)) => return,
        Some(Opening::Inspected(_)) => "the database was brought there",
        None => "the sets and the log lead there",
    };
    output::entry("moment", &format!("{}: {words}", moment.title), Tone::Plain);
    if let Some(Opening::Inspected(found)) = &moment.opened {
        relations::print(found, false);
    }
}

/// Reports at the end what is wrong.
pub(super) fn complain(moment: &VerifiedMoment) {
    let title = &moment.title;
    match &moment.opened {
        Some(Opening::Inspected(found)) => {
            relations::warn(found);
            if found.is_damaged() {
                output::note(&format!("error: the database in {title} is damaged"));
                output::note(&format!("hint: {}", hints::OF_SOURCE));
            }
        }
        Some(Opening::Failed(error)) => {
            let (error, hint) = hints::operation::words(error);
            output::note(&format!("error: {title} cannot be opened: {error}"));
            if let Some(hint) = hint {
                output::note(&format!("hint: {hint}"));
            }
        }
        None => {}
    }
}

/// The same, in JSON.
pub(super) fn document(moment: &VerifiedMoment) -> Value {
    let opened = moment.opened.as_ref().map(|opened| match opened {
        Opening::Inspected(found) => relations::document(found),
        Opening::Failed(error) => {
            let (error, hint) = hints::operation::words(error);
            json!({"error": error, "hint": hint})
        }
    });
    json!({"title": moment.title, "open": opened})
}

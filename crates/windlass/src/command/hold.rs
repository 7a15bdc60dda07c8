//! `windlass hold`: says that a set must stay, or that it need not any more.

use serde_json::json;
use windlass_operations::hold::{HoldRequest, hold};

use crate::cli::{Global, Hold};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::requests;
use crate::words::quoted;

/// Longest reason. It is a line for people.
const REASON_BYTES_MAX: usize = 4096;

pub fn run(global: &Global, arguments: &Hold) -> Result<Code, Failure> {
    if arguments.reason.len() > REASON_BYTES_MAX {
        return Err(Failure::usage(
            format!("--reason is longer than {REASON_BYTES_MAX} bytes"),
            "Write why the set must stay in a line or two.",
        ));
    }
    let caller = requests::quiet_caller(global);
    let request = HoldRequest {
        set: requests::sets(global, &arguments.set, &arguments.choice),
        reason: arguments.reason.clone(),
        release: arguments.release,
    };
    let outcome = hold(&caller, &request)?;
    let id = outcome.set_id.to_string();
    let is_nothing = outcome.files.is_empty();
    if global.json {
        let bases: Vec<_> = outcome.bases.iter().map(ToString::to_string).collect();
        let document = json!({
            "set_id": id,
            "held": !arguments.release,
            "bases": bases,
            "not_held": outcome.elsewhere.iter().map(|(base, _)| base.to_string()).collect::<Vec<_>>(),
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (label, words) = match (arguments.release, outcome.bases.len() as u64) {
            (true, _) if is_nothing => ("released", format!("set {id} was not held")),
            (true, _) => (
                "released",
                format!("set {id}: the rules count for it again"),
            ),
            (false, 0) => ("held", format!("set {id} stays until it is released")),
            (false, bases) => {
                let bases = output::count(bases, "set");
                let words = format!("set {id} stays until it is released, with {bases} below it");
                ("held", words)
            }
        };
        output::entry(label, &words, Tone::Good);
    }
    if arguments.release || outcome.elsewhere.is_empty() {
        return Ok(Code::Done);
    }
    for (base, place) in &outcome.elsewhere {
        let (base, place) = (&base.to_string()[..8], quoted(&place.display().to_string()));
        output::note(&format!(
            "warning: set {base}, on which it builds, lies in {place}, and is not held there"
        ));
        output::note(&format!(
            "hint: Hold it, too: windlass hold {place} --set {base}"
        ));
    }
    Ok(Code::Warnings)
}

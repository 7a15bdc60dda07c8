//! `windlass hold`: says that a set must stay, or that it need not any more.

use serde_json::json;
use windlass_operations::hold::{HoldRequest, hold};

use crate::cli::{Global, Hold};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::requests;

pub fn run(global: &Global, arguments: &Hold) -> Result<Code, Failure> {
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
    Ok(Code::Done)
}

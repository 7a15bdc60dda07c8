//! `windlass close`: closes a database that `open --keep` opened.

use windlass_operations::kept;

use crate::cli::{Close, Global};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};

pub fn run(global: &Global, arguments: &Close) -> Result<Code, Failure> {
    let name = &arguments.name;
    let closed = kept::close(name)?;
    if global.json {
        let document = serde_json::json!({
            "closed": name,
            "pid": closed.process,
            "damaged": closed.is_damaged,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        output::entry("closed", name, Tone::Good);
    }
    if !closed.is_damaged {
        return Ok(Code::Done);
    }
    output::note("error: damage was found in what was opened");
    output::note("hint: `windlass verify` lists what is damaged.");
    Ok(Code::Damage)
}

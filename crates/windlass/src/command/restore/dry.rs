//! `windlass restore --dry-run`: what a restore would read and write, and whether it is allowed to.

use serde_json::json;
use windlass_engine::show_size;
use windlass_operations::check::check_restore;

use super::super::check::show_time;
use crate::cli::{Global, Restore};
use crate::exit::{Code, Failure};
use crate::{checks, foretold, output, requests};

pub fn run(global: &Global, arguments: &Restore) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let looked = check_restore(&caller, &requests::restore(global, arguments)?)?;
    let code = output::degraded(looked.checks.ending().into());
    if global.json {
        let document = json!({
            "dry_run": true,
            "set_id": looked.set_id.to_string(),
            "read_bytes": looked.stripe_bytes,
            "bytes": looked.bytes,
            "into": looked.into,
            "prediction": looked.prediction.as_ref().map(foretold::document),
            "checks": checks::document(&looked.checks),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
        return Ok(code);
    }
    checks::print(&looked.checks, global.quiet);
    if global.quiet {
        return Ok(code);
    }
    let (read, written) = (show_size(looked.stripe_bytes), show_size(looked.bytes));
    let id = &looked.set_id.to_string()[..8];
    output::line(&format!("would read    {read} of set {id}"));
    for place in &looked.into {
        output::line(&format!("would write   {}", place.display()));
    }
    output::line(&format!(
        "would hold    {written} at most: zeros become holes"
    ));
    show_time(looked.prediction.as_ref());
    output::line("nothing was changed");
    Ok(code)
}

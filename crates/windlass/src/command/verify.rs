//! `windlass verify`: everything read, everything checked.

use std::sync::Arc;

use windlass_engine::{Discard, Progress, restore};

use crate::cli::{Global, Verify};
use crate::exit::{Code, Failure};
use crate::progress::{Show, Shown};
use crate::sizes::show_size;
use crate::{output, table};

pub fn run(global: &Global, arguments: &Verify) -> Result<Code, Failure> {
    let cancel = super::cancel_on_signals()?;
    let set = super::open(&arguments.set)?;
    let bytes = show_size(set.stripe_bytes());
    if arguments.quick {
        set.check_index()?;
        let (id, stripes) = (set.set_id(), set.stripes().len());
        if global.json {
            let document = serde_json::json!({"set_id": id.to_string(), "quick": true, "ok": true});
            output::line(&document.to_string());
        } else {
            output::line(&format!(
                "set {id}: {stripes} stripes sealed, all index blocks right"
            ));
        }
        return Ok(Code::Done);
    }
    let options = super::restore_options(&set, &arguments.buffers, arguments.max_rate)?;
    if !super::is_silent(global) {
        table::print_plan(&options.plan, None);
    }
    let progress = Arc::<Progress>::default();
    let shown = Shown::start(&progress, Show::choose(super::is_silent(global), 10));
    let report = restore(&set, &Discard, &options, &progress, &cancel)?;
    drop(shown);
    if global.json {
        let mut document = serde_json::to_value(&report).unwrap_or_default();
        document["ok"] = true.into();
        output::line(&document.to_string());
    } else {
        table::print_report(&report);
        let seconds = report.seconds;
        output::line(&format!(
            "verified      set {}: all {bytes} read and right, in {seconds:.2} s",
            report.set_id
        ));
    }
    Ok(Code::Done)
}

//! `windlass snapshot enable` and `disable`: the hook comes into a PostgreSQL server, and goes.

use serde_json::{Value, json};
use windlass_operations::snapshots::{self, EnableRequest, Enabled};

use crate::cli::{Global, SnapshotDisable, SnapshotEnable};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::requests;

pub fn run(global: &Global, arguments: &SnapshotEnable) -> Result<Code, Failure> {
    let request = EnableRequest {
        of: super::shared::of(&arguments.of),
        library: arguments.library.clone(),
    };
    let enabled = snapshots::enable(&requests::quiet_caller(global), &request)?;
    let database = super::shared::typed(&arguments.of);
    tell(global, &enabled, || {
        let library = enabled.library.as_deref().unwrap_or_default();
        output::entry("library", library, Tone::Plain);
        if enabled.needs_restart() {
            restart(
                "hook",
                "the server loads the library when it starts the next time",
            );
            let check = format!("windlass snapshot enable {database}");
            return output::entry("check", &format!("after that: {check}"), Tone::Plain);
        }
        let text = "every process of the server writes through it";
        output::entry("hook", text, Tone::Good);
        let create = format!("windlass snapshot create {database} NAME");
        output::entry("create", &create, Tone::Plain);
    });
    Ok(Code::Done)
}

pub fn undo(global: &Global, arguments: &SnapshotDisable) -> Result<Code, Failure> {
    let of = super::shared::of(&arguments.of);
    let disabled = snapshots::disable(&requests::quiet_caller(global), &of)?;
    tell(global, &disabled, || match disabled.needs_restart() {
        true => restart(
            "hook",
            "the server goes on with the library until it starts again",
        ),
        false => output::entry("hook", "the server does not load it", Tone::Good),
    });
    Ok(Code::Done)
}

fn tell(global: &Global, enabled: &Enabled, show: impl FnOnce()) {
    if global.json {
        output::line(&document(enabled).to_string());
    } else if !global.quiet {
        show();
    }
}

fn restart(label: &str, text: &str) {
    output::entry(label, text, Tone::Plain);
    output::entry("next", "restart the server", Tone::Plain);
}

fn document(enabled: &Enabled) -> Value {
    json!({
        "library": enabled.library,
        "changed": enabled.changed,
        "active": enabled.active,
        "restart_needed": enabled.needs_restart(),
    })
}

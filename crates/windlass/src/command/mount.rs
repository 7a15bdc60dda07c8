//! `windlass mount`: shows a set as files until it is unmounted.
//!
//!   windlass mount ...  --detach--> windlass mount ... --foreground
//!     waits, prints what it says      mounts, says so, serves in the background from then on

use windlass_operations::mounting::{MountRequest, MountedSet, mount};

use super::detach;
use crate::cli::{Global, MountSet};
use crate::exit::{Code, Failure};
use crate::{damage, output, requests, signals};

pub fn run(global: &Global, arguments: &MountSet) -> Result<Code, Failure> {
    if !arguments.foreground {
        return detach::run(global.json, &["--foreground", "--detached"]);
    }
    let cancel = signals::cancel_on_signals()?;
    let words = std::slice::from_ref(&arguments.set);
    let request = MountRequest {
        set: requests::sets(global, words, &arguments.choice),
        at_moment: arguments.at_moment.request(&arguments.recovering),
        at: arguments.at.clone(),
        overlay: arguments.overlay.clone(),
        cache_bytes: arguments.cache,
        threads: arguments.threads,
        allow_other: arguments.allow_other,
        direct_io: arguments.direct_io,
    };
    let mounted = mount(&requests::quiet_caller(global), &request, &cancel)?;
    say_mounted(global, &mounted);
    if arguments.detached {
        detach::leave(output::degraded(Code::Done))?;
    }
    match mounted.serve(&cancel)? {
        None => Ok(Code::Done),
        Some(found) => {
            damage::say_advice(&found);
            Ok(Code::Damage)
        }
    }
}

fn say_mounted(global: &Global, mounted: &MountedSet) {
    let (title, at) = (&mounted.title, mounted.at().display());
    if global.json {
        let document = serde_json::json!({
            "set_id": mounted.id.map(|id| id.to_string()),
            "at": at.to_string(),
            "pid": std::process::id(),
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        output::line(&format!("mounted       {title} on {at}"));
    }
}

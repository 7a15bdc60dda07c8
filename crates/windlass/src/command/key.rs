//! `windlass key`: who can read encrypted sets, whether keys open them, and new envelopes for them.

use serde_json::json;
use windlass_operations::SetRequest;
use windlass_operations::locks::{self, CheckedSet, LockShown, RotatedSet};

use crate::cli::{Global, Key, KeyOf, KeyRotate};
use crate::exit::{Code, Failure};
use crate::output;
use crate::requests;
use crate::words::local_time;

pub fn run(global: &Global, key: &Key) -> Result<Code, Failure> {
    match key {
        Key::List(of) => list(global, of),
        Key::Check(of) => check(global, of),
        Key::Rotate(arguments) => rotate(global, arguments),
    }
}

fn request(global: &Global, of: &KeyOf) -> SetRequest {
    requests::sets(global, &of.set, &of.choice)
}

fn list(global: &Global, of: &KeyOf) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let sets = locks::locks(&caller, &request(global, of))?;
    let code = match sets.iter().any(|set| set.fault.is_some()) {
        true => Code::Damage,
        false => Code::Done,
    };
    if global.json {
        let sets: Vec<_> = sets.iter().map(lock_document).collect();
        output::line(&json!({ "sets": sets }).to_string());
        return Ok(code);
    }
    for set in &sets {
        let id = &set.set_id.to_string()[..8];
        let written = set.written_to.join(", ");
        output::line(&format!("{id}  {}  {written}", local_time(set.begun_nanos)));
        if let Some((nanos, recipients)) = &set.rotated_to {
            let (when, who) = (local_time(*nanos), recipients.join(", "));
            output::line(&format!("          rotated {when}  {who}"));
        }
        if let Some(fault) = &set.fault {
            output::line(&format!("          rotated  ?  {fault}"));
            output::note(
                "hint: `windlass key rotate` writes the file again, with a key that could read the \
                 set when it was written. Or copy the file from where the set was copied to.",
            );
        }
    }
    Ok(code)
}

fn lock_document(set: &LockShown) -> serde_json::Value {
    json!({
        "set_id": set.set_id.to_string(),
        "written_to": set.written_to,
        "rotated_to": set.rotated_to.as_ref().map(|(_, recipients)| recipients),
        "error": set.fault.as_ref().map(ToString::to_string),
    })
}

fn check(global: &Global, of: &KeyOf) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let sets = locks::check(&caller, &request(global, of))?;
    let locked = sets.iter().filter(|set| set.fault.is_some()).count();
    if global.json {
        let sets: Vec<_> = sets.iter().map(check_document).collect();
        output::line(&json!({ "ok": locked == 0, "sets": sets }).to_string());
    } else if !global.quiet || locked > 0 {
        sets.iter().for_each(show_checked);
    }
    match locked {
        0 => Ok(Code::Done),
        _ => {
            let (of, sets) = (sets.len(), output::count(locked as u64, "set"));
            let what = format!("the keys do not open {sets} of {of}");
            let hint = "`windlass key list` shows who can read each set.";
            Err(Failure::new(Code::Failed, what, hint))
        }
    }
}

fn show_checked(set: &CheckedSet) {
    let (id, begun) = (&set.set_id.to_string()[..8], local_time(set.begun_nanos));
    output::line(&match &set.fault {
        None => format!("{id}  {begun}  opens"),
        Some(fault) => format!("{id}  {begun}  does not open: {fault}"),
    });
}

fn check_document(set: &CheckedSet) -> serde_json::Value {
    json!({
        "set_id": set.set_id.to_string(),
        "opens": set.fault.is_none(),
        "error": set.fault.as_ref().map(ToString::to_string),
    })
}

fn rotate(global: &Global, arguments: &KeyRotate) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = request(global, &arguments.of);
    let sets = locks::rotate(&caller, &request, &arguments.encrypt)?;
    for set in &sets {
        tell_absent(set);
    }
    if global.json {
        let sets: Vec<_> = sets.iter().map(rotated_document).collect();
        output::line(&json!({ "sets": sets }).to_string());
        return Ok(Code::Done);
    }
    for set in &sets {
        if !global.quiet {
            let (id, who) = (&set.set_id.to_string()[..8], set.recipients.join(", "));
            output::line(&format!("{id}  can be read by {who}"));
        }
        if !set.remain.is_empty() {
            let who = set.remain.join(", ");
            output::note(&format!(
                "note: {who} can still read set {}, because a set is never changed. Only a new \
                 backup, or `windlass merge`, ends that.",
                &set.set_id.to_string()[..8]
            ));
        }
    }
    Ok(Code::Done)
}

/// Devices beside which the old envelopes stay, or none are.
fn tell_absent(set: &RotatedSet) {
    for device in &set.absent {
        output::degrade(&format!(
            "{} is not there, so its directory does not get the new envelopes of set {}",
            device.display(),
            &set.set_id.to_string()[..8]
        ));
    }
    if !set.absent.is_empty() {
        output::note("hint: Run the command again when the device is back.");
    }
}

fn rotated_document(set: &RotatedSet) -> serde_json::Value {
    json!({
        "set_id": set.set_id.to_string(),
        "recipients": set.recipients,
        "can_still_read": set.remain,
        "files": set.files,
        "absent": set.absent,
    })
}

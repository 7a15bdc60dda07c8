//! `windlass repair-set`: lost and damaged devices of a set with parity are written anew.

use serde_json::{Value, json};
use windlass_engine::{RepairedDevice, RepairedSet, to_json};
use windlass_operations::repair_set;

use crate::cli::{Global, RepairSet};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::{requests, signals};

pub fn run(global: &Global, arguments: &RepairSet) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = requests::sets(global, &arguments.set, &arguments.choice);
    let repaired = repair_set(&requests::quiet_caller(global), &request, &cancel)?;
    match global.json {
        true => output::line(&document(&repaired).to_string()),
        false if global.quiet => {}
        false => show(&repaired),
    }
    match repaired.left.is_empty() {
        true => Ok(Code::Done),
        false => {
            complain(&repaired);
            Ok(Code::Damage)
        }
    }
}

/// Says what could not be repaired.
fn complain(repaired: &RepairedSet) {
    for device in &repaired.left {
        let what = if device.is_parity { "parity" } else { "stripe" };
        let (number, location, fault) = (device.number, &device.location, &device.fault);
        let text = format!("{what}, device {number}: {location}: {fault}");
        output::note(&format!("error: not repaired: {text}"));
    }
    output::note("hint: Make a new backup. `windlass verify` lists what is lost of this set.");
}

fn document(repaired: &RepairedSet) -> Value {
    json!({
        "set_id": repaired.set.to_string(),
        "devices": repaired.devices,
        "repaired": to_json(&repaired.repaired),
        "left": to_json(&repaired.left),
    })
}

fn show(repaired: &RepairedSet) {
    repaired.repaired.iter().for_each(written);
    let devices = output::count(u64::from(repaired.devices), "device");
    let set = repaired.set;
    let left = repaired.left.len();
    let (text, tone) = match repaired.repaired.is_empty() {
        _ if left > 0 => (
            format!("set {set}: {left} of {devices} could not be repaired"),
            Tone::Bad,
        ),
        true => (
            format!("set {set}: nothing to repair, all {devices} read and right"),
            Tone::Good,
        ),
        false => (
            format!("set {set}: all {devices} are whole again"),
            Tone::Good,
        ),
    };
    output::entry("set", &text, tone);
}

fn written(device: &RepairedDevice) {
    let what = if device.is_parity { "parity" } else { "stripe" };
    let (number, location) = (device.number, device.location.display());
    let bytes = windlass_engine::show_size(device.bytes);
    let text = format!("{what}, device {number}: {location}, {bytes}");
    output::entry("written anew", &text, Tone::Good);
    if let Some(moved) = &device.moved {
        let text = format!("{}, which may be of another set", moved.display());
        output::entry("moved away", &text, Tone::Plain);
    }
}

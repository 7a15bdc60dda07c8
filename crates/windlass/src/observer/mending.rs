//! What parity made up for, in words.

use windlass_engine::{LostDevice, Mends, RebuiltPart};

use crate::output;

/// How many damaged parts are named.
const PARTS_SHOWN: usize = 10;

/// Warns that a set is not whole, although all of it can be read.
pub fn tell(mends: &Mends) {
    lines(mends).iter().for_each(|line| output::degrade(line));
}

/// The same as lines.
pub fn lines(mends: &Mends) -> Vec<String> {
    let mut lines: Vec<_> = mends.lost.iter().map(lost).collect();
    lines.extend(mends.parts.iter().take(PARTS_SHOWN).map(part));
    let more = mends
        .part_count
        .saturating_sub(lines.len().saturating_sub(mends.lost.len()) as u64);
    if more > 0 {
        let parts = output::count(more, "damaged part");
        lines.push(format!("{parts} more can be rebuilt from parity"));
    }
    lines
}

fn lost(device: &LostDevice) -> String {
    let (number, location) = (device.number, &device.location);
    let fault = device
        .fault
        .strip_prefix(&format!("{location}: "))
        .unwrap_or(&device.fault);
    match device.is_parity {
        true => format!("device {number}, parity ({location}): {fault}"),
        false => format!("device {number} ({location}): {fault}; it is rebuilt from parity"),
    }
}

fn part(part: &RebuiltPart) -> String {
    let (number, location) = (part.number, &part.location);
    let (offset, bytes) = (part.offset, windlass_engine::show_size(part.bytes));
    format!("device {number} ({location}): damaged at {offset}; {bytes} can be rebuilt from parity")
}

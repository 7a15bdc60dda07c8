//! What hangs on what in a place, as `windlass info` draws it.
//!
//!   81a1ba6f full  2026-11-22 03:00:07  read 41.2 MiB  stored 5.73 MiB  2 sets need it
//!   +- 5d0d5f3c incr  2026-11-23 03:00:07  read 1.2 MiB  stored 301 KiB
//!   +- 77f0a1c2 incr  ...

use serde_json::{Value, json};
use windlass_engine::media::{SetId, saturated};
use windlass_engine::show_size;
use windlass_operations::info::{ChainInfo, LinkInfo, LogInfo};
use windlass_operations::reach::Window;

use super::list::type_name;
use crate::output;
use crate::words::{local_time, timestamp};

/// Sets that lie deeper than this are not drawn deeper: each line names its base.
const DEPTH_SHOWN: usize = 8;

/// Draws the chains of each database.
pub(super) fn show(chains: &[ChainInfo], logs: &[LogInfo]) {
    for chain in chains {
        let (name, sets) = (chain.of.name(), chain.links.len());
        let sets = output::count(sets as u64, "set");
        output::line(&format!("chain         {name}: {sets}"));
        let heads: Vec<_> = chain.links.iter().map(head).collect();
        let width = heads.iter().map(|head| head.chars().count()).max();
        let width = width.unwrap_or(0);
        for (link, head) in chain.links.iter().zip(&heads) {
            let words = words(link, logs);
            output::line(&format!("chain         {head:<width$}  {words}"));
        }
    }
}

/// The set, behind a line that leads to its base.
fn head(link: &LinkInfo) -> String {
    let depth = link.depth.min(DEPTH_SHOWN);
    let line = match depth {
        0 => String::new(),
        depth => format!("{}+- ", "|  ".repeat(depth - 1)),
    };
    format!("{line}{} {}", short(link.id), type_name(link.backup_type))
}

fn words(link: &LinkInfo, logs: &[LogInfo]) -> String {
    let mut parts = vec![local_time(link.begun_nanos)];
    parts.extend(link.base.map(|base| format!("on {}", short(base))));
    let read = link.read_bytes;
    parts.extend(read.map(|bytes| format!("read {}", show_size(bytes))));
    parts.push(format!("stored {}", show_size(link.stored_bytes)));
    match link.needed_by {
        0 => {}
        1 => parts.push("1 set needs it".to_owned()),
        sets => parts.push(format!("{sets} sets need it")),
    }
    parts.extend(window_of(link.id, logs).and_then(|window| log_words(link.id, window)));
    let fault = link.fault.as_ref();
    parts.extend(fault.map(|fault| format!("cannot be restored: {fault}")));
    parts.join("  ")
}

/// How far the log goes from a set on, if it has any behind the set: by its last transaction, or if
/// it has none, by its end.
fn log_words(id: SetId, window: &Window) -> Option<String> {
    let set = window.sets.iter().find(|set| set.id == id)?;
    let end = match window.last {
        Some(last) => local_time(saturated(last.as_nanosecond())),
        None if window.end > set.stop => window.end.to_string(),
        None => return None,
    };
    Some(format!("with log to {end}"))
}

/// The window with this set that goes furthest.
fn window_of(id: SetId, logs: &[LogInfo]) -> Option<&Window> {
    let windows = logs.iter().flat_map(|log| &log.restorable);
    let windows = windows.flat_map(|of| &of.windows);
    let own = windows.filter(|window| window.sets.iter().any(|set| set.id == id));
    own.max_by_key(|window| window.end)
}

fn short(id: SetId) -> String {
    id.to_string()[..8].to_owned()
}

/// The same as JSON.
pub(super) fn document(chains: &[ChainInfo], logs: &[LogInfo]) -> Value {
    let chains = chains.iter().map(|chain| {
        let links = chain.links.iter().map(|link| link_document(link, logs));
        json!({
            "database": chain.of.name(),
            "key": chain.of.key(),
            "sets": links.collect::<Vec<_>>(),
        })
    });
    chains.collect()
}

fn link_document(link: &LinkInfo, logs: &[LogInfo]) -> Value {
    let window = window_of(link.id, logs);
    json!({
        "set_id": link.id.to_string(),
        "type": type_name(link.backup_type),
        "base": link.base.map(|base| base.to_string()),
        "depth": link.depth,
        "needed_by": link.needed_by,
        "begun": timestamp(link.begun_nanos).to_string(),
        "bytes_read": link.read_bytes,
        "stored_bytes": link.stored_bytes,
        "log_end": window.map(|window| window.end.to_string()),
        "last_transaction": window.and_then(|window| window.last).map(|last| last.to_string()),
        "fault": link.fault,
    })
}

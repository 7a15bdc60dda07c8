//! Files of snapshots as somebody writes them who knows the checksums, or as older versions of
//! Windlass wrote them.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;

use serde_json::Value;
use windlass_engine::media::crc32c;

/// Changes the record of the snapshot in a directory.
pub fn forge_record(snapshot: &Path, change: impl FnOnce(&mut Value)) {
    let path = snapshot.join("record");
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let mut record = serde_json::from_str(body).unwrap();
    change(&mut record);
    let body = record.to_string();
    let sum = crc32c(body.as_bytes());
    let text = format!("windlass snapshot 1 crc32c {sum:08x}\n{body}");
    std::fs::write(&path, text).unwrap();
}

/// Changes what the hook's controller wrote of a snapshot. The text ends before the checksum.
pub fn forge_document(snapshot: &Path, change: impl FnOnce(&str) -> String) {
    let path = snapshot.join("hook/hook.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let (body, _) = text.rsplit_once(",\"crc32c\":").unwrap();
    let body = change(body);
    let sum = crc32c(body.as_bytes());
    let text = format!("{body},\"crc32c\":\"{sum:08x}\"}}");
    std::fs::write(&path, text).unwrap();
    forge_record(snapshot, |record| record["files_crc32c"] = sum.into());
}

/// Takes the checksums away that older versions of Windlass did not write.
pub fn forge_older(snapshot: &Path) {
    let path = snapshot.join("hook/hook.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let (body, _) = text.rsplit_once(",\"files_crc32c\":").unwrap();
    std::fs::write(&path, format!("{body}}}")).unwrap();
    forge_record(snapshot, |record| record["files_crc32c"] = Value::Null);
}

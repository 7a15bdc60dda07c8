//! `windlass extract`: single files of a set, read by their frames alone.

use std::sync::Arc;

use windlass_image::{SetImage, SetImageOptions, extract};

use crate::cli::{Extract, Global};
use crate::exit::{Code, Failure};
use crate::output;
use crate::privilege;
use crate::sizes::show_size;

pub fn run(global: &Global, arguments: &Extract) -> Result<Code, Failure> {
    let cancel = super::cancel_on_signals()?;
    // Whoever owns the directory will own the files.
    let parent = arguments.into.ancestors().find(|path| path.is_dir());
    if let Some((uid, gid)) = parent.and_then(privilege::owner) {
        privilege::become_user(uid, gid)?;
    }
    let set = Arc::new(super::open(std::slice::from_ref(&arguments.set))?);
    let total = set.stripe_bytes();
    let image = SetImage::open(set, &SetImageOptions::default())?;
    let report = extract(&image, &arguments.patterns, &arguments.into, &cancel)?;
    let fetched = image.statistics().fetched_bytes;
    for pattern in &report.unmatched {
        output::note(&format!("warning: {pattern} matches no file of the set"));
    }
    if report.links_skipped > 0 {
        let count = report.links_skipped;
        output::note(&format!(
            "warning: {count} symbolic links match and were not made"
        ));
    }
    if global.json {
        let document = serde_json::json!({
            "files": report.files,
            "bytes": report.bytes,
            "bytes_fetched": fetched,
            "unmatched": report.unmatched,
            "links_skipped": report.links_skipped,
        });
        output::line(&document.to_string());
    } else {
        let (bytes, into) = (show_size(report.bytes), arguments.into.display());
        output::line(&format!(
            "extracted     {} files, {bytes}, into {into}; {} of the set's {} were read",
            report.files,
            show_size(fetched),
            show_size(total)
        ));
    }
    let complete = report.unmatched.is_empty() && report.links_skipped == 0;
    Ok(if complete { Code::Done } else { Code::Warnings })
}

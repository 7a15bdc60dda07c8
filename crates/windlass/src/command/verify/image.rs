//! What is shown of a verified snapshot that is no set.

use serde_json::json;
use windlass_engine::show_size;
use windlass_operations::verify::VerifiedImage;

use super::relations;
use crate::cli::Global;
use crate::exit::Code;
use crate::output::{self, Tone};
use crate::words::duration;

pub(super) fn show(global: &Global, verified: &VerifiedImage) -> Code {
    let found = verified.opened.as_ref();
    let code = Code::from(verified.ending());
    if global.json {
        let document = json!({
            "image": verified.title,
            "bytes_read": verified.bytes,
            "seconds": verified.seconds,
            "ok": code != Code::Damage,
            "open": found.map(relations::document),
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (title, took) = (&verified.title, duration(verified.seconds));
        let bytes = show_size(verified.bytes);
        let checked = match verified.has_kept_pages {
            true => "pages that the hook kept have checksums, all others have none",
            false => "its files have no checksums",
        };
        let text = format!("{title}: {bytes} in {took}; {checked}");
        output::entry("read", &text, Tone::Good);
        if let Some(found) = found {
            relations::print(found, global.quiet);
        }
    }
    if let Some(found) = found {
        relations::warn(found);
        complain(found.faults(), &verified.title);
    }
    code
}

fn complain(faults: u64, title: &str) {
    if faults == 0 {
        return;
    }
    let places = output::count(faults, "place");
    output::note(&format!(
        "error: the database in {title} is damaged in {places}"
    ));
    output::note("hint: The damage was in the database already, or its disk returns wrong bytes.");
}

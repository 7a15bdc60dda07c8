//! `windlass info`: describes a set, or what is left of a damaged one.

mod chains;
mod list;
pub(super) mod logs;

pub(super) use list::type_name;

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_engine::media::{FileEntry, FileKind, SetDescription, fitted};
use windlass_engine::{EngineError, show_size, to_json};
use windlass_operations::Ending;
use windlass_operations::denied::Denied;
use windlass_operations::info::{InfoOutcome, NamedInfo, SetView, StripeView, info, is_locked};
use windlass_operations::metrics::metrics_of_place;
use windlass_postgres::RelationNames;

use crate::cli::{Global, Info};
use crate::exit::{Code, Failure};
use crate::words::moment_of;
use crate::{hints, output, requests};

pub fn run(global: &Global, arguments: &Info) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = requests::sets(global, &arguments.set, &arguments.choice);
    if arguments.metrics && global.json {
        return Err(Failure::usage(
            "--metrics and --json: both are all that is printed".to_owned(),
            "Leave one of them out.",
        ));
    }
    let ending = match info(&caller, &request)? {
        InfoOutcome::Places(places) if arguments.metrics => {
            output::text(&metrics_of_place(&places));
            Ending::Done
        }
        InfoOutcome::Sets(_) if arguments.metrics => return Err(no_place()),
        InfoOutcome::Sets(sets) => show(global, arguments, &sets),
        InfoOutcome::Places(places) => list::show(global, arguments, &places)?,
    };
    Ok(ending.into())
}

fn no_place() -> Failure {
    Failure::usage(
        "--metrics: metrics are about all sets of a directory".to_owned(),
        "Name the directory.",
    )
}

/// Shows sets, one after another.
fn show(global: &Global, arguments: &Info, sets: &NamedInfo) -> Ending {
    let mut ending = Ending::Done;
    let mut documents = Vec::new();
    for view in sets.views() {
        ending = view.worse_than(ending);
        match global.json {
            true => documents.push(json(&view, arguments.files)),
            false => print(&view, arguments.files),
        }
    }
    let unfinished = sets.unfinished.iter();
    let unfinished = unfinished.map(|place| place.display().to_string());
    if global.json {
        let unfinished: Vec<_> = unfinished.collect();
        let document = serde_json::json!({ "sets": documents, "unfinished": unfinished });
        output::line(&document.to_string());
    } else {
        unfinished.for_each(|place| {
            output::line(&format!(
                "unfinished    {place}  of a backup or a repair under way, or cut off"
            ));
        });
    }
    ending
}

fn print(view: &SetView, files: bool) {
    output::line(&format!("set           {}", view.id));
    if let Some(description) = &view.description {
        print_description(description, view.stored_bytes());
    }
    // The names of the files count both.
    let count = view.stripe_count + fitted::<u16, _>(view.parities.len());
    let stripes = view.stripes.iter().map(|one| ("stripe", one));
    let parities = view.parities.iter().map(|one| ("parity", one));
    for (word, stripe) in stripes.chain(parities) {
        let state = match &stripe.fault {
            None => "sealed".to_owned(),
            Some(_) if !stripe.is_there => "missing".to_owned(),
            Some(fault) => format!("damaged: {fault}"),
        };
        let (index, place) = (stripe.index + 1, stripe.location.display());
        output::line(&format!("{word:<14}{index} of {count}  {place}  {state}"));
    }
    match &view.fault {
        None if view.is_mended() => {
            output::line("state         restorable, because parity makes up for what is lost");
            output::note("hint: `windlass repair-set` writes what is damaged or missing anew.");
        }
        None => output::line("state         restorable, as far as seals and footers tell"),
        Some(fault) => print_damage(view, fault),
    }
    if files && let Some(description) = &view.description {
        print_files(description, &view.names());
    }
    output::line("");
}

fn print_damage(view: &SetView, fault: &EngineError) {
    if let Some(denied) = Denied::of(fault) {
        let (message, hint) = hints::denied::words(&denied);
        output::line(&format!("state         not readable: {message}. {hint}"));
        return;
    }
    if is_locked(fault) {
        let bytes = show_size(view.stored_bytes());
        output::line(&format!("stored        {bytes}"));
        output::line(&format!("state         {fault}"));
        return;
    }
    output::line(&format!("state         cannot be restored: {fault}"));
    let sound = view.stripes.iter().filter(|stripe| stripe.fault.is_none());
    // Copies of a stripe are one stripe.
    let sound = sound.map(|stripe| stripe.index).collect::<BTreeSet<_>>();
    let sound = sound.len();
    let stripes = output::count(view.stripe_count.into(), "stripe");
    let are = if view.stripe_count == 1 { "is" } else { "are" };
    let described = if view.description.is_some() {
        "is"
    } else {
        "is not"
    };
    output::line(&format!(
        "recoverable   {sound} of {stripes} {are} sound; the file list {described} \
         readable; `windlass verify` says what is lost"
    ));
}

fn json(view: &SetView, files: bool) -> Value {
    let stripes: Vec<_> = view.stripes.iter().map(stripe_json).collect();
    let mut document = serde_json::json!({
        "set_id": view.id.to_string(),
        "restorable": view.fault.is_none(),
        "fault": view.fault.as_ref().map(ToString::to_string),
        "stripe_count": view.stripe_count,
        "stripes": stripes,
        "parities": view.parities.iter().map(stripe_json).collect::<Vec<_>>(),
    });
    if let Some(description) = &view.description {
        document["facts"] = to_json(&description.facts);
        let base = description.base.as_ref();
        document["base"] = to_json(&base.map(|base| base.set.to_string()));
        let entries = &description.files.0;
        document["file_count"] = entries.len().into();
        document["file_bytes"] = entries.iter().map(|file| file.bytes).sum::<u64>().into();
        if files {
            let names = view.names();
            let file = |entry| file_json(entry, &names);
            document["files"] = entries.iter().map(file).collect();
        }
    }
    document
}

/// The relation of a file, named as diff and extract name it.
fn relation_of(names: &RelationNames, file: &FileEntry) -> Option<String> {
    Some(names.of_path(&file.path)?.relation.to_string())
}

/// Prints what a set says about itself. `stored` are the bytes of its stripes, as in the list.
fn print_description(description: &SetDescription, stored: u64) {
    let facts = &description.facts;
    let kind = facts.database["kind"].as_str().unwrap_or("unknown");
    let version = facts.database["version"]
        .as_str()
        .or_else(|| facts.database["sqlite_version"].as_str())
        .unwrap_or_default();
    output::line(&format!("database      {kind} {version}"));
    output::line(&format!(
        "type          {}",
        format!("{:?}", facts.backup_type).to_lowercase()
    ));
    if let Some(base) = &description.base {
        output::line(&format!("builds on     {}", base.set));
    }
    output::line(&format!("began         {}", moment_of(&facts.started)));
    output::line(&format!("finished      {}", moment_of(&facts.finished)));
    output::line(&format!("written by    {}", facts.tool));
    let files = description
        .files
        .0
        .iter()
        .filter(|file| file.kind == FileKind::File);
    let bytes: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    output::line(&format!(
        "content       {}, {}, stored in {}",
        output::count(files.count() as u64, "file"),
        show_size(bytes),
        show_size(stored)
    ));
    print_options(&facts.options);
    for (key, value) in facts.database.as_object().into_iter().flatten() {
        // Where a state stands in its log means something to programs only.
        let hidden = [
            "kind",
            "version",
            "standing",
            "file_is_state",
            "page_hashes",
        ];
        let is_shown = !hidden.contains(&key.as_str());
        if is_shown && !value.is_null() {
            output::line(&format!("  {key:<22} {}", words(value)));
        }
    }
}

/// A fact, in words for people.
fn words(value: &Value) -> String {
    let joined = |parts: Vec<String>, between: &str| match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(between),
    };
    match value {
        // A fact is one line. A line break in it is shown as in JSON, like other characters that
        // could control a terminal.
        Value::String(text) => text.replace('\n', "\\u000a"),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => joined(items.iter().map(words).collect(), "; "),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key} {}", words(value));
            joined(fields.iter().map(field).collect(), ", ")
        }
        other => other.to_string(),
    }
}

/// Prints the layout of the set, as far as the set says it.
fn print_options(options: &Value) {
    let size = |key: &str| options[key].as_u64().map(show_size);
    let parts = [
        options["compress"].as_str().map(str::to_owned),
        size("frame_bytes").map(|size| format!("frames of {size}")),
        size("transfer_bytes").map(|size| format!("transfers of {size}")),
        options["block_bytes"]
            .as_u64()
            .map(|bytes| format!("blocks of {bytes}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        output::line(&format!("written with  {}", parts.join(", ")));
    }
}

fn print_files(description: &SetDescription, names: &RelationNames) {
    for file in &description.files.0 {
        let kind = match file.kind {
            FileKind::File => '-',
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
        };
        output::line(&format!(
            "{kind} {:04o} {:>14} {}{}",
            file.permissions(),
            file.bytes,
            file.path_lossy(),
            relation_of(names, file).map_or(String::new(), |name| format!("  {name}"))
        ));
    }
}

fn stripe_json(stripe: &StripeView) -> Value {
    serde_json::json!({
        "index": stripe.index,
        "location": stripe.location.to_string_lossy(),
        "fault": stripe.fault,
    })
}

fn file_json(file: &FileEntry, names: &RelationNames) -> Value {
    serde_json::json!({
        "path": file.path_lossy(),
        "bytes": file.bytes,
        "mode": format!("{:04o}", file.permissions()),
        "relation": relation_of(names, file),
        "crc32c": file.flags.crc_known.then(|| format!("{:08x}", file.crc32c)),
    })
}

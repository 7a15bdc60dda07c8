//! `windlass extract`: reads single files of a set, and only the frames that hold them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::OpenSet;
use windlass_image::{Image, ImageError, Patterns, SetImage, SetImageOptions, extract_files};
use windlass_postgres::{Relation, RelationNames, RelationPattern};

use crate::cli::{Extract, Global};
use crate::exit::{Code, Failure};
use crate::images::AsCluster;
use crate::output;
use crate::outputs;
use crate::places;
use crate::privilege;
use crate::requests;
use crate::signals;
use windlass_engine::show_size;
use windlass_operations::ProcessUse;

pub fn run(global: &Global, arguments: &Extract) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    // The set is opened first: only root may be allowed to read it.
    let words = std::slice::from_ref(&arguments.set);
    let caller = requests::quiet_caller(global);
    let found = places::find(&caller, &requests::sets(global, words, &arguments.choice))?;
    let set = Arc::new(found.open()?);
    if !arguments.relation.is_empty() {
        check_has_relations(&set)?;
    }
    check_into(&arguments.into)?;
    // The owner of the directory will own the files.
    let above = super::check::existing(&arguments.into);
    if let Some((uid, gid)) = above.and_then(privilege::owner) {
        privilege::become_user(ProcessUse::Own, uid, gid)?;
    }
    let total = set.stripe_bytes();
    let failed = |error: ImageError| found.advised(error.into());
    let image = SetImage::open(set, &SetImageOptions::default()).map_err(failed)?;
    let mut patterns = Patterns::new(&arguments.patterns)?;
    let relations = relation_paths(&image, &arguments.relation)?;
    let mut wanted = |path: &[u8]| patterns.matches(path) || relations.contains(path);
    let report = extract_files(&image, &mut wanted, &arguments.into, &cancel).map_err(failed)?;
    let unmatched = patterns.unmatched();
    let fetched = image.statistics().fetched_bytes;
    for pattern in &unmatched {
        output::note(&format!("warning: {pattern} matches no file of the set"));
    }
    if report.links_skipped > 0 {
        let links = output::count(report.links_skipped, "symbolic link");
        output::note(&format!(
            "warning: {links} not made: Windlass extracts files only"
        ));
    }
    if global.json {
        let document = serde_json::json!({
            "files": report.files,
            "bytes": report.bytes,
            "bytes_fetched": fetched,
            "unmatched": unmatched,
            "links_skipped": report.links_skipped,
        });
        output::line(&document.to_string());
    } else if !global.quiet {
        let (bytes, into) = (show_size(report.bytes), arguments.into.display());
        output::line(&format!(
            "extracted     {}, {bytes}, into {into}; {} of the set's {} were read",
            output::count(report.files, "file"),
            show_size(fetched),
            show_size(total)
        ));
    }
    let complete = unmatched.is_empty() && report.links_skipped == 0;
    Ok(if complete { Code::Done } else { Code::Warnings })
}

/// Refuses a directory where no output may be. Directories above it that do not exist yet would be
/// created, too.
fn check_into(into: &Path) -> Result<(), Failure> {
    let outputs = outputs::of_files();
    let above = into.ancestors().skip(1);
    let made = above.take_while(|path| !path.as_os_str().is_empty() && !path.is_dir());
    for path in std::iter::once(into).chain(made) {
        outputs.check(path)?;
    }
    Ok(())
}

/// Only PostgreSQL has relations in files of their own.
fn check_has_relations(set: &OpenSet) -> Result<(), Failure> {
    let kind = set.description().facts.database["kind"].as_str();
    if kind == Some(windlass_postgres::KIND) {
        return Ok(());
    }
    let kind = kind.unwrap_or_default();
    Err(Failure::usage(
        format!("--relation: the set is of a database of kind {kind}, not of a PostgreSQL cluster"),
        "A SQLite table comes out of the opened set: windlass open SET -- sqlite3 {} '.dump TABLE'",
    ))
}

/// The files of the named relations, and of everything that belongs to these relations.
fn relation_paths(
    image: &dyn Image,
    wanted: &[RelationPattern],
) -> Result<HashSet<Vec<u8>>, Failure> {
    if wanted.is_empty() {
        return Ok(HashSet::new());
    }
    let names = RelationNames::read(&AsCluster(image));
    for fault in names.faults() {
        let (path, what) = (&fault.path, &fault.what);
        output::note(&format!("warning: relation names: {path}: {what}"));
    }
    let mut parts = Vec::new();
    for pattern in wanted {
        parts.extend(names.parts(only_match(&names, pattern)?));
    }
    let files = image.files().0.iter();
    let own = files.filter(|entry| {
        let named = names.of_path(&entry.path);
        named.is_some_and(|named| parts.contains(&named.relation))
    });
    Ok(own.map(|entry| entry.path.clone()).collect())
}

fn only_match<'a>(
    names: &'a RelationNames,
    pattern: &RelationPattern,
) -> Result<&'a Relation, Failure> {
    let found = names.find(pattern);
    let mut databases: Vec<_> = found.iter().map(|one| one.database.as_str()).collect();
    databases.dedup();
    match (found.first(), databases.as_slice()) {
        (Some(relation), [_]) => Ok(relation),
        (None, _) => Err(Failure::new(
            Code::Failed,
            format!("the set has no files of a relation {pattern}"),
            "`windlass info --files` lists names. A partitioned table has none of its own: name \
             its partitions.",
        )),
        _ => Err(Failure::usage(
            format!(
                "{pattern} is in several databases: {}",
                databases.join(", ")
            ),
            "Write DATABASE.SCHEMA.TABLE.",
        )),
    }
}

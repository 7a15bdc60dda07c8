//! Reads single files of a set, and only the frames that hold them. Files of a cluster at a moment
//! are read after a private recovery.

mod error;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::Cancel;
use windlass_engine::media::Facts;
use windlass_image::{Image, Patterns, SetImage, SetImageOptions, extract_files};
use windlass_postgres::{Relation, RelationNames, RelationPattern};

use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::images::AsCluster;
use crate::notice::Notice;
use crate::outputs::{self, existing};
use crate::places::{self, SetRequest};
use crate::privilege;
use crate::recovered::{ChosenMoment, MomentRequest};
use crate::snapshots::SnapshotImage;

pub use error::ExtractError;

/// What to extract, and where to.
#[derive(Clone, Debug, Default)]
pub struct ExtractRequest {
    /// The set.
    pub set: SetRequest,
    /// A moment in the log of a cluster; without it that of the set.
    pub at: Option<MomentRequest>,
    /// The directory that the files go into. It may exist; no file in it is replaced.
    pub into: PathBuf,
    /// Patterns of paths in the set.
    pub patterns: Vec<String>,
    /// PostgreSQL: relations, with everything that belongs to them.
    pub relations: Vec<RelationPattern>,
}

/// What was extracted.
#[derive(Clone, Debug)]
pub struct ExtractOutcome {
    /// Files that were written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of a set: how many bytes of its stripes were read, and how many they have.
    pub read: Option<(u64, u64)>,
    /// Patterns that match no file.
    pub unmatched: Vec<String>,
    /// Symbolic links that match, and were not made.
    pub links_skipped: u64,
}

impl ExtractOutcome {
    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        match self.unmatched.is_empty() && self.links_skipped == 0 {
            true => Ending::Done,
            false => Ending::Warnings,
        }
    }
}

/// Extracts files of a set.
pub fn extract(
    caller: &Caller,
    request: &ExtractRequest,
    cancel: &Cancel,
) -> Result<ExtractOutcome, OperationError> {
    // The set is opened first: only root may be allowed to read it.
    if let Some(moment) = &request.at {
        let chosen = ChosenMoment::find(caller, &request.set, &moment.recovery)?;
        // The same user makes the scratch directory and removes it.
        become_owner_of(caller, &request.into)?;
        let recovered = chosen.recover(caller, &moment.settings, cancel)?;
        return extract_from(caller, request, &*recovered.image, cancel);
    }
    if let Some(snapshot) = SnapshotImage::of_request(caller, &request.set)? {
        check_kind(request, snapshot.facts())?;
        become_owner_of(caller, &request.into)?;
        let outcome = extract_from(caller, request, &**snapshot.image(), cancel)?;
        return Ok(outcome);
    }
    let found = places::find(caller, &request.set)?;
    let set = Arc::new(found.open()?);
    check_kind(request, &set.description().facts)?;
    become_owner_of(caller, &request.into)?;
    let set_bytes = set.chain_bytes();
    let image = SetImage::open(set, &SetImageOptions::default());
    let image = image.map_err(|error| found.advised(error.into()))?;
    let outcome = extract_from(caller, request, &image, cancel);
    let outcome = outcome.map_err(|error| found.advised(error))?;
    Ok(ExtractOutcome {
        read: Some((image.statistics().fetched_bytes, set_bytes)),
        ..outcome
    })
}

/// The owner of the directory will own the files.
fn become_owner_of(caller: &Caller, into: &Path) -> Result<(), OperationError> {
    check_into(into)?;
    let above = existing(into);
    if let Some((uid, gid)) = above.and_then(privilege::owner) {
        privilege::become_user(caller.process, uid, gid)?;
    }
    Ok(())
}

fn extract_from(
    caller: &Caller,
    request: &ExtractRequest,
    image: &dyn Image,
    cancel: &Cancel,
) -> Result<ExtractOutcome, OperationError> {
    let mut patterns = Patterns::new(&request.patterns)?;
    let relations = relation_paths(caller, image, &request.relations)?;
    let mut wanted = |path: &[u8]| patterns.matches(path) || relations.contains(path);
    let report = extract_files(image, &mut wanted, &request.into, cancel)?;
    let unmatched = patterns.unmatched().into_iter();
    Ok(ExtractOutcome {
        files: report.files,
        bytes: report.bytes,
        read: None,
        unmatched: unmatched.map(|pattern| pattern.to_string()).collect(),
        links_skipped: report.links_skipped,
    })
}

/// Refuses a directory where no output may be. Directories above it that do not exist yet would be
/// created, too.
fn check_into(into: &Path) -> Result<(), OperationError> {
    let outputs = outputs::of_files();
    let above = into.ancestors().skip(1);
    let made = above.take_while(|path| !path.as_os_str().is_empty() && !path.is_dir());
    for path in std::iter::once(into).chain(made) {
        outputs.check(path)?;
    }
    Ok(())
}

/// Only PostgreSQL has relations in files of their own.
fn check_kind(request: &ExtractRequest, facts: &Facts) -> Result<(), ExtractError> {
    let kind = facts.database["kind"].as_str();
    if request.relations.is_empty() || kind == Some(windlass_postgres::KIND) {
        return Ok(());
    }
    let kind = kind.unwrap_or_default().to_owned();
    Err(ExtractError::NoRelations { kind })
}

/// The files of the named relations, and of everything that belongs to these relations.
fn relation_paths(
    caller: &Caller,
    image: &dyn Image,
    wanted: &[RelationPattern],
) -> Result<HashSet<Vec<u8>>, OperationError> {
    if wanted.is_empty() {
        return Ok(HashSet::new());
    }
    let names = RelationNames::read(&AsCluster(image));
    for fault in names.faults() {
        caller.tell(&Notice::UnreadNames(fault));
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
) -> Result<&'a Relation, ExtractError> {
    let found = names.find(pattern);
    let mut databases: Vec<_> = found.iter().map(|one| one.database.clone()).collect();
    databases.dedup();
    let pattern = pattern.to_string();
    match (found.first(), databases.as_slice()) {
        (Some(relation), [_]) => Ok(relation),
        (None, _) => Err(ExtractError::NoRelation { pattern }),
        _ => Err(ExtractError::SeveralDatabases { pattern, databases }),
    }
}

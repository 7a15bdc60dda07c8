//! What a backup would warn of, as far as that is known before it begins.
//!
//! Invariant: the backup itself warns with the same words, because both take them from here.

use std::path::{Path, PathBuf};

use super::databases::Databases;
use crate::cluster::{Cluster, open};
use crate::error::PostgresError;
use crate::facts::ClusterFacts;
use crate::listing::Listing;
use crate::scan::{ScanRules, scan};
use crate::session::Session;
use crate::warning::Warning;

/// What a backup would read, and what it would warn of.
#[derive(Debug)]
pub struct Foreseen {
    /// Bytes of files, without the log.
    pub bytes: u64,
    /// The warnings. Only the backup itself finds wrong page checksums, and whether segments that
    /// say what became of transactions are missing: that takes a checkpoint.
    pub warnings: Vec<Warning>,
}

impl Cluster {
    /// What a backup would read now, and what it would warn of.
    pub fn foresee(&mut self) -> Result<Foreseen, PostgresError> {
        let facts = &self.facts;
        let mut opened = None;
        let session = match &mut self.session {
            Some(session) => session,
            None => opened.insert(open(&self.conninfo)?),
        };
        let mut warnings = of_slots(session)?;
        warnings.extend(of_configuration(facts));
        let databases = Databases::before_backup(facts, session)?;
        warnings.extend(databases.warnings(facts, session)?);
        let scanned = scan(&ScanRules::of(facts))?;
        warnings.extend(scanned.warnings);
        let (root, page_bytes) = (&facts.data_directory, facts.block_bytes);
        warnings.extend(of_partial_pages(&scanned.listing, root, page_bytes));
        Ok(Foreseen {
            bytes: scanned.listing.total_bytes(),
            warnings,
        })
    }
}

/// The warning about replication slots.
pub(super) fn of_slots(session: &mut Session) -> Result<Vec<Warning>, PostgresError> {
    let sql = "SELECT count(*) FROM pg_replication_slots WHERE NOT temporary";
    let count: i64 = session.value("count replication slots", sql)?;
    let count = count.cast_unsigned();
    Ok(match count {
        0 => Vec::new(),
        count => vec![Warning::ReplicationSlots { count }],
    })
}

/// The warnings about the configuration.
pub(super) fn of_configuration(cluster: &ClusterFacts) -> Vec<Warning> {
    let outside = cluster.configuration_outside.iter();
    let warning = |path: &PathBuf| Warning::ConfigurationOutside {
        path: path.display().to_string(),
    };
    let includes = cluster.outgoing.includes.iter();
    let included = includes.map(|path| Warning::IncludeOutside { path: path.clone() });
    let fault = Warning::of_configuration(&cluster.configuration_faults);
    outside.map(warning).chain(included).chain(fault).collect()
}

/// The warning about relation files that end within a page.
pub(super) fn of_partial_pages(listing: &Listing, root: &Path, page_bytes: u32) -> Option<Warning> {
    let mut paths = partial_pages(listing, root, page_bytes).into_iter();
    let path = paths.next()?;
    let more = paths.count() as u64;
    Some(Warning::PartialPages { path, more })
}

/// Relation files whose length is not a whole number of pages and has not changed since the scan.
/// If the length has changed, the server was extending the file, and its length may be anything.
fn partial_pages(listing: &Listing, root: &Path, page_bytes: u32) -> Vec<String> {
    let page_bytes = u64::from(page_bytes);
    let partial = listing.entries().iter().filter(|entry| {
        entry.segment.is_some()
            && !entry.bytes.is_multiple_of(page_bytes)
            && std::fs::metadata(listing.source_path(root, entry))
                .is_ok_and(|now| now.len() == entry.bytes)
    });
    let path = |entry| String::from_utf8_lossy(listing.path(entry)).into_owned();
    partial.map(path).collect()
}

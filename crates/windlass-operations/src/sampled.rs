//! A look at a database: how many bytes it has, and how well a sample of them compresses.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::Codec;
use windlass_engine::{Cancel, PageClass};
use windlass_lab::{Sample, Speeds, measure_codecs, plain_files};
use windlass_postgres::{Cluster, PageLayouts};
use windlass_sqlite::Database;

use crate::caller::ProcessUse;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::privilege;

/// The most bytes of a database that are read for a sample.
const SAMPLE_BYTES: u64 = 64 << 20;
/// How long codecs are measured on the sample.
const SAMPLE_TIME: Duration = Duration::from_secs(3);

/// What a look at a database found out.
pub struct Measured {
    /// Bytes that a backup reads.
    pub bytes: u64,
    /// Ratio and speed of each codec on a sample.
    pub speeds: Speeds,
}

/// Looks at a database as its owner.
pub fn measure(
    process: ProcessUse,
    database: &str,
    codecs: &[Codec],
) -> Result<Measured, OperationError> {
    let name = DatabaseName::resolve(database)?;
    privilege::as_user(process, name.owner(), || {
        let (bytes, sample) = match &name {
            DatabaseName::Sqlite(path) => {
                let bytes = Database::open(path)?.estimate_bytes();
                (
                    bytes,
                    Sample::of_files(std::slice::from_ref(path), SAMPLE_BYTES)?,
                )
            }
            DatabaseName::Postgres(conninfo) => {
                let cluster = Cluster::connect(conninfo)?;
                let bytes = cluster.estimate_bytes()?;
                let root = &cluster.facts().data_directory;
                let (files, layouts) = (cluster_files(root)?, cluster.page_layouts()?);
                (
                    bytes,
                    cluster_sample(&files, (root, &layouts), SAMPLE_BYTES)?,
                )
            }
        };
        let speeds = measure_codecs(&sample, codecs, SAMPLE_TIME, &Cancel::new())?;
        Ok(Measured { bytes, speeds })
    })
}

/// A sample of files of a cluster, with the classes of their pages.
pub fn cluster_sample(
    files: &[PathBuf],
    (root, layouts): (&Path, &PageLayouts),
    bytes: u64,
) -> Result<Sample, OperationError> {
    Ok(Sample::of_relations(files, bytes, |path| {
        class_of(path, (root, layouts))
    })?)
}

/// The class of the pages of a file of a cluster.
pub(crate) fn class_of(
    path: &Path,
    (root, layouts): (&Path, &PageLayouts),
) -> Option<Arc<PageClass>> {
    let path = path.strip_prefix(root).ok()?;
    layouts.class(path.as_os_str().as_bytes()).cloned()
}

/// The files of a cluster's relations, by its data directory.
pub fn cluster_files(root: &Path) -> Result<Vec<PathBuf>, OperationError> {
    let mut files = Vec::new();
    for part in ["base", "global", "pg_tblspc"] {
        files.extend(plain_files(&root.join(part))?);
    }
    Ok(files)
}

//! A look at a database: how many bytes it has, and how well a sample of them compresses.

use std::path::PathBuf;
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_engine::media::Codec;
use windlass_lab::{Sample, Speeds, measure_codecs, plain_files};
use windlass_postgres::Cluster;
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
        let (bytes, files) = match &name {
            DatabaseName::Sqlite(path) => {
                (Database::open(path)?.estimate_bytes(), vec![path.clone()])
            }
            DatabaseName::Postgres(conninfo) => cluster_files(conninfo)?,
        };
        let sample = Sample::of_files(&files, SAMPLE_BYTES)?;
        let speeds = measure_codecs(&sample, codecs, SAMPLE_TIME, &Cancel::new())?;
        Ok(Measured { bytes, speeds })
    })
}

/// The bytes that a backup of a cluster reads, and the files of its relations.
pub fn cluster_files(conninfo: &str) -> Result<(u64, Vec<PathBuf>), OperationError> {
    let cluster = Cluster::connect(conninfo)?;
    let root = &cluster.facts().data_directory;
    let mut files = Vec::new();
    for part in ["base", "global", "pg_tblspc"] {
        files.extend(plain_files(&root.join(part))?);
    }
    Ok((cluster.estimate_bytes()?, files))
}

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

use crate::backup::PageChoice;
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

/// Looks at a database as its owner: with its pages taken apart, where its backups do that.
pub fn measure(
    process: ProcessUse,
    database: &str,
    (codecs, pages): (&[Codec], PageChoice),
) -> Result<Measured, OperationError> {
    let name = DatabaseName::resolve(database)?;
    privilege::as_user(process, name.owner(), || {
        let (bytes, files, layouts) = match &name {
            DatabaseName::Sqlite(path) => {
                let database = Database::open(path)?;
                let layouts = match takes_apart(pages, false) {
                    true => Layouts::of_file(&database)?,
                    false => Layouts::File(None),
                };
                (database.estimate_bytes(), vec![path.clone()], layouts)
            }
            DatabaseName::Postgres(conninfo) => {
                let cluster = Cluster::connect(conninfo)?;
                let bytes = cluster.estimate_bytes()?;
                let root = cluster.facts().data_directory.clone();
                let layouts = match takes_apart(pages, true) {
                    true => cluster.page_layouts()?,
                    false => PageLayouts::default(),
                };
                let files = cluster_files(&root)?;
                (bytes, files, Layouts::Cluster(root, layouts))
            }
        };
        let sample = Sample::of_relations(&files, SAMPLE_BYTES, |path| layouts.class(path))?;
        let sample = sample.asked(pages == PageChoice::Auto);
        let speeds = measure_codecs(&sample, codecs, SAMPLE_TIME, &Cancel::new())?;
        Ok(Measured { bytes, speeds })
    })
}

/// Whether backups take pages apart with the codecs with which they do so most. The sample knows
/// the others.
fn takes_apart(pages: PageChoice, is_postgres: bool) -> bool {
    pages.holds_with(is_postgres, Codec::Zstd(1))
}

/// How the pages of a database are laid out.
pub(crate) enum Layouts {
    /// Those of the relations below a data directory.
    Cluster(PathBuf, PageLayouts),
    /// Those of the one file; `None` if it is empty, or if nobody takes its pages apart.
    File(Option<Arc<PageClass>>),
}

impl Layouts {
    /// Those of a database of SQLite.
    pub(crate) fn of_file(database: &Database) -> Result<Self, OperationError> {
        let layout = database.page_layout()?;
        let class = layout.map(|layout| Arc::new(PageClass::new(layout)));
        Ok(Self::File(class))
    }

    /// The class of the pages of a file.
    pub(crate) fn class(&self, path: &Path) -> Option<Arc<PageClass>> {
        match self {
            Self::Cluster(root, layouts) => {
                let path = path.strip_prefix(root).ok()?;
                layouts.class(path.as_os_str().as_bytes()).cloned()
            }
            Self::File(class) => class.clone(),
        }
    }
}

/// The files of a cluster's relations, by its data directory.
pub fn cluster_files(root: &Path) -> Result<Vec<PathBuf>, OperationError> {
    let mut files = Vec::new();
    for part in ["base", "global", "pg_tblspc"] {
        files.extend(plain_files(&root.join(part))?);
    }
    Ok(files)
}

//! What it would bring to take the pages of a database apart, by relation.

use std::path::{Path, PathBuf};

use windlass_engine::Cancel;
use windlass_engine::media::{Codec, PageLayout};
use windlass_lab::{PageTrial, try_pages};
use windlass_postgres::Cluster;
use windlass_sqlite::Database;

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::privilege;

/// The codecs that are tried.
const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd(1)];

/// What to try.
#[derive(Clone, Debug)]
pub struct PagesRequest {
    /// The database.
    pub database: String,
    /// PostgreSQL: how many relations, the largest first.
    pub relations: usize,
}

/// A relation, or a database of SQLite as a whole, and what its pages take.
#[derive(Clone, Debug)]
pub struct TriedRelation {
    /// Its name.
    pub name: String,
    /// Its first file: below the data directory (PostgreSQL), or the database file (SQLite).
    pub path: String,
    /// Its length, in bytes.
    pub bytes: u64,
    /// What its pages take.
    pub trial: PageTrial,
}

/// Tries the page codec on samples of the largest relations of a cluster, or on a sample of a
/// database of SQLite. An empty one has no pages.
pub fn try_relations(
    caller: &Caller,
    request: &PagesRequest,
    cancel: &Cancel,
) -> Result<Vec<TriedRelation>, OperationError> {
    let name = DatabaseName::resolve(&request.database)?;
    privilege::as_user(caller.process, name.owner(), || match &name {
        DatabaseName::Postgres(conninfo) => {
            let cluster = Cluster::connect(conninfo)?;
            of_cluster(&cluster, request.relations, cancel)
        }
        DatabaseName::Sqlite(path) => of_sqlite(&Database::open(path)?),
    })
}

fn of_cluster(
    cluster: &Cluster,
    relations: usize,
    cancel: &Cancel,
) -> Result<Vec<TriedRelation>, OperationError> {
    let root = &cluster.facts().data_directory;
    let relations = cluster.page_relations()?.into_iter().take(relations);
    let tried = relations.map(|relation| {
        cancel.check()?;
        let trial = of_file(root.join(&relation.path), &relation.layout)?;
        Ok(TriedRelation {
            name: relation.name,
            path: relation.path,
            bytes: relation.bytes,
            trial,
        })
    });
    tried.collect()
}

/// The tables and indexes of a database of SQLite are in one file. A backup judges them together.
fn of_sqlite(database: &Database) -> Result<Vec<TriedRelation>, OperationError> {
    let facts = database.facts();
    let Some(layout) = database.page_layout()? else {
        return Ok(Vec::new());
    };
    let trial = of_file(Path::new(&facts.path).to_owned(), &layout)?;
    Ok(vec![TriedRelation {
        name: facts.name.clone(),
        path: facts.path.clone(),
        bytes: facts.bytes,
        trial,
    }])
}

fn of_file(path: PathBuf, layout: &PageLayout) -> Result<PageTrial, OperationError> {
    Ok(try_pages(&[path], layout, &CODECS)?)
}

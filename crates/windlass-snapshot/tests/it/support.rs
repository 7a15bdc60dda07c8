//! Makes snapshots of a ledger, and looks into them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::FileNo;
use windlass_engine::{Cancel, METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_snapshot::{
    Content, Created, Maker, Method, Place, Snapshot, SnapshotError, SnapshotName, Source,
    SqliteClone, SqliteCopy, choose, create,
};
use windlass_sqlite::Database;

pub fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

/// The methods for a SQLite database, the cheapest first.
pub fn makers(database: &Path) -> Vec<Box<dyn Maker>> {
    let open = || Database::open(database).unwrap();
    vec![
        Box::new(SqliteClone::new(open())),
        Box::new(SqliteCopy::new(open())),
    ]
}

pub fn source(database: &Path) -> Source {
    Source {
        kind: "sqlite".to_owned(),
        path: database.to_owned(),
    }
}

/// Makes a snapshot beside the database.
pub fn snapshot(
    database: &Path,
    text: &str,
    method: Option<Method>,
) -> Result<Created, SnapshotError> {
    let place = Place::beside(database).unwrap();
    let reserved = place.reserve(&name(text), None, &mut |_| {})?;
    let chosen = match choose(makers(database), method, reserved.directory()) {
        Ok(chosen) => chosen,
        Err(error) => {
            reserved.take_back()?;
            return Err(error);
        }
    };
    let mut maker = chosen.maker;
    let progress = Arc::default();
    create(
        reserved,
        &mut *maker,
        source(database),
        &progress,
        &Cancel::new(),
    )
}

/// The image of a snapshot.
pub fn image(snapshot: &Snapshot) -> Arc<dyn Image> {
    match snapshot.content().unwrap() {
        Content::Files(image) => image,
        Content::Set(stripes) => {
            let set = OpenSet::open(&stripes, METADATA_LIMIT_DEFAULT).unwrap();
            let options = SetImageOptions::default();
            Arc::new(SetImage::open(Arc::new(set), &options).unwrap())
        }
    }
}

/// Writes the database of a snapshot into a file of its own.
pub fn written_out(snapshot: &Snapshot, into: &Path) -> PathBuf {
    let image = image(snapshot);
    let entry = &image.files().0[0];
    let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
    let found = image.read(FileNo(0), 0, &mut bytes).unwrap();
    assert_eq!(found, bytes.len());
    let path = into.join("written-out.db");
    std::fs::write(&path, bytes).unwrap();
    path
}

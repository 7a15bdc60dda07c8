//! A backup of a snapshot: its files go through the pipeline as they are. Nothing changes
//! meanwhile, so there is nothing to wait for and nothing to read twice.

use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, crc32c, fitted,
};
use windlass_engine::{
    BackupRun, FileContent, FileSpec, METADATA_LIMIT_DEFAULT, Missing, OpenSet, Outputs, RunReport,
};
use windlass_image::{Image, ImageSource, SetImage, SetImageOptions};
use windlass_snapshot::{Content, Snapshot};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::held::Held;
use crate::outputs;

/// Its mode says whether the owner's group may read the files.
const VERSION_PATH: &[u8] = b"PG_VERSION";
const PRIVATE_MODE: u32 = 0o600;

/// A snapshot that is backed up.
#[derive(Clone)]
pub(super) struct SnapshotSource {
    pub(super) snapshot: Snapshot,
    image: Arc<dyn Image>,
}

impl SnapshotSource {
    /// Opens the snapshot. It cannot be dropped as long as this exists.
    pub(super) fn open(snapshot: Snapshot) -> Result<Self, OperationError> {
        let image: Arc<dyn Image> = match snapshot.content()? {
            Content::Files(image) => image,
            Content::Set(stripes) => {
                let set = Arc::new(OpenSet::open(&stripes, METADATA_LIMIT_DEFAULT)?);
                Arc::new(SetImage::open(set, &SetImageOptions::default())?)
            }
        };
        Ok(Self { snapshot, image })
    }

    /// The name of the database.
    pub(super) fn database(&self) -> String {
        let record = self.snapshot.record();
        let file = DatabaseName::Sqlite(record.source.path.clone());
        match record.facts.database["name"].as_str() {
            Some(name) if record.source.kind == windlass_postgres::KIND => name.to_owned(),
            _ => file.short_name(),
        }
    }

    /// What the database's own crate said about it, with the snapshot's name and moment.
    pub(super) fn database_facts(&self) -> serde_json::Value {
        let record = self.snapshot.record();
        let mut facts = record.facts.database.clone();
        facts["snapshot"] = serde_json::json!({
            "name": record.name,
            "id": record.id,
            "as_of": record.as_of,
        });
        facts
    }

    /// What no output of the backup may be.
    pub(super) fn outputs(&self) -> Result<Outputs, OperationError> {
        let mut outputs = outputs::outputs();
        let what = format!("{} belongs to a snapshot", self.place().display());
        outputs.protect_directory(&self.place(), &what)?;
        Ok(outputs)
    }

    /// Where the snapshot is.
    pub(super) fn place(&self) -> PathBuf {
        self.snapshot.path().to_owned()
    }

    /// Reads everything, and seals the set.
    pub(super) fn back_up(
        &self,
        caller: &Caller,
        options: serde_json::Value,
        mut run: BackupRun,
    ) -> Result<RunReport, OperationError> {
        let started = jiff::Timestamp::now().to_string();
        let source = ImageSource::new(Arc::clone(&self.image));
        let bytes = self.image.files().0.iter().map(|entry| entry.bytes);
        run.progress().set_total(bytes.sum());
        run.progress().set_phase("reading the snapshot");
        source.push(&mut run)?;
        run.drain()?;
        let mut files = source.files(&run)?;
        let facts = Facts {
            tool: caller.tool.clone(),
            backup_type: BackupType::Full,
            started,
            finished: jiff::Timestamp::now().to_string(),
            options,
            database: self.database_facts(),
            parents: Vec::new(),
        };
        Held::check_image(&facts, &files)?;
        if self.snapshot.record().source.kind == windlass_postgres::KIND
            && let Some(bytes) = windlass_postgres::manifest_of_image(&facts, &files)?
        {
            add_manifest(&mut run, &mut files, bytes)?;
        }
        Ok(run.finish(files, facts)?)
    }
}

/// Adds the list of the files, without which PostgreSQL's own tool cannot check a restore.
fn add_manifest(
    run: &mut BackupRun,
    files: &mut FileTable,
    bytes: Arc<[u8]>,
) -> Result<(), OperationError> {
    let numbers = files.0.iter().map(|entry| entry.file.0.saturating_add(1));
    let file = FileNo(numbers.max().unwrap_or(0));
    let like = files.0.iter().find(|entry| entry.path == VERSION_PATH);
    let entry = FileEntry {
        file,
        kind: FileKind::File,
        flags: FileFlags {
            last: false,
            crc_known: true,
        },
        mode: like.map_or(PRIVATE_MODE, |entry| entry.mode),
        bytes: fitted(bytes.len()),
        mtime_nanos: fitted(jiff::Timestamp::now().as_nanosecond()),
        crc32c: crc32c(&bytes),
        path: windlass_postgres::MANIFEST_PATH.as_bytes().to_vec(),
        link_target: Vec::new(),
    };
    run.push(FileSpec {
        file,
        content: FileContent::Bytes(bytes),
        bytes: entry.bytes,
        needed_bytes: entry.bytes,
        missing: Missing::Fail,
    })?;
    // pg_control stays the last of the table.
    let at = files.0.iter().position(|entry| entry.flags.last);
    files.0.insert(at.unwrap_or(files.0.len()), entry);
    Ok(())
}

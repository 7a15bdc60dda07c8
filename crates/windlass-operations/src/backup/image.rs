//! A backup of what does not change meanwhile: a snapshot, or a chain that becomes one full set.
//! There is nothing to wait for and nothing to read twice.
//!
//! Invariant: a merged set stands right behind the set that it repeats, so that the newest set of a
//! place is never one with an older state.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use windlass_engine::media::{
    BackupType, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, crc32c, fitted,
};
use windlass_engine::{
    BackupRun, BufferPlan, FileContent, FileSpec, FoundSet, METADATA_LIMIT_DEFAULT, Missing,
    OpenSet, OpenStripe, Outputs, PageClass, RunReport,
};
use windlass_image::{Image, ImageSource, SetImage, SetImageOptions};
use windlass_postgres::PageLayouts;
use windlass_snapshot::{Content, Snapshot};

use super::{Basis, Job, Sealed};
use crate::as_cluster::AsCluster;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::held::Held;
use crate::moments::timestamp;
use crate::outputs;
use crate::warnings::{Warnings, of_instead, of_pages};
use crate::watch::Ended;

/// Its mode says whether the owner's group may read the files.
const VERSION_PATH: &[u8] = b"PG_VERSION";
const PRIVATE_MODE: u32 = 0o600;
/// Most readers of a chain. Each decodes frames, so more of them than cores gain nothing.
const READERS_MAX: usize = 16;

/// How long after the set that it repeats a merged set begins.
const NEXT: SignedDuration = SignedDuration::from_nanos(1);

/// Something that does not change, and is backed up.
#[derive(Clone)]
pub(super) struct FixedSource {
    of: Of,
    image: Arc<dyn Image>,
}

#[derive(Clone)]
enum Of {
    Snapshot(Box<Snapshot>),
    Chain(Arc<OpenSet>),
}

impl FixedSource {
    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let files = self.image.files().0.iter();
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Opens the snapshot. It cannot be dropped as long as this exists.
    pub(super) fn of_snapshot(snapshot: Snapshot) -> Result<Self, OperationError> {
        let image: Arc<dyn Image> = match snapshot.content()? {
            Content::Files(image) => image,
            Content::Set(stripes) => {
                let set = Arc::new(OpenSet::open_in(STORAGE, &stripes, METADATA_LIMIT_DEFAULT)?);
                Arc::new(SetImage::open(set, &SetImageOptions::default())?)
            }
        };
        let of = Of::Snapshot(Box::new(snapshot));
        Ok(Self { of, image })
    }

    /// Takes a set with all sets that it builds on.
    pub(super) fn of_chain(set: OpenSet) -> Result<Self, OperationError> {
        Held::check(set.description())?;
        let set = Arc::new(set);
        let image = Arc::new(SetImage::open(
            Arc::clone(&set),
            &SetImageOptions::default(),
        )?);
        let of = Of::Chain(set);
        Ok(Self { of, image })
    }

    /// The name of the database.
    pub(super) fn database(&self) -> String {
        let (facts, path) = match &self.of {
            Of::Snapshot(snapshot) => {
                let record = snapshot.record();
                (&record.facts.database, record.source.path.clone())
            }
            Of::Chain(set) => {
                let facts = &set.description().facts.database;
                (facts, facts["path"].as_str().unwrap_or_default().into())
            }
        };
        match facts["name"].as_str() {
            Some(name) if self.is_postgres() => name.to_owned(),
            _ => DatabaseName::Sqlite(path).short_name(),
        }
    }

    /// What the database's own crate said about it, and where this comes from.
    pub(super) fn database_facts(&self) -> serde_json::Value {
        let mut facts = self.facts_of_source();
        if let Some(facts) = facts.as_object_mut() {
            // They say what stands in another set.
            facts.remove("page_hashes");
        }
        facts
    }

    fn facts_of_source(&self) -> serde_json::Value {
        match &self.of {
            Of::Snapshot(snapshot) => {
                let record = snapshot.record();
                let mut facts = record.facts.database.clone();
                facts["snapshot"] = serde_json::json!({
                    "name": record.name,
                    "id": record.id,
                    "as_of": record.as_of,
                });
                facts
            }
            Of::Chain(set) => {
                let mut facts = set.description().facts.database.clone();
                let ids: Vec<_> = set.links().map(|set| set.set_id().to_string()).collect();
                facts["merged"] = ids.into();
                // A full set has no base since which something changed.
                if let Some(facts) = facts.as_object_mut() {
                    facts.remove("changes_from");
                }
                facts
            }
        }
    }

    /// What no output of the backup may be.
    pub(super) fn outputs(&self) -> Result<Outputs, OperationError> {
        match &self.of {
            Of::Snapshot(_) => Ok(outputs::outputs()),
            Of::Chain(set) => outputs::of_set(set),
        }
    }

    /// Where it is. The owner of this is the owner of the new set.
    pub(super) fn place(&self) -> PathBuf {
        match &self.of {
            Of::Snapshot(snapshot) => snapshot.path().to_owned(),
            Of::Chain(set) => first_stripe(set).map_or(PathBuf::new(), |it| it.location().into()),
        }
    }

    /// When the new set begins, if that is not now: one nanosecond after the set that it repeats.
    pub(super) fn begun(&self) -> Option<Timestamp> {
        let Of::Chain(set) = &self.of else {
            return None;
        };
        let started: Option<Timestamp> = set.description().facts.started.parse().ok();
        let created = || Some(timestamp(first_stripe(set)?.header().created_nanos));
        let begun = started.or_else(created)?;
        Some(begun.saturating_add(NEXT).unwrap_or(begun))
    }

    /// How many readers are of use at once.
    pub(super) fn readers(&self) -> usize {
        match &self.of {
            Of::Snapshot(_) => 1,
            Of::Chain(_) => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(READERS_MAX),
        }
    }

    /// When what is backed up was begun and finished.
    fn moments(&self) -> (String, String) {
        let now = || Timestamp::now().to_string();
        match &self.of {
            Of::Snapshot(_) => (now(), now()),
            Of::Chain(set) => {
                let facts = &set.description().facts;
                let begun = self.begun().map(|begun| begun.to_string());
                (begun.unwrap_or_else(now), facts.finished.clone())
            }
        }
    }

    /// Whether the files lack PostgreSQL's list of them.
    fn lacks_manifest(&self) -> bool {
        matches!(self.of, Of::Snapshot(_)) && self.is_postgres()
    }

    /// Whether the database is PostgreSQL's.
    pub(super) fn is_postgres(&self) -> bool {
        let kind = match &self.of {
            Of::Snapshot(snapshot) => &*snapshot.record().source.kind,
            Of::Chain(set) => {
                let facts = &set.description().facts.database;
                facts["kind"].as_str().unwrap_or_default()
            }
        };
        kind == windlass_postgres::KIND
    }

    /// Tells the run how the pages are laid out, if it takes them apart. Nobody knows it better
    /// than the image itself: the database may be another one by now.
    fn classify(&self, source: &ImageSource, run: &mut BackupRun) {
        if !run.takes_pages_apart() {
            return;
        }
        let image = &*self.image;
        if self.is_postgres() {
            let layouts = PageLayouts::of_image(&AsCluster(image));
            return source.classify(run, |entry| layouts.class(&entry.path).cloned());
        }
        source.classify(run, |entry| {
            let mut first = [0; windlass_sqlite::DATABASE_HEADER_BYTES];
            let read = image.read(entry.file, 0, &mut first).ok()?;
            let layout = windlass_sqlite::layout_of_file(&first[..read])?;
            Some(Arc::new(PageClass::new(layout)))
        });
    }

    /// Reads everything, and seals the set.
    pub(super) fn back_up(
        &self,
        caller: &Caller,
        options: serde_json::Value,
        mut run: BackupRun,
    ) -> Result<RunReport, OperationError> {
        let (started, _) = self.moments();
        let source = ImageSource::new(Arc::clone(&self.image));
        let bytes = self.image.files().0.iter().map(|entry| entry.bytes);
        run.progress().set_total(bytes.sum());
        run.progress().set_phase(match &self.of {
            Of::Snapshot(_) => "reading the snapshot",
            Of::Chain(_) => "reading the chain",
        });
        self.classify(&source, &mut run);
        source.push(&mut run)?;
        run.drain()?;
        let mut files = source.files(&run)?;
        let facts = Facts {
            tool: caller.tool.clone(),
            backup_type: BackupType::Full,
            started,
            finished: self.moments().1,
            options,
            database: self.database_facts(),
            parents: Vec::new(),
        };
        Held::check_image(&facts, &files)?;
        if self.lacks_manifest()
            && let Some(bytes) = windlass_postgres::manifest_of_image(&facts, &files)?
        {
            add_manifest(&mut run, &mut files, bytes)?;
        }
        Ok(run.finish(files, facts)?)
    }
}

impl Job<'_> {
    /// Makes a set of what does not change.
    pub(super) fn fixed(
        &self,
        fixed: &FixedSource,
        plan: BufferPlan,
        outputs: &Outputs,
        base: Basis<()>,
    ) -> Result<Sealed, OperationError> {
        let options = self.options_json(&plan);
        let (run, watch) = self.start(plan, &fixed.database(), outputs)?;
        let sealed = fixed.back_up(self.caller, options.clone(), run);
        let (report, end) = watch.end(sealed, |report| Ended::well(report))?;
        let warnings = of_instead(base.and_then(Result::err));
        let warnings = warnings.into_iter().chain(of_pages(report.pages));
        Ok(Sealed {
            report,
            backup_type: BackupType::Full,
            base: None,
            database: fixed.database_facts(),
            places: vec![fixed.place()],
            warnings: Warnings::new(warnings, &self.request.accept),
            remarks: Vec::new(),
            options,
            end,
        })
    }
}

fn first_stripe(set: &FoundSet) -> Option<&OpenStripe> {
    set.stripes().first()
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
        mtime_nanos: fitted(Timestamp::now().as_nanosecond()),
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

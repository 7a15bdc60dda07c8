//! The set on which a backup builds: the one that was named, or the newest that fits.
//!
//! Windlass looks in the places to which the backup goes. A differential builds on the newest full
//! set there, an incremental on the newest set of any kind.
//!
//! Invariants
//! - A base is of the same database, it is opened and checked with all sets below it, and the
//!   database's own crate has agreed.
//! - A set that was named is used, or the backup fails. No other set is taken in its place.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass_engine::media::BackupType;
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet, Outputs, SetEntry, SetState};
use windlass_image::{Image, ImageSource, SetImage, SetImageOptions};
use windlass_postgres::{ChainBase, Cluster};
use windlass_sqlite::{Database, DatabaseKey};

use super::{BackupRequest, Job, in_log};
use crate::caller::Caller;
use crate::devices::{self, DeviceName, STORAGE, is_place};
use crate::error::OperationError;
use crate::images::AsCluster;
use crate::places::{
    self, Made, SetChoice, SetRequest, Which, in_order, list, names, short_id, tell_of_order,
};

/// What a backup builds on, or why it is a full one although a base was asked for. None if a full
/// one was asked for.
pub(crate) type Basis<T> = Option<Result<T, String>>;

/// What the crate of the database says about a set: something to build on, or why it cannot be.
pub(crate) type Taken<T> = Result<T, String>;

/// Where a base is looked for: in the places of a backup.
pub(crate) struct BaseSearch<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) request: &'a BackupRequest,
    pub(crate) devices: &'a [DeviceName],
    /// Where the base is kept, so that nobody removes it before the new set is sealed.
    pub(crate) kept: &'a OnceCell<OpenSet>,
}

impl Job<'_> {
    pub(super) fn search(&self) -> BaseSearch<'_> {
        BaseSearch {
            caller: self.caller,
            request: self.request,
            devices: &self.devices,
            kept: &self.base,
        }
    }
}

impl BaseSearch<'_> {
    /// Finds the base. `is_of` says whether facts of a set are those of this database. The base and
    /// the sets below it become protected from the outputs of the run.
    pub(super) fn base<T>(
        &self,
        is_of: impl Fn(&Value) -> bool,
        take: impl Fn(&OpenSet) -> Taken<T>,
        outputs: &mut Outputs,
    ) -> Result<Basis<T>, OperationError> {
        if self.request.backup_type == BackupType::Full {
            return Ok(None);
        }
        let found = match &self.request.base {
            Some(word) => Ok(self.named(word, take)?),
            None => self.newest(is_of, take)?,
        };
        match found {
            Ok((set, taken)) => {
                for link in set.links() {
                    outputs.protect_set(link)?;
                }
                self.kept.get_or_init(|| set);
                Ok(Some(Ok(taken)))
            }
            Err(reason) => self.no_base(reason),
        }
    }

    /// The base of a backup of this cluster.
    pub(crate) fn base_of_cluster(
        &self,
        cluster: &Cluster,
        outputs: &mut Outputs,
    ) -> Result<Basis<Arc<ChainBase>>, OperationError> {
        let facts = cluster.facts();
        let identifier = facts.system_identifier.to_string();
        let is_of = |database: &Value| {
            database["kind"] == windlass_postgres::KIND
                && database["system_identifier"] == identifier.as_str()
        };
        let take = |set: &OpenSet| {
            let base = ChainBase::of_set(set).map_err(|error| error.to_string())?;
            base.check(facts).map_err(|fault| fault.to_string())?;
            let image = image_of(set)?;
            let checked = base.check_log(facts, &AsCluster(&image));
            checked.map_err(|error| error.to_string())?;
            Ok(Arc::new(base))
        };
        self.base(is_of, take, outputs)
    }

    /// The base of a backup of this SQLite database.
    pub(crate) fn base_of_file(
        &self,
        database: &Database,
        outputs: &mut Outputs,
    ) -> Result<Basis<windlass_sqlite::ChainBase>, OperationError> {
        let key = database.facts().key();
        let is_of = |facts: &Value| {
            facts["kind"] == windlass_sqlite::KIND && DatabaseKey::of_facts(facts) == key
        };
        let take = |set: &OpenSet| {
            let image = Arc::new(image_of(set)?);
            let unlisted = |file, bytes| SetImage::unlisted(&image, file, bytes);
            let source = ImageSource::new(Arc::clone(&image) as Arc<dyn Image>);
            let content = |file| source.bytes_of(file);
            let base = windlass_sqlite::ChainBase::of_set(set, content, unlisted);
            let mut base = base.map_err(str::to_owned)?;
            base.check()?;
            in_log::tell_written(&mut base, &devices::directories(self.devices), &key);
            Ok(base)
        };
        self.base(is_of, take, outputs)
    }

    /// No base: what is backed up has to be read as a whole.
    pub(super) fn whole(&self, reason: &str) -> Result<Basis<()>, OperationError> {
        match self.request.backup_type {
            BackupType::Full => Ok(None),
            _ => self.no_base(reason.to_owned()),
        }
    }

    /// Reads everything instead, if the user does not insist.
    pub(super) fn no_base<T>(&self, reason: String) -> Result<Basis<T>, OperationError> {
        match self.request.is_strict {
            true => Err(OperationError::NoBase { reason }),
            false => Ok(Some(Err(reason))),
        }
    }

    /// The set that was named.
    fn named<T>(
        &self,
        word: &str,
        take: impl Fn(&OpenSet) -> Taken<T>,
    ) -> Result<(OpenSet, T), OperationError> {
        let places = devices::places(self.devices);
        let of_places = Which::parse(word)
            .ok()
            .filter(|_| !Path::new(word).exists());
        let request = match of_places {
            Some(which) if !places.is_empty() => SetRequest {
                words: places.clone(),
                choice: SetChoice {
                    which: Some(which),
                    of: None,
                },
                configured: Vec::new(),
            },
            _ => SetRequest::at(word),
        };
        let mut located = places::find(self.caller, &request)?;
        located.places.extend(places);
        let set = located.open()?;
        let kind = set.description().facts.backup_type;
        let unfit = |reason| OperationError::BaseUnfit {
            set: set.set_id().to_string(),
            reason,
        };
        if !self.may_build_on(kind) {
            return Err(unfit(
                "a differential backup builds on a full one, and this is none".to_owned(),
            ));
        }
        match take(&set) {
            Ok(taken) => Ok((set, taken)),
            Err(reason) => Err(unfit(reason)),
        }
    }

    /// The newest set that fits, or why there is none.
    fn newest<T>(
        &self,
        is_of: impl Fn(&Value) -> bool,
        take: impl Fn(&OpenSet) -> Taken<T>,
    ) -> Result<Taken<(OpenSet, T)>, OperationError> {
        let places: Vec<_> = devices::places(self.devices);
        let places: Vec<_> = places.into_iter().filter(|path| is_place(path)).collect();
        let found = list(&places)?;
        let mut reason = None;
        let candidates = self.candidates(&found.sets, &is_of);
        for one in candidates.iter().rev() {
            let set = one.set;
            match opened(set, &places).and_then(|open| Ok((take(&open)?, open))) {
                Ok((taken, open)) => {
                    tell_of_order(self.caller, one, &candidates);
                    return Ok(Ok((open, taken)));
                }
                Err(why) => drop(reason.get_or_insert(format!("set {}: {why}", short_id(set)))),
            }
        }
        let is_locked = |set: &SetEntry| matches!(set.state, SetState::Locked(_));
        let are_locked = found.sets.iter().any(is_locked);
        let none = || match self.request.backup_type {
            _ if are_locked => format!(
                "sets in {} are encrypted, and no key here opens them",
                named(&places)
            ),
            kind => {
                let full = if kind == BackupType::Diff {
                    "full "
                } else {
                    ""
                };
                let elsewhere = self.elsewhere(&found.sets, &is_of);
                format!(
                    "there is no {full}backup of it in {}{elsewhere}",
                    named(&places)
                )
            }
        };
        Ok(Err(reason.unwrap_or_else(none)))
    }

    /// The sets on which it may build, in the order in which they were made. What cannot be the
    /// base may say when another set was made.
    fn candidates<'a>(
        &self,
        sets: &'a [SetEntry],
        is_of: impl Fn(&Value) -> bool,
    ) -> Vec<Made<'a>> {
        let own = sets.iter().filter(|set| {
            let about = set.about.as_ref();
            about.is_some_and(|about| is_of(&about.database))
        });
        let own: Vec<_> = own.collect();
        let mut made = in_order(&own, Timestamp::now());
        made.retain(|one| {
            let about = one.set.about.as_ref();
            about.is_some_and(|about| self.may_build_on(about.backup_type))
        });
        made
    }

    /// What to add if sets have the path of this database, but another machine.
    fn elsewhere(&self, sets: &[SetEntry], is_of: impl Fn(&Value) -> bool) -> String {
        let databases = sets.iter().rev().filter_map(|set| set.about.as_ref());
        let mut hosts = databases.filter_map(|about| {
            let mut here = about.database.clone();
            here["host"] = self.caller.host.as_str().into();
            let host = about.database["host"].as_str()?;
            is_of(&here).then_some(host)
        });
        hosts.next().map_or_else(String::new, |host| {
            format!(
                ". Those of {host} have its path: if this machine was called {host}, let Windlass \
                 go on with this hostname"
            )
        })
    }

    /// Whether a set of this kind can be the base of what was asked for.
    fn may_build_on(&self, kind: BackupType) -> bool {
        match self.request.backup_type {
            BackupType::Diff => kind == BackupType::Full,
            _ => kind != BackupType::Log,
        }
    }
}

/// The content of a set. It is opened again, because the image keeps the set as long as it is
/// read. A set is refused if nobody can say which of its bytes count: later, that would end the
/// backup.
fn image_of(set: &OpenSet) -> Taken<SetImage> {
    let open = places::open_again(set).map_err(|error| error.to_string())?;
    let image = SetImage::open(Arc::new(open), &SetImageOptions::default());
    let image = image.map_err(|error| error.to_string())?;
    for entry in &image.files().0 {
        let checked = image.check_layers(entry.file);
        checked.map_err(|error| error.to_string())?;
    }
    Ok(image)
}

/// A set of a list with those below it.
fn opened(set: &SetEntry, places: &[PathBuf]) -> Taken<OpenSet> {
    match &set.state {
        SetState::Sealed => {}
        state => return Err(format!("it is {}", state.name())),
    }
    let stripes = set.locations();
    let open = OpenSet::open_among(STORAGE, &stripes, places, METADATA_LIMIT_DEFAULT);
    open.map_err(|error| error.to_string())
}

fn named(places: &[PathBuf]) -> String {
    match places {
        [] => "the places of this backup".to_owned(),
        places => names(places),
    }
}

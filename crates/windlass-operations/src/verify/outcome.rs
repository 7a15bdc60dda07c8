//! What a verification found, set by set.

use std::path::PathBuf;

use serde_json::Value;
use thiserror::Error;
use windlass_engine::media::SetId;
use windlass_engine::{DamageReport, EngineError, Mends, RunReport, SetEntry};
use windlass_repository::{LogCheck, RepositoryError};

use crate::commits::DatabaseLog;
use crate::denied::Denied;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::places::Advice;
use crate::reach::Missing;

/// What a verification found.
pub enum VerifyOutcome {
    /// Of the one set that was named.
    One(Box<VerifiedSet>),
    /// Of all sets of some places.
    All(VerifiedSets),
    /// Of a snapshot that is no set.
    Image(Box<VerifiedImage>),
}

/// A verified snapshot that is no set. Its files have no checksums.
pub struct VerifiedImage {
    /// What people call it.
    pub title: String,
    /// Whether the pages that were kept for it have checksums, and were checked.
    pub has_kept_pages: bool,
    /// How many bytes were read, and could be.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What the database's own tools found, if they were asked.
    pub opened: Option<Inspected>,
}

impl VerifiedImage {
    /// How the verification ends.
    pub fn ending(&self) -> Ending {
        match &self.opened {
            Some(found) if found.is_damaged() => Ending::Damage,
            Some(found) if found.has_warnings() => Ending::Warnings,
            _ => Ending::Done,
        }
    }
}

/// One verified set.
pub struct VerifiedSet {
    /// Its id.
    pub id: SetId,
    /// How many of its stripes were found.
    pub stripes: usize,
    /// The bytes of its stripes.
    pub stripe_bytes: u64,
    /// What it says about its database.
    pub database: Value,
    /// The run that read everything; none if only seals and indexes were checked.
    pub run: Option<RunReport>,
    /// Who can read it, if it is encrypted and there is no key. Then only what is not encrypted was
    /// checked.
    pub locked: Option<Vec<String>>,
    /// What is wrong with it.
    pub damage: DamageReport,
    /// What is lost of it and can be rebuilt from its parity.
    pub mends: Option<Mends>,
    /// Why every restore refuses it, although its checksums are right.
    pub refused: Option<OperationError>,
    /// What the database's own tools found, if they were asked.
    pub opened: Option<Opening>,
    /// Which set to use instead, if something is wrong with this one.
    pub advice: Option<Advice>,
}

/// The end of a set that was opened.
pub enum Opening {
    /// It was inspected.
    Inspected(Inspected),
    /// It cannot be opened, because it or the database in it is damaged.
    Failed(OperationError),
}

/// What the database's own tools found in an opened set.
pub struct Inspected {
    /// What they say.
    pub findings: Findings,
    /// How long it took.
    pub seconds: f64,
    /// Whether damage of the set was met.
    pub set_is_damaged: bool,
}

/// The findings of a database's own tools.
pub enum Findings {
    /// Of a cluster.
    Postgres(windlass_postgres::Inspection),
    /// Of a SQLite database.
    Sqlite(windlass_sqlite::Inspection),
}

impl Inspected {
    /// How many places of the database are damaged.
    pub fn faults(&self) -> u64 {
        let faults = match &self.findings {
            Findings::Postgres(found) => found.faults.len(),
            Findings::Sqlite(found) => found.faults.len(),
        };
        faults as u64
    }

    /// Whether something could not be checked.
    pub fn has_warnings(&self) -> bool {
        match &self.findings {
            Findings::Postgres(found) => !found.unchecked.is_empty(),
            Findings::Sqlite(found) => !found.warnings.is_empty(),
        }
    }

    /// Whether the set or its database is damaged.
    pub fn is_damaged(&self) -> bool {
        self.set_is_damaged || self.faults() > 0
    }
}

impl VerifiedSet {
    /// What the database's own tools found, if the set could be opened.
    pub fn inspected(&self) -> Option<&Inspected> {
        match &self.opened {
            Some(Opening::Inspected(inspected)) => Some(inspected),
            _ => None,
        }
    }

    /// Why the set cannot be opened, if it was tried.
    pub fn unopened(&self) -> Option<&OperationError> {
        match &self.opened {
            Some(Opening::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether neither the set nor its database is damaged.
    pub fn is_sound(&self) -> bool {
        let found = self.inspected().is_some_and(Inspected::is_damaged);
        self.damage.is_empty() && !found && self.unopened().is_none()
    }

    /// How the operation ends for this set.
    pub fn ending(&self) -> Ending {
        let has_warnings = self.locked.is_some()
            || self.mends.is_some()
            || self.inspected().is_some_and(Inspected::has_warnings);
        match (self.is_sound(), has_warnings) {
            (false, _) => Ending::Damage,
            (true, true) => Ending::Warnings,
            (true, false) => Ending::Done,
        }
    }
}

/// The sets of some places.
#[derive(Default)]
pub struct VerifiedSets {
    /// How many sets there are to read.
    pub sets: usize,
    /// How many were read not long ago, and are not read again.
    pub earlier: usize,
    /// What was found: first of files that belong to no set, then of each set.
    pub results: Vec<SetResult>,
    /// Devices of backups and repairs under way, or cut off.
    pub unfinished: Vec<PathBuf>,
    /// What to do about damaged sets.
    pub instead: BadSets,
    /// What was found of the archived logs.
    pub logs: Vec<VerifiedLog>,
    /// The moment to which these sets and this log lead, if one was named.
    pub moment: Option<Box<VerifiedMoment>>,
}

/// A moment to which sets and log lead.
pub struct VerifiedMoment {
    /// What people call it.
    pub title: String,
    /// What the database's own tools found there, if they were asked.
    pub opened: Option<Opening>,
}

impl VerifiedMoment {
    fn ending(&self) -> Ending {
        match &self.opened {
            Some(Opening::Failed(_)) => Ending::Damage,
            Some(Opening::Inspected(found)) if found.is_damaged() => Ending::Damage,
            Some(Opening::Inspected(found)) if found.has_warnings() => Ending::Warnings,
            _ => Ending::Done,
        }
    }
}

/// What was found of the archived log of a cluster, or of a SQLite database.
#[derive(Debug)]
pub struct VerifiedLog {
    /// The place.
    pub place: PathBuf,
    /// The cluster, or the number of the database.
    pub system: u64,
    /// The log of a SQLite database, as far as it can be read.
    pub database: Option<DatabaseLog>,
    /// Whether only indexes were checked.
    pub is_quick: bool,
    /// What its objects hold.
    pub check: LogCheck,
    /// What is missing.
    pub gaps: Vec<Missing>,
    /// Why it could not be looked at.
    pub error: Option<RepositoryError>,
}

/// What was found of one set or file.
pub enum SetResult {
    /// It was verified.
    Verified {
        /// The beginning of its id.
        name: String,
        /// What was found.
        verified: Box<VerifiedSet>,
    },
    /// It was not.
    NotRead {
        /// The beginning of its id, or the path of the file.
        name: String,
        /// Its whole id; none for a file.
        id: Option<String>,
        /// Why.
        why: NotRead,
    },
}

/// Why a set or file was not read.
#[derive(Debug, Error)]
pub enum NotRead {
    /// It is damaged.
    #[error(transparent)]
    Damaged(OperationError),
    /// This user may not read it.
    #[error(transparent)]
    Denied(Denied),
    /// Another process has removed it since the places were listed.
    #[error("was removed meanwhile")]
    Removed,
    /// Something else failed.
    #[error(transparent)]
    Failed(OperationError),
}

impl NotRead {
    /// Why a file cannot be read that may be a stripe.
    pub(super) fn of(fault: EngineError) -> Self {
        match Denied::of(&fault) {
            Some(denied) => Self::Denied(denied),
            None => Self::Damaged(fault.into()),
        }
    }
}

/// What to do about the damaged sets of some places.
#[derive(Default)]
pub enum BadSets {
    /// No set is damaged; files that belong to none may be.
    #[default]
    None,
    /// One is.
    One(Advice),
    /// Several are, in these places.
    Several(Vec<PathBuf>),
}

impl SetResult {
    /// The beginning of a set's id, or the path of a file.
    pub fn name(&self) -> &str {
        match self {
            Self::Verified { name, .. } | Self::NotRead { name, .. } => name,
        }
    }

    /// Whether it is damaged.
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Verified { verified, .. } => verified.ending() == Ending::Damage,
            Self::NotRead { why, .. } => matches!(why, NotRead::Damaged(_)),
        }
    }

    /// Whether nothing is known of it, although it is there.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Verified { .. } => false,
            Self::NotRead { why, .. } => matches!(why, NotRead::Denied(_) | NotRead::Failed(_)),
        }
    }

    /// What was found, if it was verified.
    pub fn verified(&self) -> Option<&VerifiedSet> {
        match self {
            Self::Verified { verified, .. } => Some(verified),
            Self::NotRead { .. } => None,
        }
    }
}

impl VerifiedSets {
    /// The names of what is damaged.
    pub fn damaged(&self) -> Vec<&str> {
        let damaged = self.results.iter().filter(|one| one.is_damaged());
        damaged.map(SetResult::name).collect()
    }

    /// The names of what could not be verified for another reason than damage.
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.results.iter().filter(|one| one.is_unknown());
        failed.map(SetResult::name).collect()
    }

    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        let verified = || self.results.iter().filter_map(SetResult::verified);
        let has = |ending| verified().any(|one| one.ending() == ending);
        let has_log = |is: fn(&VerifiedLog) -> bool| self.logs.iter().any(is);
        let moment = self.moment.as_ref().map(|moment| moment.ending());
        let is_damaged = !self.damaged().is_empty()
            || has_log(VerifiedLog::is_damaged)
            || moment == Some(Ending::Damage);
        let is_unknown = !self.failed().is_empty() || has_log(VerifiedLog::is_unknown);
        let is_removed = |one: &SetResult| match one {
            SetResult::NotRead { why, .. } => matches!(why, NotRead::Removed),
            SetResult::Verified { .. } => false,
        };
        // Then nothing was verified.
        let is_none_left = self.sets > 0 && self.results.iter().all(is_removed);
        let has_warnings = has(Ending::Warnings)
            || is_none_left
            || has_log(VerifiedLog::has_gaps)
            || has_log(VerifiedLog::is_unread)
            || moment == Some(Ending::Warnings);
        match (is_damaged, is_unknown) {
            (true, _) => Ending::Damage,
            (false, true) => Ending::Failed,
            (false, false) if has_warnings => Ending::Warnings,
            (false, false) => Ending::Done,
        }
    }
}

/// What happens during a verification, as soon as it is known.
pub enum VerifyStep<'a> {
    /// A set will be read. `of` is its entry if it is one of several.
    Begins {
        /// The entry.
        of: Option<&'a SetEntry>,
    },
    /// A set was read. It is not opened yet.
    Read {
        /// Its entry, if it is one of several.
        of: Option<&'a SetEntry>,
        /// What was found.
        verified: &'a VerifiedSet,
    },
    /// A set was opened, or cannot be.
    Opened {
        /// Its entry, if it is one of several.
        of: Option<&'a SetEntry>,
        /// What was found.
        verified: &'a VerifiedSet,
    },
    /// An archived log was verified.
    Log {
        /// What was found.
        log: &'a VerifiedLog,
    },
    /// A set or file was not read.
    NotRead {
        /// Its entry, if it is a set.
        of: Option<&'a SetEntry>,
        /// What it is.
        result: &'a SetResult,
    },
}

impl std::fmt::Debug for VerifyStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (step, name) = match self {
            Self::Begins { of } => ("begins", of.map(|set| set.set_id.to_string())),
            Self::Read { verified, .. } => ("read", Some(verified.id.to_string())),
            Self::Opened { verified, .. } => ("opened", Some(verified.id.to_string())),
            Self::Log { log } => ("log", Some(log.system.to_string())),
            Self::NotRead { result, .. } => ("not read", Some(result.name().to_owned())),
        };
        write!(f, "{step}: {}", name.unwrap_or_default())
    }
}

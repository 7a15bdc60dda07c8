//! What a backup is asked for.

use std::time::Duration;

use windlass_engine::media::{BackupType, Codec};
use windlass_engine::{BufferPlan, PageClass};
use windlass_postgres::BackupRequest as ClusterRequest;

use super::mirror::MirrorRequest;
use crate::compression::Compression;
use crate::hooks::HookCommands;
use crate::settings::{Rates, RunSettings};
use crate::watch::Watching;

/// What to back up, where to, and how.
#[derive(Clone, Debug)]
pub struct BackupRequest {
    /// A SQLite file, or a libpq connection string or URI.
    pub database: String,
    /// What the configuration calls the database.
    pub name: Option<String>,
    /// Where to write each stripe: a file, a directory, or `nul`.
    pub to: Vec<String>,
    /// Whether these devices were there on other nights, so that one that is missing is a warning.
    pub to_is_expected: bool,
    /// Everything, or what changed since an earlier set.
    pub backup_type: BackupType,
    /// The set to build on: its stripe, its place, or its id in the places of this backup. Without
    /// it the newest set that fits.
    pub base: Option<String>,
    /// Fail if there is nothing to build on, instead of reading everything.
    pub is_strict: bool,
    /// How to compress.
    pub compression: Compression,
    /// The same as the user wrote it, for what is told.
    pub compression_text: String,
    /// Whether to take pages apart before they are compressed, where that makes them smaller.
    pub pages: PageChoice,
    /// Whether to put them together again and compare them before they are stored.
    pub frame_proof: bool,
    /// Where the set is to be, too.
    pub mirrors: Vec<MirrorRequest>,
    /// Who can read the set, as words for keys. If there are none, the set is not encrypted.
    pub encrypt: Vec<String>,
    /// How many of the devices, the last ones, have parity.
    pub parities: u16,
    /// Limits of speed.
    pub rates: Rates,
    /// Whether to replace stripes that exist, after the new set is sealed.
    pub overwrite: bool,
    /// Whether to write through the page cache instead of past it.
    pub buffered: bool,
    /// A name for the backup, which the set keeps.
    pub label: String,
    /// PostgreSQL: whether to start with a checkpoint at once.
    pub fast_checkpoint: bool,
    /// PostgreSQL: whether to check the checksums of pages.
    pub page_checksums: bool,
    /// SQLite: the longest wait for a lock.
    pub lock_wait: Option<Duration>,
    /// SQLite in rollback mode: the longest time for which writers are locked out; zero is without
    /// end.
    pub lock_limit: Option<Duration>,
    /// The names of warnings that do not change the ending.
    pub accept: Vec<String>,
    /// Whether to keep the plan's prediction beside what the run took.
    pub keep_prediction: bool,
    /// Commands before and after.
    pub hooks: HookCommands,
    /// How the run is recorded.
    pub watching: Watching,
    /// Buffers, threads, storage.
    pub settings: RunSettings,
}

/// Whether a backup takes pages apart before they are compressed, where that makes them smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageChoice {
    /// If that costs no time worth mentioning: PostgreSQL with zstd.
    #[default]
    Usual,
    /// Yes.
    Auto,
    /// No.
    Off,
}

impl PageChoice {
    /// Whether a backup of this kind of database does it.
    pub(crate) fn holds(self, is_postgres: bool, compression: &Compression) -> bool {
        match self {
            Self::Off => false,
            Self::Auto if compression.range.is_some() => true,
            Self::Usual if compression.range.is_some() => is_postgres,
            _ => self.holds_with(is_postgres, compression.codec),
        }
    }

    /// Whether a backup with this codec does it.
    pub(crate) fn holds_with(self, is_postgres: bool, codec: Codec) -> bool {
        match self {
            Self::Off => false,
            Self::Auto => codec != Codec::None,
            Self::Usual => is_postgres && PageClass::is_worth_it_with(codec),
        }
    }
}

impl BackupRequest {
    /// What the set says of its options.
    pub(super) fn options_json(&self, plan: &BufferPlan, apart: bool) -> serde_json::Value {
        serde_json::json!({
            "compress": self.compression.to_string(),
            "pages": match (apart, self.frame_proof) {
                (false, _) => "off",
                (true, true) => "auto",
                (true, false) => "auto, without proof",
            },
            "buffers": plan.buffers,
            "transfer_bytes": plan.transfer_bytes,
            "frame_bytes": plan.frame_bytes,
            "block_bytes": plan.alignment,
        })
    }
}

impl BackupRequest {
    /// A backup of `database` to `devices`, with the usual settings.
    pub fn new(database: &str, to: &[&str]) -> Self {
        Self {
            database: database.to_owned(),
            name: None,
            to: to.iter().map(|&device| device.to_owned()).collect(),
            to_is_expected: false,
            backup_type: BackupType::Full,
            base: None,
            is_strict: false,
            compression: Compression::default(),
            compression_text: Compression::default().to_string(),
            pages: PageChoice::default(),
            frame_proof: true,
            mirrors: Vec::new(),
            encrypt: Vec::new(),
            parities: 0,
            rates: Rates::default(),
            overwrite: false,
            buffered: false,
            label: "windlass".to_owned(),
            fast_checkpoint: true,
            page_checksums: true,
            lock_wait: None,
            lock_limit: None,
            accept: Vec::new(),
            keep_prediction: true,
            hooks: HookCommands::default(),
            watching: Watching::default(),
            settings: RunSettings::default(),
        }
    }
}

impl BackupRequest {
    /// What a server is asked for.
    pub fn cluster_request(&self) -> ClusterRequest {
        ClusterRequest {
            label: self.label.clone(),
            fast_checkpoint: self.fast_checkpoint,
            verify_checksums: self.page_checksums,
            ..ClusterRequest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_apart_by_default_where_that_costs_no_time() {
        let holds = |choice: PageChoice, is_postgres, compression: &str| {
            choice.holds(is_postgres, &Compression::parse(compression).unwrap())
        };
        for (compression, usual) in [
            ("zstd:1", true),
            ("zstd:9", true),
            ("auto", true),
            ("zstd:-3", false),
            ("lz4", false),
            ("none", false),
        ] {
            assert_eq!(
                holds(PageChoice::Usual, true, compression),
                usual,
                "{compression}"
            );
            assert!(
                !holds(PageChoice::Usual, false, compression),
                "SQLite, {compression}"
            );
            for is_postgres in [true, false] {
                assert!(!holds(PageChoice::Off, is_postgres, compression));
                let compresses = compression != "none";
                assert_eq!(
                    holds(PageChoice::Auto, is_postgres, compression),
                    compresses
                );
            }
        }
    }
}

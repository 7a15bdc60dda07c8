//! Axes: what a sweep varies. The cases of a sweep are all combinations of the axes' values.

use serde::{Deserialize, Serialize};
use windlass_engine::{TRANSFER_BYTES_DEFAULT, default_buffer_count, show_size};
use windlass_model::{Emulation, ModelError};

use super::experiment::Experiment;

/// The block size of devices by default.
pub(super) const BLOCK_BYTES_DEFAULT: u64 = 4096;
pub(super) const TRANSFER_DEFAULT: u64 = TRANSFER_BYTES_DEFAULT as u64;

/// The name of the default number of buffers.
pub(super) const DEFAULT: &str = "default";

/// Storage to emulate, with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// What it is called in tables.
    pub name: String,
    /// The storage that is emulated, as texts.
    pub emulate: Vec<String>,
}

impl Storage {
    /// Reads `[NAME: ]source=MODEL target=MODEL ...`; without a name, that text is its name.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let is_name = |name: &str| !name.contains('=');
        let (name, items) = match text.split_once(": ") {
            Some((name, items)) if is_name(name) => (name, items),
            _ => (text, text),
        };
        let emulate: Vec<_> = items.split_whitespace().map(str::to_owned).collect();
        Emulation::parse(emulate.iter().map(String::as_str))?;
        let name = name.trim().to_owned();
        Ok(Self { name, emulate })
    }

    /// The same storage, this many times as fast.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let mut emulate: Vec<_> = self.emulate.clone();
        emulate.retain(|item| !item.starts_with("scale="));
        emulate.push(format!("scale={factor}"));
        Self {
            name: self.name.clone(),
            emulate,
        }
    }
}

/// One of several databases. The connection string is not kept, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its place on the command line, from 0.
    pub index: usize,
    /// Bytes that a backup of it reads.
    pub bytes: u64,
}

impl Source {
    /// `database 2 (512 MiB)`.
    fn label(&self) -> String {
        format!("database {} ({})", self.index + 1, show_size(self.bytes))
    }
}

/// One setting of a backup or restore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Stripes.
    pub devices: usize,
    /// Bytes of a transfer.
    pub transfer_bytes: u64,
    /// The number of buffers; `None` is the default number.
    pub buffers: Option<usize>,
    /// Block size of the devices, in bytes.
    pub block_bytes: u64,
    /// `none`, `lz4`, `zstd:1` ...
    pub codec: String,
    /// Whether pages are taken apart; `None` is what a backup does by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<String>,
    /// Storage that is emulated.
    pub set_up: Option<Storage>,
    /// Which database, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// What a sweep may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Databases.
    Database,
    /// Emulated storage.
    Storage,
    /// Codec and level.
    Codec,
    /// Whether pages are taken apart.
    Pages,
    /// Number of stripes.
    Devices,
    /// Size of a transfer.
    TransferSize,
    /// Number of buffers.
    Buffers,
    /// Block size of the devices.
    BlockSize,
}

impl Axis {
    /// Every axis, in the order in which tables show them.
    pub const ALL: [Self; 8] = [
        Self::Database,
        Self::Storage,
        Self::Codec,
        Self::Pages,
        Self::Devices,
        Self::TransferSize,
        Self::Buffers,
        Self::BlockSize,
    ];

    /// The axes that are given and not chosen. A setting competes only with settings of the same
    /// database and storage.
    pub const GIVEN: [Self; 2] = [Self::Database, Self::Storage];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Storage => "storage",
            Self::Codec => "compression",
            Self::Pages => "pages",
            Self::Devices => "devices",
            Self::TransferSize => "transfer size",
            Self::Buffers => "buffers",
            Self::BlockSize => "block size",
        }
    }

    /// Whether the values are numbers, so that "more of it" has a meaning.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Storage | Self::Codec | Self::Pages)
    }
}

impl Case {
    /// The setting's value on an axis, in words.
    pub fn label(&self, axis: Axis) -> String {
        match axis {
            Axis::Database => match &self.source {
                Some(source) => source.label(),
                None => "the database".to_owned(),
            },
            Axis::Storage => match &self.set_up {
                Some(set_up) => set_up.name.clone(),
                None => "this machine's".to_owned(),
            },
            Axis::Codec => self.codec.clone(),
            Axis::Pages => self.pages.clone().unwrap_or_else(|| DEFAULT.to_owned()),
            Axis::Devices => self.devices.to_string(),
            Axis::TransferSize => show_size(self.transfer_bytes),
            Axis::Buffers => match self.buffers {
                Some(buffers) => buffers.to_string(),
                None => DEFAULT.to_owned(),
            },
            Axis::BlockSize => show_size(self.block_bytes),
        }
    }

    /// The position of the setting among the values of an axis. Names have the order in which they
    /// were given.
    pub(super) fn place(&self, axis: Axis) -> u64 {
        match axis {
            Axis::Storage | Axis::Codec | Axis::Pages => 0,
            Axis::Database => self.source.as_ref().map_or(0, |source| source.bytes),
            Axis::Devices => self.devices as u64,
            Axis::TransferSize => self.transfer_bytes,
            Axis::Buffers => self.buffer_count() as u64,
            Axis::BlockSize => self.block_bytes,
        }
    }

    /// The number of buffers: as given, or the default with one source volume.
    pub(super) fn buffer_count(&self) -> usize {
        let default = || default_buffer_count(self.devices, 1);
        self.buffers.unwrap_or_else(default)
    }

    /// The same setting on these axes, in words: `2 devices, 1 MiB`.
    pub fn words(&self, axes: &[Axis]) -> String {
        let one = |axis: &Axis| {
            let label = self.label(*axis);
            match axis {
                Axis::Database | Axis::Storage => label,
                Axis::Codec if label == "none" => "uncompressed".to_owned(),
                Axis::Codec => label,
                Axis::Pages => format!("pages {label}"),
                Axis::Devices if self.devices == 1 => "1 device".to_owned(),
                Axis::Devices => format!("{label} devices"),
                Axis::TransferSize => format!("transfers of {label}"),
                Axis::Buffers => format!("{label} buffers"),
                Axis::BlockSize => format!("blocks of {label}"),
            }
        };
        axes.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Whether two settings are equal on every axis except this one.
    pub(super) fn agrees_but(&self, other: &Self, axis: Axis) -> bool {
        let same = |one: Axis| one == axis || self.label(one) == other.label(one);
        Axis::ALL.into_iter().all(same)
    }
}

/// A grid: every combination of these values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axes {
    /// Numbers of stripes.
    pub devices: Vec<usize>,
    /// Bytes of a transfer.
    pub transfer_bytes: Vec<u64>,
    /// Numbers of buffers; `None` is the default.
    pub buffers: Vec<Option<usize>>,
    /// Block sizes, in bytes.
    pub block_bytes: Vec<u64>,
    /// Codecs.
    pub codecs: Vec<String>,
    /// Whether pages are taken apart; empty is what a backup does by default.
    pub pages: Vec<String>,
    /// Emulated storage; if empty, the machine's own storage is used.
    pub set_ups: Vec<Storage>,
    /// Databases; empty if there is only one.
    pub sources: Vec<Source>,
}

impl Default for Axes {
    fn default() -> Self {
        Self {
            devices: vec![1],
            transfer_bytes: vec![TRANSFER_DEFAULT],
            buffers: vec![None],
            block_bytes: vec![BLOCK_BYTES_DEFAULT],
            codecs: vec!["none".to_owned()],
            pages: Vec::new(),
            set_ups: Vec::new(),
            sources: Vec::new(),
        }
    }
}

impl Axes {
    /// Every combination.
    pub fn cases(&self) -> Vec<Case> {
        let set_ups = or_none(&self.set_ups);
        let mut cases = vec![Case {
            devices: 1,
            transfer_bytes: TRANSFER_DEFAULT,
            buffers: None,
            block_bytes: BLOCK_BYTES_DEFAULT,
            codec: "none".to_owned(),
            pages: None,
            set_up: None,
            source: None,
        }];
        each(&mut cases, &or_none(&self.sources), |case, it| {
            case.source = it;
        });
        each(&mut cases, &set_ups, |case, it| case.set_up = it);
        each(&mut cases, &self.codecs, |case, it| case.codec = it);
        each(&mut cases, &or_none(&self.pages), |case, it| {
            case.pages = it;
        });
        each(&mut cases, &self.devices, |case, it| case.devices = it);
        let transfers = &self.transfer_bytes;
        each(&mut cases, transfers, |case, it| case.transfer_bytes = it);
        each(&mut cases, &self.buffers, |case, it| case.buffers = it);
        each(&mut cases, &self.block_bytes, |case, it| {
            case.block_bytes = it
        });
        cases
    }
}

/// Every value as `Some`; a single `None` if there are no values.
fn or_none<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    match values {
        [] => vec![None],
        values => values.iter().cloned().map(Some).collect(),
    }
}

fn each<T: Clone>(cases: &mut Vec<Case>, values: &[T], set: impl Fn(&mut Case, T)) {
    let with = |case: &Case| {
        let each = values.iter().cloned().map(|value| {
            let mut case = case.clone();
            set(&mut case, value);
            case
        });
        each.collect::<Vec<_>>()
    };
    *cases = cases.iter().flat_map(with).collect();
}

/// What the user chose. An axis without values gets those of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// How many devices.
    pub devices: Vec<usize>,
    /// Bytes of a transfer.
    pub transfer_bytes: Vec<u64>,
    /// How many buffers; `None` is `default`.
    pub buffers: Vec<Option<usize>>,
    /// Block size of the devices.
    pub block_bytes: Vec<u64>,
    /// Codecs.
    pub codecs: Vec<String>,
    /// Whether pages are taken apart: `auto`, `off`.
    #[serde(default)]
    pub pages: Vec<String>,
    /// Emulated storage.
    pub set_ups: Vec<Storage>,
    /// How large the database is, as a multiple of its usual size.
    pub scale: Option<f64>,
    /// The databases, if there are several.
    pub sources: Vec<Source>,
}

impl Chosen {
    /// The cases of an experiment with the user's choices, without duplicates.
    pub fn cases(&self, experiment: Experiment, restore: bool) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for grid in experiment.grids(restore) {
            for case in self.over(grid).cases() {
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        cases
    }

    fn over(&self, grid: Axes) -> Axes {
        fn or<T: Clone>(chosen: &[T], grid: Vec<T>) -> Vec<T> {
            if chosen.is_empty() {
                return grid;
            }
            chosen.to_vec()
        }
        let mut set_ups = or(&self.set_ups, grid.set_ups);
        if let Some(scale) = self.scale {
            set_ups = set_ups.iter().map(|it| it.scaled(scale)).collect();
        }
        Axes {
            devices: or(&self.devices, grid.devices),
            transfer_bytes: or(&self.transfer_bytes, grid.transfer_bytes),
            buffers: or(&self.buffers, grid.buffers),
            block_bytes: or(&self.block_bytes, grid.block_bytes),
            codecs: or(&self.codecs, grid.codecs),
            pages: or(&self.pages, grid.pages),
            set_ups,
            sources: or(&self.sources, grid.sources),
        }
    }
}

//! One set of a chain, as the image reads it: which layer counts, and where its pieces are.

use windlass_engine::media::{FileNo, InheritedFiles};
use windlass_engine::{AskedLayers, EngineError, FoundSet};

use super::locate::Locator;
use super::upper::{Layer, layer_at};

/// What is known about one set of the image.
pub(crate) struct Link {
    pub(crate) locator: Locator,
    upper: AskedLayers,
    /// The longest piece: how far a reader has to look for what lies over its bytes.
    reach: u64,
    /// The files of which the base of the set has bytes.
    inherited: InheritedFiles,
}

impl Link {
    pub(crate) fn new(set: &FoundSet, upper: AskedLayers) -> Self {
        let base = set.description().base.as_ref();
        Self {
            locator: Locator::new(set.stripes().iter().map(|stripe| stripe.directory())),
            upper,
            reach: frame_bytes(set),
            inherited: base.map(|base| base.files.clone()).unwrap_or_default(),
        }
    }

    /// Reads what lies over bytes of a file.
    pub(crate) fn check(&self, file: FileNo) -> Result<(), EngineError> {
        self.upper.check(file)
    }

    /// Which layer counts at `offset` of a file. In a file that inherits, what is under all layers
    /// is in the base.
    pub(crate) fn layer(&self, file: FileNo, offset: u64) -> Result<Layer, EngineError> {
        let until = offset.saturating_add(self.reach);
        let near = self.upper.near(file, offset, until)?;
        Ok(match near {
            Some(near) => layer_at(&near, offset, until),
            None => Layer::Base(u64::MAX),
        })
    }

    /// Whether the base has bytes of a file.
    pub(crate) fn inherits(&self, file: FileNo) -> bool {
        self.inherited.get(file).is_some()
    }
}

/// The longest frame that a set may have.
pub(crate) fn frame_bytes(set: &FoundSet) -> u64 {
    let stripes = set.stripes().iter();
    let most = stripes.map(|stripe| stripe.header().frame_bytes).max();
    most.unwrap_or(1).into()
}

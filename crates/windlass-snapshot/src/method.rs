//! How a snapshot is made.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a snapshot is made, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Method {
    /// A library in the server keeps each page before the server overwrites it. Costs what changes.
    Hook,
    /// The file system copies files without copying their blocks. Later writes cost the file system
    /// a copy of what changes.
    Clone,
    /// Everything is read and written once.
    Copy,
}

impl Method {
    /// All methods, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Hook, Self::Clone, Self::Copy];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Clone => "clone",
            Self::Copy => "copy",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

//! Why a restore may not go over what is in a directory.

use std::fmt;

/// Why a restore may not go over what is in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverFault {
    /// It is no data directory.
    NotACluster,
    /// It belongs to another cluster, or nobody knows to which.
    Another {
        /// The system identifier in its pg_control.
        found: Option<u64>,
        /// That of the set.
        expected: u64,
    },
    /// It has snapshots, which would be lost.
    Snapshots,
    /// It has a cluster, and only a part of the set is wanted.
    Part,
}

impl fmt::Display for OverFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACluster => out.write_str("is not empty, and is no data directory"),
            Self::Another { found, expected } => {
                let found = found.map_or_else(|| "unknown".to_owned(), |found| found.to_string());
                write!(
                    out,
                    "belongs to another cluster: its system identifier is {found}, that of the \
                     set {expected}"
                )
            }
            Self::Snapshots => out.write_str("has snapshots, which a restore would destroy"),
            Self::Part => out.write_str(
                "has a cluster: what a restore of a part leaves out would keep its old pages",
            ),
        }
    }
}

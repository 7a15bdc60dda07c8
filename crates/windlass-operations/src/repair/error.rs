//! Why a cluster cannot be repaired, and why a page was left as it is.

use std::path::PathBuf;

use thiserror::Error;
use windlass_postgres::Lsn;

/// Why a repair was not begun.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RepairError {
    /// What was named is no data directory.
    #[error("{} is no data directory of a PostgreSQL cluster", path.display())]
    NotACluster {
        /// What was named.
        path: PathBuf,
    },
    /// Nothing shows which pages are damaged.
    #[error("the cluster has no checksums, so its damaged pages cannot be found")]
    NoChecksums,
    /// The set is of another cluster.
    #[error("set {set} is of another cluster")]
    OtherCluster {
        /// The set.
        set: String,
    },
    /// Damaged pages would be kept in what is repaired.
    #[error("{} lies in the data directory", path.display())]
    KeptInside {
        /// The directory.
        path: PathBuf,
    },
    /// A file of the cluster or a kept page.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Why a page is not replaced.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsafe {
    /// The page has a right checksum.
    #[error("its checksum is right")]
    Whole,
    /// The relation is not in the log.
    #[error("its relation is unlogged, so no backup has its content")]
    Unlogged,
    /// The recovered cluster does not have the page.
    #[error("the chain does not have it")]
    Absent,
    /// The page of the chain is damaged, too.
    #[error("it was damaged already when the set was made")]
    AlsoDamaged,
    /// The recovered page is newer than the cluster.
    #[error("the recovered page was changed at {at}, after the end of the cluster's log")]
    Newer {
        /// Its position.
        at: Lsn,
    },
    /// The damaged page says that it is newer than the recovered one.
    #[error("it says that it was changed at {own}, and the chain has no later change than {chain}")]
    ChainOlder {
        /// What the damaged page says.
        own: Lsn,
        /// What the recovered page says.
        chain: Lsn,
    },
    /// Other pages of the file were changed by other records.
    #[error(
        "{count} other pages of its file differ from the chain, block {first} first: the chain does not lead to this cluster"
    )]
    FileDiffers {
        /// How many.
        count: u64,
        /// The first of them.
        first: u32,
    },
    /// The file cannot be read or is too short.
    #[error("the file {what}")]
    File {
        /// What is wrong.
        what: String,
    },
}

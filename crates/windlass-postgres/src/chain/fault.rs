//! Why a set cannot be the base of a backup, or why nobody knows what changed since then.

use crate::lsn::{Lsn, Timeline};

/// Why a set cannot be the base of a backup, or why nobody knows what changed since then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainFault {
    /// The set is of another cluster.
    #[error("the base is of the cluster {found}, and this one is {expected}")]
    OtherCluster {
        /// The base's system identifier.
        found: String,
        /// The system identifier of this cluster.
        expected: u64,
    },
    /// The base holds what the server has never been.
    #[error(
        "the server and the base went apart: one of them comes from a restore of an earlier backup"
    )]
    Apart,
    /// The server went another way before the base ended.
    #[error(
        "the base ends at {lsn} of timeline {timeline}, and the server's timeline {now} does not \
         pass through there"
    )]
    OtherTimeline {
        /// The base's timeline.
        timeline: Timeline,
        /// Where the base ends.
        lsn: Lsn,
        /// The server's timeline.
        now: Timeline,
    },
    /// A server that has not come further than the base.
    #[error("the backup begins at {start}, and its base ends only at {stop}")]
    NotBehind {
        /// Where the backup begins.
        start: Lsn,
        /// Where the base ends.
        stop: Lsn,
    },
    /// The base has page checksums and the cluster has none, or the other way round.
    #[error("page checksums were switched on or off since the base")]
    Checksums,
    /// PostgreSQL 14 to 16: pages can change without a new position in their header.
    #[error(
        "PostgreSQL {major} does not say which pages changed, and without page checksums and \
         wal_log_hints {which} its pages do not say it either"
    )]
    HintsUnlogged {
        /// The version.
        major: u32,
        /// Whether that was so when the base was made, or is so now.
        which: &'static str,
    },
    /// The server does not write summaries.
    #[error("summarize_wal is off, so the server does not say which pages changed")]
    SummariesOff,
    /// Summaries of a part of the log are missing.
    #[error("no WAL summary covers the log of timeline {timeline} from {at} to {next}")]
    Gap {
        /// The timeline.
        timeline: Timeline,
        /// The first position that is not covered.
        at: Lsn,
        /// The first position that is covered again.
        next: Lsn,
    },
    /// The server does not write the summaries up to the start of the backup.
    #[error(
        "the server has WAL summaries only up to {at} of timeline {timeline}, and has written none \
         for {seconds} s"
    )]
    Behind {
        /// The timeline.
        timeline: Timeline,
        /// The first position that is not covered.
        at: Lsn,
        /// How long nothing came.
        seconds: u64,
    },
    /// A summary cannot be used.
    #[error("{what}")]
    Summary {
        /// The file, and what is wrong with it.
        what: String,
    },
}

impl ChainFault {
    /// What the user can do, in full sentences.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::SummariesOff => {
                "Run ALTER SYSTEM SET summarize_wal = on, and SELECT pg_reload_conf(). From the \
                 next full backup on, the server says what changed."
            }
            Self::Gap { .. } => {
                "The server has removed summaries (wal_summary_keep_time), or did not write them \
                 while summarize_wal was off or wal_level was minimal. Make a full backup."
            }
            Self::Behind { .. } => {
                "See what the server log says about the WAL summarizer. Minor releases before \
                 17.11 and 18.6 can stop at a change of the timeline; a restart helps."
            }
            Self::Apart => "Make a full backup of this server. The next ones build on that one.",
            Self::OtherCluster { .. } | Self::OtherTimeline { .. } => {
                "Make a full backup, or name a set of this cluster and of its timeline."
            }
            Self::NotBehind { .. } => {
                "A standby begins at the last checkpoint that it has replayed. Run CHECKPOINT on \
                 the primary, and start the backup again later."
            }
            Self::HintsUnlogged { .. } => {
                "Set wal_log_hints = on and restart the server, or turn page checksums on \
                 with pg_checksums. Then make a full backup; later ones can build on it."
            }
            Self::Checksums | Self::Summary { .. } => "Make a full backup.",
        })
    }
}

//! A chain: a full backup and the sets that are made between it and the next one.
//!
//! Each of these sets is a backup of its own, of the bytes that it holds. A restore takes all of
//! them in one pass. It reads each page from the newest set that has it. So differential and
//! incremental sets replace pages of the full one and add no time. Logs are read and written in
//! addition. The plan does not contain the time in which the database then replays the logs: that
//! depends on the database.

use serde::Serialize;

use super::{Alternative, Direction, PlanLimit, Prediction, Question};
use crate::error::LabError;

/// What kind of set follows a full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Differential: what changed since the full one.
    Diff,
    /// Incremental: what changed since the last set.
    Incr,
    /// Log.
    Log,
}

/// A number of sets of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Their kind.
    pub kind: LinkKind,
    /// Bytes of the database in one of them.
    pub bytes: u64,
    /// How many.
    pub count: u32,
}

/// What sets of a kind would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkPrediction {
    /// Which.
    #[serde(flatten)]
    pub link: Link,
    /// Seconds of one of them.
    pub seconds_each: f64,
    /// What binds it; `None` if a restore need not read it.
    pub limit: Option<PlanLimit>,
}

/// What a chain would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainPrediction {
    /// Minutes for all backups together, or for the one restore.
    pub minutes: f64,
    /// The same in seconds.
    pub seconds: f64,
    /// Bytes of all stripes.
    pub stored_bytes: f64,
    /// The sets after the full one.
    pub sets: Vec<LinkPrediction>,
}

impl Question {
    /// Predicts the chain that begins with a predicted full set.
    pub fn predict_chain(
        &self,
        alternative: &Alternative,
        full: &Prediction,
        links: &[Link],
    ) -> Result<ChainPrediction, LabError> {
        let mut chain = ChainPrediction {
            minutes: 0.0,
            seconds: full.seconds,
            stored_bytes: full.stored_bytes,
            sets: Vec::new(),
        };
        for link in links {
            let alone = Self {
                used_bytes: link.bytes,
                file_bytes: link.bytes,
                ..self.clone()
            };
            let found = alone.predict(alternative)?;
            let count = f64::from(link.count);
            chain.stored_bytes += found.stored_bytes * count;
            let replaces = link.kind != LinkKind::Log && self.direction == Direction::Restore;
            let (seconds_each, limit) = match replaces {
                true => (0.0, None),
                false => (found.seconds, Some(found.limit)),
            };
            chain.seconds += seconds_each * count;
            chain.sets.push(LinkPrediction {
                link: *link,
                seconds_each,
                limit,
            });
        }
        chain.minutes = chain.seconds / 60.0;
        Ok(chain)
    }
}

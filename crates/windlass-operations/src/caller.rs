//! Who calls an operation: whether it may have the process for itself, what else the caller writes,
//! and whom to tell what happens meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use crate::history::History;
use crate::notice::{Notice, Observer, Unobserved};

/// Whether an operation has its process for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessUse {
    /// Nothing else runs in the process. If root started it, the operation may become the owner of
    /// a database, for good.
    Own,
    /// Other operations run in the process. An operation fails if it had to become another user.
    Shared,
}

/// Who calls an operation.
///
/// ```
/// # use std::sync::Arc;
/// use windlass_operations::{Caller, Unobserved};
/// let caller = Caller::sharing("a test 1.0", Arc::new(Unobserved));
/// assert!(caller.log.is_none());
/// ```
#[derive(Clone)]
pub struct Caller {
    /// Whether the operation has its process for itself.
    pub process: ProcessUse,
    /// The program and its version, for what is recorded: `example 1.0`.
    pub tool: String,
    /// The name of the machine, for what is recorded. It tells databases of the same path apart.
    pub host: String,
    /// A log that the caller writes. No output of the operation may go there.
    pub log: Option<PathBuf>,
    /// Learns what happens.
    pub observer: Arc<dyn Observer>,
    /// Where runs are kept.
    pub history: History,
}

impl Caller {
    /// The same caller, who is told nothing.
    pub(crate) fn quiet(&self) -> Self {
        Self {
            observer: Arc::new(Unobserved),
            history: History::none(),
            ..self.clone()
        }
    }

    /// A caller in whose process other operations may run, and that writes no log and no history.
    pub fn sharing(tool: &str, observer: Arc<dyn Observer>) -> Self {
        Self {
            process: ProcessUse::Shared,
            tool: tool.to_owned(),
            host: windlass_engine::hostname(),
            log: None,
            observer,
            history: History::none(),
        }
    }

    /// The program's version: the last word of `tool`.
    pub(crate) fn version(&self) -> &str {
        self.tool.rsplit(' ').next().unwrap_or_default()
    }

    /// Tells the observer.
    pub(crate) fn tell(&self, notice: &Notice<'_>) {
        self.observer.notice(notice);
    }
}

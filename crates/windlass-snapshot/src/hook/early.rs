//! Links that are made while the server writes its checkpoint.
//!
//!   checkpoint ....................... --> list --> link what is new, unlink what is gone
//!   list --> link what is there so far
//!
//! Under load a link costs more than all else that is done for a file, and the checkpoint is waited
//! for anyhow. A file that the server removes meanwhile is no part of the snapshot; nor is one
//! whose name belongs to another file by then. If there are so many files that the hook makes the
//! links, the list ends there. If there are fewer, Windlass makes the links, and nobody has to note
//! which names change meanwhile.

use windlass_postgres::{BracketFiles, ClusterFacts};

use super::error::HookError;
use super::links::Links;
use super::taken::{Into, Known, Taken};

/// Links that were made early.
pub(super) struct Early {
    pub(super) links: Links,
    pub(super) known: Known,
    /// There are few files: all of them get links now.
    pub(super) are_few: bool,
}

/// Does some work, and meanwhile links the files of a cluster, unless there are more than this.
pub(super) fn meanwhile<T>(
    (cluster, number): (&ClusterFacts, u32),
    links_max: usize,
    work: impl FnOnce() -> Result<T, HookError>,
) -> Result<(T, Early), HookError> {
    let mut early = Early {
        links: Links::new(&cluster.data_directory, number)?,
        known: Known::new(),
        are_few: false,
    };
    let done = std::thread::scope(|scope| {
        let linking = scope.spawn(|| early.link(cluster, links_max));
        let done = work();
        let linked = linking.join();
        // What went wrong goes wrong again when the rest is linked, if it matters.
        linked
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .unwrap_or_default();
        done
    })?;
    Ok((done, early))
}

impl Early {
    fn link(&mut self, cluster: &ClusterFacts, links_max: usize) -> Result<(), HookError> {
        let Some(files) = BracketFiles::at_most(cluster, links_max)? else {
            return Ok(());
        };
        self.are_few = true;
        let mut into = Into {
            links: &mut self.links,
            known: &mut self.known,
            page_bytes: cluster.block_bytes,
        };
        Taken::pin(&files, &mut into)?;
        Ok(())
    }
}

//! The restore of a SQLite database: a new file, which gets its name when it is complete.

use std::path::PathBuf;

use windlass_engine::{DirectoryTarget, Outputs, RunReport};
use windlass_sqlite::Left;

use super::{Job, Restored, left_out, parent};
use crate::ended::RunEnd;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::recovery::Plan;
use crate::{outputs, privilege, watch};

impl Job<'_, '_> {
    pub(super) fn file(&mut self) -> Result<(RunReport, RunEnd, Restored), OperationError> {
        let (request, set) = (self.request, self.set);
        // A part of it can only be asked of a cluster.
        left_out(request, set)?;
        let into = &request.into;
        if let Some((uid, gid)) = privilege::owner(parent(into)) {
            privilege::become_user(self.caller.process, uid, gid)?;
        }
        let description = set.description();
        let files = windlass_sqlite::target_files(&description.files, into)?;
        let target = files.first().unwrap_or(into).display();
        let what = format!("this run restores the database {target}");
        let targets = restored_as(Outputs::new(), &files, &what)?;
        watch::check_log(self.caller, &targets)?;
        self.run.hooks.before()?;
        let outputs = outputs::of_set(set)?;
        let force = request.force;
        let mut plan = windlass_sqlite::restore_layout(description, into, force, &outputs)?;
        let mut outputs = restored_as(outputs, &files, &what)?;
        outputs.protect_directory(&plan.staging, &what)?;
        self.run.check(&outputs)?;
        let staging = plan.staging.clone();
        match plan.prepare()? {
            Left::Nothing => {}
            Left::Unfinished => self.caller.tell(&Notice::RemovesLeft(&staging)),
            Left::Database(path) => self.caller.tell(&Notice::KeepsLeft(&path)),
        }
        let written = DirectoryTarget::create(plan.layout.clone())
            .map_err(OperationError::from)
            .and_then(|target| {
                plan.hold(&target)?;
                let written = self.write(&target, &outputs)?;
                self.replay(&plan)?;
                Ok(written)
            });
        match written {
            Ok((report, end)) => {
                let path = plan.target.clone();
                plan.publish()?;
                Ok((report, end, Restored::Database { path }))
            }
            Err(error) => match plan.abandon() {
                Ok(()) => Err(error),
                // What stopped the restore matters more than what it left.
                Err(_) => Err(OperationError::StagingLeft {
                    error: Box::new(error),
                    staging,
                }),
            },
        }
    }
}

impl Job<'_, '_> {
    /// Puts what the log has behind the set over the restored file.
    fn replay(&self, plan: &windlass_sqlite::RestorePlan) -> Result<(), OperationError> {
        match (self.recovery, plan.written()) {
            (Some(Plan::File(log)), Some(file)) => log.replay((file, &plan.target), self.cancel),
            _ => Ok(()),
        }
    }
}

/// Protects these files, as which a database is restored, from the other outputs.
fn restored_as(
    mut outputs: Outputs,
    files: &[PathBuf],
    what: &str,
) -> Result<Outputs, OperationError> {
    for file in files {
        outputs.protect_file(file, what)?;
    }
    Ok(outputs)
}

//! A check of a set that does not stop at the first damage. It lists all damage and what is lost.
//!
//!   places --> survey (stripes, whole or not) --> the restore's pipeline, to nowhere --> findings
//!
//! It lists everything that a restore would refuse: a missing stripe; a damaged header, footer,
//! seal, index block or frame; padding that is not zero. And it says what that means: which bytes
//! of which files are in no sound frame.
//!
//! Invariants
//! - Damaged bytes are listed and never used. They do not decide what else is read, except for
//!   index blocks whose own checksum is right.
//! - If the check finds nothing, a restore accepts the set, and the other way round.
//! - The lists are bounded ([`DAMAGE_LISTED_MAX`], [`LOST_LISTED_MAX`]); the rest is counted.

mod cover;
mod findings;
mod parts;
mod report;
mod survey;
mod walk;

use std::sync::Arc;

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::restore::{Discard, Ledger, RestoreOptions, run_through};

pub(crate) use findings::{Faults, Findings};
pub use report::{ByteRange, Damage, DamageReport, DamagedPart, FileRange, LostFile};
pub use survey::Survey;

/// How many damaged places are listed. Further ones are only counted.
pub const DAMAGE_LISTED_MAX: usize = 1000;
/// How many files that lost bytes are listed, and how many ranges of each. Further ones are only
/// counted.
pub const LOST_LISTED_MAX: usize = 1000;

/// What a verification found.
#[derive(Debug)]
pub struct Verification {
    /// How the run went.
    pub run: RunReport,
    /// Everything that is damaged.
    pub damage: DamageReport,
}

/// Reads and checks everything that exists of a set, and lists all damage.
pub fn verify(
    survey: &Survey,
    options: &RestoreOptions,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<Verification, EngineError> {
    let findings = Findings::new(survey);
    let faults = Faults::List(&findings);
    let set = survey.set();
    let (run, ledger) = run_through(set, &Discard, options, progress, cancel, &faults)?;
    let damage = findings.settle(survey, &ledger)?;
    Ok(Verification { run, damage })
}

/// Checks seals, footers and index blocks, and that the frames they list make up every file.
pub fn verify_index(survey: &Survey) -> Result<DamageReport, EngineError> {
    let findings = Findings::new(survey);
    let faults = Faults::List(&findings);
    let ledger = Ledger::new(survey.set(), &faults)?;
    for stripe in survey.set().stripes() {
        for entry in stripe.directory() {
            let block = match stripe.index_block(entry) {
                Ok(block) => block,
                Err(error) => {
                    faults.block(stripe, entry, error)?;
                    continue;
                }
            };
            for piece in &block.pieces {
                faults.whole(ledger.enter(piece).map(drop))?;
            }
        }
    }
    findings.settle(survey, &ledger)
}

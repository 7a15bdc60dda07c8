//! A check of a set that does not stop at the first damage: all is listed, with what it costs.
//!
//!   places --> survey (stripes, whole or not) --> the restore's pipeline, to nowhere --> findings
//!
//! What is listed is what a restore would refuse, part by part: a stripe that is missing, a header,
//! footer or seal that is not right, an index block, a frame, padding that is not zero. Beside it
//! stands what that means: which bytes of which files no sound frame holds.
//!
//! Invariants
//! - What is damaged is listed and never used: no byte of it decides what else is looked at, but
//!   the index blocks, whose own checksum is right.
//! - A set in which nothing is found is one that a restore accepts, and the other way round.
//! - The list is bounded ([`DAMAGE_LISTED_MAX`], [`LOST_LISTED_MAX`]); what is beyond is counted.

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

/// So many damaged places are listed; more are counted.
pub const DAMAGE_LISTED_MAX: usize = 1000;
/// So many files that lost bytes are listed, and so many ranges of each; more are counted.
pub const LOST_LISTED_MAX: usize = 1000;

/// What a verification found.
#[derive(Debug)]
pub struct Verification {
    /// How the run went.
    pub run: RunReport,
    /// Everything that is damaged.
    pub damage: DamageReport,
}

/// Reads and checks everything that is there of a set, and lists all damage.
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

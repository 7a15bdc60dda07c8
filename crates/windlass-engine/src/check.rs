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
mod locked;
mod parts;
mod report;
mod survey;
mod walk;

use std::sync::Arc;

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::report::RunReport;
use crate::restore::{Faults, FittedOptions, LinkLedger, run_through};
use crate::set::{FoundSet, Mends, OpenStripe, Tally};
use crate::target::Discard;
use crate::waits::Stage;

use findings::Findings;
pub use locked::{LockedSet, check_locked, check_locked_parity};
pub use report::{
    ByteRange, DAMAGE_LISTED_MAX, Damage, DamageReport, DamagedPart, FileRange, LOST_LISTED_MAX,
    LostFile,
};
pub use survey::Survey;

/// What a verification found.
#[derive(Debug)]
pub struct Verification {
    /// How the run went.
    pub run: RunReport,
    /// Everything that is damaged.
    pub damage: DamageReport,
    /// What was lost and could be rebuilt; none if no set has parity.
    pub mends: Option<Mends>,
}

/// Reads and checks everything that exists of a set, and lists all damage.
pub fn verify(
    survey: &Survey,
    options: &FittedOptions,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<Verification, EngineError> {
    let findings = Findings::new(survey);
    let set = survey.set();
    let (run, ledger) = run_through(set, &Discard, options, progress, cancel, &findings)?;
    let damage = findings.settle(survey, &ledger)?;
    let mends = check_parity(set, cancel)?;
    Ok(Verification { run, damage, mends })
}

/// Reads all of the parity of a set and of those that it builds on. Returns what is lost of them.
fn check_parity(set: &FoundSet, cancel: &Cancel) -> Result<Option<Mends>, EngineError> {
    for rebuilder in set.links().filter_map(FoundSet::rebuilder) {
        for file in rebuilder.files() {
            rebuilder.is_sound(file, cancel)?;
        }
    }
    Ok(set.mends())
}

/// Checks seals, footers and index blocks, and that the frames they list make up every file.
pub fn verify_index(survey: &Survey) -> Result<DamageReport, EngineError> {
    let findings = Findings::new(survey);
    let faults: &dyn Faults = &findings;
    let ledger = faults.ledger(survey.set())?;
    for (link, set) in survey.set().links().enumerate() {
        for stripe in set.stripes() {
            let tally = index_of((link, stripe), ledger.of_link(link), faults)?;
            faults.pass(tally.check(set, stripe))?;
        }
    }
    findings.settle(survey, &ledger)
}

/// Enters every piece that the index blocks of a stripe list.
fn index_of(
    (link, stripe): (usize, &OpenStripe),
    ledger: LinkLedger<'_>,
    faults: &dyn Faults,
) -> Result<Tally, EngineError> {
    let (mut tally, stage) = (Tally::default(), Stage::default());
    for entry in stripe.directory() {
        let block = match stripe.index_block(entry) {
            Ok(block) => block,
            Err(error) => {
                faults.block((link, stripe), entry, error)?;
                tally.miss();
                continue;
            }
        };
        tally.add(&block);
        for piece in &block.pieces {
            faults.pass(ledger.enter(piece, &stage).map(drop))?;
        }
    }
    Ok(tally)
}

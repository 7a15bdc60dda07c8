//! One file of a place: its head and its tail, and which stripe of which set they say it is.

use std::path::Path;

use windlass_media::{Footer, ParityHeader, Seal, SetId, StripeHeader, StripeIndex};

use crate::error::{EngineError, damage};
use crate::set::{
    Ends, ParityFile, Said, check_same_footer, check_same_stripe, cipher_of, header_of,
};
use crate::storage::{PlaceFile, Storage};
use crate::stripe_name::{self, is_partial};

/// A file that is a stripe, or once was.
pub(super) struct Stripe {
    pub(super) file: PlaceFile,
    pub(super) set_id: SetId,
    pub(super) index: StripeIndex,
    pub(super) count: u16,
    pub(super) seal: Option<Seal>,
    /// Why it cannot be used, if it cannot.
    pub(super) fault: Option<EngineError>,
}

/// A file with parity.
pub(super) struct ParityFound {
    pub(super) file: PlaceFile,
    pub(super) header: ParityHeader,
    /// What it says of the set and of its groups, if it is complete.
    pub(super) said: Option<Said>,
}

/// What a file turned out to be.
pub(super) enum Found {
    /// A stripe, with its header if the header can be read.
    Stripe(Box<Stripe>, Option<StripeHeader>),
    /// A file with a stripe's name. Neither its head nor its tail says to which set it belongs.
    Unknown(PlaceFile, EngineError),
    /// A file with parity.
    Parity(Box<ParityFound>),
    /// A file of somebody else.
    Foreign,
}

impl Stripe {
    /// True for a stripe that is not sealed and still has its temporary name.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.fault, Some(EngineError::NotSealed { .. }))
    }
}

/// Reads both ends of a file.
pub(super) fn look(storage: &dyn Storage, file: PlaceFile, limit: u64) -> Found {
    let ends = match Ends::open(storage, &file.location) {
        Ok(ends) => ends,
        Err(_) if !is_named_as_stripe(&file.location) => return Found::Foreign,
        Err(fault) => return Found::Unknown(file, fault),
    };
    let header = ends.header().map(|(header, _)| header);
    if header.is_err()
        && let Ok((header, _)) = header_of(&ends)
    {
        let whole = ParityFile::open(storage, &file.location, limit);
        let said = whole.ok().map(|whole| Said::of(&whole));
        return Found::Parity(Box::new(ParityFound { file, header, said }));
    }
    let seal = ends.seal();
    drop(ends);
    let (set_id, index, count) = match (&header, &seal) {
        (Ok(header), _) => (header.set_id, header.stripe, header.stripe_count()),
        (_, Ok(seal)) => (seal.set_id, seal.stripe, seal.stripe_count),
        (Err(_), Err(_)) if !is_named_as_stripe(&file.location) => return Found::Foreign,
        (Err(_), Err(_)) => {
            let fault = header.err().unwrap_or(EngineError::Stopped);
            return Found::Unknown(file, fault);
        }
    };
    let (header, header_fault) = split(header);
    let (seal, seal_fault) = split(seal);
    let disagree = || disagreement(&file, header.as_ref()?, seal.as_ref()?);
    let fault = header_fault.or(seal_fault).or_else(disagree);
    let stripe = Box::new(Stripe {
        file,
        set_id,
        index,
        count,
        seal,
        fault,
    });
    Found::Stripe(stripe, header)
}

fn split<T>(result: Result<T, EngineError>) -> (Option<T>, Option<EngineError>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(fault) => (None, Some(fault)),
    }
}

/// The error when the seal and the header are not of the same stripe.
fn disagreement(file: &PlaceFile, header: &StripeHeader, seal: &Seal) -> Option<EngineError> {
    let fault = check_same_stripe(header, seal).err()?;
    Some(damage(&file.location, file.bytes, fault))
}

/// True for a name that Windlass gives to stripes, sealed or not.
fn is_named_as_stripe(path: &Path) -> bool {
    let unfinished = is_partial(path);
    let sealed = if unfinished {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    stripe_name::is_named_as_stripe(&sealed)
}

/// True for a file that a run has just created: it has a stripe's name, and nothing in it yet.
pub(super) fn is_just_begun(file: &PlaceFile) -> bool {
    is_partial(&file.location)
}

/// Whether a sealed stripe of an encrypted set says that the set builds on another one.
pub(super) fn locked_has_base(
    storage: &dyn Storage,
    file: &PlaceFile,
    seal: &Seal,
    limit: u64,
) -> Result<bool, EngineError> {
    let bytes = Ends::open(storage, &file.location)?.footer_bytes(seal, limit)?;
    let has_base = Footer::locked_has_base(&bytes);
    has_base.map_err(|fault| damage(&file.location, seal.footer_offset, fault))
}

/// Reads and checks the footer of a sealed stripe. The header of any stripe of the set says whether
/// it is encrypted. If none can be read, the footer of a set that is not encrypted still says whose
/// set this is and when it was begun.
pub(super) fn read_footer(
    storage: &dyn Storage,
    (file, header): (&PlaceFile, Option<&StripeHeader>),
    seal: &Seal,
    limit: u64,
) -> Result<Footer, EngineError> {
    let ends = Ends::open(storage, &file.location)?;
    let cipher = match header {
        Some(header) => cipher_of(storage, &file.location, header)?,
        None => None,
    };
    let footer = ends.footer(seal, limit, cipher.as_deref())?;
    check_same_footer(seal, &footer)
        .map_err(|fault| damage(&file.location, seal.footer_offset, fault))?;
    Ok(footer)
}

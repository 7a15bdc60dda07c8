//! One file of a place: its head and its tail, and which stripe of which set they say it is.

use std::path::Path;

use windlass_media::{Footer, FormatError, SEAL_BYTES, Seal, SetId, StripeHeader, StripeIndex};
use windlass_media::{Structure, is_zero};

use super::{Place, PlaceFile};
use crate::error::EngineError;
use crate::set::stripe::{damage, read_error};
use crate::stripe_name::{self, is_partial};

/// How much is read from each end at once. It holds a whole header and a whole seal, unless blocks
/// are larger.
const END_BYTES: u64 = 4096;

/// A file that is a stripe, or once was.
pub(super) struct Stripe {
    pub(super) file: PlaceFile,
    /// The index of the place in which it was found.
    pub(super) place: usize,
    pub(super) set_id: SetId,
    pub(super) index: StripeIndex,
    pub(super) count: u16,
    pub(super) seal: Option<Seal>,
    /// Why it cannot be used, if it cannot.
    pub(super) fault: Option<EngineError>,
}

/// What a file turned out to be.
pub(super) enum Found {
    /// A stripe, with its header if the header can be read.
    Stripe(Box<Stripe>, Option<StripeHeader>),
    /// A file with a stripe's name. Neither its head nor its tail says to which set it belongs.
    Unknown(PlaceFile, EngineError),
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
pub(super) fn look(places: &[&dyn Place], place: usize, file: PlaceFile) -> Found {
    let header = read_header(places[place], &file);
    let seal = read_seal(places[place], &file);
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
        place,
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
    let same = (seal.set_id, seal.stripe, seal.stripe_count, seal.alignment)
        == (
            header.set_id,
            header.stripe,
            header.stripe_count(),
            header.alignment,
        );
    let fault = FormatError::Foreign {
        structure: Structure::Seal,
        expected: header.set_id,
        found: seal.set_id,
    };
    (!same).then(|| damage(&file.location, file.bytes, fault))
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

fn read(
    place: &dyn Place,
    file: &PlaceFile,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, EngineError> {
    let mut into = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = place.read(&file.location, offset, &mut into);
    read.map_err(|source| read_error(&file.location, offset, source))?;
    Ok(into)
}

fn read_header(place: &dyn Place, file: &PlaceFile) -> Result<StripeHeader, EngineError> {
    let fault = |source| damage(&file.location, 0, source);
    let mut bytes = read(place, file, 0, file.bytes.min(END_BYTES))?;
    let total = u64::from(StripeHeader::encoded_bytes(&bytes).map_err(fault)?);
    if total > bytes.len() as u64 {
        bytes = read(place, file, 0, total)?;
    }
    bytes.truncate(usize::try_from(total).unwrap_or(usize::MAX));
    StripeHeader::decode(&bytes).map_err(fault)
}

fn read_seal(place: &dyn Place, file: &PlaceFile) -> Result<Seal, EngineError> {
    let unsealed = || EngineError::NotSealed {
        location: file.location.to_string_lossy().into_owned(),
    };
    if file.bytes < SEAL_BYTES as u64 {
        return Err(unsealed());
    }
    let mut bytes = read_end(place, file, file.bytes.min(END_BYTES))?;
    let record = &bytes[bytes.len() - SEAL_BYTES..];
    let seal = Seal::decode(record, file.bytes).map_err(|source| match source {
        // A run that was cut off leaves no seal. A seal with wrong content is damage.
        FormatError::Magic(_) if is_partial(&file.location) => unsealed(),
        source => damage(&file.location, file.bytes - SEAL_BYTES as u64, source),
    })?;
    let alignment = u64::from(seal.alignment);
    if alignment > bytes.len() as u64 {
        bytes = read_end(place, file, alignment)?;
    }
    let block = &bytes[bytes.len().saturating_sub(seal.alignment as usize)..];
    if is_zero(&block[..block.len() - SEAL_BYTES]) {
        return Ok(seal);
    }
    let what = "padding is not zero";
    let structure = Structure::Seal;
    let fault = FormatError::Invalid { structure, what };
    Err(damage(&file.location, file.bytes - alignment, fault))
}

fn read_end(place: &dyn Place, file: &PlaceFile, bytes: u64) -> Result<Vec<u8>, EngineError> {
    read(place, file, file.bytes - bytes, bytes)
}

/// Reads and checks the footer of a sealed stripe.
pub(super) fn read_footer(
    place: &dyn Place,
    file: &PlaceFile,
    seal: &Seal,
    limit: u64,
) -> Result<Footer, EngineError> {
    let fault = |source| damage(&file.location, seal.footer_offset, source);
    let structure = Structure::Footer;
    if seal.footer_bytes > limit {
        return Err(fault(FormatError::Limit {
            structure,
            what: "length",
            found: seal.footer_bytes,
            limit,
        }));
    }
    let bytes = read(place, file, seal.footer_offset, seal.footer_bytes)?;
    if blake3::hash(&bytes).as_bytes() != &seal.footer_hash {
        return Err(fault(FormatError::Hash(structure)));
    }
    let footer = Footer::decode(&bytes, limit).map_err(fault)?;
    let of_seal = (seal.set_id, seal.stripe, seal.set_root);
    if (footer.set_id, footer.stripe, footer.set_root) != of_seal {
        return Err(fault(FormatError::Hash(Structure::Seal)));
    }
    Ok(footer)
}

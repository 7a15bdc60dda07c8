//! Which objects a stripe has, and their keys.
//!
//!   PLACE/NAME.windlass            its name: what lists show; created last
//!   PLACE/sets/SETID/0.data        its bytes without the seal's block
//!   PLACE/sets/SETID/0.seal        the seal's block; with the data, exactly the bytes of a file
//!   PLACE/begun/SETID.0            its marker, as long as the run that writes it has not ended
//!   PLACE/begun/SETID.0.parts      another one, which names the upload of its parts
//!   PLACE/begun/probe-NUMBER       what a check or a measurement has written, if it was killed, or
//!                                  where nothing may be removed
//!   PLACE/readers/NOTE.0           which sets somebody reads at this moment

use std::fmt::Display;

use crate::location::Location;

/// The folder of the data and the seals of all sets.
pub(crate) const SETS: &str = "sets";
/// The folder of the markers.
pub(crate) const BEGUN: &str = "begun";
/// The end of the key of a stripe's second marker.
pub(crate) const PARTS: &str = ".parts";
/// The beginning of the names of the objects in that folder that only try out what a server does.
pub(crate) const PROBE: &str = "probe-";
/// The folder of the notes of readers.
pub(crate) const READERS: &str = "readers";

/// The keys of the objects of one stripe, seen from its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StripeKeys {
    pub(crate) data: String,
    pub(crate) seal: String,
    pub(crate) marker: String,
    /// The second marker. No object is written twice: some buckets refuse that.
    pub(crate) parts: String,
}

impl StripeKeys {
    /// The keys of a stripe of a set.
    pub(crate) fn new(set: &impl Display, index: u16) -> Self {
        Self {
            data: format!("{SETS}/{set}/{index}.data"),
            seal: format!("{SETS}/{set}/{index}.seal"),
            marker: format!("{BEGUN}/{set}.{index}"),
            parts: format!("{BEGUN}/{set}.{index}{PARTS}"),
        }
    }
}

/// A key of a place as a key of its bucket.
pub(crate) fn below(place: &Location, key: &str) -> String {
    place.join(key).key
}

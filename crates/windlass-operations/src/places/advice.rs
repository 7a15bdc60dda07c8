//! What to do about a set that is damaged or not whole, as a value.

use std::path::PathBuf;

/// What to do about a bad set.
#[derive(Clone, Debug)]
pub struct Advice {
    /// What names the bad set.
    pub bad: BadSet,
    /// Where other sets of the same database were looked for.
    pub places: Vec<PathBuf>,
    /// The set to take instead; none if there is no other sound set.
    pub instead: Option<Instead>,
}

/// What names a bad set.
#[derive(Clone, Debug)]
pub enum BadSet {
    /// Its stripes were named.
    Stripes(Vec<PathBuf>),
    /// It was chosen in the places of the advice; the beginning of its id.
    Chosen(String),
}

/// The set to take instead of a bad one.
#[derive(Clone, Debug)]
pub struct Instead {
    /// The beginning of its id.
    pub id: String,
    /// When it was begun, in nanoseconds since 1970.
    pub begun_nanos: i64,
    /// Whether it is older than the bad one. If not, no older one is there.
    pub is_older: bool,
}

impl Advice {
    /// Whether there is an older set.
    pub fn is_older(&self) -> bool {
        self.instead.as_ref().is_some_and(|one| one.is_older)
    }
}

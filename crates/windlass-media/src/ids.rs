//! Ids: each its own type, so that none is passed for another.

use std::fmt;

/// Names one backup set: 16 random bytes, shown as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SetId(pub [u8; 16]);

impl SetId {
    /// Parses the 32 hex digits that `Display` shows.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetId({self})")
    }
}

/// Position of a stripe in its media set. It counts from 0; people see it counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StripeIndex(pub u16);

impl StripeIndex {
    /// The number of the stripe, counted from 1: every message and report shows this one.
    pub fn number(self) -> u16 {
        self.0.saturating_add(1)
    }
}

impl fmt::Display for StripeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// Number of a file in its set. Numbers are unique but need not be dense: files that vanish while
/// they are backed up leave gaps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileNo(pub u32);

impl fmt::Display for FileNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

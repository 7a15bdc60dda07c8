//! Which regions of stripes the kernel was asked to read ahead.
//!
//! For each request the kernel looks at every page of the region, whether it is cached or not. So a
//! region is not requested twice. Readers of several files go back and forth between regions, so
//! more than the last one is remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use windlass_engine::media::fitted;

/// How much of a stripe one request covers.
pub(crate) const REGION_BYTES: u64 = 1024 * 1024;

/// How many regions are remembered. A hash of its number gives each region its place. So two
/// readers that keep their distance use the same place now and then, and not all the time.
const REMEMBERED: usize = 1 << REMEMBERED_BITS;
const REMEMBERED_BITS: u32 = 7;
/// An odd number near 2^64 divided by the golden ratio. Its multiples spread evenly.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const NOTHING: u64 = u64::MAX;

/// The regions that were requested last.
pub(crate) struct AskedRegions([AtomicU64; REMEMBERED]);

impl Default for AskedRegions {
    fn default() -> Self {
        Self([const { AtomicU64::new(NOTHING) }; REMEMBERED])
    }
}

impl AskedRegions {
    /// True when this region of a stripe has to be requested. From now on it counts as requested.
    pub(crate) fn is_new(&self, (link, stripe): (usize, u16), region: u64) -> bool {
        // A set has 64 stripes. Sets that are far apart in a chain share names, which costs a
        // request now and then.
        let stripe = ((link as u64 % 1024) << 6) | u64::from(stripe);
        let name = stripe << 48 | region;
        let place = name.wrapping_mul(SPREAD) >> (u64::BITS - REMEMBERED_BITS);
        let place: usize = fitted(place);
        self.0[place].swap(name, Ordering::Relaxed) != name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_two_places_and_two_stripes_ask_about_once_for_each_region() {
        let asked = AskedRegions::default();
        let mut times = 0;
        for region in 0..1000 {
            for _frame in 0..25 {
                for (stripe, from) in [((0, 0), 0), ((0, 0), 5000), ((0, 1), 0), ((0, 1), 5000)] {
                    for next in 0..2 {
                        times += u32::from(asked.is_new(stripe, from + region + next));
                    }
                }
            }
        }
        // Each reader requests its first region and then one more for each region. A few requests
        // are repeated, where two readers used the same place.
        assert!((4 * 1001..4 * 1100).contains(&times), "{times}");
    }
}

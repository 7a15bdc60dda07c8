//! Upper layers: ranges of files that were copied again, and replace what was copied first.
//!
//! Before a reader can trust any byte of layer 0, it must know what lies over it. The engine finds
//! that on the stripes when a file is read, within bounded memory.

use windlass_engine::UpperRange;

/// Which layer counts at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Layer 0 counts up to this position.
    Base(u64),
    /// An upper layer counts in this range.
    Upper(UpperRange),
}

/// Which layer counts at `offset`, and how far, at most up to `until`. `near` has all ranges of the
/// file that lie between these two.
pub(crate) fn layer_at(near: &[UpperRange], offset: u64, until: u64) -> Layer {
    let here = |range: &&UpperRange| range.start <= offset && offset < range.end;
    let top = near.iter().filter(here).max_by_key(|range| range.layer);
    let over =
        |range: &&UpperRange| range.start > offset && top.is_none_or(|top| range.layer > top.layer);
    let next = near.iter().filter(over).map(|range| range.start).min();
    let until = next.unwrap_or(until).min(until);
    match top {
        None => Layer::Base(until),
        Some(top) => Layer::Upper(UpperRange {
            end: top.end.min(until),
            ..*top
        }),
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_highest_layer_holds_everywhere(
            pieces in proptest::collection::vec((1u8..5, 0u64..50, 1u64..20), 0..20),
            reach in 1u64..80,
        ) {
            let mut model = [0u8; 80];
            let mut ranges = Vec::new();
            for (layer, start, bytes) in pieces {
                let (end, block) = (start + bytes, u32::from(layer));
                ranges.push(UpperRange { start, end, layer, stripe: 0, block });
                for cell in &mut model[start as usize..end as usize] {
                    *cell = (*cell).max(layer);
                }
            }
            for (offset, layer) in (0u64..).zip(model) {
                let until = offset + reach;
                let near = |range: &&UpperRange| range.start < until && range.end > offset;
                let near: Vec<_> = ranges.iter().filter(near).copied().collect();
                let same = |to: u64| {
                    let cells = &model[offset as usize..(to as usize).min(model.len())];
                    cells.iter().all(|cell| *cell == layer)
                };
                match layer_at(&near, offset, until) {
                    Layer::Upper(range) => {
                        prop_assert_eq!(range.layer, layer);
                        prop_assert!(range.start <= offset && offset < range.end);
                        prop_assert!(range.end <= until && same(range.end));
                    }
                    Layer::Base(to) => {
                        prop_assert_eq!(layer, 0);
                        prop_assert!(offset < to && to <= until && same(to));
                        let ends = to == until || to >= 80 || model[to as usize] > 0;
                        prop_assert!(ends);
                    }
                }
            }
        }
    }
}

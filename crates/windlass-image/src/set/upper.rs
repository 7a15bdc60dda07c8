//! Upper layers: ranges of files that were copied again, and replace what was copied first.
//!
//! There are few of them. They are read once when the image is opened, because a reader must know
//! all of them before it can trust any byte of layer 0.

use std::collections::BTreeMap;

use windlass_engine::media::FileNo;

use super::locate::BlockPlace;

/// A range of a file, and the layer whose bytes count there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpperRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) layer: u8,
    pub(crate) place: BlockPlace,
}

/// The ranges of all files in which a layer above 0 counts: by file, sorted, without overlap.
#[derive(Debug, Default)]
pub(crate) struct UpperLayers(BTreeMap<FileNo, Vec<UpperRange>>);

/// Which layer counts at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Layer 0 counts up to this position.
    Base(u64),
    /// An upper layer counts in this range.
    Upper(UpperRange),
}

impl UpperLayers {
    /// Takes pieces by file and layer. Where they overlap, the highest layer counts.
    pub(crate) fn new(pieces: Vec<(FileNo, UpperRange)>) -> Self {
        let mut files: BTreeMap<FileNo, BTreeMap<u64, UpperRange>> = BTreeMap::new();
        for (file, range) in pieces {
            paint(files.entry(file).or_default(), range);
        }
        let flat =
            |(file, ranges): (_, BTreeMap<u64, UpperRange>)| (file, ranges.into_values().collect());
        Self(files.into_iter().map(flat).collect())
    }

    /// Whether a layer above 0 counts anywhere in this file.
    pub(crate) fn has(&self, file: FileNo) -> bool {
        self.0.contains_key(&file)
    }

    /// Which layer counts at `offset` of a file.
    pub(crate) fn at(&self, file: FileNo, offset: u64) -> Layer {
        let Some(ranges) = self.0.get(&file) else {
            return Layer::Base(u64::MAX);
        };
        let next = ranges.partition_point(|range| range.end <= offset);
        match ranges.get(next) {
            Some(range) if range.start <= offset => Layer::Upper(*range),
            Some(range) => Layer::Base(range.start),
            None => Layer::Base(u64::MAX),
        }
    }
}

/// Puts a range on top of those that are there.
fn paint(ranges: &mut BTreeMap<u64, UpperRange>, new: UpperRange) {
    let under: Vec<_> = ranges
        .range(..new.end)
        .rev()
        .take_while(|(_, old)| old.end > new.start)
        .map(|(_, old)| *old)
        .collect();
    for old in under {
        ranges.remove(&old.start);
        if old.start < new.start {
            ranges.insert(
                old.start,
                UpperRange {
                    end: new.start,
                    ..old
                },
            );
        }
        if old.end > new.end {
            ranges.insert(
                new.end,
                UpperRange {
                    start: new.end,
                    ..old
                },
            );
        }
    }
    ranges.insert(new.start, new);
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
            pieces in proptest::collection::vec((1u8..5, 0u64..50, 1u64..20), 0..20)
        ) {
            let mut model = [0u8; 80];
            let mut ranges = Vec::new();
            for (layer, start, bytes) in pieces {
                let place = BlockPlace { stripe: 0, block: u32::from(layer) };
                ranges.push((FileNo(1), UpperRange { start, end: start + bytes, layer, place }));
                for cell in &mut model[start as usize..(start + bytes) as usize] {
                    *cell = (*cell).max(layer);
                }
            }
            ranges.sort_by_key(|(_, range)| (range.layer, range.start));
            let upper = UpperLayers::new(ranges);
            for (offset, layer) in (0u64..).zip(model) {
                match upper.at(FileNo(1), offset) {
                    Layer::Upper(range) => {
                        prop_assert_eq!(range.layer, layer);
                        prop_assert!(range.start <= offset && offset < range.end);
                    }
                    Layer::Base(until) => {
                        prop_assert_eq!(layer, 0);
                        prop_assert!(until > offset);
                        prop_assert!(until >= 80 || model[until as usize] > 0);
                    }
                }
            }
            prop_assert_eq!(upper.at(FileNo(2), 0), Layer::Base(u64::MAX));
        }
    }
}

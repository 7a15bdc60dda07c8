//! Cover: which bytes of some files are in any index block. All other bytes are lost.

use std::collections::BTreeMap;

use windlass_media::FileNo;

use crate::error::EngineError;
use crate::set::FoundSet;

/// When a file has this many ranges, neighbours are joined to make room.
const RANGES_MAX: usize = 1 << 20;

/// Sorts ranges (start, end) and joins those that touch.
pub(super) fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}

/// The ranges from 0 to `bytes` that are not in `ranges`, whose neighbours must be joined.
fn complement(ranges: &[(u64, u64)], bytes: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut position = 0;
    for (from, to) in ranges {
        if *from > position {
            gaps.push((position, (*from).min(bytes)));
        }
        position = position.max(*to);
    }
    if position < bytes {
        gaps.push((position, bytes));
    }
    gaps
}

/// Ranges (start, end), by file.
pub(super) type Gaps = BTreeMap<FileNo, Option<Vec<(u64, u64)>>>;

/// The ranges of files (number, length) that no readable index block of any set of the chain lists.
/// `None` for a file that has too many listed ranges to keep.
pub(super) fn unlisted(set: &FoundSet, files: &[(FileNo, u64)]) -> Result<Gaps, EngineError> {
    let mut listed: Gaps = files
        .iter()
        .map(|(file, _)| (*file, Some(Vec::new())))
        .collect();
    let lineage = set.lineage();
    let links = set.links().enumerate();
    let stripes = links.flat_map(|(link, set)| set.stripes().iter().map(move |one| (link, one)));
    for (link, stripe) in stripes {
        for entry in stripe.directory() {
            let block = match stripe.index_block(entry) {
                Ok(block) => block,
                Err(error) if error.is_of_media() => continue,
                Err(error) => return Err(error),
            };
            for piece in &block.pieces {
                let Some((file, limit)) = lineage.heir(link, piece.file) else {
                    continue;
                };
                let Some(slot) = listed.get_mut(&file) else {
                    continue;
                };
                let Some(ranges) = slot.as_mut() else {
                    continue;
                };
                let end = limit.min(piece.offset + u64::from(piece.bytes));
                ranges.push((piece.offset, end.max(piece.offset)));
                if ranges.len() >= RANGES_MAX {
                    join(ranges);
                    // At least half must be free again. Otherwise the next ranges would soon cause
                    // another sort.
                    if ranges.len() > RANGES_MAX / 2 {
                        *slot = None;
                    }
                }
            }
        }
    }
    for (file, bytes) in files {
        if let Some(Some(ranges)) = listed.get_mut(file) {
            join(ranges);
            *ranges = complement(ranges, *bytes);
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_what_lies_between() {
        let mut ranges = vec![(30, 40), (0, 10), (10, 20), (35, 50)];
        join(&mut ranges);
        assert_eq!(ranges, [(0, 20), (30, 50)]);
        assert_eq!(complement(&ranges, 60), [(20, 30), (50, 60)]);
        assert_eq!(complement(&ranges, 50), [(20, 30)]);
        assert_eq!(complement(&[], 5), [(0, 5)]);
        assert_eq!(complement(&[(0, 5)], 5), []);
    }
}

//! Which bytes of a full buffer become one frame.

use std::sync::Arc;

use super::class::PageClass;
use super::pages::KeptBytes;

/// A frame that is to be made: a range of the buffer, and the pieces of files in it.
pub(super) struct Group {
    pub(super) start: usize,
    pub(super) end: usize,
    /// What its pages are.
    pub(super) kind: u16,
    pub(super) pieces: Vec<Piece>,
}

/// What will be a piece on the stripe: bytes of one run.
pub(super) struct Piece {
    pub(super) run: usize,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// Cuts runs into frames of at most `frame_bytes`. A large run is cut at multiples of the frame
/// size, so that a division finds the frame of a page. Small runs share a frame, if their pages are
/// of one kind and one class.
pub(super) fn group(runs: &[KeptBytes], frame_bytes: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut position = 0;
    let class = |piece: Option<&Piece>| piece.and_then(|it| class_of(&runs[it.run]));
    for (index, run) in runs.iter().enumerate() {
        let mut done = 0;
        while done < run.bytes {
            let bytes = (run.bytes - done).min(frame_bytes);
            let piece = Piece {
                run: index,
                offset: run.offset + done as u64,
                bytes,
            };
            let fits = |last: &Group| {
                last.kind == run.kind
                    && class(last.pieces.last()) == class_of(run)
                    && last.end - last.start + bytes <= frame_bytes
            };
            match groups.last_mut() {
                Some(last) if fits(last) => {
                    last.end += bytes;
                    last.pieces.push(piece);
                }
                _ => groups.push(Group {
                    start: position,
                    end: position + bytes,
                    kind: run.kind,
                    pieces: vec![piece],
                }),
            }
            position += bytes;
            done += bytes;
        }
    }
    groups
}

/// Tells classes apart.
fn class_of(run: &KeptBytes) -> Option<*const PageClass> {
    run.class.as_ref().map(Arc::as_ptr)
}

//! The parts of a segment that a place has, and whether the server itself has more of it.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_engine::Reading;
use windlass_media::fitted;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::object::{FrameMemory, LogObject};
use crate::place::{LogPlace, ObjectName};

/// How much of the server's own segment is read at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Positions of a log, and the object that holds them.
pub(super) struct Part {
    pub(super) object: LogObject,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Part {
    /// Whether it is a whole segment of this size.
    pub(super) fn is_segment(&self, bytes: u64) -> bool {
        let is_whole = self.to - self.from == bytes;
        is_whole && u64::from(self.object.header.segment_bytes) == bytes
    }

    /// The frames that hold it.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&Self, usize)> {
        let first = self.object.frame_of(self.from).unwrap_or_default();
        let last = self.object.frame_of(self.to - 1).unwrap_or_default();
        (first..=last).map(move |number| (self, number))
    }

    /// What a frame has of it: where that begins, and the bytes.
    pub(super) fn frame<'a>(
        &self,
        number: usize,
        memory: &'a mut FrameMemory,
    ) -> Result<(u64, &'a [u8]), RepositoryError> {
        let frame = self.object.read_frame(number, memory)?;
        let (from, to) = (frame.position.max(self.from), frame.end().min(self.to));
        let of = |at: u64| fitted::<usize, u64>(at - frame.position);
        Ok((
            from,
            memory.decoded.get(of(from)..of(to)).unwrap_or_default(),
        ))
    }
}

/// Objects that hold the range, one after the other, as far as there are some. A damaged one is
/// passed over if another one is sound. Also returns what is lost where they end.
pub(super) fn parts(
    place: &LogPlace,
    timeline: Timeline,
    names: &[ObjectName],
    (start, end): (Lsn, Lsn),
) -> Result<(Vec<Part>, Option<LostEnd>), RepositoryError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = start;
    while at < end {
        let mut holders: Vec<_> = names.iter().filter(|name| name.may_hold(at)).collect();
        // Complete objects first, and of these the one that reaches farthest.
        holders.sort_by_key(|name| (name.end.is_none(), std::cmp::Reverse(name.end)));
        let (mut fault, mut lost) = (None, None);
        let mut found = None;
        for name in holders {
            match sound(place, timeline, name, (at, end)) {
                Ok(Held::Part(part)) => {
                    found = Some(*part);
                    break;
                }
                Ok(Held::Lost(found)) => {
                    // The range is a segment.
                    let found = Some(found.bounded(end.0 - start.0));
                    lost = found.filter(|one| is_at(one, names, at)).or(lost);
                }
                Ok(Held::Nothing) => {}
                Err(error) => fault = Some(error),
            }
        }
        match (found, fault) {
            (Some(part), _) => {
                at = Lsn(part.to);
                parts.push(part);
            }
            (None, Some(error)) => return Err(error),
            (None, None) => return Ok((parts, lost)),
        }
    }
    Ok((parts, None))
}

/// Whether what an object has lost reaches a position: if nobody knows how much it is at most, it
/// goes up to the next run of log.
fn is_at(lost: &LostEnd, names: &[ObjectName], at: Lsn) -> bool {
    let is_between = |name: &ObjectName| {
        let end = name.end.unwrap_or(name.start);
        name.start <= at && lost.end < end
    };
    lost.is_at(at) && (lost.limit().is_some() || !names.iter().any(is_between))
}

/// What an object has from a position on.
pub(super) enum Held {
    /// This.
    Part(Box<Part>),
    /// What it had is lost.
    Lost(LostEnd),
    /// Nothing.
    Nothing,
}

/// The part that an object holds, if all its frames are as they were stored.
pub(super) fn sound(
    place: &LogPlace,
    timeline: Timeline,
    name: &ObjectName,
    (at, end): (Lsn, Lsn),
) -> Result<Held, RepositoryError> {
    let held = |lost: Option<LostEnd>| match lost.filter(|lost| lost.is_at(at)) {
        Some(lost) => Held::Lost(lost),
        None => Held::Nothing,
    };
    let object = match place.open_object(timeline, name, Reading::Whole) {
        Err(RepositoryError::LostEnd { lost, .. }) => return Ok(held(Some(lost))),
        opened => opened?,
    };
    let to = object.end().min(end.0);
    let mut stored = Vec::new();
    let mut next = at.0;
    while next < to {
        let Some(number) = object.frame_of(next) else {
            break;
        };
        next = object.stored_frame(number, &mut stored)?.end();
    }
    Ok(match next > at.0 {
        true => Held::Part(Box::new(Part {
            object,
            from: at.0,
            to,
        })),
        false => held(object.lost),
    })
}

/// Whether the server's own segment has all that these parts have of it, and more.
pub(super) fn own_goes_on(
    own: &Path,
    parts: &[Part],
    (start, reached, end): (Lsn, Lsn, Lsn),
) -> Result<bool, RepositoryError> {
    let file = match windlass_engine::open_regular(own) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        file => file.doing("open", own)?,
    };
    if file.metadata().doing("examine", own)?.len() != end.0 - start.0 {
        return Ok(false);
    }
    let mut memory = FrameMemory::new(own)?;
    let mut found = Vec::new();
    for (part, number) in parts.iter().flat_map(Part::frames) {
        let (from, bytes) = part.frame(number, &mut memory)?;
        found.resize(bytes.len(), 0);
        let read = file.read_exact_at(&mut found, from - start.0);
        read.doing("read", own)?;
        if found != bytes {
            return Ok(false);
        }
    }
    let mut at = reached;
    while at < end {
        found.resize(fitted::<usize, u64>((end.0 - at.0).min(STEP_BYTES)), 0);
        let read = file.read_exact_at(&mut found, at.0 - start.0);
        read.doing("read", own)?;
        if found.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at = Lsn(at.0 + found.len() as u64);
    }
    Ok(false)
}

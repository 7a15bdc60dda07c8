//! Stores a file that belongs to a log, such as the history of a timeline.

use windlass_media::{LogContent, LogHeader, fitted};
use windlass_postgres::Lsn;

use super::{Pushed, now_nanos};
use crate::content::{Compared, compare};
use crate::error::RepositoryError;
use crate::file_name::LogFileName;
use crate::place::LogPlace;
use crate::writer::{FRAME_BYTES, Packing};

/// A file belongs to no segment. Its header states the smallest size that there is.
const SEGMENT_BYTES: u32 = 1 << 20;

/// What a place has under a name.
enum There {
    Nothing,
    Same,
    Other,
    Damaged,
}

/// Stores a file that belongs to the log, unless the place has it already. The history of a
/// timeline is never encrypted: whoever expires or receives log has to know where timelines come
/// from.
pub(crate) fn put_file(
    place: &LogPlace,
    name: &str,
    content: &[u8],
    packing: Packing,
) -> Result<Pushed, RepositoryError> {
    let kind = LogFileName::parse(name);
    let place = &match kind {
        Some(LogFileName::History(_)) => place.in_clear(),
        _ => place.clone(),
    };
    let path = place.file_path(name);
    let different = || RepositoryError::Different {
        name: name.to_owned(),
        object: path.clone(),
    };
    let is_damaged = match look(place, name, content)? {
        There::Same => return place.sync_names(&path).map(|()| Pushed::Already),
        There::Other => return Err(different()),
        There::Nothing => false,
        There::Damaged => true,
    };
    let header = LogHeader {
        system: place.system(),
        timeline: kind.map_or(0, |name| name.timeline().0),
        segment_bytes: SEGMENT_BYTES,
        start: 0,
        begun_nanos: now_nanos(),
        frame_bytes: FRAME_BYTES,
        content: LogContent::File(name.to_owned()),
        // The place says it.
        is_encrypted: false,
    };
    let mut object = place.begin_object(&path, &header, packing)?;
    object.append(content, content.len() as u64)?;
    let sealed = match is_damaged {
        true => Some(object.seal_over()?),
        false => object.seal()?,
    };
    if let Some(stored_bytes) = sealed {
        return Ok(Pushed::Stored {
            files: 1,
            bytes: content.len() as u64,
            stored_bytes,
        });
    }
    // Somebody else was faster.
    match look(place, name, content)? {
        There::Same => place.sync_names(&path).map(|()| Pushed::Already),
        _ => Err(different()),
    }
}

fn look(place: &LogPlace, name: &str, content: &[u8]) -> Result<There, RepositoryError> {
    let end = Lsn(content.len() as u64);
    let read = |at: Lsn, into: &mut [u8]| {
        let at = fitted::<usize, u64>(at.0);
        into.copy_from_slice(&content[at..at + into.len()]);
        Ok(())
    };
    let compared = place.open_file(name).and_then(|found| match found {
        None => Ok(There::Nothing),
        Some(object) if object.end() != end.0 => Ok(There::Other),
        Some(object) => match compare(&object, (Lsn(0), end), read)? {
            Compared::Same(to) if to == end => Ok(There::Same),
            _ => Ok(There::Other),
        },
    });
    match compared {
        Err(error) if error.is_damage() => Ok(There::Damaged),
        other => other,
    }
}

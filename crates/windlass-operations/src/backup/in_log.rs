//! What the log of a SQLite database in the place of a backup says, if one was received: which
//! pages were written since the base; and whether the set that was just made stands in it.
//! Otherwise a restore would end with the set, and lose what the log has behind it.
//!
//! It only looks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass_engine::Cancel;
use windlass_object::is_in_bucket;
use windlass_repository::{LogPlace, RepositoryError, database_number, link, written_since};
use windlass_sqlite::{ChainBase, DatabaseFacts, DatabaseKey};

use crate::receiver;
use crate::stored::log_at;
use crate::warnings::NOT_IN_LOG;

/// How long to wait for the receiver, which looks at the database only now and then.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Tells the base which pages were written since, if the log of one of these places says so. If it
/// cannot be read, it says nothing, and the backup reads the database.
pub(super) fn tell_written(base: &mut ChainBase, places: &[PathBuf], key: &DatabaseKey) {
    let Some((standing, bytes)) = base.standing() else {
        return;
    };
    let found = places.iter().find_map(|place| {
        let log = LogPlace::of_database(&log_at(place), database_number(key));
        written_since(&log, standing, bytes).ok().flatten()
    });
    if let Some(written) = found {
        base.set_written(written.until, written.pages);
    }
}

/// The warning, if the set does not stand in the log of one of these places.
pub(super) fn warning(
    places: &[PathBuf],
    facts: &DatabaseFacts,
    cancel: &Cancel,
) -> Option<(&'static str, String)> {
    let standing = facts.standing.as_ref()?;
    let since = Instant::now();
    for place in places {
        let number = database_number(&facts.key());
        let log = LogPlace::of_database(&log_at(place), number);
        // What is received into a bucket does not grow there.
        let is_received = || match is_in_bucket(place) {
            true => receiver::is_there(place, number),
            false => log.is_received(),
        };
        let is_in_log = || -> Result<bool, RepositoryError> {
            Ok(!is_received()? || link(&log, standing)?.is_some())
        };
        loop {
            match is_in_log() {
                Ok(true) => break,
                // The set is good, whatever comes: nobody who interrupts this loses it.
                Ok(false) if since.elapsed() < WAIT_MAX && !cancel.is_cancelled() => {
                    std::thread::sleep(PAUSE);
                }
                Ok(false) => {
                    let text = format!(
                        "the log in {} does not have the state of this set yet: if `windlass \
                         receive` does not run, or cannot store, a restore of this set gets no \
                         further",
                        place.display()
                    );
                    return Some((NOT_IN_LOG, text));
                }
                Err(error) => {
                    let text = format!("the log beside this set cannot be read: {error}");
                    return Some((NOT_IN_LOG, text));
                }
            }
        }
    }
    None
}

//! Proves that a repository keeps what it gets: writes there, reads back, locks and removes; and
//! lets a PostgreSQL server archive a segment, and finds it.
//!
//! Nothing but its own file is removed. What the server archives stays, as every segment does.

use std::path::Path;
use std::time::{Duration, Instant};

use windlass_engine::{DeviceOperation, EngineError, show_size};
use windlass_object::is_in_bucket;
use windlass_postgres::Cluster;
use windlass_repository::{LogFileName, LogPlace};

use super::CheckedBackup;
use crate::backup::BackupRequest;
use crate::checks::{Checks, Finding};
use crate::database::DatabaseName;
use crate::devices::{DeviceName, STORAGE};
use crate::error::OperationError;
use crate::stored::log_at;

/// How much is written.
const BYTES: usize = 1 << 20;
/// How long a segment may take to be archived.
const ARCHIVED_WITHIN: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Makes the round trip to each place of a checked backup.
pub fn check_round_trip(request: &BackupRequest, checked: &mut CheckedBackup) {
    let mut places = Vec::new();
    for device in &checked.devices {
        if let DeviceName::Directory(place) | DeviceName::Bucket(place) = device
            && !places.contains(place)
        {
            places.push(place.clone());
        }
    }
    // The check of the backup has made the round trip to buckets.
    for place in places.iter().filter(|place| !is_in_bucket(place)) {
        match written_and_read(place) {
            Ok(words) => checked.checks.ok("round trip", words),
            Err(error) => checked.checks.failure("round trip", error),
        }
    }
    if let (Ok(DatabaseName::Postgres(conninfo)), Some(place)) =
        (DatabaseName::resolve(&request.database), places.first())
        && let Err(error) = archived(&mut checked.checks, &conninfo, place)
    {
        checked.checks.failure("archive", error);
    }
}

/// Writes a file that no run leaves, reads it back, and removes it.
fn written_and_read(place: &Path) -> Result<String, OperationError> {
    let path = place.join(format!(".windlass-check-{}", uuid::Uuid::new_v4().simple()));
    let done = of_file(&path);
    let removed = STORAGE.remove(&path).map_err(|source| fault(&path, source));
    let words = done?;
    removed?;
    Ok(format!("{}: {words}", place.display()))
}

fn of_file(path: &Path) -> Result<String, OperationError> {
    let io = |source| fault(path, source);
    let mut state = uuid::Uuid::new_v4().as_u64_pair().0 | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let content: Vec<u8> = (0..BYTES).map(|_| next()).collect();
    STORAGE.write(path, &content).map_err(io)?;
    let opened = STORAGE.open(path).map_err(io)?;
    let mut back = vec![0; BYTES];
    opened.read_exact_at(0, &mut back).map_err(io)?;
    if back != content {
        let differs = "what was read is not what was written";
        let differs = std::io::Error::new(std::io::ErrorKind::InvalidData, differs);
        return Err(io(differs));
    }
    let kept = STORAGE.keep(path, &*opened).map_err(io)?;
    let is_kept = STORAGE.reserve(path).map_err(io)?.is_none();
    drop(kept);
    let size = show_size(BYTES as u64);
    Ok(match is_kept {
        true => format!("{size} written, read back and removed; locks hold"),
        false => format!("{size} written, read back and removed; it has no locks"),
    })
}

fn fault(path: &Path, source: std::io::Error) -> OperationError {
    let error = EngineError::DeviceIo {
        operation: DeviceOperation::Write,
        device: path.display().to_string(),
        offset: 0,
        source,
    };
    error.into()
}

/// Lets the server archive a segment, and looks for it.
fn archived(checks: &mut Checks, conninfo: &str, place: &Path) -> Result<(), OperationError> {
    let mut cluster = Cluster::connect(conninfo)?;
    let Some(segment) = cluster.switch_archived()? else {
        checks.ok(
            "archive",
            "the server archives no log: only its sets are kept",
        );
        return Ok(());
    };
    let until = Instant::now() + ARCHIVED_WITHIN;
    while !cluster.has_archived(&segment)? && Instant::now() < until {
        std::thread::sleep(ASKED_EVERY);
    }
    let (place, system) = (place.to_owned(), cluster.facts().system_identifier);
    match is_found(&LogPlace::new(&log_at(&place), system), &segment)? {
        true => {
            let place = place.display();
            let words = format!("segment {segment} was archived, and is found in {place}");
            checks.ok("archive", words);
        }
        false => checks.failed("archive", Finding::NotArchived { segment, place }),
    }
    Ok(())
}

fn is_found(log: &LogPlace, segment: &str) -> Result<bool, OperationError> {
    let Some(name) = LogFileName::parse(segment) else {
        return Ok(false);
    };
    let Some(start) = log.begin_of(&name)? else {
        return Ok(false);
    };
    let objects = log.objects_at(name.timeline(), start)?;
    Ok(objects.iter().any(|object| object.may_hold(start)))
}

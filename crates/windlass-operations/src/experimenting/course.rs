//! The course of a run: transactions, pages of checkpoints and bytes to each device, before, while
//! and after a snapshot is made.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass_lab::snapshots::{Sample, ValueKind};
use windlass_lab::to_f64;
use windlass_postgres::{Load, OwnSession, PostgresError};

use super::laboratory::{Laboratory, places};
use super::measured::{Measured, of_kind, steps};

use crate::error::OperationError;
use crate::sweeping::SweepError;

/// The phases that are compared.
pub(super) const PHASES: [&str; 3] = ["before", "while it is made", "after"];
/// Samples before, and as many after.
const SAMPLES: f64 = 20.0;
const SECTOR_BYTES: u64 = 512;
/// Where the kernel counts what each device reads and writes.
const DISKS: &str = "/proc/diskstats";

/// What is counted from the beginning on.
#[derive(Clone, Debug, Default)]
struct Counted {
    at: f64,
    transactions: u64,
    checkpoint_pages: i64,
    /// Bytes read and written by each device.
    devices: BTreeMap<String, (u64, u64)>,
}

/// Runs a load, and makes a snapshot in the middle.
pub(super) fn run(
    laboratory: &Laboratory<'_>,
    clients: usize,
) -> Result<Vec<Measured>, OperationError> {
    let load = laboratory.load(clients)?;
    // What comes first is not compared: caches are filled, and full pages are logged.
    laboratory.pause_for(laboratory.request.seconds / 2.0)?;
    let begun = Instant::now();
    let stop = AtomicBool::new(false);
    let every = Duration::from_secs_f64(laboratory.request.seconds / SAMPLES);
    let session = laboratory.session()?;
    let numbers = device_numbers(laboratory)?;
    let (counted, made) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| watch(&load, session, &numbers, begun, every, &stop));
        let made = make(laboratory, begun);
        stop.store(true, Ordering::Relaxed);
        (watched.join().expect("the watcher does not panic"), made)
    });
    let (created, making) = made?;
    let counted = counted?;
    load.stop()?;
    let (from, to) = making;
    let end = counted.last().map_or(to, |last| last.at);
    let phases = [(0.0, from), (from, to), (to, end)];
    let mut measured: Vec<Measured> = phases
        .iter()
        .enumerate()
        .map(|(case, phase)| Measured {
            case,
            values: vec![of_kind(
                "throughput",
                ValueKind::PerSecond,
                rate(&counted, *phase),
            )],
            ..Measured::default()
        })
        .collect();
    measured[1].steps = steps(&created);
    measured[1].samples = samples(&counted);
    measured[1].making = Some(making);
    Ok(measured)
}

/// Makes the snapshot. Returns when it was begun and ended.
fn make(
    laboratory: &Laboratory<'_>,
    begun: Instant,
) -> Result<(super::work::CreatedReport, (f64, f64)), OperationError> {
    laboratory.pause()?;
    let from = begun.elapsed().as_secs_f64();
    let created = laboratory.create("s1")?;
    let to = begun.elapsed().as_secs_f64();
    laboratory.pause()?;
    Ok((created, (from, to)))
}

/// Transactions per second in a phase, from what was counted at its ends.
fn rate(counted: &[Counted], (from, to): (f64, f64)) -> f64 {
    let at = |seconds: f64| {
        let after = counted.iter().position(|one| one.at >= seconds);
        let after = after.unwrap_or(counted.len().saturating_sub(1));
        let (before, after) = (&counted[after.saturating_sub(1)], &counted[after]);
        let (low, high) = (to_f64(before.transactions), to_f64(after.transactions));
        let width = after.at - before.at;
        match width > 0.0 {
            true => low + (high - low) * ((seconds - before.at) / width).clamp(0.0, 1.0),
            false => high,
        }
    };
    (at(to) - at(from)) / (to - from).max(1e-9)
}

/// Differences between neighbours, each in a second.
fn samples(counted: &[Counted]) -> Vec<Sample> {
    let sample = |pair: &[Counted]| {
        let (one, other) = (&pair[0], &pair[1]);
        let width = (other.at - one.at).max(1e-9);
        let per = |more: u64| to_f64(more) / width;
        let pages = other.checkpoint_pages - one.checkpoint_pages;
        let transactions = per(other.transactions - one.transactions);
        let mut values = vec![
            of_kind("transactions", ValueKind::PerSecond, transactions),
            of_kind(
                "pages by checkpoints",
                ValueKind::PerSecond,
                per(pages.unsigned_abs()),
            ),
        ];
        for (name, (read, written)) in &other.devices {
            let before = one.devices.get(name).copied().unwrap_or_default();
            let bytes =
                |name: String, more: u64| of_kind(&name, ValueKind::BytesPerSecond, per(more));
            values.push(bytes(format!("read from {name}"), read - before.0));
            values.push(bytes(format!("written to {name}"), written - before.1));
        }
        Sample {
            seconds: other.at,
            values,
        }
    };
    counted.windows(2).map(sample).collect()
}

/// Counts until it is told to stop.
fn watch(
    load: &Load,
    mut session: OwnSession,
    numbers: &[(u64, u64)],
    begun: Instant,
    every: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Counted>, OperationError> {
    let mut counted = Vec::new();
    let mut next = begun;
    while !stop.load(Ordering::Relaxed) {
        counted.push(Counted {
            checkpoint_pages: checkpoint_pages(&mut session)?,
            devices: devices(numbers)?,
            transactions: load.counts().count(),
            at: begun.elapsed().as_secs_f64(),
        });
        next += every;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(counted)
}

/// Pages that checkpoints have written. The counter has moved in version 17.
fn checkpoint_pages(session: &mut OwnSession) -> Result<i64, PostgresError> {
    let moved = "SELECT (to_regclass('pg_stat_checkpointer') IS NOT NULL)::int::bigint";
    match session.number(moved)? {
        0 => session.number("SELECT buffers_checkpoint FROM pg_stat_bgwriter"),
        _ => session.number("SELECT buffers_written FROM pg_stat_checkpointer"),
    }
}

/// The numbers of the devices that are written to.
fn device_numbers(laboratory: &Laboratory<'_>) -> Result<Vec<(u64, u64)>, OperationError> {
    let mut numbers = Vec::new();
    for place in places(laboratory) {
        let found = std::fs::metadata(&place);
        let device = found.map_err(SweepError::scratch("look at", &place))?.dev();
        let number = (
            u64::from(rustix::fs::major(device)),
            u64::from(rustix::fs::minor(device)),
        );
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Bytes read and written by these devices. A file system that is on none has no counter.
fn devices(numbers: &[(u64, u64)]) -> Result<BTreeMap<String, (u64, u64)>, OperationError> {
    let text = std::fs::read_to_string(DISKS);
    let text = text.map_err(SweepError::scratch("read", DISKS))?;
    Ok(of_devices(&text, numbers))
}

/// Each line has the device's numbers, its name, and then its counters; the third one is of sectors
/// read, and the seventh one of sectors written.
fn of_devices(text: &str, numbers: &[(u64, u64)]) -> BTreeMap<String, (u64, u64)> {
    let device = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        let is_ours = numbers.contains(&(number(0)?, number(1)?));
        let bytes = |index| Some(number(index)? * SECTOR_BYTES);
        is_ours.then_some(((*words.get(2)?).to_owned(), (bytes(5)?, bytes(9)?)))
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let text = " 254 0 vda 10 0 8 5 20 0 16 7 0 0 0 0\n 254 1 vdb 1 0 2 5 2 0 4 7 0 0 0 0\n";
        let found = of_devices(text, &[(254, 0)]);
        assert_eq!(found, BTreeMap::from([("vda".to_owned(), (4096, 8192))]));
    }

    #[test]
    fn a_sample_has_what_each_device_read_and_wrote_in_a_second() {
        let at = |at: f64, transactions, bytes| Counted {
            at,
            transactions,
            devices: BTreeMap::from([("vda".to_owned(), bytes)]),
            ..Counted::default()
        };
        let counted = [at(1.0, 10, (500, 1000)), at(3.0, 30, (700, 5000))];
        let found = samples(&counted);
        let found: Vec<_> = found[0]
            .values
            .iter()
            .map(|it| (&it.name[..], it.value))
            .collect();
        let expected = [
            ("transactions", 10.0),
            ("pages by checkpoints", 0.0),
            ("read from vda", 100.0),
            ("written to vda", 2000.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_phase_has_the_transactions_between_its_ends() {
        let at = |at: f64, transactions| Counted {
            at,
            transactions,
            ..Counted::default()
        };
        let counted = [at(0.0, 0), at(1.0, 100), at(2.0, 100), at(3.0, 300)];
        assert!((rate(&counted, (0.0, 1.0)) - 100.0).abs() < 1e-9);
        assert!((rate(&counted, (1.0, 2.0))).abs() < 1e-9);
        assert!((rate(&counted, (2.5, 3.0)) - 200.0).abs() < 1e-9);
    }
}

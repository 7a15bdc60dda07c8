//! What the probe promises: it measures what it says, finds the knee, and leaves nothing behind.

use super::*;

fn point(block_bytes: u64, depth: usize, rate: f64) -> Point {
    Point {
        pattern: Pattern::Sequential,
        operation: Operation::Read,
        direct: true,
        block_bytes,
        depth,
        bytes_per_second: rate,
        operations_per_second: 0.0,
        latency_micros_p50: 0.0,
        latency_micros_p99: 0.0,
        spread: None,
    }
}

#[test]
fn the_knee_is_the_least_in_flight_that_is_as_good_as_the_best() {
    let points = [
        point(8192, 64, 300e6),
        point(1 << 20, 1, 500e6),
        point(1 << 20, 4, 960e6),
        point(1 << 20, 64, 1000e6),
        point(4 << 20, 1, 970e6),
    ];
    let found = &knees(&points)[0];
    assert_eq!((found.block_bytes, found.depth), (1 << 20, 4));
    assert_eq!(
        (found.bytes_per_second, found.best_bytes_per_second),
        (960e6, 1000e6)
    );
    assert_eq!(knees(&[]), []);
}

#[test]
fn the_grid_is_what_the_manual_says() {
    let plans = plans(true);
    let of = |wanted: fn(&PointPlan) -> bool| plans.iter().filter(|plan| wanted(plan)).count();
    assert!(
        plans
            .iter()
            .all(|plan| plan.block_bytes * plan.depth as u64 <= FLIGHT_BYTES_MAX)
    );
    for block_bytes in BLOCKS {
        assert!(
            plans
                .iter()
                .any(|plan| plan.block_bytes == block_bytes && plan.depth == 1)
        );
    }
    let transfers = |depth| {
        let one = |plan: &&PointPlan| plan.block_bytes == 1 << 20 && plan.depth == depth;
        plans.iter().filter(|plan| plan.direct).filter(one).count()
    };
    assert!(DEPTHS.into_iter().all(|depth| transfers(depth) == 4));
    assert_eq!(of(|plan| !plan.direct), 8);
    assert!(super::plans(false).iter().all(|plan| !plan.direct));
}

fn request(scratch_bytes: u64) -> ProbeRequest {
    ProbeRequest {
        budget: Duration::from_millis(300),
        scratch_bytes,
        at: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn files_in(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn every_point_is_measured_and_nothing_is_left() {
    let place = tempfile::tempdir().unwrap();
    let mut told = 0;
    let mut most = 0;
    let mut tell = |index, count, _: &Point| {
        told += 1;
        most = most.max(files_in(place.path()));
        assert!(index <= count);
    };
    let profile = probe(place.path(), &request(32 << 20), &Cancel::new(), &mut tell).unwrap();
    assert_eq!(told, profile.points.len());
    assert_eq!(most, 0, "the scratch file had a name");
    assert_eq!(files_in(place.path()), 0);
    // The file is as large as the time allowed.
    assert!((16 << 20..=32 << 20).contains(&profile.scratch_bytes));
    assert!(
        profile
            .points
            .iter()
            .all(|point| point.bytes_per_second > 0.0)
    );
    assert!(
        profile
            .points
            .iter()
            .all(|point| point.latency_micros_p99 > 0.0)
    );
    assert!(profile.knees.len() >= 4, "{:?}", profile.knees);
    assert!(
        profile
            .model(Operation::Write)
            .whole
            .bytes_per_second
            .unwrap()
            > 0.0
    );
}

#[test]
fn a_probe_that_is_cancelled_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let cancel = Cancel::new();
    let mut tell = |index, _, _: &Point| {
        if index == 2 {
            cancel.cancel();
        }
    };
    let error = probe(place.path(), &request(16 << 20), &cancel, &mut tell).unwrap_err();
    assert!(matches!(
        error,
        LabError::Engine(windlass_engine::EngineError::Cancelled)
    ));
    assert_eq!(files_in(place.path()), 0);
}

#[test]
fn too_little_space_is_refused_before_anything_is_written() {
    let place = tempfile::tempdir().unwrap();
    let mut tell = |_, _, _: &Point| panic!("nothing may be measured");
    let error = probe(place.path(), &request(1 << 60), &Cancel::new(), &mut tell).unwrap_err();
    assert!(matches!(error, LabError::Space { .. }), "{error}");
    let error = probe(place.path(), &request(4096), &Cancel::new(), &mut tell).unwrap_err();
    let small = "size of the scratch file: 4 KiB is less than 16 MiB, which tells nothing";
    assert_eq!(error.to_string(), small);
    let nowhere = place.path().join("nowhere");
    assert!(probe(&nowhere, &request(16 << 20), &Cancel::new(), &mut tell).is_err());
    assert_eq!(files_in(place.path()), 0);
}

#[test]
fn the_spread_is_that_of_the_parts_of_the_time() {
    assert_eq!(super::point::spread(&[100, 110, 90, 100]), Some(0.2));
    assert_eq!(super::point::spread(&[1000, 0, 0, 0]), Some(4.0));
    assert_eq!(super::point::spread(&[7, 7, 7, 7]), None, "too few");
}

//! Which device a path lies on, and what is kept of a device.

use super::*;

const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /tmp rw,nosuid - tmpfs tmpfs rw
24 22 254:16 / /srv/two\\040words rw - xfs /dev/mapper/vg-data rw
25 22 254:32 / /srv/two\\040words rw master:1 - xfs /dev/vdc rw
";

#[test]
fn the_deepest_and_last_mount_is_the_one() {
    let at = |path: &str| DeviceId::in_table(TABLE, Path::new(path)).unwrap();
    assert_eq!(at("/home/x").source, "/dev/vda1");
    assert_eq!(at("/tmp/y").file_name(), "tmpfs%3a%2ftmp.json");
    assert_eq!(at("/tmpfile").source, "/dev/vda1");
    let data = at("/srv/two words/db");
    assert_eq!(
        (data.source.as_str(), data.file_system.as_str()),
        ("/dev/vdc", "xfs")
    );
    assert_eq!(data.file_name(), "dev%2fvdc.json");
}

fn point(pattern: Pattern, block_bytes: u64, depth: usize, rate: f64) -> Point {
    Point {
        pattern,
        operation: Operation::Read,
        direct: true,
        block_bytes,
        depth,
        bytes_per_second: rate,
        operations_per_second: rate / block_bytes as f64,
        latency_micros_p50: 100.0,
        latency_micros_p99: 200.0,
        spread: None,
    }
}

fn profile(path: &Path) -> Profile {
    let device = DeviceId::of_path(path).unwrap();
    let mut profile = Profile::new(device, path, "2026-01-01T00:00:00Z".to_owned(), 1 << 30);
    profile.points = vec![
        point(Pattern::Sequential, 8192, 1, 60e6),
        point(Pattern::Sequential, 1 << 20, 4, 900e6),
        point(Pattern::Sequential, 4 << 20, 4, 1000e6),
        point(Pattern::Random, 8192, 64, 400e6),
    ];
    profile
}

#[test]
fn a_profile_is_found_by_any_path_on_its_device() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    assert_eq!(Profile::for_path(&state, place.path()).unwrap(), None);
    let kept = profile(place.path());
    kept.save(&state).unwrap();
    let below = place.path().join("below");
    fs::create_dir(&below).unwrap();
    assert_eq!(Profile::for_path(&state, &below).unwrap(), Some(kept));
    assert!(Profile::for_path(&state, &place.path().join("nowhere")).is_err());
}

#[test]
fn a_bucket_has_a_rate_for_each_stripe_and_one_for_all() {
    let place = tempfile::tempdir().unwrap();
    let mut kept = profile(place.path());
    kept.device = DeviceId::of_bucket("s3://shop");
    kept.save(place.path()).unwrap();
    let of = |name: &str| Profile::for_device(place.path(), &DeviceId::of_bucket(name));
    assert_eq!(of("gs://shop").unwrap(), None);
    let found = of("s3://shop").unwrap().unwrap();
    assert_eq!(found, kept);
    let model = found.model(Operation::Read);
    assert_eq!(model.stream.bytes_per_second, Some(900e6));
    assert_eq!(model.whole.bytes_per_second, Some(1000e6));
    assert_eq!(model.attachment, Attachment::Network);
}

#[test]
fn a_probe_that_was_disturbed_is_worse_and_one_within_a_tenth_is_not() {
    let place = tempfile::tempdir().unwrap();
    let older = profile(place.path());
    let with = |rate: f64| {
        let mut found = older.clone();
        for point in &mut found.points {
            point.bytes_per_second = point.bytes_per_second.min(rate);
        }
        found
    };
    let worse = with(890e6).worse_than(&older).unwrap();
    assert_eq!(
        (worse.what, worse.found, worse.before),
        ("sequential read", 890e6, 1000e6)
    );
    assert_eq!(with(910e6).worse_than(&older), None);
    assert_eq!(older.worse_than(&with(890e6)), None);
}

#[test]
fn a_profile_of_another_version_is_none_and_a_broken_one_an_error() {
    let place = tempfile::tempdir().unwrap();
    let mut old = profile(place.path());
    old.version = 0;
    let file = old.save(place.path()).unwrap();
    assert_eq!(Profile::for_path(place.path(), place.path()).unwrap(), None);
    durable::write(&file, b"{", 0o600).unwrap();
    let error = Profile::for_path(place.path(), place.path()).unwrap_err();
    assert!(matches!(error, LabError::State { .. }), "{error}");
}

#[test]
fn a_profile_is_a_model() {
    let place = tempfile::tempdir().unwrap();
    let profile = profile(place.path());
    let model = profile.model(Operation::Read);
    assert_eq!(model.whole.bytes_per_second, Some(1000e6));
    assert_eq!(model.whole.operations_per_second, Some(400e6 / 8192.0));
    assert!((model.latency_seconds - 0.0001).abs() < 1e-9);
    assert_eq!(profile.best_at(Operation::Read, 1 << 20), Some(900e6));
    assert_eq!(profile.best(Pattern::Sequential, Operation::Write), None);
}

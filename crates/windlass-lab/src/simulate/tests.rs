//! What the simulation promises: caps hold, buffers and depth have an effect, and jumps change
//! nothing.

use proptest::prelude::*;
use windlass_engine::{BufferRequest, inputs_max, read_depth};

use super::*;

const GIB: u64 = 1 << 30;

fn models(texts: &[&str]) -> Vec<Model> {
    texts
        .iter()
        .map(|text| Model::parse(text).unwrap())
        .collect()
}

/// A backup as the engine would run it. `ratio` is the bytes read for each byte written.
fn backup(bytes: u64, source: &str, targets: &[&str], buffers: Option<usize>, ratio: f64) -> Job {
    let request = BufferRequest {
        buffers,
        compressors: Some(4),
        readers: Some(2),
        ..BufferRequest::default()
    };
    let buffers = request.plan(targets.len(), 1).unwrap();
    let pass_through = ratio <= 1.0;
    let outputs = if pass_through { 0 } else { buffers.compressors };
    let inputs = inputs_max(buffers.buffers, outputs);
    Job {
        read_bytes: bytes,
        gain: 1.0 / ratio,
        outputs,
        pass_through,
        own_files: false,
        cpu_seconds_per_byte: 1e-10,
        cores: 4,
        sources: models(&[source]),
        targets: models(targets),
        unit_bytes: buffers.transfer_bytes as u64,
        split_every: 0,
        read_depth: read_depth(inputs, buffers.readers),
        write_depth: 4,
        instance: None,
        read_rate: None,
        write_rate: None,
        initialise_bytes: 0,
        buffers,
    }
}

fn seconds(job: &Job) -> f64 {
    simulate(job).seconds
}

fn near(found: f64, expected: f64, share: f64) {
    assert!(
        (found / expected - 1.0).abs() < share,
        "{found} instead of {expected}"
    );
}

#[test]
fn the_slowest_part_sets_the_time() {
    let bytes = 20 * GIB;
    let size = bytes as f64;
    let by_source = backup(bytes, "rate:100MB/s", &["rate:400MB/s"], None, 1.0);
    near(seconds(&by_source), size / 100e6, 0.001);
    let by_target = backup(bytes, "rate:900MB/s", &["rate:50MB/s"], None, 1.0);
    near(seconds(&by_target), size / 50e6, 0.001);
    // Compressed to a quarter, four times as much of the database reaches the target a second.
    let compressed = backup(bytes, "rate:900MB/s", &["rate:50MB/s"], None, 4.0);
    near(seconds(&compressed), size / 200e6, 0.002);
    let mut by_cores = backup(bytes, "nul", &["nul"], None, 4.0);
    by_cores.cpu_seconds_per_byte = 1.0 / 100e6;
    by_cores.cores = 2;
    near(seconds(&by_cores), size / 200e6, 0.002);
    let mut by_rule = backup(bytes, "nul", &["nul"], None, 1.0);
    by_rule.read_rate = Some(30e6);
    near(seconds(&by_rule), size / 30e6, 0.001);
}

#[test]
fn whoever_is_free_takes_the_next_chunk() {
    let job = backup(
        20 * GIB,
        "nul",
        &["rate:100MB/s", "rate:20MB/s"],
        Some(20),
        1.0,
    );
    near(seconds(&job), 20.0 * GIB as f64 / 120e6, 0.005);
}

#[test]
fn few_buffers_show_where_latency_is_deep() {
    let time = |buffers| {
        seconds(&backup(
            GIB,
            "rate:1GB/s,latency=10ms",
            &["rate:1GB/s,latency=10ms"],
            buffers,
            1.0,
        ))
    };
    let (two, default, many) = (time(Some(2)), time(None), time(Some(64)));
    // Two megabytes in flight: each takes 10 ms in, 10 ms out, and the time of its transfers.
    near(two, 1024.0 * 0.0221 / 2.0, 0.05);
    // With enough buffers, the four writes in flight are the only limit left.
    near(many, 1024.0 * 0.01105 / 4.0, 0.02);
    assert!(
        two > 2.0 * default && default > 1.1 * many,
        "{two} {default} {many}"
    );
}

#[test]
fn who_waits_for_a_read_does_not_look_for_buffers() {
    // There are four buffers. A reader that found only one buffer starts its second read when the
    // first is done. So far more than a quarter of the reads, 40 ms each, come one after the other.
    let job = backup(
        96 << 20,
        "rate:1GB/s,latency=40ms",
        &["rate:1GB/s"],
        Some(4),
        1.0,
    );
    let time = seconds(&job);
    assert!((1.3..2.0).contains(&time), "{time}");
}

#[test]
fn a_buffer_of_two_runs_waits_twice_for_a_deep_target() {
    let target = ["rate:1GB/s,latency=20ms"; 4];
    let mut job = backup(GIB, "rate:1GB/s", &target, Some(24), 1.0);
    job.write_depth = 1;
    let whole = seconds(&job);
    job.split_every = 2;
    near(seconds(&job), 1.5 * whole, 0.05);
}

#[test]
fn streams_to_an_object_store_add_up_until_the_source_binds() {
    let time = |files: usize| {
        let mut job = backup(GIB * 100, "gp2:1.5TB", &vec!["s3"; files], None, 1.0);
        job.targets.truncate(1);
        100.0 * GIB as f64 / seconds(&job)
    };
    near(time(1), 90e6, 0.01);
    near(time(2), 180e6, 0.01);
    near(time(4), 262.144e6, 0.01);
    near(time(8), 262.144e6, 0.01);
}

#[test]
fn what_the_backup_has_not_is_written_first() {
    let mut job = backup(10 * GIB, "rate:100MB/s", &["rate:200MB/s"], None, 1.0);
    job.initialise_bytes = 4 * GIB;
    near(
        seconds(&job),
        10.0 * GIB as f64 / 100e6 + 4.0 * GIB as f64 / 200e6,
        0.001,
    );
    assert!((simulate(&job).written_bytes - 14.0 * GIB as f64).abs() < 1.0);
}

#[test]
fn a_machines_cap_is_shared_by_source_and_target() {
    let mut job = backup(10 * GIB, "io2:64000", &["io2:64000"], Some(40), 1.0);
    job.instance = Instance::named("r5.8xlarge");
    near(seconds(&job), 20.0 * GIB as f64 / 850e6, 0.01);
    job.targets = models(&["s3"]);
    job.targets[0].stream.bytes_per_second = None;
    near(seconds(&job), 10.0 * GIB as f64 / 850e6, 0.01);
}

#[test]
fn a_jump_is_as_long_as_the_way() {
    for (source, target, ratio) in [
        ("gp2:1.5TB", "s3", 2.0),
        ("rate:300MB/s,latency=4ms", "hdd", 3.0),
        ("gp2:100GiB,credits=60000", "rate:500MB/s", 1.0),
        ("st1:1TiB,credits=20000", "s3:2x90MB/s", 2.0),
    ] {
        let job = backup(64 * GIB, source, &[target, target], None, ratio);
        let jumped = simulate(&job);
        let mut walked = Simulation::new(&job);
        walked.start(&job);
        while walked.step(&job) {}
        let walked = walked.outcome();
        near(jumped.seconds, walked.seconds, 0.002);
        near(jumped.written_bytes, walked.written_bytes, 0.002);
        near(
            jumped.sources[0].whole.seconds(),
            walked.sources[0].whole.seconds(),
            0.01,
        );
    }
}

#[test]
fn nothing_to_read_takes_no_time() {
    assert_eq!(seconds(&backup(0, "hdd", &["hdd"], None, 2.0)), 0.0);
}

fn storage() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "gp2:1.5TB",
        "gp2:200GiB,credits=900",
        "io1:9000",
        "s3",
        "rate:300MB/s,latency=3ms",
        "rate:80MB/s",
        "nul",
        "io2:20000",
        "rate:1GB/s,latency=20ms",
        "st1:1TiB,credits=300",
    ])
}

/// Bytes per second that one cap alone would allow.
fn least(model: &Model, streams: usize) -> f64 {
    let operations = model.whole.operations_per_second.map(|rate| {
        model
            .whole
            .burst
            .map_or(rate, |burst| burst.operations_per_second)
            * model.io_bytes as f64
    });
    let stream = model
        .stream
        .bytes_per_second
        .map(|rate| rate * streams as f64);
    let caps = [model.whole.bytes_per_second, operations, stream];
    caps.into_iter().flatten().fold(f64::INFINITY, f64::min)
}

proptest! {
    #[test]
    fn no_run_is_faster_than_a_cap_nor_slower_than_one_thing_at_a_time(
        source in storage(),
        target in storage(),
        files in 1usize..6,
        buffers in 10usize..40,
        ratio in prop::sample::select(vec![1.0, 2.0, 5.0]),
        mebibytes in 1u64..3000,
    ) {
        let targets = vec![target; files];
        let mut job = backup(mebibytes << 20, source, &targets, Some(buffers), ratio);
        job.targets.truncate(1);
        let outcome = simulate(&job);
        let bytes = job.read_bytes as f64;
        let by_source = bytes / least(&job.sources[0], 2);
        let by_target = outcome.written_bytes / least(&job.targets[0], files);
        let by_cores = bytes * job.cpu_seconds_per_byte / 4.0;
        let tolerance = 1.0 + 1e-9;
        prop_assert!(outcome.seconds * tolerance >= by_source);
        prop_assert!(outcome.seconds * tolerance >= by_target);
        prop_assert!(outcome.seconds * tolerance >= by_cores);
        // The slowest case: one transfer after the other, with no credit and every latency.
        let units = (mebibytes + 1) as f64;
        let slow = |model: &Model, bytes: f64| {
            bytes / model.sustained(1) + 2.0 * units * model.latency_seconds
        };
        let serial = slow(&job.sources[0], bytes) + slow(&job.targets[0], outcome.written_bytes)
            + bytes * job.cpu_seconds_per_byte;
        prop_assert!(outcome.seconds <= serial * 1.01 + 0.1, "{} > {serial}", outcome.seconds);
        prop_assert!((outcome.read_bytes - bytes).abs() < 1.0);
        prop_assert!((outcome.written_bytes * ratio / bytes - 1.0).abs() < 0.001);
    }

    #[test]
    fn more_buffers_are_never_slower(
        source in storage(),
        target in storage(),
        files in 1usize..4,
        buffers in 10usize..40,
        more in 1usize..40,
        ratio in prop::sample::select(vec![1.0, 3.0]),
    ) {
        let targets = vec![target; files];
        let few = backup(GIB, source, &targets, Some(buffers), ratio);
        let many = backup(GIB, source, &targets, Some(buffers + more), ratio);
        let (few, many) = (seconds(&few), seconds(&many));
        // The last few transfers may end in another order, which costs a little.
        prop_assert!(many <= few * 1.01 + 0.05, "{few} with fewer, {many} with more");
    }

    #[test]
    fn faster_storage_is_never_slower(
        rate in 20u32..500,
        gain in 1u32..500,
        target in storage(),
        ratio in prop::sample::select(vec![1.0, 3.0]),
    ) {
        let time = |rate: u32| {
            let source = format!("rate:{rate}MB/s,latency=1ms");
            seconds(&backup(GIB, &source, &[target], None, ratio))
        };
        prop_assert!(time(rate + gain) <= time(rate) * 1.01 + 0.05);
    }
}

//! What a model's clock promises: caps hold, credit is spent and earned, seeks cost, nothing
//! goes back.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn clock(text: &str) -> ModelClock {
    ModelClock::new(&Model::parse(text).unwrap())
}

fn io(stream: usize, offset: u64, bytes: u64) -> ModelIo {
    ModelIo {
        stream,
        file: stream,
        offset,
        bytes,
    }
}

/// Seconds for `count` sequential I/Os of `bytes` bytes, with `depth` of them in flight.
fn run(clock: &mut ModelClock, count: u64, bytes: u64, depth: usize) -> f64 {
    let mut flying = VecDeque::new();
    let mut now = 0;
    for index in 0..count {
        if flying.len() == depth {
            now = flying.pop_front().unwrap_or(0).max(now);
        }
        flying.push_back(clock.done_at(&io(0, index * bytes, bytes), now, None));
    }
    to_f64(flying.into_iter().max().unwrap_or(0)) / SECOND
}

#[test]
fn large_reads_get_the_volume_and_small_ones_are_merged() {
    // The time is that of 1 GiB at 250 MiB/s, plus one latency.
    let seconds = run(&mut clock("gp2:1.5TB"), 1024, MIB, 8);
    assert!((seconds - 4.097).abs() < 0.001, "{seconds}");
    // With I/Os of 8 KiB, 32 of them are one operation.
    let seconds = run(&mut clock("gp2:1.5TB"), 131_072, 8192, 64);
    assert!((seconds - 4.097).abs() < 0.001, "{seconds}");
}

#[test]
fn random_small_reads_count_one_by_one() {
    let mut clock = clock("io1:9000");
    let mut end = 0;
    for index in 0..9000u64 {
        let place = io(0, (index * 7919 % 10_000) * MIB, 8192);
        end = end.max(clock.done_at(&place, 0, None));
    }
    assert!((to_f64(end) / SECOND - 1.001).abs() < 0.002, "{end}");
    assert_eq!(clock.usages().whole.mostly(), "operations per second");
}

#[test]
fn depth_hides_latency_up_to_the_cap() {
    let deep = |depth| run(&mut clock("rate:1GB/s,latency=9ms"), 1000, 1_000_000, depth);
    // One I/O at a time takes a millisecond of transfer and nine of latency.
    assert!((deep(1) - 10.0).abs() < 0.001);
    assert!((deep(5) - 2.0).abs() < 0.02);
    assert!((deep(10) - 1.009).abs() < 0.01);
    assert!((deep(64) - 1.009).abs() < 0.001);
}

#[test]
fn streams_have_a_cap_each_and_one_together() {
    let mut clock = clock("s3:4x90MB/s");
    let of = |clock: &mut ModelClock, streams: usize| {
        let ios = (0..900).map(|index| io(index % streams, 0, 1_000_000));
        ios.map(|io| clock.done_at(&io, 0, None)).max()
    };
    assert_eq!(of(&mut clock, 1), Some(10_000_000_800));
    let mut fresh = ModelClock::new(clock.model());
    let four = to_f64(of(&mut fresh, 4).unwrap()) / SECOND;
    assert!((four - 2.5).abs() < 0.01);
    let mut fresh = ModelClock::new(clock.model());
    let eight = to_f64(of(&mut fresh, 8).unwrap()) / SECOND;
    assert!(
        (eight - 2.5).abs() < 0.01,
        "eight streams share what four have"
    );
}

#[test]
fn credit_is_spent_then_only_what_is_earned_is_left() {
    // The volume has 300 operations a second, and 3,000 with credit. 27,000 credits last for ten
    // seconds.
    let mut clock = clock("gp2:100GiB,credits=27000");
    let count = 35_000u64;
    let mut end = 0;
    for index in 0..count {
        end = clock.done_at(&io(0, (index * 7919 % count) * MIB, 4096), 0, None);
    }
    // That is 10 s with 30,000 operations, then 5,000 more at 300 a second.
    let seconds = to_f64(end) / SECOND;
    assert!((seconds - 26.67).abs() < 0.05, "{seconds}");
    assert_eq!(
        clock.usages().whole.mostly(),
        "operations per second, burst credit spent"
    );
    // A pause earns credit again. It is enough for a second at full speed.
    let later = end + 1_000_000_000;
    let mut last = 0;
    for index in 0..300u64 {
        last = clock.done_at(&io(0, index * 2 * MIB, 4096), later, None);
    }
    assert!(last - later < 110_000_000, "{}", last - later);
}

#[test]
fn a_disk_seeks_between_streams() {
    let sequential = run(&mut clock("hdd"), 200, MIB, 4);
    let mut disk = clock("hdd");
    let mut end = 0;
    for index in 0..100u64 {
        for stream in 0..2 {
            end = disk.done_at(&io(stream, index * MIB, MIB), 0, None);
        }
    }
    let seeks = to_f64(end) / SECOND - sequential;
    assert!((seeks - 199.0 * 0.01216).abs() < 0.001, "{seeks}");
}

#[test]
fn a_machine_caps_what_is_attached_to_it() {
    let instance = Instance {
        storage_bytes_per_second: 100e6,
        ..Instance::named("r5.8xlarge").unwrap()
    };
    let mut shared = InstanceClock::new(&instance);
    let (mut one, mut other) = (clock("gp2:1.5TB"), clock("io1:9000"));
    let mut end = 0;
    for index in 0..100u64 {
        let io = io(0, index * 1_000_000, 1_000_000);
        end = one.done_at(&io, 0, Some(&mut shared)).max(end);
        end = other.done_at(&io, 0, Some(&mut shared)).max(end);
    }
    assert!((to_f64(end) / SECOND - 2.001).abs() < 0.001);
    assert!(shared.usages().0.seconds() > 1.999);
    // A local disk does not count against a cap of the machine.
    let mut disk = clock("hdd");
    assert!(disk.done_at(&io(0, 0, 1000), 0, Some(&mut shared)) < 20_000_000);
}

#[test]
fn repeating_a_stretch_is_going_through_it_again() {
    let text = "gp2:1TB,credits=2000000";
    let drive = |clock: &mut ModelClock, from: u64, to: u64| {
        (from..to)
            .map(|index| clock.done_at(&io(0, index * MIB, MIB), 0, None))
            .max()
            .unwrap()
    };
    let mut walked = clock(text);
    let end = drive(&mut walked, 0, 50_000);
    let mut jumped = clock(text);
    let first = drive(&mut jumped, 0, 1000);
    let then = jumped.clone();
    let second = drive(&mut jumped, 1000, 2000);
    assert!(jumped.repeats(&then) > 48);
    jumped.repeat(&then, 47, second - first);
    let last = drive(&mut jumped, 49_000, 50_000);
    assert!(last.abs_diff(end) < 1_000_000, "{last} {end}");
    let difference = jumped.usages().whole.seconds() - walked.usages().whole.seconds();
    assert!(difference.abs() < 0.001);
}

fn models() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "gp2:1.5TB",
        "gp2:200GiB,credits=500",
        "gp3:1TB",
        "io1:9000",
        "io2:64000",
        "st1:1TiB,credits=300",
        "s3:4x90MB/s",
        "s3",
        "hdd",
        "rate:100MB/s,latency=3ms,stream=40MB/s",
    ])
}

proptest! {
    #[test]
    fn no_rate_is_ever_above_a_cap(
        text in models(),
        ios in prop::collection::vec((0usize..4, 0u64..50, 512u64..4_000_000), 1..200),
    ) {
        let mut clock = clock(text);
        let model = clock.model().clone();
        let mut streams = [(0u64, 0u64); 4];
        let (mut end, mut bytes) = (0, 0);
        for (stream, place, size) in ios {
            let done = clock.done_at(&io(stream, place * MIB, size), 0, None);
            prop_assert!(done >= streams[stream].1, "a stream's clock went back");
            streams[stream] = (streams[stream].0 + size, done);
            bytes += size;
            end = end.max(done);
        }
        let most = |rate: Option<f64>, end: u64| {
            rate.map_or(f64::INFINITY, |rate| rate * to_f64(end) / SECOND * (1.0 + 1e-9))
        };
        prop_assert!(to_f64(bytes) <= most(model.whole.bytes_per_second, end));
        for (bytes, end) in streams {
            prop_assert!(to_f64(bytes) <= most(model.stream.bytes_per_second, end));
        }
    }

    #[test]
    fn operations_never_exceed_rate_and_credit(
        text in models(),
        places in prop::collection::vec(0u64..10_000, 1..500),
    ) {
        let mut clock = clock(text);
        let Some(rate) = clock.model().whole.operations_per_second else { return Ok(()) };
        let credit = clock.model().whole.burst.map_or(0.0, |burst| burst.credits);
        let (mut end, mut count) = (0, 0.0);
        for place in places {
            // No I/O begins where another one ended, so each is an operation of its own.
            end = clock.done_at(&io(0, place * 2 * MIB, 4096), 0, None);
            count += 1.0;
        }
        prop_assert!(count <= rate * to_f64(end) / SECOND * (1.0 + 1e-9) + credit);
    }

    #[test]
    fn later_is_never_done_earlier(
        text in models(),
        steps in prop::collection::vec((0u64..5_000_000, 512u64..2_000_000), 2..100),
    ) {
        let mut clock = clock(text);
        let (mut now, mut last) = (0, 0);
        for (step, bytes) in steps {
            now += step;
            let done = clock.done_at(&io(0, 0, bytes), now, None);
            prop_assert!(done >= last && done >= now);
            last = done;
        }
    }
}

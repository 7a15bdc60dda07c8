//! What a plan says: the name of the limit, restores that follow the files' sizes, and the cheapest
//! alternative within the window.

use super::*;

fn question(direction: Direction, source: &str, target: &str) -> Question {
    Question {
        direction,
        used_bytes: 100_000_000_000,
        file_bytes: 120_000_000_000,
        sources: vec![Model::parse(source).unwrap()],
        targets: vec![Model::parse(target).unwrap()],
        instance: None,
        cores: 8,
        request: BufferRequest::default(),
        write_depth: 4,
        read_rate: None,
        write_rate: None,
        speeds: Speeds::default(),
    }
}

fn alternative(files: usize, codec: Codec, ratio: f64) -> Alternative {
    Alternative {
        files,
        codec,
        ratio,
    }
}

fn predict(question: &Question, files: usize, codec: Codec, ratio: f64) -> Prediction {
    question.predict(&alternative(files, codec, ratio)).unwrap()
}

#[test]
fn the_limit_has_a_name() {
    let backup = |source: &str, target: &str| question(Direction::Backup, source, target);
    let limit = |question: &Question, files, codec, ratio| {
        let found = predict(question, files, codec, ratio).limit;
        (found.stage.name(), found.what)
    };
    let to_s3 = backup("gp2:1.5TB", "s3");
    let stage = |stage, what: &str| (stage, what.to_owned());
    assert_eq!(
        limit(&to_s3, 1, Codec::None, 1.0),
        stage("device", "bytes per second of each stream")
    );
    assert_eq!(
        limit(&to_s3, 8, Codec::None, 1.0),
        stage("source", "bytes per second")
    );
    let spent = backup("gp2:100GiB,credits=0", "nul");
    assert_eq!(limit(&spent, 1, Codec::None, 1.0).0, "source");
    let mut few_cores = backup("io2:64000", "nul");
    few_cores.cores = 1;
    assert_eq!(
        limit(&few_cores, 4, Codec::Zstd(1), 3.0),
        stage("compressor", "1 core")
    );
    let mut machine = backup("io2:64000", "io2:64000");
    machine.instance = Instance::named("r5.8xlarge");
    assert_eq!(
        limit(&machine, 8, Codec::None, 1.0),
        stage("instance", "bandwidth to block storage")
    );
    let mut ruled = backup("nul", "nul");
    ruled.read_rate = Some(1e7);
    assert_eq!(
        limit(&ruled, 1, Codec::None, 1.0),
        stage("rate_limit", "bytes per second from the source")
    );
}

#[test]
fn waiting_has_a_name_too() {
    let mut deep = question(Direction::Backup, "rate:2GB/s,latency=30ms", "rate:2GB/s");
    deep.request.buffers = Some(4);
    let found = predict(&deep, 1, Codec::None, 1.0);
    assert_eq!(found.limit.stage.name(), "buffers");
    assert_eq!(found.limit.rate, None);
    // Four writes are in flight, whatever the number of buffers. So the device's latency binds.
    let slow = question(Direction::Backup, "rate:2GB/s", "rate:2GB/s,latency=50ms");
    let found = predict(&slow, 1, Codec::None, 1.0).limit;
    assert_eq!(
        (found.stage.name(), found.what.as_str()),
        ("device", "latency")
    );
}

#[test]
fn a_restore_follows_the_sizes_of_the_files() {
    let restore = question(Direction::Restore, "rate:500MB/s", "rate:200MB/s");
    let found = predict(&restore, 2, Codec::Zstd(1), 4.0);
    assert!(
        (found.seconds / 600.0 - 1.0).abs() < 0.01,
        "{}",
        found.seconds
    );
    assert_eq!(found.limit.stage.name(), "target");
    let backup = question(Direction::Backup, "rate:200MB/s", "rate:500MB/s");
    let found = predict(&backup, 2, Codec::Zstd(1), 4.0);
    assert!(
        (found.seconds / 500.0 - 1.0).abs() < 0.01,
        "{}",
        found.seconds
    );
    assert_eq!(found.limit.stage.name(), "source");
    assert_eq!(found.stored_bytes, 25e9);
}

#[test]
fn a_chain_is_backed_up_set_by_set_and_restored_in_one_pass() {
    let link = |kind, bytes, count| Link { kind, bytes, count };
    let links = [
        link(LinkKind::Diff, 10_000_000_000, 6),
        link(LinkKind::Log, 1_000_000_000, 24),
    ];
    let chain = |question: &Question| {
        let alternative = alternative(1, Codec::None, 1.0);
        let full = question.predict(&alternative).unwrap();
        let chain = question.predict_chain(&alternative, &full, &links);
        (full.seconds, chain.unwrap())
    };
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 0.01, "{found}, {expected}");
    };
    let (full, backups) = chain(&question(Direction::Backup, "nul", "rate:100MB/s"));
    near(full, 1000.0);
    near(backups.seconds, 1000.0 + 6.0 * 100.0 + 24.0 * 10.0);
    near(backups.stored_bytes, 184e9);
    let mut restore = question(Direction::Restore, "rate:100MB/s", "nul");
    restore.file_bytes = restore.used_bytes;
    let (full, restored) = chain(&restore);
    // A restore reads each page once, from the newest set that has it, and the logs in addition.
    near(full, 1000.0);
    near(restored.seconds, 1000.0 + 240.0);
    assert_eq!(restored.sets[0].limit, None);
}

#[test]
fn an_object_store_is_never_the_databases_end() {
    let mut wrong = question(Direction::Restore, "gp2:1.5TB", "s3");
    assert!(wrong.orient());
    assert_eq!(
        (
            wrong.sources[0].name.as_str(),
            wrong.targets[0].name.as_str()
        ),
        ("s3", "gp2:1.5TB")
    );
    assert!(!wrong.orient());
    assert!(!question(Direction::Backup, "gp2:1.5TB", "s3").orient());
    assert!(question(Direction::Backup, "s3", "hdd").orient());
}

#[test]
fn the_cheapest_within_the_window_is_chosen() {
    let to_s3 = question(Direction::Backup, "gp2:1.5TB", "s3:90MB/s");
    let mut predictions = Vec::new();
    for files in [1, 4, 8] {
        predictions.push(predict(&to_s3, files, Codec::None, 1.0));
        predictions.push(predict(&to_s3, files, Codec::Zstd(1), 2.0));
    }
    // 100 GB take 1111 s in one stream, 556 s compressed in one, 381 s where the volume binds.
    let chosen = |seconds| {
        let choice = choose(&predictions, seconds).unwrap();
        (predictions[choice.index].files, choice.meets)
    };
    assert_eq!(chosen(Some(600.0)), (1, true));
    assert_eq!(chosen(Some(500.0)), (4, true));
    assert!(!chosen(Some(100.0)).1);
    assert_eq!(chosen(None), (1, true));
    let index = choose(&predictions, Some(600.0)).unwrap().index;
    assert_eq!(
        predictions[index].compress, "zstd:1",
        "fewer bytes are kept"
    );
    assert_eq!(choose(&[], None), None);
}

#[test]
fn nothing_to_plan_for_is_refused() {
    let mut empty = question(Direction::Backup, "hdd", "nul");
    empty.used_bytes = 0;
    let error = empty
        .predict(&alternative(1, Codec::None, 1.0))
        .unwrap_err();
    assert!(error.to_string().contains("nothing to plan for"));
}

#[test]
fn sureness_rests_on_runs_once_there_are_some() {
    let known = crate::accuracy::Accuracy {
        direction: Direction::Backup,
        runs: 9,
        error_median: 0.02,
        error_p90: 0.04,
        error_worst: 0.2,
        bias: 0.0,
        limit_right: 1.0,
    };
    assert_eq!(sureness(Direction::Backup, Some(&known), false).share, 0.04);
    let few = crate::accuracy::Accuracy { runs: 2, ..known };
    assert!(sureness(Direction::Backup, Some(&few), false).share > 0.04);
    let restore = sureness(Direction::Restore, None, false).share;
    assert!(restore > sureness(Direction::Backup, None, false).share);
}

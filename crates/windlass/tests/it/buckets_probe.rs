//! What a bucket can do: measured, planned with, and nothing of it left behind.

use std::fs::File;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place};
use crate::run::text;

/// With parts of 5 MiB these are seven: 1, 2 and 4 in flight. Seven ranges of 4 MiB likewise, and
/// 8 small ones for each of 1, 8 and 32 in flight. 40 other requests at most come on top.
const SCRATCH: &str = "36MiB";
const REQUESTS_MAX: u64 = 7 + 7 + 8 * (1 + 8 + 32) + 40;

/// The words that measure a place and keep nothing.
fn probe(place: &str) -> [&str; 8] {
    let [lab, probe, budget, size] = ["lab", "probe", "--budget", "--scratch-bytes"];
    [lab, probe, place, budget, "1s", size, SCRATCH, "--no-keep"]
}

/// Runs a command with a state directory of this shop.
fn run(shop: &Shop, words: &[&str]) -> Output {
    let mut command = shop.command(words);
    command.env("WINDLASS_STATE_DIR", shop.path("state"));
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_bucket_is_measured_and_planned_with_and_nothing_of_it_stays() {
    let shop = Shop::new();
    let (database, night) = (shop.database(300), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let before = shop.server.keys();
    let plan = |target: &str| {
        let words = ["plan", "--used-bytes", "1TB", "--source", "nul", "--json"];
        run(&shop, &[&words[..], &["--target", target]].concat())
    };
    let output = plan(&night);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("has not been probed"), "{said}");
    shop.proxy.reset();
    let kept: Vec<_> = probe(&night)
        .into_iter()
        .filter(|word| *word != "--no-keep")
        .chain(["--json"])
        .collect();
    let found = json(&run(&shop, &kept));
    // Each request was counted, and no byte that was sent is missing.
    let seen = shop.proxy.seen();
    let spent = |name: &str| found["spent"][name].as_u64().unwrap();
    assert_eq!(spent("requests"), seen.len() as u64);
    let sent: u64 = seen.iter().map(|one| one.sent).sum();
    assert_eq!(spent("sent_bytes"), sent);
    assert!(spent("requests") <= REQUESTS_MAX, "{}", found["spent"]);
    assert!((35 << 20..36 << 20).contains(&sent), "{sent}");
    assert_eq!(found["kept"].as_array().unwrap().len(), 2);
    let points = found["io"]["points"].as_array().unwrap();
    let point = |point: &Value| {
        let of = |name: &str| point[name].as_u64().unwrap();
        let rate = point["bytes_per_second"].as_f64().unwrap();
        assert!(rate > 0.0, "{point}");
        let operation = point["operation"].as_str().unwrap().to_owned();
        (operation, of("block_bytes") >> 10, of("depth"))
    };
    let points: Vec<_> = points.iter().map(point).collect();
    let measured: [(&str, u64, u64); 9] = [
        ("write", 5120, 1),
        ("write", 5120, 2),
        ("write", 5120, 4),
        ("read", 4096, 1),
        ("read", 4096, 2),
        ("read", 4096, 4),
        ("read", 128, 1),
        ("read", 128, 8),
        ("read", 128, 32),
    ];
    let measured = measured.map(|(operation, kib, depth)| (operation.to_owned(), kib, depth));
    assert_eq!(points, measured);
    assert_eq!(shop.server.keys(), before);
    assert_eq!(shop.server.uploads(), 0);
    // What was found is that of the bucket, whatever the prefix.
    let planned = json(&plan(&place("elsewhere")));
    assert_eq!(planned["target"][0], "profile of s3://shop");
    shop.restores(&night, &database);
}

#[test]
fn what_a_measurement_may_cost_is_said_before_it() {
    let shop = Shop::new();
    let said = shop.done(&probe(&place("night")));
    let bound = format!("at most {REQUESTS_MAX} requests");
    assert!(said.contains(&bound), "{said}");
    assert!(said.contains("spent  "), "{said}");
    // Less than the parts that one stripe has in flight, and nothing is asked of the server.
    shop.proxy.reset();
    let mut words = probe("s3://shop/night");
    words[6] = "34MiB";
    let said = shop.ends(&words, 2);
    assert!(said.contains("35 MiB"), "{said}");
    assert!(shop.proxy.seen().is_empty());
    assert!(shop.server.keys().is_empty());
}

#[test]
fn no_more_is_in_flight_than_a_stripe_has_when_the_time_is_over() {
    let shop = Shop::new();
    let night = place("night");
    // There is room for eight in flight, but no time for any.
    let mut words = probe(&night).to_vec();
    (words[4], words[6]) = ("1ms", "80MiB");
    words.push("--json");
    let found = json(&run(&shop, &words));
    let points = found["io"]["points"].as_array().unwrap();
    let depths = |operation: &str, pattern: &str| -> Vec<u64> {
        let of = |point: &&Value| point["operation"] == operation && point["pattern"] == pattern;
        let points = points.iter().filter(of);
        points
            .map(|point| point["depth"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(depths("write", "sequential"), [1, 2, 4]);
    assert_eq!(depths("read", "sequential"), [1, 2, 4]);
    assert_eq!(depths("read", "random"), [1, 8, 32]);
    assert!(found["spent"]["sent_bytes"].as_u64().unwrap() < 36 << 20);
    assert_eq!(shop.server.keys(), [""; 0]);
}

#[test]
fn a_measurement_that_fails_leaves_nothing() {
    let shop = Shop::new();
    let night = place("night");
    // The objects that are created are read twice each, before the first range is.
    for (asked, skip) in [
        (Asked::Marker, 1),
        (Asked::Begin, 0),
        (Asked::Part, 4),
        (Asked::Complete, 0),
        (Asked::Get, 8),
    ] {
        let evil = Evil::Answer(403, "AccessDenied");
        shop.proxy.rule(asked, (skip, 1), evil);
        let output = shop.run(&probe(&night));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{asked:?}: {said}");
        assert!(said.contains("AccessDenied"), "{asked:?}: {said}");
        assert_eq!(shop.proxy.reset(), 0, "{asked:?}");
        assert_eq!(shop.server.keys(), [""; 0], "{asked:?}");
        assert_eq!(shop.server.uploads(), 0, "{asked:?}");
    }
}

#[test]
fn an_interrupted_measurement_leaves_nothing_and_a_killed_one_goes_with_the_next_backup() {
    let shop = Shop::new();
    let night = place("night");
    shop.proxy.rule(Asked::Part, (1, 1), Evil::Hold);
    let mut run = shop.spawn(&probe(&night));
    assert!(shop.proxy.holds(&mut run));
    let process = run.id().to_string();
    let killed = Command::new("kill").args(["-INT", &process]).status();
    assert!(killed.unwrap().success());
    assert!(!run.wait().unwrap().success());
    shop.proxy.let_go();
    shop.proxy.reset();
    assert_eq!(shop.server.keys(), [""; 0]);
    assert_eq!(shop.server.uploads(), 0);
    shop.killed_before(Asked::Part, &probe(&night));
    assert_eq!(shop.server.uploads(), 1);
    let database = shop.database(100);
    shop.done(&["backup", &database, "--to", &night]);
    let keys = shop.server.keys();
    assert_eq!((keys.len(), shop.server.uploads()), (3, 0), "{keys:?}");
    shop.restores(&night, &database);
}

/// The object that it tries the server out with has no marker. It may still be at work for a day.
#[test]
fn what_a_killed_measurement_tried_out_goes_with_a_backup_of_the_next_day() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.proxy.rule(Asked::Remove, (0, 1), Evil::KillBefore);
    let mut run = shop.spawn(&probe(&night));
    shop.proxy.victim(run.id());
    assert_eq!(run.wait().unwrap().code(), None);
    shop.proxy.reset();
    let left = || {
        let mut keys = shop.server.keys();
        keys.retain(|key| key.contains("/begun/"));
        keys
    };
    let tried = left();
    assert_eq!(tried.len(), 1, "{tried:?}");
    assert!(tried[0].starts_with("night/begun/probe-"), "{tried:?}");
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(left(), tried);
    let object = shop.server.objects().join(&tried[0]);
    let object = File::options().write(true).open(object).unwrap();
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
    object.set_modified(yesterday).unwrap();
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(left(), [""; 0]);
    shop.restores(&night, &database);
}

#[test]
fn a_bucket_in_which_nothing_can_be_removed_is_not_measured() {
    let shop = Shop::new();
    shop.server.protect_all();
    let said = shop.ends(&probe(&place("night")), 1);
    assert!(said.contains("nothing can be removed there"), "{said}");
    assert!(said.contains("hint: "), "{said}");
    let keys = shop.server.keys();
    assert!(keys.iter().all(|key| key.contains("begun/probe-")));
    assert_eq!(keys.len(), 1);
    assert_eq!(shop.proxy.count(Asked::Begin), 0);
}

#[test]
fn the_name_of_a_stripe_means_the_place_that_it_lies_in() {
    let shop = Shop::new();
    // So what is written first stays, and shows where that was.
    shop.server.protect_all();
    shop.ends(&probe(&place("night/shop.windlass")), 1);
    let keys = shop.server.keys();
    assert_eq!(keys.len(), 1);
    assert!(keys[0].starts_with("night/begun/probe-"), "{keys:?}");
}

#[test]
fn what_a_failed_measurement_cannot_remove_is_said_and_goes_with_the_next_backup() {
    let shop = Shop::new();
    let night = place("night");
    for (asked, skip) in [(Asked::Part, 4), (Asked::Abort, 0)] {
        let evil = Evil::Answer(403, "AccessDenied");
        shop.proxy.rule(asked, (skip, 1), evil);
    }
    let said = shop.ends(&probe(&night), 1);
    assert!(said.contains("upload a part of"), "{said}");
    assert!(said.contains("could not be removed"), "{said}");
    assert!(said.contains("The next backup to this place"), "{said}");
    assert_eq!(shop.proxy.reset(), 0);
    assert_eq!(shop.server.uploads(), 1);
    let database = shop.database(100);
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!((shop.server.keys().len(), shop.server.uploads()), (3, 0));
}

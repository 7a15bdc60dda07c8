//! How others see a run while it works: `windlass status`, metrics over HTTP and in a file.
//!
//! A rate limit slows the runs, so that they would take minutes. The tests interrupt them when they
//! have been seen, so nothing depends on the speed of the machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::*;

/// 28 MiB of rows. The rate limit allows two transfers a second.
const ACCOUNTS: u32 = 40_000;

/// A user that is neither root nor any other user of these tests.
const NOBODY: u32 = 65534;

fn owner(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().uid()
}

/// A slow backup under way.
struct Slow {
    process: Child,
    metrics: String,
}

impl Slow {
    fn start(place: &Place) -> Self {
        Self::start_with(place, &place.arg("windlass.prom"))
    }

    /// `file` is where it writes its metrics.
    fn start_with(place: &Place, file: &str) -> Self {
        let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
        let mut process = command()
            .args(["backup", &database, "--to", &sets, "--max-rate", "128KiB"])
            .args([
                "--transfer-size",
                "64KiB",
                "--metrics",
                "127.0.0.1:0",
                "--metrics-file",
                file,
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.as_mut().unwrap()).lines();
        let found = lines.map(Result::unwrap).find_map(|line| {
            let address = line.strip_prefix("metrics     http://")?;
            Some(address.strip_suffix("/metrics").unwrap().to_owned())
        });
        let metrics = found.expect("the address of the metrics");
        Self { process, metrics }
    }

    /// Asks for the metrics until they contain `words`: a test cannot know how fast the run goes.
    fn metrics_with(&self, words: &str) -> String {
        loop {
            let text = self.ask("/metrics");
            if text.contains(words) {
                return text.split_once("\r\n\r\n").unwrap().1.to_owned();
            }
            std::thread::yield_now();
        }
    }

    fn ask(&self, path: &str) -> String {
        let mut client = TcpStream::connect(&self.metrics).unwrap();
        // In one piece: the server has little patience with a request that is under way.
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Interrupts it and waits for its end.
    fn end(mut self) {
        interrupt(&mut self.process);
    }
}

impl Drop for Slow {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        // The process may have ended, as it should.
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> f64 {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let found = lines
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(name, _)| {
            let (family, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}');
            name.starts_with(&format!("{family}{{")) && name.contains(labels)
        });
    let (_, value) = found.unwrap_or_else(|| panic!("{series} is missing in {metrics}"));
    value.parse().unwrap()
}

/// Asks Prometheus's own tool whether it accepts the metrics.
fn prometheus_accepts(metrics: &str) {
    let program = std::env::var_os("WINDLASS_TEST_PROMTOOL");
    let program = program.unwrap_or_else(|| "promtool".into());
    let mut promtool = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of Debian's package `prometheus`, or WINDLASS_TEST_PROMTOOL");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(metrics.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let clean = output.status.success() && output.stdout.is_empty() && output.stderr.is_empty();
    assert!(clean, "{} of {metrics}", text(&output));
}

#[test]
fn a_run_under_way_is_told_in_the_terms_of_prometheus() {
    let place = Place::with_accounts(ACCOUNTS);
    let slow = Slow::start(&place);
    let waiting = "resource=\"rate_limit\"} 1";
    let metrics = slow.metrics_with(waiting);
    prometheus_accepts(&metrics);
    assert!(
        metrics.contains("operation=\"backup\",subject=\"/"),
        "{metrics}"
    );
    assert_eq!(value(&metrics, "windlass_run_running"), 1.0);
    let done = value(&metrics, "windlass_processed_bytes_total");
    let total = value(&metrics, "windlass_expected_bytes");
    assert!(done > 0.0 && done < total, "{done} of {total}");
    assert!(value(&metrics, "windlass_processed_ratio") < 1.0);
    assert!(value(&metrics, "windlass_remaining_seconds") > 0.0);
    assert!(
        value(
            &metrics,
            "windlass_wait_seconds_total{cause=\"rate_limit\"}"
        ) > 0.0
    );
    assert_eq!(
        value(&metrics, "windlass_buffers{state=\"free\"}").fract(),
        0.0
    );
    assert!(slow.ask("/").contains("see /metrics"));
    assert!(slow.ask("/other").starts_with("HTTP/1.1 404"));
    // A counter never decreases.
    let later = slow.metrics_with(waiting);
    for line in metrics.lines().filter(|line| line.contains("_total{")) {
        let (series, before) = line.rsplit_once(' ').unwrap();
        let now = later
            .lines()
            .find_map(|line| line.strip_prefix(series))
            .unwrap();
        let (now, before): (f64, f64) = (now.trim().parse().unwrap(), before.parse().unwrap());
        assert!(now >= before, "{series}: {before}, then {now}");
    }
    slow.end();
}

/// A process's operation in the output of `windlass status --json`.
fn operation(status: &mut Command, pid: u32) -> Option<Value> {
    let output = status.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = status["operations"].as_array().unwrap();
    let own = all.iter().find(|operation| operation["pid"] == pid);
    own.cloned()
}

#[test]
fn root_sees_what_became_the_databases_owner_and_a_third_user_does_not() {
    let place = Place::with_accounts(ACCOUNTS);
    for path in [".", "sets", "shop.db"] {
        chown(place.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let slow = Slow::start(&place);
    let pid = slow.process.id();
    assert_eq!(owner(&format!("/proc/{pid}")), NOBODY);
    let status = ["status", "--json"];
    while operation(command().args(status), pid).is_none() {
        std::thread::yield_now();
    }
    assert!(operation(command().args(status).uid(NOBODY), pid).is_some());
    assert!(operation(command().args(status).uid(1), pid).is_none());
    slow.end();
}

#[test]
fn status_tells_how_far_a_run_is_and_what_holds_it_back() {
    let place = Place::with_accounts(ACCOUNTS);
    let slow = Slow::start(&place);
    let pid = slow.process.id();
    // The operation's file is written once a second. At first a slow disk may hold the run back.
    let run = loop {
        let own = operation(command().args(["status", "--json"]), pid);
        let is_limited = |own: &Value| own["numbers"]["limit"]["stage"] == "rate_limit";
        if let Some(own) = own.filter(is_limited) {
            break own;
        }
        std::thread::yield_now();
    };
    assert_eq!(
        (&run["kind"], &run["title"]),
        (&"backup".into(), &"shop".into())
    );
    let numbers = &run["numbers"];
    let share = numbers["done_share"].as_f64().unwrap();
    assert!(share > 0.0 && share < 1.0, "{share}");
    assert!(
        numbers["estimated_completion"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    assert_eq!(numbers["stages"].as_array().unwrap().len(), 3);
    let devices = numbers["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    // In the first seconds, everything that a device got also counts for its present rate.
    if numbers["elapsed_seconds"].as_f64().unwrap() < 5.0 {
        for device in devices.iter().filter(|device| device["bytes"] != 0) {
            assert!(device["rate"].as_f64().unwrap() > 0.0, "{device}");
        }
    }
    let shown = text(&windlass(&["status"]));
    for words in [
        "backup        shop",
        "bottleneck",
        "rate limit",
        "estimated completion",
        "%",
    ] {
        assert!(shown.contains(words), "{words} is missing in {shown}");
    }
    slow.end();
    assert!(operation(command().args(["status", "--json"]), pid).is_none());
}

#[test]
fn the_textfile_tells_of_a_run_and_then_of_its_end() {
    let place = Place::with_accounts(ACCOUNTS);
    let file = place.path("windlass.prom");
    let read = || std::fs::read_to_string(&file).unwrap();
    let slow = Slow::start(&place);
    let during = read();
    prometheus_accepts(&during);
    assert_eq!(value(&during, "windlass_run_running"), 1.0);
    slow.end();
    assert_eq!(value(&read(), "windlass_run_success"), 0.0);
    let (database, path) = (place.arg("shop.db"), place.arg("windlass.prom"));
    let sets = place.arg("sets");
    let done = windlass(&["backup", &database, "--to", &sets, "--metrics-file", &path]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    let after = read();
    prometheus_accepts(&after);
    assert_eq!(value(&after, "windlass_run_running"), 0.0);
    assert_eq!(value(&after, "windlass_run_success"), 1.0);
    assert_eq!(value(&after, "windlass_processed_ratio"), 1.0);
    let ended = value(&after, "windlass_run_end_time_seconds");
    assert!(ended >= value(&after, "windlass_run_start_time_seconds"));
    // No other file is left: node_exporter would read it too.
    assert!(!place.path("windlass.prom.new").exists());
}

/// The value of an operation's last success in a textfile.
fn last_success(text: &str, operation: &str) -> Option<f64> {
    let series = format!("windlass_last_success_time_seconds{{operation=\"{operation}\"");
    let line = text.lines().find(|line| line.starts_with(&series))?;
    line.rsplit_once(' ').unwrap().1.parse().ok()
}

#[test]
fn the_time_of_the_last_success_outlives_runs_that_fail_and_runs_that_are_killed() {
    let place = Place::with_accounts(ACCOUNTS);
    let (database, sets, path) = (
        place.arg("shop.db"),
        place.arg("sets"),
        place.arg("windlass.prom"),
    );
    let read = || std::fs::read_to_string(&path).unwrap();
    let back_up = |database: &str, to: &str| {
        windlass(&["backup", database, "--to", to, "--metrics-file", &path])
    };
    // The file already has the metric of another database.
    let other = "# HELP windlass_last_success_time_seconds x\n\
                 windlass_last_success_time_seconds{operation=\"verify\",subject=\"x\"} 12.5\n";
    #[allow(clippy::disallowed_methods, reason = "a fixture")]
    std::fs::write(&path, other).unwrap();
    assert_eq!(back_up(&database, &sets).status.code(), Some(0));
    let first = last_success(&read(), "backup").expect("the time of the success");
    assert_eq!(first, value(&read(), "windlass_run_end_time_seconds"));
    assert_eq!(last_success(&read(), "verify"), Some(12.5));
    prometheus_accepts(&read());
    // One run fails before it begins to read, the other one cannot even find its device.
    for to in [&place.arg("no/such/place"), &database] {
        assert_eq!(back_up(&database, to).status.code(), Some(1));
        assert_eq!(value(&read(), "windlass_run_success"), 0.0);
        assert_eq!(value(&read(), "windlass_run_running"), 0.0);
        assert_eq!(last_success(&read(), "backup"), Some(first));
        prometheus_accepts(&read());
    }
    // This run is killed. Its file says for ever that it runs, with a start that gets old.
    let mut slow = Slow::start(&place);
    slow.metrics_with("windlass_run_running");
    slow.process.kill().unwrap();
    slow.process.wait().unwrap();
    assert_eq!(value(&read(), "windlass_run_running"), 1.0);
    assert_eq!(last_success(&read(), "backup"), Some(first));
    assert!(value(&read(), "windlass_run_start_time_seconds") > first);
    drop(slow);
    assert_eq!(back_up(&database, &sets).status.code(), Some(0));
    assert!(last_success(&read(), "backup").unwrap() > first);
    assert_eq!(last_success(&read(), "verify"), Some(12.5));
}

#[test]
fn a_backup_does_not_fail_for_metrics_that_cannot_be_shown() {
    let place = Place::new();
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let backup = |words: [&str; 2]| {
        let words = [&["backup", &database, "--to", &sets][..], &words].concat();
        let output = windlass(&words);
        (output.status.code(), text(&output))
    };
    // An address that is none is a mistake, whatever machine it is.
    let (code, said) = backup(["--metrics", "nonsense"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("hint: Write ADDRESS:PORT"), "{said}");
    assert!(place.sets().is_empty(), "{:?}", place.sets());
    // A file that cannot be written is one warning.
    let missing = place.arg("missing/windlass.prom");
    let (code, said) = backup(["--metrics-file", &missing]);
    assert_eq!(code, Some(3), "{said}");
    let warning = format!("warning: the metrics of this run are not in {missing}: ");
    assert_eq!(said.matches(&warning).count(), 1, "{said}");
    assert_eq!(place.sets().len(), 1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = backup(["--metrics", &address]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains(&format!("no metrics on {address}: ")),
        "{said}"
    );
    assert_eq!(place.sets().len(), 2);
}

/// The values of a label in a text of metrics.
fn values(metrics: &str, label: &str) -> std::collections::BTreeSet<String> {
    let begin = format!("{label}=\"");
    let found = metrics.split(&begin).skip(1);
    found
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

/// The series of one operation and subject, sorted.
fn of_subject(metrics: &str, operation: &str, subject: &str) -> String {
    let labels = format!("{{operation=\"{operation}\",subject=\"{subject}\"");
    let own = metrics.lines().filter(|line| line.contains(&labels));
    let own: std::collections::BTreeSet<_> = own.map(|line| format!("{line}\n")).collect();
    own.into_iter().collect()
}

#[test]
fn databases_share_a_file_of_metrics_and_a_success_of_one_hides_no_failure_of_another() {
    let (good, bad) = (Place::new(), Place::new());
    let file = good.arg("windlass.prom");
    let night = |place: &Place, to: &str, code: i32| {
        let database = place.arg("shop.db");
        let output = windlass(&["backup", &database, "--to", to, "--metrics-file", &file]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        let text = std::fs::read_to_string(&file).unwrap();
        prometheus_accepts(&text);
        text
    };
    let of = |text: &str, place: &Place| of_subject(text, "backup", &place.arg("shop.db"));
    let first = of(&night(&bad, &bad.arg("sets"), 0), &bad);
    assert_eq!(value(&first, "windlass_run_success"), 1.0);
    // The second night of this database fails, and then the other one succeeds.
    let failed = of(&night(&bad, &bad.arg("no/such/place"), 1), &bad);
    let both = night(&good, &good.arg("sets"), 0);
    assert_eq!(value(&of(&both, &good), "windlass_run_success"), 1.0);
    assert_eq!(of(&both, &bad), failed);
    assert_eq!(value(&failed, "windlass_run_success"), 0.0);
    assert_eq!(
        last_success(&failed, "backup"),
        last_success(&first, "backup")
    );
    // Another night replaces the series and adds none.
    let again = night(&good, &good.arg("sets"), 0);
    assert_eq!(again.lines().count(), both.lines().count(), "{again}");
    // A run under way leaves the other series alone, also those of a run that ends meanwhile.
    let third = Place::with_accounts(ACCOUNTS);
    let slow = Slow::start_with(&third, &file);
    let healed = of(&night(&bad, &bad.arg("sets"), 0), &bad);
    slow.end();
    let after = std::fs::read_to_string(&file).unwrap();
    prometheus_accepts(&after);
    assert_eq!(of(&after, &bad), healed);
    assert_eq!(after.matches("windlass_run_success{").count(), 3, "{after}");
}

#[test]
fn the_verifications_of_two_databases_in_one_place_have_labels_of_their_own() {
    let place = Place::new();
    place.back_up();
    let config = format!(
        "[database.shop]\nsource = {0:?}\nto = {1:?}\n[database.crm]\nsource = {0:?}\nto = {1:?}\n",
        place.arg("shop.db"),
        place.arg("sets")
    );
    #[allow(clippy::disallowed_methods, reason = "a fixture")]
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    let (config, file) = (place.arg("windlass.toml"), place.arg("windlass.prom"));
    let sets = place.arg("sets");
    let cases: [(&[&str], String); 5] = [
        (&["shop"], "shop".to_owned()),
        (&["crm"], "crm".to_owned()),
        (&["crm@latest"], "crm".to_owned()),
        (&[&sets], sets.clone()),
        (
            &[&sets, "--database", "shop.db"],
            format!("shop.db in {sets}"),
        ),
    ];
    for (words, expected) in cases {
        let run = [
            &["verify"],
            words,
            &["--config", &config, "--metrics-file", &file],
        ]
        .concat();
        let verified = windlass(&run);
        assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
        let text = std::fs::read_to_string(&file).unwrap();
        prometheus_accepts(&text);
        let own = of_subject(&text, "verify", &expected);
        assert_eq!(value(&own, "windlass_run_success"), 1.0, "{text}");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(values(&text, "subject").len(), 4, "{text}");
}

#[test]
fn labels_tell_databases_of_one_name_apart_and_stay_the_same_every_night() {
    let (one, other) = (Place::new(), Place::new());
    let file = one.arg("windlass.prom");
    let night = |place: &Place, words: &[&str]| {
        let with_file = [words, &["--metrics-file", &file]].concat();
        let output = windlass(&with_file);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let text = std::fs::read_to_string(&file).unwrap();
        let run = text
            .lines()
            .find(|line| line.starts_with("windlass_run_success"));
        let subject = values(run.unwrap(), "subject");
        let own = of_subject(&text, words[0], subject.first().unwrap());
        assert_eq!(values(&own, "device").len(), 2, "{own}");
        assert!(values(&own, "device").contains(&place.arg("sets")), "{own}");
        (subject, text)
    };
    let back_up = |place: &Place, sets: &str| {
        let database = place.arg("shop.db");
        night(place, &["backup", &database, "--to", sets])
    };
    let (subject, _) = back_up(&one, &one.arg("sets"));
    assert_eq!(subject, [one.arg("shop.db")].into());
    // A stripe with a name of its own has the label of its directory, too.
    let dated = one.arg("sets/2026-11-22.windlass");
    assert_eq!(back_up(&one, &dated).0, subject);
    assert_ne!(back_up(&other, &other.arg("sets")).0, subject);
    let verify = |place: &Place| night(place, &["verify", "--latest", &place.arg("sets")]);
    let (verified, text) = verify(&one);
    assert_eq!(verified, [one.arg("sets")].into());
    assert_eq!(verify(&one).0, verified);
    // Each database has a series of its own, and no night adds one.
    let successes = text
        .lines()
        .filter(|line| line.starts_with("windlass_last_success"));
    assert_eq!(successes.count(), 3, "{text}");
}

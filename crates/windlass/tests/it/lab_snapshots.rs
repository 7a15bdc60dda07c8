//! Experiments with snapshots, small, on real servers; and the growth that is foreseen, against
//! that which comes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_testkit::browser::check_page;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root};

use crate::opening::{Scratch, open_to_all};
use crate::snapshot_hook::{forget, library};
use crate::support::text;

/// How long a load runs before something is measured, and while it is measured. Enough for
/// experiments in which any number is right.
const SECONDS: &str = "0.3";

/// A user's server, and directories for what the laboratory makes.
struct Lab {
    cluster: PrivateCluster,
    scratch: Scratch,
    into: PathBuf,
    out: PathBuf,
    library: PathBuf,
}

impl Lab {
    fn new() -> Self {
        stay_root();
        let cluster = PrivateCluster::start(&ClusterOptions::default());
        let scratch = Scratch::new();
        let library = library(&scratch);
        let (into, out) = (scratch.path().join("into"), scratch.path().join("out"));
        std::fs::create_dir(&into).unwrap();
        open_to_all(&into, 0o1777);
        Self {
            cluster,
            scratch,
            into,
            out,
            library,
        }
    }

    fn words<'a>(
        &'a self,
        experiment: &'a str,
        conninfo: &'a str,
        seconds: &'a str,
    ) -> Vec<&'a str> {
        let path = |path: &'a Path| path.to_str().unwrap();
        vec![
            "lab",
            "snapshots",
            experiment,
            conninfo,
            "--library",
            path(&self.library),
            "--into",
            path(&self.into),
            "--out",
            path(&self.out),
            "--scale",
            "1",
            "--seconds",
            seconds,
            "--set",
            "fsync=off",
            // Pages that it cleans grow a snapshot, too.
            "--set",
            "autovacuum=off",
            "--json",
        ]
    }

    /// Runs an experiment in one round. Nothing of it is left, and the user's server has nothing
    /// that it had not before.
    fn run(&self, experiment: &str, more: &[&str]) -> Value {
        self.run_for(SECONDS, experiment, more)
    }

    fn run_for(&self, seconds: &str, experiment: &str, more: &[&str]) -> Value {
        let conninfo = self.cluster.conninfo();
        let before = self.seen();
        let mut words = self.words(experiment, &conninfo, seconds);
        words.extend_from_slice(more);
        let output = self.scratch.run(None, &words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{experiment}: {said}");
        assert_eq!(self.left(), Vec::<PathBuf>::new(), "{experiment}");
        assert_eq!(self.seen(), before, "{experiment}");
        let printed = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(printed.trim()).unwrap()
    }

    fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.into).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The user's databases and tables, and what is beside the data directory.
    fn seen(&self) -> String {
        let databases = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database";
        let tables = "SELECT count(*) FROM pg_class";
        let beside = std::fs::read_dir(self.cluster.place()).unwrap();
        let mut beside: Vec<_> = beside.map(|entry| entry.unwrap().file_name()).collect();
        beside.sort();
        let asked = [databases, tables].map(|sql| self.cluster.sql("postgres", sql));
        format!("{asked:?} {beside:?}")
    }
}

/// The page of an experiment, as a browser shows it.
fn shown(document: &Value, charts: u64) -> String {
    check_page(Path::new(document["kept"][1].as_str().unwrap()), charts)
}

/// The runs whose case contains these words.
fn runs<'a>(document: &'a Value, words: &str) -> Vec<&'a Value> {
    let series = &document["series"];
    let is_of = |run: &&Value| {
        let case = usize::try_from(run["case"].as_u64().unwrap()).unwrap();
        series["cases"][case].to_string().contains(words)
    };
    let all = series["runs"].as_array().unwrap().iter();
    all.filter(is_of).collect()
}

/// The value of a measure in each run whose case contains these words.
fn values(document: &Value, words: &str, measure: &str) -> Vec<f64> {
    let value = |run: &Value| {
        let mut all = run["values"].as_array().unwrap().iter();
        let found = all.find(|value| value["name"] == measure)?;
        Some(found["value"].as_f64().unwrap())
    };
    let runs = runs(document, words).into_iter();
    runs.filter_map(value).collect()
}

/// The only one.
fn value(document: &Value, words: &str, measure: &str) -> f64 {
    let found = values(document, words, measure);
    assert_eq!(found.len(), 1, "{words}, {measure}: {document}");
    found[0]
}

/// The name by which the kernel counts what the device of a directory reads and writes. Some file
/// systems are on none.
fn device_of(directory: &Path) -> Option<String> {
    let device = std::fs::metadata(directory).unwrap().dev();
    let number = [rustix::fs::major(device), rustix::fs::minor(device)];
    let number = number.map(|part| part.to_string());
    let counters = std::fs::read_to_string("/proc/diskstats").unwrap();
    let mut lines = counters
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let ours = lines.find(|words| words[..2] == number)?;
    Some(ours[2].to_owned())
}

/// How long the steps that are meant took in a run, all together.
fn took(run: &Value, is_meant: impl Fn(&Value) -> bool) -> f64 {
    let steps = run["steps"].as_array().unwrap().iter();
    let these = steps.filter(|step| is_meant(step));
    these.map(|step| step["seconds"].as_f64().unwrap()).sum()
}

#[test]
fn making_snapshots_is_timed_step_by_step_and_in_a_chain() {
    let lab = Lab::new();
    let document = lab.run("load", &["--clients", "0,2", "--repeat", "2"]);
    assert_eq!(values(&document, "2 clients", "creation").len(), 2);
    assert!(
        values(&document, "idle", "creation")
            .iter()
            .all(|took| *took > 0.0)
    );
    let seen = shown(&document, 1);
    assert!(
        seen.contains("Figure 1") && seen.contains("The article found"),
        "{seen}"
    );
    let document = lab.run("steps", &["--clients", "1", "--repeat", "3"]);
    let whole = values(&document, "1 client", "creation");
    // The steps of a run are all of it but a short beginning, in which the machine may stand still.
    let rest = |(run, whole): (&&Value, &f64)| {
        assert!(took(run, |step| step["of"] == "opening") > 0.0, "{run}");
        (took(run, |step| step["of"] == "making") - whole).abs() - 0.2 * whole
    };
    let rests = runs(&document, "1 client");
    let rests: Vec<_> = rests.iter().zip(&whole).map(rest).collect();
    assert_eq!(rests.len(), 3, "{document}");
    assert!(
        rests.iter().any(|rest| *rest < 0.05),
        "{rests:?}: {document}"
    );
    shown(&document, 1);
    let document = lab.run("chain", &["--clients", "1", "--repeat", "1"]);
    for ordinal in ["1st", "2nd", "3rd", "4th", "5th"] {
        assert!(value(&document, ordinal, "creation") > 0.0);
    }
    let seen = shown(&document, 1);
    assert!(seen.contains("each later snapshot takes longer"), "{seen}");
}

#[test]
fn what_happens_beside_the_making_and_as_of_when_it_is() {
    let lab = Lab::new();
    // Long enough for a sample now and then on any machine.
    let document = lab.run_for("1", "timeline", &["--clients", "2", "--repeat", "1"]);
    for phase in ["before", "while it is made", "after"] {
        assert!(value(&document, phase, "throughput") > 0.0, "{phase}");
    }
    let samples = &document["series"]["runs"][1]["samples"];
    assert!(samples.as_array().unwrap().len() > 10, "{samples}");
    let device = device_of(&lab.into);
    let mut seen = vec!["transactions".to_owned(), "pages by checkpoints".to_owned()];
    if let Some(name) = &device {
        seen.extend([format!("read from {name}"), format!("written to {name}")]);
    }
    for sample in samples.as_array().unwrap() {
        let values = sample["values"].as_array().unwrap().iter();
        let names: Vec<_> = values.map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, seen, "{device:?}: {sample}");
    }
    // All bytes are in one chart.
    shown(&document, 3 + u64::from(device.is_some()));
    let document = lab.run("as-of", &["--repeat", "1"]);
    for start in ["a checkpoint", "a pause"] {
        let newest = value(&document, start, "newest row after the beginning");
        let whole = value(&document, start, "creation");
        assert!(
            newest > 0.0 && newest < whole + 0.02,
            "{start}: {newest} of {whole}"
        );
        // Rows come until the log is copied, a moment after the instant that is stated.
        let stated = value(&document, start, "stated instant after the beginning");
        let behind = ["ending the backup on the server", "copying the log"];
        let is_behind = |step: &Value| behind.iter().any(|name| step["name"] == *name);
        let later = took(runs(&document, start)[0], is_behind);
        assert!(
            newest < stated + later + 0.02,
            "{start}: {newest} and {stated} are said, {later} later"
        );
    }
    let seen = shown(&document, 3);
    assert!(seen.contains("The newest row was committed") || seen.contains("the newest row"));
}

#[test]
fn what_snapshots_cost_a_load_and_statements() {
    let lab = Lab::new();
    let document = lab.run("throughput", &["--clients", "2", "--repeat", "1"]);
    assert_eq!(values(&document, "2 clients", "throughput").len(), 4);
    assert!(value(&document, "\"5 snapshots", "growth") > 0.0);
    shown(&document, 1);
    // So long that there are transactions of each kind on any machine.
    let document = lab.run_for("2", "latency", &["--clients", "2", "--repeat", "1"]);
    for kind in ["order", "payment", "touch", "note", "look"] {
        assert_eq!(values(&document, kind, "response time").len(), 4, "{kind}");
    }
    shown(&document, 1);
    let document = lab.run("index", &["--clients", "1", "--repeat", "1"]);
    assert_eq!(values(&document, "CREATE INDEX", "statement").len(), 2);
    assert_eq!(values(&document, "a snapshot", "creation").len(), 3);
    shown(&document, 2);
    let document = lab.run("rebuild", &["--repeat", "1"]);
    assert_eq!(values(&document, "VACUUM FULL", "statement").len(), 3);
    shown(&document, 2);
}

#[test]
fn a_snapshot_grows_by_what_changes_and_going_back_takes_that_long() {
    let lab = Lab::new();
    let document = lab.run("growth", &["--repeat", "1"]);
    for pattern in ["spread over", "in one run\""] {
        for share in ["30 %", "80 %"] {
            let of = |measure| {
                let all = &document["series"];
                let cases = all["cases"].as_array().unwrap();
                let has = |case: &Value| {
                    case.to_string().contains(pattern) && case.to_string().contains(share)
                };
                let case = cases.iter().position(has).unwrap();
                let mut runs = all["runs"].as_array().unwrap().iter();
                let run = runs.find(|run| run["case"] == case).unwrap();
                let values = run["values"].as_array().unwrap();
                let value = values
                    .iter()
                    .find(|value| value["name"] == measure)
                    .unwrap();
                value["value"].as_f64().unwrap()
            };
            let ratio = of("growth") / of("changed");
            assert!((0.98..1.25).contains(&ratio), "{pattern}, {share}: {ratio}");
        }
    }
    let once = values(&document, "in one run\"", "growth");
    let again = values(&document, "five times", "growth");
    let sum = |values: &[f64]| values.iter().sum::<f64>();
    let ratio = sum(&again) / sum(&once);
    assert!((0.95..1.2).contains(&ratio), "a page is kept once: {ratio}");
    shown(&document, 2);
    // That the data are those of the snapshot, the experiment checks itself.
    let document = lab.run("revert", &["--repeat", "1"]);
    let more =
        |measure: &str| value(&document, "\"100 %", measure) - value(&document, "\"10 %", measure);
    let ratio = more("size on disk") / more("changed");
    assert!((0.9..1.3).contains(&ratio), "{ratio}: {document}");
    let seen = shown(&document, 3);
    assert!(seen.contains("nearly proportional to the size"), "{seen}");
}

#[test]
fn a_killed_experiment_leaves_nothing() {
    let lab = Lab::new();
    let conninfo = lab.cluster.conninfo();
    let words = lab.words("load", &conninfo, "600");
    let mut command = lab.scratch.command(None, &words);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_up = || {
        let mut places = lab.left().into_iter();
        places.any(|place| place.join(".s.PGSQL.5432").exists())
    };
    while !is_up() {
        assert!(child.try_wait().unwrap().is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while !lab.left().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_cannot_be_tried_is_refused_and_nothing_is_made() {
    let lab = Lab::new();
    let file = lab.scratch.path().join("shop.db");
    let made = std::process::Command::new("sqlite3")
        .arg(&file)
        .arg("CREATE TABLE t (i)")
        .status();
    assert!(made.unwrap().success());
    let refused = |words: &[&str], code: i32, why: &str| {
        let output = lab.scratch.run(None, words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert_eq!(lab.left(), Vec::<PathBuf>::new());
    };
    let file = file.to_str().unwrap();
    refused(
        &lab.words("load", file, SECONDS),
        2,
        "need a PostgreSQL server",
    );
    refused(
        &["plan", "--snapshot", file],
        2,
        "does not count its changes",
    );
    let conninfo = lab.cluster.conninfo();
    let mut words = lab.words("load", &conninfo, SECONDS);
    let none = lab.scratch.path().join("none");
    words[5] = none.to_str().unwrap();
    refused(&words, 1, "was not found");
    let mut words = lab.words("load", &conninfo, SECONDS);
    words.extend(["--set", "shared_buffers=nonsense"]);
    refused(&words, 1, "shared_buffers");
    let mut words = lab.words("load", &conninfo, SECONDS);
    let data = lab.cluster.data().to_str().unwrap().to_owned();
    words[7] = &data;
    refused(&words, 1, "data directory");
}

/// The transactions of pgbench from a moment on.
struct Work<'a> {
    cluster: &'a PrivateCluster,
    begun: Instant,
    before: f64,
}

impl<'a> Work<'a> {
    fn begin(cluster: &'a PrivateCluster) -> Self {
        Self {
            cluster,
            begun: Instant::now(),
            before: Self::count(cluster),
        }
    }

    fn count(cluster: &PrivateCluster) -> f64 {
        let count = cluster.sql("postgres", "SELECT count(*) FROM pgbench_history");
        count.parse().unwrap()
    }

    /// The time since then in seconds, and the transactions.
    fn so_far(&self) -> (f64, f64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        (seconds, Self::count(self.cluster) - self.before)
    }
}

/// The factor within which real growth must be of what was foreseen.
const FACTOR: f64 = 2.5;

#[test]
fn a_snapshot_grows_about_as_foreseen() {
    stay_root();
    let scratch = Scratch::new();
    let load = format!(
        "shared_preload_libraries = '{}'",
        library(&scratch).display()
    );
    let options = ClusterOptions::default()
        .setting(load)
        .setting("autovacuum = off");
    let cluster = PrivateCluster::start(&options);
    let conninfo = cluster.conninfo();
    windlass_testkit::postgres::succeed(cluster.tool("pgbench").args(["-i", "-q", "-s", "5"]));
    cluster.sql("postgres", "CHECKPOINT");
    let mut pgbench = cluster.tool("pgbench");
    // The same work on any machine: so many transactions a second.
    pgbench.args(["-n", "-c", "2", "-R", "60", "-T", "1000", "postgres"]);
    let mut pgbench = pgbench
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let works = "SELECT count(*) > 60 FROM pgbench_history";
    cluster.wait_until(works, "t");
    let work = Work::begin(&cluster);
    let plan = [
        "plan",
        "--snapshot",
        &conninfo,
        "--look",
        "6s",
        "--max-size",
        "1TiB",
        "--json",
    ];
    let output = scratch.run(None, &plan);
    let (looked, done) = work.so_far();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let document: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(document["method"], "hook", "{document}");
    assert!(document["reaches_max_size_seconds"].is_null(), "{document}");
    let created = scratch.run(None, &["snapshot", "create", &conninfo, "real"]);
    assert_eq!(created.status.code(), Some(0), "{}", text(&created));
    let work = Work::begin(&cluster);
    std::thread::sleep(Duration::from_secs(8));
    cluster.sql("postgres", "CHECKPOINT");
    // What is done late, because the machine stood still, is work of a longer time.
    let after = work.so_far().1 * looked / done;
    pgbench.kill().unwrap();
    pgbench.wait().unwrap();
    let listed = text(&scratch.run(None, &["snapshot", "list", &conninfo, "--json"]));
    let listed: Value = serde_json::from_str(listed.trim()).unwrap();
    let real = listed["snapshots"][0]["grown_bytes"].as_f64().unwrap();
    let model = &document["model"];
    let of = |name: &str| model[name].as_f64().unwrap();
    let pages = match of("rate") {
        rate if rate > 0.0 => of("pages_per_second") / rate * (1.0 - (-rate * after).exp()),
        _ => of("pages_per_second") * after,
    };
    let ratio = real / (pages * 8192.0);
    println!("grown {real} in {after} s, {ratio:.2} of what was foreseen");
    assert!(
        ratio > 1.0 / FACTOR && ratio < FACTOR,
        "{ratio}: {real}, {document}"
    );
    let dropped = scratch.run(None, &["snapshot", "drop", &conninfo, "real"]);
    assert_eq!(dropped.status.code(), Some(0), "{}", text(&dropped));
    forget(&cluster);
}

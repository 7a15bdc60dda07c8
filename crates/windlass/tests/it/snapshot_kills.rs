//! Windlass is killed at the entry of each of its system calls while it makes and drops snapshots
//! by the hook, and reverts to them: the server goes on, the snapshots that were there are as they
//! were, and the next command finishes or undoes what was begun.
//!
//! The same while sessions write, of which no statement fails; and for a server that is killed
//! while Windlass stands still after one of its calls, and goes on without it.
//!
//! The suite tries a few of the calls that change something, `scripts/soak faults` all calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass_engine::media::{FileKind, crc32c};
use windlass_image::Image;
use windlass_snapshot::hook::HookImage;
use windlass_testkit::counted::{Call, counted, drawn, is_soak, killed, stopped};
use windlass_testkit::load::Load;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root, succeed};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

/// The calls that change something.
const CHANGES: &str = "openat,linkat,link,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,\
    rmdir,fallocate,ftruncate,write,pwrite64,fsync,fdatasync,syncfs,flock,copy_file_range,sendto";
/// So many of each work are tried in the suite, and so many where more than Windlass is involved.
const FEW: usize = 2;
const FEW_OTHER: usize = 1;
const SEED: u64 = 5;
/// Sessions that write.
const SESSIONS: usize = 4;
const DIGEST: &str = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM t";
/// What pgbench keeps true in every state.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// Who is killed at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// Windlass.
    Controller,
    /// Every process of the server. Windlass goes on.
    Server,
    /// The server and then Windlass.
    Both,
}

/// A checksum of every file that a snapshot shows.
type Shown = Vec<(String, u32)>;

struct Kills {
    cluster: PrivateCluster,
    scratch: Scratch,
    victim: Victim,
    load: Option<Load>,
    /// What the snapshot shows that stays.
    kept: Shown,
    /// What others showed before the kill.
    shown: BTreeMap<&'static str, Shown>,
    /// The rows of the table before the kill.
    rows: String,
    /// Whether the command said that it had done all of its work.
    has_succeeded: bool,
    counts: BTreeMap<String, u32>,
}

/// A checksum of every file of a snapshot.
fn sums(directory: &Path) -> Shown {
    let image = HookImage::open(directory).unwrap();
    let files = image.files().0.iter();
    let files = files.filter(|entry| entry.kind == FileKind::File);
    let sum = |entry: &windlass_engine::media::FileEntry| {
        let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
        image.read(entry.file, 0, &mut bytes).unwrap();
        (entry.path_lossy(), crc32c(&bytes))
    };
    files.map(sum).collect()
}

impl Kills {
    fn new(victim: Victim) -> Self {
        stay_root();
        let scratch = Scratch::new();
        let library = library(&scratch).display().to_string();
        let options = ClusterOptions::default().initdb("--data-checksums");
        let options = options.setting(format!("shared_preload_libraries = '{library}'"));
        let cluster = PrivateCluster::start(&options);
        let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
        cluster.sql("postgres", &format!("CREATE TABLE t AS {rows}"));
        let mut kills = Self {
            cluster,
            scratch,
            victim,
            load: None,
            kept: Vec::new(),
            shown: BTreeMap::new(),
            rows: String::new(),
            has_succeeded: false,
            counts: BTreeMap::new(),
        };
        let init = ["-i", "-q", "-s", "1", "postgres"];
        succeed(kills.cluster.tool("pgbench").args(init));
        kills.windlass(&["create", "kept", "--method", "hook"]);
        kills.kept = kills.sums("kept");
        kills.write();
        kills
    }

    fn command(&self, words: &[&str]) -> Command {
        let conninfo = self.cluster.conninfo();
        let (verb, rest) = words.split_first().unwrap();
        let words = [&["snapshot", verb, &conninfo], rest].concat();
        self.scratch.command(None, &words)
    }

    fn windlass(&self, words: &[&str]) {
        let output = self.command(words).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
    }

    /// Every page changes. Nobody waits for the dead.
    fn write(&self) {
        for sql in ["UPDATE t SET x = md5(x) || 'y'", "VACUUM t", "CHECKPOINT"] {
            self.cluster.sql("postgres", sql);
        }
    }

    fn found(&self, name: &str) -> Option<Value> {
        let output = self.command(&["list", "--json"]).output().unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = all["snapshots"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["name"] == name)
    }

    fn directory(&self, name: &str) -> PathBuf {
        let found = self.found(name).unwrap();
        Path::new(found["place"].as_str().unwrap()).join("hook")
    }

    fn sums(&self, name: &str) -> Shown {
        sums(&self.directory(name))
    }

    fn check_kept(&self, at: &str) {
        assert!(self.sums("kept") == self.kept, "{at}");
    }

    /// The rows of a snapshot, once a server has recovered it. Money is conserved in it.
    fn rows_of(&self, name: &str) -> String {
        let word = format!("{}@{name}", self.cluster.conninfo());
        let sql = format!("{SUMS}; {DIGEST}");
        let ask = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", &sql];
        let said = run(&self.scratch, 0, &ask);
        let (sums, rows) = said.trim_end().split_once('\n').unwrap();
        assert_eq!(sums, "t", "{name}");
        rows.to_owned()
    }

    /// Nobody waits for the dead.
    fn check_sessions(&mut self) {
        let Some(load) = &mut self.load else {
            return;
        };
        load.check();
        let count = "SELECT count(*) FROM pgbench_history";
        let before = self.cluster.sql("postgres", count);
        self.cluster
            .wait_until(&format!("SELECT ({count}) > {before}"), "t");
    }

    /// The calls to kill at, drawn from those that a whole run makes.
    fn calls(&mut self, work: &Work<'_>) -> Vec<Call> {
        let kinds = if is_soak() { "all" } else { CHANGES };
        let trace = self.scratch.path().join("trace");
        self.prepare(work);
        let (output, calls) = counted(&self.command(work.words), kinds, &trace);
        let words = work.words;
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
        self.has_succeeded = true;
        (work.judge)(self, &format!("{words:?} to its end"));
        assert!(calls.len() > 30, "{words:?}: {calls:?}");
        let is_alone = self.victim == Victim::Controller && self.load.is_none();
        drawn(calls, if is_alone { FEW } else { FEW_OTHER }, SEED)
    }

    fn prepare(&mut self, work: &Work<'_>) {
        (work.before)(self);
        self.rows = self.cluster.sql("postgres", DIGEST);
    }

    /// A command, with a kill at each of its calls.
    fn each_call(&mut self, work: &Work<'_>) {
        let words = work.words;
        let mut kills = 0;
        for call in self.calls(work) {
            self.prepare(work);
            let at = format!("{words:?}, {:?} killed at {call}", self.victim);
            let is_hit = self.kill_at(words, &call, &at);
            // Not every run makes as many calls, because some wait for the server.
            kills += u32::from(is_hit);
            self.check_sessions();
            (work.judge)(self, &at);
        }
        let beside = self.load.as_ref().map_or("", |_| ", sessions write");
        let what = format!("{:?}{beside}: {}", self.victim, words.join(" "));
        self.counts.insert(what, kills);
    }

    /// Runs a command with a kill at a call. False if it did not come to that call.
    fn kill_at(&mut self, words: &[&str], call: &Call, at: &str) -> bool {
        let command = self.command(words);
        if self.victim == Victim::Controller {
            let output = killed(&command, call);
            self.has_succeeded = output.status.success();
            return !self.has_succeeded;
        }
        let trace = self.scratch.path().join("trace");
        let Some(stopped) = stopped(&command, call, &trace) else {
            self.has_succeeded = true;
            return false;
        };
        self.kill_server();
        if self.victim == Victim::Both {
            stopped.kill();
            self.has_succeeded = false;
        } else {
            let output = stopped.go_on();
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{at}: {}", text(&output));
            self.has_succeeded = code == Some(0);
        }
        self.cluster.run();
        true
    }

    /// Nobody has the number of its first process any more when this returns.
    fn kill_server(&mut self) {
        let path = self.cluster.data().join("postmaster.pid");
        let first = std::fs::read_to_string(path).unwrap();
        let first = Path::new("/proc").join(first.lines().next().unwrap());
        self.cluster.kill();
        while first.exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn creations(&mut self, more: &[&str]) {
        let words = [&["create", "new", "--method", "hook"], more].concat();
        let judge = |kills: &mut Self, at: &str| {
            kills.write();
            kills.check_kept(at);
            let found = kills.found("new");
            let is_kept = found.as_ref().is_some_and(|it| it["state"] == "kept");
            assert!(is_kept || !kills.has_succeeded, "{at}: {found:?}");
            if is_kept {
                let shown = kills.sums("new");
                kills.write();
                assert!(kills.sums("new") == shown, "{at}");
                if kills.victim != Victim::Controller || kills.load.is_some() || is_soak() {
                    assert_eq!(kills.rows_of("new"), kills.rows, "{at}");
                }
            }
            if found.is_some() {
                kills.windlass(&["drop", "new"]);
                kills.check_kept(at);
            }
        };
        self.each_call(&Work {
            words: &words,
            before: &|_| (),
            judge: &judge,
        });
    }

    /// A middle one goes, of which an older one needs the pages.
    fn drops(&mut self, dropped: &'static str) {
        let names = ["middle", "top"];
        let before = |kills: &mut Self| {
            for name in names {
                if kills.found(name).is_none() {
                    kills.windlass(&["create", name, "--method", "hook"]);
                    kills.write();
                    let shown = kills.sums(name);
                    kills.shown.insert(name, shown);
                }
            }
        };
        let judge = |kills: &mut Self, at: &str| {
            kills.write();
            kills.check_kept(at);
            for name in names {
                let Some(found) = kills.found(name) else {
                    assert_eq!(name, dropped, "{at}");
                    continue;
                };
                assert!(name != dropped || !kills.has_succeeded, "{at}: {found}");
                if found["state"] == "kept" {
                    assert!(kills.sums(name) == kills.shown[name], "{name}, {at}");
                } else {
                    assert_eq!(name, dropped, "{at}: {found}");
                    kills.windlass(&["drop", name]);
                }
            }
            kills.check_kept(at);
        };
        self.each_call(&Work {
            words: &["drop", dropped],
            before: &before,
            judge: &judge,
        });
        for name in names {
            if self.found(name).is_some() {
                self.windlass(&["drop", name]);
            }
        }
    }

    /// The server is stopped for it. In the suite `snapshot_cluster_back` kills reverts.
    fn reverts(&mut self) {
        let data = self.cluster.data().display().to_string();
        let word = format!("{data}@kept");
        let trace = self.scratch.path().join("trace");
        let revert = |kills: &Self| {
            let words = ["snapshot", "revert", &word, "--yes"];
            kills.scratch.command(None, &words)
        };
        self.cluster.stop("fast");
        let (output, calls) = counted(&revert(self), "all", &trace);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        self.cluster.run();
        let back = self.cluster.sql("postgres", DIGEST);
        let mut kills = 0;
        for call in drawn(calls, FEW, SEED) {
            self.write();
            let rows = self.cluster.sql("postgres", DIGEST);
            self.cluster.stop("fast");
            let output = killed(&revert(self), &call);
            kills += u32::from(!output.status.success());
            let listed = crate::snapshot_cluster_back::settled_in(&self.scratch, &data);
            self.cluster.run();
            let found = self.cluster.sql("postgres", DIGEST);
            assert!(found == rows || found == back, "{call}: {listed}");
            self.check_kept(&format!("a revert killed at {call}"));
        }
        self.counts.insert("revert kept".into(), kills);
    }
}

/// A command, with what is done before it, and how it is judged.
struct Work<'a> {
    words: &'a [&'a str],
    before: &'a dyn Fn(&mut Kills),
    judge: &'a dyn Fn(&mut Kills, &str),
}

impl Drop for Kills {
    fn drop(&mut self) {
        if self.cluster.data().exists() {
            forget(&self.cluster);
        }
    }
}

fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).map_or(0, |entries| entries.count())
}

/// The one that stays is right, and nothing is left of the others.
fn end(mut kills: Kills) {
    if let Some(load) = kills.load.take() {
        load.end();
    }
    kills.windlass(&["create", "last", "--method", "hook"]);
    kills.windlass(&["drop", "last"]);
    let links = kills.cluster.data().join("pg_subtrans/windlass");
    assert_eq!(
        entries(&links),
        2,
        "the links of the one that is left, and where its entry is"
    );
    let check = ["--all", "--heapallindexed", "--install-missing"];
    succeed(kills.cluster.tool("pg_amcheck").args(check));
    let conninfo = kills.cluster.conninfo();
    run(&kills.scratch, 0, &["snapshot", "drop", &conninfo, "kept"]);
    assert_eq!(entries(&links), 0);
    println!("kills: {:?}", kills.counts);
}

#[test]
fn a_controller_that_is_killed_at_any_call_harms_neither_the_server_nor_other_snapshots() {
    let mut kills = Kills::new(Victim::Controller);
    kills.creations(&[]);
    kills.creations(&["--checkpoint", "none"]);
    kills.creations(&["--durable"]);
    kills.drops("middle");
    kills.drops("top");
    if is_soak() {
        kills.reverts();
    }
    end(kills);
}

#[test]
fn a_controller_that_is_killed_at_any_call_fails_no_statement_of_sessions_that_write() {
    let mut kills = Kills::new(Victim::Controller);
    kills.load = Some(Load::start(&kills.cluster, SESSIONS));
    kills.creations(&["--checkpoint", "none"]);
    kills.creations(&["--durable"]);
    kills.drops("middle");
    if is_soak() {
        kills.creations(&[]);
        kills.drops("top");
    }
    end(kills);
}

#[test]
fn a_server_that_is_killed_at_any_call_of_a_controller_loses_nothing() {
    let mut kills = Kills::new(Victim::Server);
    kills.creations(&["--checkpoint", "none"]);
    kills.creations(&["--durable"]);
    kills.drops("middle");
    if is_soak() {
        kills.creations(&[]);
        kills.drops("top");
        kills.victim = Victim::Both;
        kills.creations(&[]);
        kills.creations(&["--checkpoint", "none"]);
        kills.creations(&["--durable"]);
        kills.drops("middle");
        kills.drops("top");
    }
    end(kills);
}

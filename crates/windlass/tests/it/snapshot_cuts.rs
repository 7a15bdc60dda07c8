//! Power cuts after each sync: of Windlass while it makes, drops and reverts to snapshots by the
//! hook, and of the server while it keeps pages and writes.
//!
//! Whoever syncs stands still when the call is done. Then the power is cut, the server starts, and
//! its snapshots are compared: a durable one is there and right, another one is lost, never wrong.
//! The suite tries a few of the syncs, `scripts/soak faults` all of them, and says how many.

use std::collections::BTreeMap;
use std::process::Command;

use windlass_testkit::counted::{
    Call, Stopped, counted, counted_process, drawn, is_soak, stopped, stopped_process,
};
use windlass_testkit::postgres::succeed;

use crate::snapshot_hook::run;
use crate::snapshot_power::Powered;
use crate::support::text;

const SYNCS: &str = "fsync,fdatasync,syncfs";
/// What is not durable needs no sync to go. So the power is cut after what removes it, too.
const REMOVALS: &str = "fsync,fdatasync,syncfs,unlink,unlinkat,rename,renameat,fallocate";
/// So many syncs of each work are tried in the suite.
const FEW: usize = 1;
/// Among these of the server's syncs in the suite.
const SERVER_SYNCS: [usize; 8] = [1, 2, 3, 4, 6, 9, 14, 20];
const SEED: u64 = 11;

/// A cluster with one durable snapshot, which is there and right after every cut.
struct Cuts {
    powered: Powered,
    /// Its rows.
    kept: String,
    /// The rows of what a revert leads to, and those that it overwrites.
    target: String,
    changed: String,
    counts: BTreeMap<&'static str, u32>,
}

/// A command, with what is done before it, and how it is judged.
struct Work<'a> {
    words: &'a [&'a str],
    kinds: &'a str,
    /// The calls of it that the suite tries; none for those that are drawn.
    few: &'a [(&'a str, usize)],
    before: &'a dyn Fn(&mut Cuts),
    judge: &'a dyn Fn(&mut Cuts, &str),
}

impl Cuts {
    fn new() -> Self {
        Self::of(Powered::new())
    }

    fn of(powered: Powered) -> Self {
        let kept = powered.rows();
        powered.create("kept", &["--durable"]);
        let mut cuts = Self {
            powered,
            kept,
            target: String::new(),
            changed: String::new(),
            counts: BTreeMap::new(),
        };
        cuts.change();
        cuts
    }

    fn windlass(&self, words: &[&str]) -> Command {
        self.powered.scratch.command(None, words)
    }

    fn trace(&self) -> std::path::PathBuf {
        self.powered.scratch.path().join("trace")
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The power is cut while something stands still, and the server starts again.
    fn cut(&mut self, stopped: Stopped) {
        self.powered.cut_beside(|| stopped.kill());
        self.count("cuts");
    }

    /// Other rows, so that a snapshot that shows them is not taken for an older one.
    fn change(&mut self) {
        let sql = "UPDATE updated SET x = md5(x)";
        self.powered.cluster.sql("postgres", sql);
    }

    fn check_kept(&self, at: &str) {
        assert_eq!(self.powered.rows_of("kept"), self.kept, "kept, {at}");
    }

    /// The calls to cut after: those that are named, or all that a whole run makes.
    fn calls(&mut self, work: &Work<'_>) -> Vec<Call> {
        if !is_soak() && !work.few.is_empty() {
            let call = |(name, number): &(&str, usize)| Call::new(name, *number);
            return work.few.iter().map(call).collect();
        }
        let words = work.words;
        (work.before)(self);
        let (output, calls) = counted(&self.windlass(words), work.kinds, &self.trace());
        assert!(output.status.success(), "{words:?}: {output:?}");
        (work.judge)(self, &format!("{words:?} to its end"));
        assert!(calls.len() >= FEW, "{words:?} makes only: {calls:?}");
        drawn(calls, FEW, SEED)
    }

    /// A command, with a power cut after each of its calls.
    fn each_sync(&mut self, work: &Work<'_>) {
        for call in self.calls(work) {
            (work.before)(self);
            let at = format!("{:?}, cut after {call}", work.words);
            let Some(stopped) = stopped(&self.windlass(work.words), &call, &self.trace()) else {
                assert!(is_soak() || work.few.is_empty(), "{at}");
                (work.judge)(self, &format!("{at}, which did not come"));
                continue;
            };
            self.cut(stopped);
            (work.judge)(self, &at);
        }
    }

    /// The snapshot is right or cannot be read; then it is dropped. The server runs.
    fn judge_and_drop(&mut self, name: &'static str, rows: &str, at: &str) -> bool {
        let found = self.powered.found(name);
        let is_kept = found.as_ref().is_some_and(|it| it["state"] == "kept");
        match is_kept {
            true => {
                assert_eq!(self.powered.rows_of(name), rows, "{name}, {at}");
                self.count("kept, and right");
            }
            false => {
                let word = format!("{}@{name}", self.powered.cluster.conninfo());
                run(&self.powered.scratch, 1, &["open", &word, "--", "true"]);
                self.count("lost, or not there");
            }
        }
        self.drop_found(name);
        assert!(self.powered.found(name).is_none(), "{name} was dropped");
        self.check_kept(at);
        is_kept
    }

    fn drop_found(&self, name: &str) {
        if self.powered.found(name).is_some() {
            self.powered.snapshot(0, &["drop", name]);
        }
    }

    fn start_if_stopped(&mut self) {
        if !self.powered.cluster.data().join("postmaster.pid").exists() {
            self.powered.cluster.run();
        }
    }

    fn creations(&mut self, more: &[&str], is_durable: bool) {
        let conninfo = self.powered.cluster.conninfo();
        let words = ["snapshot", "create", &conninfo, "new", "--method", "hook"];
        let words = [&words[..], more].concat();
        let judge = |cuts: &mut Self, at: &str| {
            cuts.start_if_stopped();
            let rows = cuts.powered.rows();
            let is_kept = cuts.judge_and_drop("new", &rows, at);
            assert!(is_durable || !is_cut(at) || !is_kept, "{at}");
            assert!(is_kept || is_cut(at), "{at}");
        };
        self.each_sync(&Work {
            words: &words,
            kinds: SYNCS,
            few: &[],
            before: &Self::change,
            judge: &judge,
        });
    }

    /// The newest one goes, and the one before it needs its pages.
    fn drops(&mut self, more: &[&str], few: &[(&str, usize)]) {
        let is_durable = more.contains(&"--durable");
        let conninfo = self.powered.cluster.conninfo();
        let before = |cuts: &mut Self| {
            cuts.powered.create("new", more);
            cuts.change();
            cuts.powered.cluster.sql("postgres", "CHECKPOINT");
        };
        let judge = |cuts: &mut Self, at: &str| {
            cuts.start_if_stopped();
            cuts.check_kept(at);
            let found = cuts.powered.found("new");
            if found.is_some_and(|it| it["state"] == "kept") {
                assert!(is_durable, "{at}");
                assert_ne!(cuts.powered.rows_of("new"), cuts.powered.rows(), "{at}");
                assert_ne!(cuts.powered.rows_of("new"), cuts.kept, "{at}");
            }
            cuts.drop_found("new");
            cuts.check_kept(at);
            cuts.count("drops");
        };
        self.each_sync(&Work {
            words: &["snapshot", "drop", &conninfo, "new"],
            kinds: if is_durable { SYNCS } else { REMOVALS },
            few,
            before: &before,
            judge: &judge,
        });
    }

    /// A revert to the durable snapshot, or to one that is made by this method, and which may be
    /// lost by the cut.
    fn reverts(&mut self, method: Option<&str>, few: &[(&str, usize)]) {
        let data = self.powered.cluster.data().display().to_string();
        let name = method.map_or("kept", |_| "then");
        let word = format!("{data}@{name}");
        let before = |cuts: &mut Self| {
            if let Some(method) = method {
                cuts.drop_found(name);
                let words = ["create", name, "--method", method];
                cuts.powered.snapshot(0, &words);
                cuts.target = cuts.powered.rows();
            } else {
                cuts.target.clone_from(&cuts.kept);
            }
            cuts.change();
            cuts.changed = cuts.powered.rows();
            cuts.powered.cluster.stop("fast");
        };
        let judge = |cuts: &mut Self, at: &str| {
            let listed = cuts.windlass(&["snapshot", "list", &data]).output();
            let listed = text(&listed.unwrap());
            cuts.powered.cluster.run();
            let rows = cuts.powered.rows();
            let is_back = rows == cuts.target;
            assert!(is_back || rows == cuts.changed, "{at}: {listed}");
            assert!(is_back || is_cut(at), "{at}: {listed}");
            assert!(is_back || !listed.contains("finished a revert"), "{at}");
            cuts.check_kept(at);
            match method {
                Some("hook") if is_cut(at) => cuts.check_lost(name, at),
                _ => assert_eq!(cuts.powered.rows_of(name), cuts.target, "{at}"),
            }
            cuts.count(match is_back {
                true => "reverts finished",
                false => "reverts undone, or not begun",
            });
        };
        self.each_sync(&Work {
            words: &["snapshot", "revert", &word, "--yes"],
            kinds: SYNCS,
            few,
            before: &before,
            judge: &judge,
        });
    }

    fn check_lost(&self, name: &str, at: &str) {
        let found = self.powered.found(name).unwrap();
        assert!(found["state"]["lost"]["why"].is_string(), "{at}: {found}");
    }

    /// The server keeps pages for the newest one, and writes.
    fn writes(&mut self, sql: &str, process: &dyn Fn(&Self) -> u32) {
        for call in self.syncs_of(sql, process) {
            let (rows, mut psql) = self.begin_writes(sql);
            let process = process(self);
            let at = format!("{sql}, cut after {call} of process {process}");
            match stopped_process(process, &call, &self.trace(), &mut psql) {
                Some(stopped) => self.cut(stopped),
                None => self.powered.cut(),
            }
            self.powered.cluster.run();
            let is_kept = self.judge_and_drop("plain", &rows, &at);
            assert!(!is_kept, "{at}");
            let is_kept = self.judge_and_drop("new", &rows, &at);
            assert!(is_kept, "{at}");
        }
    }

    /// Two snapshots, the rows that they show, and what writes.
    fn begin_writes(&mut self, sql: &str) -> (String, Command) {
        self.change();
        let rows = self.powered.rows();
        self.powered.create("new", &["--durable"]);
        self.powered.create("plain", &["--checkpoint", "none"]);
        let mut psql = self.powered.cluster.tool("psql");
        psql.args(["-Xq", "-d", "postgres", "-c", sql, "-c", "CHECKPOINT"]);
        (rows, psql)
    }

    /// The syncs of the server while it writes: all that it makes, or a few that it makes for sure.
    fn syncs_of(&mut self, sql: &str, process: &dyn Fn(&Self) -> u32) -> Vec<Call> {
        let all = match is_soak() {
            true => {
                let (rows, mut psql) = self.begin_writes(sql);
                let counted = counted_process(process(self), SYNCS, &self.trace(), &mut psql);
                for name in ["plain", "new"] {
                    self.judge_and_drop(name, &rows, sql);
                }
                counted
            }
            false => {
                let numbers = SERVER_SYNCS.into_iter();
                let both = |number| ["fdatasync", "fsync"].map(|name| Call::new(name, number));
                numbers.flat_map(both).collect()
            }
        };
        drawn(all, FEW, SEED)
    }

    fn end(&self) {
        let check = ["--all", "--heapallindexed", "--install-missing"];
        succeed(self.powered.cluster.tool("pg_amcheck").args(check));
        println!("power cuts: {:?}", self.counts);
    }

    fn checkpointer(&self) -> u32 {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        self.powered.cluster.sql("postgres", sql).parse().unwrap()
    }

    fn postmaster(&self) -> u32 {
        let path = self.powered.cluster.data().join("postmaster.pid");
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }
}

fn is_cut(at: &str) -> bool {
    at.contains("cut after") && !at.contains("did not come")
}

/// More than the server's memory: the session itself writes pages.
const EVICTING: &str = "UPDATE pgbench_accounts SET filler = 'f' WHERE aid % 7 = 0";

#[test]
fn after_a_power_cut_at_any_sync_durable_snapshots_are_right_and_others_lost() {
    let mut cuts = Cuts::new();
    cuts.creations(&["--durable"], true);
    cuts.creations(&["--durable", "--checkpoint", "none"], true);
    cuts.creations(&[], false);
    cuts.drops(&["--durable"], &[]);
    cuts.drops(&[], &[("unlink", 1)]);
    cuts.writes("UPDATE updated SET x = md5(x)", &Cuts::checkpointer);
    cuts.writes(EVICTING, &Cuts::postmaster);
    cuts.end();
}

#[test]
fn after_a_power_cut_at_any_sync_of_a_revert_the_cluster_is_at_one_of_its_ends() {
    let mut cuts = Cuts::new();
    cuts.reverts(None, &[]);
    // Neither the memory of the hook nor the snapshot itself is needed: what was kept is enough.
    cuts.reverts(Some("hook"), &[("syncfs", 1)]);
    cuts.reverts(Some("copy"), &[("syncfs", 1)]);
    cuts.reverts(Some("clone"), &[("syncfs", 1)]);
    cuts.end();
}

#[test]
fn after_a_power_cut_of_two_disks_durable_snapshots_are_right_and_others_lost() {
    let mut cuts = Cuts::of(Powered::on_two_disks());
    cuts.writes(EVICTING, &Cuts::postmaster);
    cuts.reverts(None, &[("syncfs", 1)]);
    if is_soak() {
        cuts.creations(&["--durable"], true);
        cuts.creations(&[], false);
        cuts.drops(&["--durable"], &[]);
        cuts.writes("UPDATE updated SET x = md5(x)", &Cuts::checkpointer);
        cuts.reverts(Some("hook"), &[]);
        cuts.reverts(Some("copy"), &[]);
    }
    cuts.end();
}

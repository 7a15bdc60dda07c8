//! Power cuts after each sync: of Windlass while it makes, drops and reverts to snapshots by the
//! hook, and of the server while it keeps pages and writes.
//!
//! Whoever syncs stands still when the call is done. Then the power is cut, the server starts, and
//! its snapshots are compared: a durable one is there and right, another one is lost, never wrong.
//! The suite tries a drawn few of the syncs, `scripts/soak faults` all of them, and says how many.

use std::collections::BTreeMap;
use std::process::Command;

use windlass_testkit::counted::{Call, Stopped, counted, drawn, stopped, stopped_process};
use windlass_testkit::postgres::succeed;

use crate::snapshot_hook::run;
use crate::snapshot_power::Powered;
use crate::support::text;

const SYNCS: &str = "fsync,fdatasync,syncfs";
/// So many syncs of each work are tried in the suite.
const FEW: usize = 1;
const SEED: u64 = 11;

/// A cluster with one durable snapshot, which is there and right after every cut.
struct Cuts {
    powered: Powered,
    /// Its rows.
    kept: String,
    counts: BTreeMap<&'static str, u32>,
}

impl Cuts {
    fn new() -> Self {
        let powered = Powered::new();
        let kept = powered.rows();
        powered.create("kept", &["--durable"]);
        let mut cuts = Self {
            powered,
            kept,
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

    /// Each drawn sync of a command, with what is done before it, and how it is judged after it.
    fn each_sync(
        &mut self,
        words: &[&str],
        before: &dyn Fn(&mut Self),
        judge: &dyn Fn(&mut Self, &str),
    ) {
        before(self);
        let (output, calls) = counted(&self.windlass(words), SYNCS, &self.trace());
        assert!(output.status.success(), "{words:?}: {output:?}");
        judge(self, &format!("{words:?} to its end"));
        assert!(calls.len() >= FEW, "{words:?} syncs only: {calls:?}");
        for call in drawn(calls, FEW, SEED) {
            before(self);
            let at = format!("{words:?}, cut after {call}");
            let Some(stopped) = stopped(&self.windlass(words), &call, &self.trace()) else {
                judge(self, &format!("{at}, which did not come"));
                continue;
            };
            self.cut(stopped);
            judge(self, &at);
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
        self.each_sync(&words, &Self::change, &|cuts, at| {
            cuts.start_if_stopped();
            let rows = cuts.powered.rows();
            let is_kept = cuts.judge_and_drop("new", &rows, at);
            let is_cut = at.contains("cut after");
            assert!(is_durable || !is_cut || !is_kept, "{at}");
            assert!(is_kept || is_cut, "{at}");
        });
    }

    /// The newest one goes, and the one before it needs its pages.
    fn drops(&mut self) {
        let conninfo = self.powered.cluster.conninfo();
        let words = ["snapshot", "drop", &conninfo, "new"];
        let before = |cuts: &mut Self| {
            cuts.powered.create("new", &["--durable"]);
            cuts.change();
            cuts.powered.cluster.sql("postgres", "CHECKPOINT");
        };
        self.each_sync(&words, &before, &|cuts, at| {
            cuts.start_if_stopped();
            cuts.check_kept(at);
            if cuts
                .powered
                .found("new")
                .is_some_and(|it| it["state"] == "kept")
            {
                assert_ne!(cuts.powered.rows_of("new"), cuts.powered.rows(), "{at}");
                assert_ne!(cuts.powered.rows_of("new"), cuts.kept, "{at}");
            }
            cuts.drop_found("new");
            cuts.check_kept(at);
        });
    }

    fn reverts(&mut self) {
        let data = self.powered.cluster.data().display().to_string();
        let word = format!("{data}@kept");
        let words = ["snapshot", "revert", &word, "--yes"];
        let before = |cuts: &mut Self| {
            cuts.change();
            cuts.powered.cluster.stop("fast");
        };
        self.each_sync(&words, &before, &|cuts, at| {
            let listed = cuts.windlass(&["snapshot", "list", &data]).output();
            let listed = text(&listed.unwrap());
            cuts.powered.cluster.run();
            let rows = cuts.powered.rows();
            let is_back = rows == cuts.kept;
            assert!(is_back || at.contains("cut after"), "{at}: {listed}");
            assert!(is_back || !listed.contains("finished a revert"), "{at}");
            cuts.check_kept(at);
            cuts.count(match is_back {
                true => "reverts finished",
                false => "reverts undone, or not begun",
            });
        });
    }

    /// The server keeps pages for the newest one, and writes.
    fn writes(&mut self, sql: &str, process: &dyn Fn(&Self) -> u32, numbers: &[usize]) {
        let all = numbers.iter().flat_map(|number| {
            ["fdatasync", "fsync"].map(|name| Call {
                name: name.to_owned(),
                number: *number,
            })
        });
        for call in drawn(all.collect(), FEW, SEED) {
            self.change();
            let rows = self.powered.rows();
            self.powered.create("new", &["--durable"]);
            self.powered.create("plain", &["--checkpoint", "none"]);
            let mut psql = self.powered.cluster.tool("psql");
            psql.args(["-Xq", "-d", "postgres", "-c", sql, "-c", "CHECKPOINT"]);
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

#[test]
fn after_a_power_cut_at_any_sync_durable_snapshots_are_right_and_others_lost() {
    let mut cuts = Cuts::new();
    cuts.creations(&["--durable"], true);
    cuts.creations(&["--durable", "--checkpoint", "none"], true);
    cuts.creations(&[], false);
    cuts.drops();
    let numbers = [1, 2, 3, 4, 6, 9, 14, 20];
    cuts.writes(
        "UPDATE updated SET x = md5(x)",
        &Cuts::checkpointer,
        &numbers,
    );
    // More than the server's memory: the session itself writes pages.
    let evicting = "UPDATE pgbench_accounts SET filler = 'f' WHERE aid % 7 = 0";
    cuts.writes(evicting, &Cuts::postmaster, &numbers);
    cuts.end();
}

#[test]
fn after_a_power_cut_at_any_sync_of_a_revert_the_cluster_is_at_one_of_its_ends() {
    let mut cuts = Cuts::new();
    cuts.reverts();
    cuts.end();
}

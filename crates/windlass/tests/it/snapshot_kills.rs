//! Windlass is killed at the entry of each of its system calls while it makes and drops snapshots
//! by the hook, and reverts to them: the server goes on, the snapshots that were there are as they
//! were, and the next command finishes or undoes what was begun.
//!
//! The suite tries a drawn few of the calls that change something, `scripts/soak faults` all calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass_engine::media::{FileKind, crc32c};
use windlass_image::Image;
use windlass_snapshot::hook::HookImage;
use windlass_testkit::counted::{counted, drawn, is_soak, killed};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root, succeed};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

/// The calls that change something.
const CHANGES: &str = "openat,linkat,link,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,\
    rmdir,fallocate,ftruncate,write,pwrite64,fsync,fdatasync,syncfs,flock,copy_file_range,sendto";
/// So many of each work are tried in the suite.
const FEW: usize = 2;
const SEED: u64 = 5;

struct Kills {
    cluster: PrivateCluster,
    scratch: Scratch,
    /// What the snapshot shows that stays.
    kept: Vec<(String, u32)>,
    counts: BTreeMap<String, u32>,
}

/// A checksum of every file of a snapshot.
fn sums(directory: &Path) -> Vec<(String, u32)> {
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
    fn new() -> Self {
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
            kept: Vec::new(),
            counts: BTreeMap::new(),
        };
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

    fn sums(&self, name: &str) -> Vec<(String, u32)> {
        sums(&self.directory(name))
    }

    fn check_kept(&self, at: &str) {
        assert!(self.sums("kept") == self.kept, "{at}");
    }

    /// A command, killed at each drawn call, with what is done before it, and how it is judged.
    fn each_call(
        &mut self,
        words: &[&str],
        before: &dyn Fn(&mut Self),
        judge: &dyn Fn(&mut Self, &str),
    ) {
        let kinds = if is_soak() { "all" } else { CHANGES };
        let trace = self.scratch.path().join("trace");
        before(self);
        let (output, calls) = counted(&self.command(words), kinds, &trace);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
        judge(self, &format!("{words:?} to its end"));
        assert!(calls.len() > 30, "{words:?}: {calls:?}");
        let mut kills = 0;
        for call in drawn(calls, FEW, SEED) {
            before(self);
            let at = format!("{words:?}, killed at {call}");
            let output = killed(&self.command(words), &call);
            // Not every run makes as many calls, because some wait for the server.
            kills += u32::from(!output.status.success());
            judge(self, &at);
        }
        self.counts.insert(words.join(" "), kills);
    }

    fn creations(&mut self, more: &[&str]) {
        let words = [&["create", "new", "--method", "hook"], more].concat();
        self.each_call(&words, &|_| (), &|kills, at| {
            kills.write();
            kills.check_kept(at);
            let Some(found) = kills.found("new") else {
                return;
            };
            if found["state"] == "kept" {
                let shown = kills.sums("new");
                kills.write();
                assert!(kills.sums("new") == shown, "{at}");
            } else {
                assert!(at.contains("killed"), "{at}: {found}");
            }
            kills.windlass(&["drop", "new"]);
            kills.check_kept(at);
        });
    }

    /// A middle one goes, of which an older one needs the pages.
    fn drops(&mut self, dropped: &str) {
        let names = ["middle", "top"];
        let before = |kills: &mut Self| {
            for name in names {
                if kills.found(name).is_none() {
                    kills.windlass(&["create", name, "--method", "hook"]);
                    kills.write();
                }
            }
        };
        self.each_call(&["drop", dropped], &before, &|kills, at| {
            kills.write();
            kills.check_kept(at);
            for name in names {
                let Some(found) = kills.found(name) else {
                    assert_eq!(name, dropped, "{at}");
                    continue;
                };
                if found["state"] == "kept" {
                    let shown = kills.sums(name);
                    kills.write();
                    assert!(kills.sums(name) == shown, "{at}");
                } else {
                    assert_eq!(name, dropped, "{at}: {found}");
                    kills.windlass(&["drop", name]);
                }
            }
            kills.check_kept(at);
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
        let digest = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM t";
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
        let back = self.cluster.sql("postgres", digest);
        let mut kills = 0;
        for call in drawn(calls, FEW, SEED) {
            self.write();
            let rows = self.cluster.sql("postgres", digest);
            self.cluster.stop("fast");
            let output = killed(&revert(self), &call);
            kills += u32::from(!output.status.success());
            let listed = crate::snapshot_cluster_back::settled_in(&self.scratch, &data);
            self.cluster.run();
            let found = self.cluster.sql("postgres", digest);
            assert!(found == rows || found == back, "{call}: {listed}");
            self.check_kept(&format!("a revert killed at {call}"));
        }
        self.counts.insert("revert kept".into(), kills);
    }
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

#[test]
fn a_controller_that_is_killed_at_any_call_harms_neither_the_server_nor_other_snapshots() {
    let mut kills = Kills::new();
    kills.creations(&[]);
    kills.creations(&["--checkpoint", "none"]);
    kills.creations(&["--durable"]);
    kills.drops("middle");
    kills.drops("top");
    if is_soak() {
        kills.reverts();
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

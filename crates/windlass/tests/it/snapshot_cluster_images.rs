//! `DATABASE@NAME` in the place of a set or an image, for PostgreSQL and each method: open, mount,
//! extract, verify, diff; and whether the snapshot can be dropped meanwhile.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};

const METHODS: [&str; 3] = ["hook", "clone", "copy"];
const ROWS: &str = "3000";
/// `moved` is in a tablespace.
const CHANGED: [&str; 2] = ["changed", "moved"];

/// A cluster on XFS with a snapshot of each method. Since then each row of two tables was changed,
/// and none of a third.
struct Kept {
    cluster: PrivateCluster,
    scratch: Scratch,
    /// The file of each changed table, and its bytes as of the snapshots.
    files: Vec<(String, Vec<u8>)>,
    volume: Volume,
}

/// One snapshot, in one of the ways in which it is named.
struct Named {
    method: &'static str,
    word: String,
}

impl Kept {
    fn new() -> Self {
        stay_root();
        let (volume, scratch) = (Volume::new(VolumeKind::Xfs, 1500), Scratch::new());
        let library = library(&scratch).display().to_string();
        let options = ClusterOptions::default().initdb("--data-checksums");
        let options = options.setting(format!("shared_preload_libraries = '{library}'"));
        let mut made = PrivateCluster::start(&options.setting("autovacuum = off"));
        made.stop("fast");
        let (data, far) = (volume.at().join("data"), volume.at().join("far"));
        succeed(Command::new("cp").arg("-a").arg(made.data()).arg(&data));
        std::fs::create_dir(&far).unwrap();
        give_to_servers(&far);
        let cluster = PrivateCluster::adopt(&data, DEFAULT_BIN.as_ref());
        let sql = |text: &str| cluster.sql("postgres", text);
        sql(&format!(
            "CREATE TABLESPACE far LOCATION '{}'",
            far.display()
        ));
        for (table, place) in [("changed", ""), ("moved", "TABLESPACE far"), ("quiet", "")] {
            let rows = format!("SELECT i, md5(i::text) AS x FROM generate_series(1, {ROWS}) i");
            sql(&format!("CREATE TABLE {table} {place} AS {rows}"));
        }
        // From here on the files are what they will be: nobody sets a hint bit.
        sql("VACUUM (FREEZE)");
        sql("CHECKPOINT");
        let file = |table: &str| {
            let path = sql(&format!("SELECT pg_relation_filepath('{table}')"));
            let bytes = std::fs::read(data.join(&path)).unwrap();
            (path, bytes)
        };
        let files = CHANGED.map(file).to_vec();
        let conninfo = cluster.conninfo();
        for method in METHODS {
            let words = ["snapshot", "create", &conninfo, method, "--method", method];
            run(&scratch, 0, &words);
        }
        for table in CHANGED {
            sql(&format!("UPDATE {table} SET x = 'changed'"));
        }
        sql("CHECKPOINT");
        Self {
            cluster,
            scratch,
            files,
            volume,
        }
    }

    fn words(&self) -> Vec<Named> {
        let (conninfo, data) = (self.cluster.conninfo(), self.data());
        let named = |method| {
            let name = format!("{conninfo}@{method}");
            let directory = format!("{data}.windlass-snapshots/{method}");
            [name, directory].map(|word| Named { method, word })
        };
        METHODS.into_iter().flat_map(named).collect()
    }

    fn data(&self) -> String {
        self.cluster.data().display().to_string()
    }

    fn json(&self, code: i32, words: &[&str]) -> Value {
        let said = run(&self.scratch, code, &[words, &["--json"]].concat());
        serde_json::from_str(said.lines().next().unwrap()).unwrap()
    }

    /// The files below a directory are those of the snapshots.
    fn compare(&self, at: &Path, word: &str) {
        for (path, bytes) in &self.files {
            let found = std::fs::read(at.join(path)).unwrap();
            assert!(found == *bytes, "{path} of {word}");
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        forget(&self.cluster);
    }
}

/// What a drop says while somebody reads the snapshot.
const IN_USE: [&str; 2] = ["in use", "hint: "];

/// One cluster for all, because making it takes the most time.
#[test]
fn a_snapshot_of_a_cluster_stands_wherever_a_set_or_an_image_may() {
    let kept = Kept::new();
    kept.are_extracted_verified_and_compared();
    kept.are_opened_and_not_dropped_meanwhile();
    kept.are_mounted_and_not_dropped_meanwhile();
    kept.scratch.assert_clean();
}

impl Kept {
    fn are_extracted_verified_and_compared(&self) {
        let (data, conninfo) = (self.data(), self.cluster.conninfo());
        for (number, Named { method, word }) in self.words().iter().enumerate() {
            let into = self.scratch.path().join(format!("extracted{number}"));
            let relations = ["--relation", "public.changed", "--relation", "public.moved"];
            let words = ["extract", word, "--into", into.to_str().unwrap()];
            run(&self.scratch, 0, &[&words[..], &relations].concat());
            self.compare(&into, word);

            let document = self.json(0, &["verify", word]);
            assert_eq!(document["ok"], true, "{document}");
            let said = run(&self.scratch, 0, &["verify", word]);
            for (of, part) in [
                ("hook", "pages that the hook kept have checksums"),
                ("clone", "its files have no checksums"),
            ] {
                assert_eq!(said.contains(part), *method == of, "{word}: {said}");
            }

            // The cluster has two names.
            let live = [&data, &conninfo][number % 2];
            let document = self.json(3, &["diff", word, live]);
            let relations = document["relations"].as_array().unwrap();
            let differs = |table: &str| {
                let name = format!("public.{table}");
                relations.iter().any(|one| one.to_string().contains(&name))
            };
            assert!(CHANGED.iter().all(|table| differs(table)), "{document}");
            assert!(!differs("quiet"), "{document}");
        }
    }

    fn are_opened_and_not_dropped_meanwhile(&self) {
        let conninfo = self.cluster.conninfo();
        let table = CHANGED[0];
        let count = format!("SELECT count(*) FROM {table} WHERE x = md5(i::text)");
        for Named { method, word } in self.words() {
            if method != "copy" {
                let program = env!("CARGO_BIN_EXE_windlass");
                let open = ["open", "--quiet", &word, "--", program];
                let drop = ["snapshot", "drop", &conninfo, method];
                let said = run(&self.scratch, 1, &[&open[..], &drop].concat());
                assert!(IN_USE.iter().all(|part| said.contains(part)), "{said}");
            }
            let sql = format!("DELETE FROM {table} WHERE i > 10; {count}");
            let psql = ["--quiet", &word, "--", "psql", "-XqAt", "-c"];
            let words = [&["open", "--writable"], &psql[..], &[&sql]].concat();
            assert_eq!(run(&self.scratch, 0, &words), "10\n", "{word}");
            // What was written is thrown away.
            let words = [&["open"], &psql[..], &[&count]].concat();
            assert_eq!(run(&self.scratch, 0, &words), format!("{ROWS}\n"), "{word}");
            if word.contains('@') {
                let said = run(&self.scratch, 0, &["verify", &word, "--open"]);
                assert!(said.contains("nothing wrong was found"), "{said}");
            }
        }
    }

    /// Mounts a snapshot, served by a process of its own, and returns when the files are there.
    fn mount(&self, word: &str, at: &Path) -> Child {
        let words = ["mount", "--foreground", word, at.to_str().unwrap()];
        let mut command = self.scratch.command(None, &words);
        let mut serving = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(serving.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted  "), "{word}: {line:?}");
        serving
    }

    /// Drops all of them, too: a copy while it is mounted, because whoever reads a set has it open.
    fn are_mounted_and_not_dropped_meanwhile(&self) {
        let conninfo = self.cluster.conninfo();
        let at = self.scratch.path().join("at");
        std::fs::create_dir(&at).unwrap();
        for Named { method, word } in self.words() {
            let serving = self.mount(&word, &at);
            let drop = ["snapshot", "drop", &conninfo, method];
            let is_last = !word.contains('@');
            if method != "copy" {
                let said = run(&self.scratch, 1, &drop);
                assert!(IN_USE.iter().all(|part| said.contains(part)), "{said}");
            } else if is_last {
                run(&self.scratch, 0, &drop);
            }
            self.compare(&at, &word);
            unmount(serving, &at);
            if method != "copy" && is_last {
                run(&self.scratch, 0, &drop);
            }
        }
        assert!(!self.volume.at().join("data.windlass-snapshots").exists());
    }
}

/// Unmounts, and waits for the process that served the files: until its end it has the snapshot.
/// One that another test is starting may have a file of the mount open until it runs its program.
fn unmount(mut serving: Child, at: &Path) {
    let mut helper = Command::new("fusermount3");
    let unmounted = helper.args(["-u", "-z"]).arg(at).status();
    assert!(unmounted.unwrap().success());
    serving.wait().unwrap();
}

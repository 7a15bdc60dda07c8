//! `windlass snapshot revert` and `undo` of PostgreSQL clusters, by each method, also when they are
//! killed.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

mod killed;
mod log;
mod server;
mod subject;

use std::path::Path;

use windlass_testkit::installed::{of_version, other_versions};
use windlass_testkit::postgres::succeed;
use windlass_testkit::volume::{Volume, VolumeKind};

pub use killed::settled_in;

use crate::snapshot_hook::run;
use subject::{Making, Subject, TIMELINE};

fn a_cluster_goes_back(method: &str, volume: Option<&Volume>) {
    goes_back_and_forth(method, Subject::new(volume, method == "hook"));
}

fn goes_back_and_forth(method: &str, mut subject: Subject) {
    let conninfo = subject.cluster.conninfo();
    let before = subject.rows();
    let create = |subject: &Subject, name: &str| {
        let words = ["snapshot", "create", &conninfo, name, "--method", method];
        // A durable snapshot takes another way through the hook.
        let more: &[&str] = match (method, name) {
            ("hook", "newer") => &["--durable"],
            _ => &[],
        };
        subject.windlass(&[&words[..], more].concat())
    };
    create(&subject, "then");
    subject.change();
    create(&subject, "newer");
    subject.sql("UPDATE updated SET x = 'again' WHERE i % 7 = 0");
    let after = subject.rows();
    let word = format!("{conninfo}@then");

    // Nobody can be asked, so nothing happens.
    let asked = run(&subject.scratch, 2, &["snapshot", "revert", &word]);
    for part in [
        "server is stopped",
        "Newer snapshots stay as they are: newer",
    ] {
        assert!(asked.contains(part), "{asked}");
    }
    assert_eq!(subject.rows(), after);

    let told = subject.windlass(&["snapshot", "revert", &word, "--yes", "--json"]);
    assert_time_follows_changes(method, &told);
    assert_eq!(subject.rows(), before, "{told}");
    assert_eq!(subject.sql(TIMELINE), "2");
    assert_eq!(
        subject.sql("SHOW work_mem"),
        "5MB",
        "settings are not reverted"
    );
    assert_eq!(subject.sql("SELECT count(*) FROM passing"), "0");
    assert_eq!(subject.sql("SELECT gid FROM pg_prepared_xacts"), "two");
    subject.sql("ROLLBACK PREPARED 'two'");
    subject.archived();
    let history = subject.scratch.path().join("archive/00000002.history");
    assert!(history.exists());
    let sql = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t";
    for (name, hash) in [("then", Some(&before[0])), ("newer", None)] {
        let word = format!("{conninfo}@{name}");
        let bin = subject.cluster.bin().to_str().unwrap();
        let open = ["open", "--quiet", "--bindir", bin, &word, "--"];
        let ask = ["psql", "-XqAt", "-c", sql];
        let found = subject.windlass(&[&open[..], &ask].concat());
        match hash {
            Some(hash) => assert_eq!(found.trim(), hash),
            None => assert!(!before.contains(&found.trim().to_owned()), "{found}"),
        }
    }
    subject.check();

    subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
    assert_eq!(subject.rows(), after);
    assert_eq!(subject.sql(TIMELINE), "3");
    subject.archived();
    subject.check();
    // An undo can be undone by the name of what it overwrote.
    let refused = run(&subject.scratch, 1, &["snapshot", "undo", &conninfo]);
    assert!(refused.contains("hint: There is undo:2."), "{refused}");
    subject.windlass(&["snapshot", "undo", &conninfo, "undo:2", "--yes"]);
    assert_eq!(subject.rows(), before);
    for name in ["then", "newer"] {
        subject.windlass(&["snapshot", "drop", &conninfo, name]);
    }
    subject.scratch.assert_clean();
}

/// Only a copy is compared with all of the cluster. The hook and the file system say which pages
/// were written.
fn assert_time_follows_changes(method: &str, told: &str) {
    let told: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(told["kept"], "undo:1", "{told}");
    let pages = |name: &str| told[name].as_u64().unwrap();
    let (all, compared) = (pages("pages"), pages("pages_compared"));
    assert!(compared >= pages("pages_written"), "{told}");
    match method {
        "copy" => assert!(compared * 10 > all * 9, "{told}"),
        // What differs is kept. Some of what was written is the same again.
        _ => assert!(compared * 2 < pages("pages_kept") * 3, "{told}"),
    }
}

/// A script that tries again must not lose what the first revert has kept.
#[test]
fn a_revert_that_finds_nothing_to_write_leaves_what_an_earlier_one_has_kept() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    // No server runs between both, so nothing is written.
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    let told = subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    assert!(told.contains("nothing: it was so already"), "{told}");
    subject.windlass(&["snapshot", "undo", &data, "--yes"]);
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
}

/// Reverts to snapshots of what is there keep nothing, or they would take the room of a state that
/// somebody needs.
#[test]
fn a_revert_of_a_cluster_that_is_so_already_keeps_nothing() {
    for (with_hook, method) in [(true, "hook"), (false, "copy")] {
        let subject = Subject::of(&Making {
            with_hook,
            settings: vec!["autovacuum = off".into()],
            ..Making::default()
        });
        let conninfo = subject.cluster.conninfo();
        let create = |name: &str| {
            let words = ["snapshot", "create", &conninfo, name, "--method", method];
            subject.windlass(&words);
        };
        let revert = |name: &str| {
            let word = format!("{conninfo}@{name}");
            subject.windlass(&["snapshot", "revert", &word, "--yes"])
        };
        create("then");
        subject.sql("CREATE TABLE precious AS SELECT 7 AS i");
        assert!(revert("then").contains("undo:1"), "{method}");
        create("same");
        let told = revert("same");
        assert!(told.contains("nothing: it was so already"), "{told}");
        assert!(!told.contains("undo"), "{told}");
        let listed = subject.windlass(&["snapshot", "list", &conninfo]);
        assert!(!listed.contains("undo:2"), "{listed}");
        subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
        assert_eq!(subject.sql("SELECT i FROM precious"), "7");
    }
}

/// What is only in the log of a snapshot comes, too, although no page of it differs.
#[test]
fn a_revert_brings_what_only_the_log_of_a_snapshot_has() {
    let subject = Subject::of(&Making {
        with_hook: true,
        settings: vec!["autovacuum = off".into()],
        ..Making::default()
    });
    let conninfo = subject.cluster.conninfo();
    let create = |name: &str, checkpoint: &str| {
        let words = ["snapshot", "create", &conninfo, name, "--method", "hook"];
        subject.windlass(&[&words[..], &["--checkpoint", checkpoint]].concat());
    };
    let revert = |name: &str| {
        let word = format!("{conninfo}@{name}");
        subject.windlass(&["snapshot", "revert", &word, "--yes"])
    };
    create("before", "fast");
    let before = subject.rows();
    // In a page that is there, and in the log of the second snapshot only.
    subject.sql("UPDATE updated SET x = 'logged' WHERE i = 4000");
    create("after", "none");
    let after = subject.rows();
    assert_ne!(before, after);
    for _ in 0..2 {
        revert("before");
        assert_eq!(subject.rows(), before);
        let told = revert("after");
        assert!(!told.contains("it was so already"), "{told}");
        assert_eq!(subject.rows(), after);
    }
}

/// A revert that is typed twice must not take away what the first one has kept.
#[test]
fn each_revert_of_a_cluster_keeps_what_it_overwrote_and_each_undo_goes_back_one_more() {
    let mut subject = Subject::new(None, true);
    let conninfo = subject.cluster.conninfo();
    let mut states = vec![subject.rows()];
    let words = ["snapshot", "create", &conninfo, "then", "--method", "hook"];
    subject.windlass(&words);
    let word = format!("{conninfo}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    subject.change();
    states.push(subject.rows());
    subject.windlass(&revert);
    // What the server writes of its own accord, or a little more.
    subject.sql("UPDATE updated SET x = 'a little' WHERE i = 1");
    states.push(subject.rows());
    let told = subject.windlass(&revert);
    assert!(told.contains("are kept as undo:2"), "{told}");
    assert_eq!(subject.rows(), states[0]);
    let listed = subject.windlass(&["snapshot", "list", &conninfo]);
    assert_eq!(
        listed.matches("before the revert with then").count(),
        2,
        "{listed}"
    );
    for state in states[1..].iter().rev() {
        subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
        assert_eq!(subject.rows(), *state);
        subject.check();
    }
    // The fourth state takes the place of the oldest, and that is said.
    for round in 0..2 {
        subject.sql(&format!(
            "UPDATE updated SET x = 'more {round}' WHERE i < 9"
        ));
        let told = subject.windlass(&revert);
        let gone = told.contains("Windlass keeps the newest 3");
        assert_eq!(gone, round == 1, "{told}");
    }
    subject.windlass(&["snapshot", "drop", &conninfo, "undo:4"]);
    subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
    subject.check();
    let dropped = subject.windlass(&["snapshot", "drop", &conninfo, "then"]);
    assert!(dropped.contains("and with it undo:"), "{dropped}");
    subject.scratch.assert_clean();
}

#[test]
fn a_cluster_goes_back_to_a_copy_and_forth_again() {
    a_cluster_goes_back("copy", None);
}

#[test]
fn a_cluster_goes_back_to_what_the_hook_kept_and_forth_again() {
    a_cluster_goes_back("hook", None);
}

/// The server of 14 loads no libraries when it recovers alone, and the layouts of 17 and 18 differ.
#[test]
fn clusters_of_other_versions_go_back_to_what_the_hook_kept_and_forth_again() {
    for major in [14, 17, 18] {
        let making = Making {
            with_hook: true,
            bin: of_version(other_versions(), major),
            ..Making::default()
        };
        goes_back_and_forth("hook", Subject::of(&making));
    }
}

#[test]
fn a_cluster_goes_back_to_a_clone_and_forth_again() {
    a_cluster_goes_back("clone", Some(&Volume::new(VolumeKind::Xfs, 1500)));
}

#[test]
fn a_standby_and_a_server_that_crashed_are_refused_and_not_changed() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.sql("UPDATE updated SET x = 'changed'");
    let word = format!("{data}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    subject.cluster.stop("immediate");
    let said = run(&subject.scratch, 1, &revert);
    assert!(said.contains("was not shut down"), "{said}");
    assert!(said.contains("hint: Start the server once"), "{said}");
    subject.cluster.run();
    subject.cluster.stop("fast");
    let signal = Path::new(&data).join("standby.signal");
    std::fs::File::create(&signal).unwrap();
    let said = run(&subject.scratch, 1, &revert);
    assert!(said.contains("belongs to a standby"), "{said}");
    std::fs::remove_file(signal).unwrap();
    // A server that did not run is not started.
    let told = subject.windlass(&revert);
    let (_, start) = told.split_once("start the server: ").expect(&told);
    assert!(!Path::new(&data).join("postmaster.pid").exists());
    // Root typed the command, and types this one as it stands.
    // The server keeps open what it inherits.
    let start = format!("{} >/dev/null 2>&1", start.lines().next().unwrap());
    succeed(subject.scratch.command_of("sh").args(["-c", &start]));
    let stop = ["stop", "-m", "fast", "-D", &data];
    succeed(subject.cluster.tool("pg_ctl").args(stop));
    subject.cluster.run();
    assert_eq!(subject.sql(TIMELINE), "2");
}

#[test]
fn a_cluster_whose_server_ran_without_the_hook_does_not_go_back_to_what_the_hook_kept() {
    let mut subject = Subject::new(None, true);
    let conninfo = subject.cluster.conninfo();
    let words = ["snapshot", "create", &conninfo, "then", "--method", "hook"];
    subject.windlass(&words);
    subject.cluster.stop("fast");
    subject.cluster.option("-c shared_preload_libraries=");
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'unseen'");
    let after = subject.rows();
    let word = format!("{conninfo}@then");
    let said = run(&subject.scratch, 1, &["snapshot", "revert", &word, "--yes"]);
    assert!(said.contains("was changed without the hook"), "{said}");
    // The server runs again, and nothing was changed.
    assert_eq!(subject.rows(), after);
    assert_eq!(subject.sql(TIMELINE), "1");
}

/// A revert tells the hook what pg_control becomes. That must not hide what was written unseen.
#[test]
fn a_snapshot_that_was_lost_before_a_revert_to_another_one_is_lost_after_it() {
    let mut subject = Subject::new(None, true);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let loaded = subject.sql("SHOW shared_preload_libraries");
    for (name, method) in [("copied", "copy"), ("hooked", "hook")] {
        subject.windlass(&["snapshot", "create", &conninfo, name, "--method", method]);
    }
    subject.cluster.stop("fast");
    let load = |list: &str| format!("shared_preload_libraries = '{list}'");
    subject.cluster.configure(&[load("")]);
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'unseen'");
    subject.cluster.stop("fast");
    subject.cluster.configure(&[load(&loaded)]);
    let word = format!("{data}@copied");
    let is_lost = |of: &str| {
        let listed = run(&subject.scratch, 3, &["snapshot", "list", of]);
        assert!(listed.contains("was changed without the hook"), "{listed}");
    };
    is_lost(&data);
    run(&subject.scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    subject.cluster.run();
    is_lost(&conninfo);
}

/// Without the file of its store, a snapshot by the hook cannot keep what a revert overwrites.
#[test]
fn a_snapshot_whose_store_is_gone_is_lost_by_a_revert_to_another_one() {
    let mut subject = Subject::new(None, true);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let store = subject.scratch.path().join("store");
    std::fs::create_dir(&store).unwrap();
    windlass_testkit::postgres::give_to_servers(&store);
    let to = store.display().to_string();
    subject.windlass(&[
        "snapshot", "create", &conninfo, "copied", "--method", "copy",
    ]);
    subject.sql("UPDATE updated SET x = 'changed'");
    let words = [
        "snapshot", "create", &conninfo, "hooked", "--method", "hook",
    ];
    subject.windlass(&[&words[..], &["--to", &to]].concat());
    subject.cluster.stop("fast");
    let is_store = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "pages");
    let files = std::fs::read_dir(&store).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    std::fs::remove_file(files.find(is_store).unwrap()).unwrap();
    let listed = run(&subject.scratch, 3, &["snapshot", "list", &data]);
    assert!(listed.contains("the file with its pages"), "{listed}");
    let word = format!("{data}@copied");
    run(&subject.scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    let listed = run(&subject.scratch, 3, &["snapshot", "list", &data]);
    assert!(
        listed.contains("could not keep a page in the store"),
        "{listed}"
    );
    subject.cluster.run();
}

/// A revert is growth for snapshots by the hook, so it may end those with a limit.
#[test]
fn snapshots_that_a_revert_may_end_or_ends_by_their_limits_are_named() {
    let subject = Subject::new(None, true);
    let conninfo = subject.cluster.conninfo();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    for (name, more) in [("limited", &["--max-size", "64KiB"][..]), ("kept", &[])] {
        let words = ["snapshot", "create", &conninfo, name, "--method", "hook"];
        subject.windlass(&[&words[..], more].concat());
    }
    let word = format!("{conninfo}@then");
    let asked = run(&subject.scratch, 2, &["snapshot", "revert", &word]);
    assert!(
        asked.contains("Newer snapshots stay as they are: kept."),
        "{asked}"
    );
    assert!(
        asked.contains("may reach their limits and end: limited."),
        "{asked}"
    );
    let told = run(&subject.scratch, 3, &["snapshot", "revert", &word, "--yes"]);
    assert!(
        told.contains("warning: the snapshot limited has ended: it grew beyond its limit"),
        "{told}"
    );
    let listed = run(&subject.scratch, 3, &["snapshot", "list", &conninfo]);
    assert_eq!(listed.matches("ended: ").count(), 1, "{listed}");
    assert!(!listed.contains("lost: "), "{listed}");
}

/// A revert has a file of the same name for its own recovery, and removes it at its end.
#[test]
fn a_cluster_that_is_to_recover_is_not_reverted_and_its_server_goes_on() {
    let subject = Subject::new(None, false);
    let conninfo = subject.cluster.conninfo();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    let before = subject.rows();
    subject.change();
    let after = subject.rows();
    let signal = subject.cluster.data().join("recovery.signal");
    std::fs::write(&signal, "").unwrap();
    let word = format!("{conninfo}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    let refused = run(&subject.scratch, 1, &revert);
    assert!(refused.contains("is to recover"), "{refused}");
    assert!(signal.exists());
    assert_eq!(subject.rows(), after);
    std::fs::remove_file(&signal).unwrap();
    subject.windlass(&revert);
    assert_eq!(subject.rows(), before);
}

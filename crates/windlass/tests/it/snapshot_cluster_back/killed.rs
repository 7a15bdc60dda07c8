//! Reverts that are killed: the next command finishes or undoes them.

use std::path::Path;

use windlass_snapshot::{Place, SnapshotError, SnapshotName};
use windlass_testkit::postgres::give_to_servers;
use windlass_testkit::volume::{Volume, VolumeKind};

use super::subject::{Making, Subject};
use crate::opening::Scratch;
use crate::snapshot_hook::run;
use crate::support::text;

/// Calls at whose entry Windlass is killed: the call, and which one of its kind.
const KILLS: [(&str, u32); 14] = [
    // pg_control goes aside. What is kept is begun, and complete.
    ("rename", 1),
    ("mkdir", 2),
    ("rename", 4),
    // The number is noted. The note that the cluster is overwritten from now on.
    ("rename", 5),
    ("rename", 6),
    // Pages and lengths; the first and a later one.
    ("pwrite64", 1),
    ("pwrite64", 40),
    ("ftruncate", 1),
    // The log goes. pg_control of the target comes.
    ("renameat", 2),
    ("rename", 11),
    // The server recovers: PostgreSQL is asked for its directory three times before. The settings
    // and what was kept get their places.
    ("wait4", 4),
    ("rename", 12),
    ("syncfs", 2),
    ("rename", 13),
];

/// The same where the controller keeps pages for other snapshots, and where files share blocks.
const KILLS_OTHER: [(&str, u32); 6] = [
    ("rename", 4),
    ("pwrite64", 1),
    ("pwrite64", 40),
    ("renameat", 2),
    ("wait4", 4),
    ("syncfs", 2),
];

/// The list of the snapshots. A server that ends with the killed Windlass is waited for, but may be
/// about to take the directory.
pub fn settled(subject: &Subject) -> String {
    settled_in(&subject.scratch, &subject.data())
}

/// The same of a cluster in a data directory.
pub fn settled_in(scratch: &Scratch, data: &str) -> String {
    settled_by(scratch, &["snapshot", "list", data])
}

/// What a command says that settles what was cut off.
fn settled_by(scratch: &Scratch, words: &[&str]) -> String {
    loop {
        let output = scratch.run(None, words);
        let said = text(&output);
        match output.status.code() {
            Some(1) if said.contains("\"postmaster.pid\"") => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            code => {
                assert_eq!(code, Some(0), "{said}");
                return said;
            }
        }
    }
}

fn a_killed_revert_is_settled(making: &Making<'_>, method: &str, kills: &[(&str, u32)]) {
    let mut subject = Subject::of(making);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    let create = ["snapshot", "create", &conninfo, "--method", method];
    subject.windlass(&[&create[..], &["then"]].concat());
    subject.change();
    let after = subject.rows();
    subject.windlass(&[&create[..], &["newer"]].concat());
    let word = format!("{data}@then");
    let (mut undone, mut finished) = (0, 0);
    for (call, number) in kills {
        let at = format!("{call} {number}");
        subject.cluster.stop("fast");
        let words = ["snapshot", "revert", &word, "--yes"];
        subject.kill_at(&format!("{call}:when={number}"), &words);
        let control = Path::new(&data).join("global/pg_control");
        if !control.exists() {
            // Whoever starts the server now learns that it cannot be.
            let refused = subject.cluster.try_run();
            assert!(!refused.status.success(), "{at}");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(said.contains("pg_control"), "{at}: {said}");
        }
        let listed = settled(&subject);
        undone += usize::from(listed.contains("undid a revert that was cut off"));
        finished += usize::from(listed.contains("finished a revert that was cut off"));
        subject.cluster.run();
        let rows = subject.rows();
        if rows == before {
            subject.cluster.stop("fast");
            subject.windlass(&["snapshot", "undo", &data, "--yes"]);
            subject.cluster.run();
        } else {
            assert_eq!(rows, after, "{at}: {listed}");
        }
        assert_eq!(subject.rows(), after, "{at}");
    }
    assert!(
        undone * 3 >= kills.len() && finished > 1,
        "{undone} and {finished}"
    );
    for (name, rows) in [("then", &before), ("newer", &after)] {
        let sql = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t";
        let word = format!("{conninfo}@{name}");
        let open = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", sql];
        assert_eq!(subject.windlass(&open).trim(), rows[0], "{name}");
    }
    subject.check();
}

#[test]
fn a_revert_to_a_copy_that_is_killed_is_finished_or_undone_by_the_next_command() {
    a_killed_revert_is_settled(&Making::default(), "copy", &KILLS);
}

#[test]
fn a_revert_to_what_the_hook_kept_that_is_killed_is_finished_or_undone() {
    let making = Making {
        with_hook: true,
        ..Making::default()
    };
    a_killed_revert_is_settled(&making, "hook", &KILLS_OTHER);
}

#[test]
fn a_revert_to_a_clone_that_is_killed_is_finished_or_undone() {
    let volume = Volume::new(VolumeKind::Xfs, 1500);
    let making = Making {
        volume: Some(&volume),
        ..Making::default()
    };
    // The tablespace is on another file system, so each sync is two calls.
    let kills = KILLS_OTHER.map(|(call, number)| match call {
        "syncfs" => (call, 3),
        call => (call, number),
    });
    a_killed_revert_is_settled(&making, "clone", &kills);
}

/// An undo overwrites as a revert does, and what it brings back has to stay until it is done. What
/// settles it calls it an undo, also if no record of what it kept says so yet.
#[test]
fn a_killed_undo_of_a_cluster_is_finished_or_undone() {
    let mut subject = Subject::of(&Making {
        with_hook: true,
        ..Making::default()
    });
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "hook"]);
    subject.change();
    let after = subject.rows();
    subject.cluster.stop("fast");
    subject.windlass(&["snapshot", "revert", &format!("{data}@then"), "--yes"]);
    // The note that it is an undo is there and pg_control is aside, and what is kept has no record
    // yet. Then pages are overwritten. At last pg_control is that of the state, and the server
    // recovers: PostgreSQL is asked for its directory three times before.
    for (call, said, rows) in [
        ("rename:when=4", "undid an undo that was cut off", &before),
        ("pwrite64:when=1", "undid an undo that was cut off", &before),
        ("wait4:when=4", "finished an undo that was cut off", &after),
    ] {
        subject.kill_at(call, &["snapshot", "undo", &data, "--yes"]);
        let listed = settled(&subject);
        assert!(listed.contains(said), "{call}: {listed}");
        subject.cluster.run();
        assert_eq!(subject.rows(), *rows, "{call}: {listed}");
        subject.cluster.stop("fast");
    }
    // What was brought back has left the list, and what the undo overwrote has a name.
    let listed = subject.windlass(&["snapshot", "list", &data, "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    let kept = listed["undo"].as_array().unwrap();
    assert_eq!(kept.len(), 1, "{listed}");
    let name = kept[0]["name"].as_str().unwrap();
    subject.windlass(&["snapshot", "undo", &data, name, "--yes"]);
    subject.cluster.run();
    assert_eq!(subject.rows(), before);
}

/// Whoever types a killed undo again wants its end, and not the state before that, nor an error
/// because the state that he names was brought back.
#[test]
fn an_undo_that_finishes_the_same_one_that_was_killed_undoes_no_more() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.sql("UPDATE updated SET x = 'first'");
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    let undo = ["snapshot", "undo", &data, "--yes"];
    subject.windlass(&revert);
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'second'");
    let second = subject.rows();
    subject.cluster.stop("fast");
    subject.windlass(&revert);
    for is_json in [false, true] {
        let name = newest_state(&subject);
        // pg_control is that of the state, and the server recovers.
        subject.kill_at("wait4:when=4", &undo);
        let more = match is_json {
            true => vec![name.as_str(), "--json"],
            false => Vec::new(),
        };
        let said = settled_by(&subject.scratch, &[&undo[..], &more[..]].concat());
        let end = if is_json {
            "\"finished\":true"
        } else {
            "no other began"
        };
        assert!(said.contains(end), "{said}");
        subject.cluster.run();
        assert_eq!(subject.rows(), second, "{said}");
        subject.cluster.stop("fast");
        subject.windlass(&revert);
    }
}

/// It is undone already, and nobody asked for what the one before it overwrote.
#[test]
fn an_undo_that_undoes_a_killed_revert_brings_back_nothing_older() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.sql("UPDATE updated SET x = 'first'");
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    subject.windlass(&revert);
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'second'");
    let second = subject.rows();
    subject.cluster.stop("fast");
    subject.kill_at("syncfs", &revert);
    let undo = ["snapshot", "undo", &data, "--yes"];
    let said = settled_by(&subject.scratch, &undo);
    assert!(said.contains("undid a revert that was cut off"), "{said}");
    assert!(said.contains("no undo began"), "{said}");
    subject.cluster.run();
    assert_eq!(subject.rows(), second, "{said}");
}

/// The name of the newest state that was overwritten.
fn newest_state(subject: &Subject) -> String {
    let listed = subject.windlass(&["snapshot", "list", &subject.data(), "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    let newest = listed["undo"].as_array().unwrap().last().unwrap();
    newest["name"].as_str().unwrap().to_owned()
}

/// The snapshot keeps what the revert overwrites. If it is on a disk that is not mounted, nobody
/// can undo the revert, and nothing may say that it is undone.
#[test]
fn a_killed_revert_waits_for_the_disk_of_its_snapshot() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let (disk, unmounted) = (
        subject.scratch.path().join("disk"),
        subject.scratch.path().join("unmounted"),
    );
    std::fs::create_dir(&disk).unwrap();
    give_to_servers(&disk);
    let to = disk.join("snapshots").display().to_string();
    subject.windlass(&[
        "snapshot", "create", &conninfo, "then", "--method", "copy", "--to", &to,
    ]);
    subject.change();
    let after = subject.rows();
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    subject.kill_at("syncfs", &["snapshot", "revert", &word, "--yes"]);
    let control = Path::new(&data).join("global/pg_control");
    assert!(!control.exists());
    let said = run(&subject.scratch, 1, &["diff", &word, &data]);
    assert!(
        said.contains("A revert of this cluster was cut off"),
        "{said}"
    );
    // Whoever waited for the end of this revert to drop the snapshot must not do that now.
    let place = Place::beside(Path::new(&data)).unwrap();
    let then = SnapshotName::parse("then").unwrap();
    let refused = place.remove(&then, &mut |_| {}).unwrap_err();
    let is_needed = matches!(refused, SnapshotError::NeededToUndo { .. });
    assert!(is_needed, "{refused}");
    std::fs::rename(&disk, &unmounted).unwrap();
    let said = run(&subject.scratch, 1, &["snapshot", "list", &data]);
    assert!(said.contains("which is not there"), "{said}");
    assert!(!control.exists());
    std::fs::rename(&unmounted, &disk).unwrap();
    let said = settled(&subject);
    assert!(said.contains("undid a revert that was cut off"), "{said}");
    // A command that drops it ends such a revert first.
    subject.kill_at("syncfs", &["snapshot", "revert", &word, "--yes"]);
    assert!(!control.exists());
    let told = subject.windlass(&["snapshot", "drop", &data, "then"]);
    assert!(told.contains("undid a revert that was cut off"), "{told}");
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
}

/// Nobody notes where the place of a copy is. If it was moved by hand, nothing may say that the
/// revert changed nothing.
#[test]
fn a_killed_revert_waits_for_the_place_of_its_snapshots_that_was_moved_by_hand() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    subject.kill_at("syncfs", &["snapshot", "revert", &word, "--yes"]);
    let control = Path::new(&data).join("global/pg_control");
    assert!(!control.exists());
    let home = Place::beside(Path::new(&data)).unwrap().home().to_owned();
    let moved = home.with_extension("moved");
    std::fs::rename(&home, &moved).unwrap();
    let said = run(&subject.scratch, 1, &["snapshot", "list", &data]);
    let kept = home.join("then").display().to_string();
    assert!(said.contains(&kept), "{said}");
    assert!(said.contains("which is not there"), "{said}");
    assert!(!control.exists());
    assert!(!home.exists(), "it would be moved into this one");
    std::fs::rename(&moved, &home).unwrap();
    let said = settled(&subject);
    assert!(said.contains("undid a revert that was cut off"), "{said}");
    let note = Path::new(&data).join("global/pg_control.windlass-revert-overwrites");
    assert!(!note.exists());
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
}

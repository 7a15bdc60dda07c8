//! What a plan refuses, and what it rewrites.

use std::os::unix::fs::PermissionsExt;

use nix::unistd::{Gid, Uid};
use windlass_media::{BackupType, FileFlags};

use super::*;
use crate::error::OverFault;
use crate::facts::{ChecksumFacts, Outgoing, Tablespace};
use crate::lsn::{Lsn, Timeline};
use crate::wal::WalRange;

fn facts() -> DatabaseFacts {
    let (start, end) = (Lsn(0x200_0028), Lsn(0x200_0100));
    DatabaseFacts {
        kind: crate::KIND.into(),
        name: "main".into(),
        version: "15.4".into(),
        version_number: 150_004,
        system_identifier: "7000000000000000001".into(),
        timeline: Timeline(1),
        start_lsn: start,
        stop_lsn: end,
        start_time: "2026-11-21T09:00:00Z".into(),
        stop_time: "2026-11-21T09:00:01Z".into(),
        wal: vec![WalRange {
            timeline: Timeline(1),
            start,
            end,
        }],
        wal_segment_bytes: 16 << 20,
        block_bytes: 8192,
        label: "test".into(),
        standby: false,
        tablespaces: vec![Tablespace {
            oid: 16_400,
            name: "one".into(),
            location: "/srv/one".into(),
        }],
        checksums: ChecksumFacts::default(),
        owner: "postgres".into(),
        group_access: true,
        data_directory: "/old".into(),
        configuration_outside: Vec::new(),
        outgoing: Outgoing::default(),
        warnings: Vec::new(),
        earlier_windows: Vec::new(),
        hints_logged: true,
        log_surveyed: true,
        crash_lsn: None,
        change_mark: None,
        changes_from: None,
        restored: String::new(),
    }
}

fn set_facts(database: &DatabaseFacts) -> Facts {
    Facts {
        tool: "test".into(),
        backup_type: BackupType::Full,
        started: String::new(),
        finished: String::new(),
        options: serde_json::Value::Null,
        database: database.to_json().unwrap(),
        parents: Vec::new(),
    }
}

fn entry(file: u32, path: &str, content: &[u8]) -> FileEntry {
    FileEntry {
        file: FileNo(file),
        kind: FileKind::File,
        flags: FileFlags {
            last: path == "global/pg_control",
            crc_known: true,
        },
        mode: 0o600,
        bytes: content.len() as u64,
        mtime_nanos: 0,
        crc32c: crc32c(content),
        path: path.as_bytes().to_vec(),
        link_target: Vec::new(),
    }
}

fn link(file: u32, path: &str, target: &str) -> FileEntry {
    let link_target = target.as_bytes().to_vec();
    FileEntry {
        kind: FileKind::Symlink,
        link_target,
        ..entry(file, path, b"")
    }
}

fn table() -> FileTable {
    FileTable(vec![
        entry(0, "PG_VERSION", b"15\n"),
        link(1, "pg_tblspc/16400", "/srv/one"),
        entry(2, "backup_label", b"label"),
        entry(3, "tablespace_map", b"16400 /srv/one\n"),
        entry(4, "backup_manifest", b"{}"),
        entry(5, "global/pg_control", b"control"),
    ])
}

fn plan(
    into: &Path,
    files: &FileTable,
    map: &[(&str, &Path)],
) -> Result<RestorePlan, PostgresError> {
    let map = map
        .iter()
        .map(|(from, to)| (PathBuf::from(from), to.to_path_buf()))
        .collect();
    let request = RestoreRequest {
        delta: false,
        force: false,
        into: into.into(),
        left_out: LeftOut::default(),
        tablespace_map: map,
        keep: Kept::default(),
        id: RestoreId([7; 16]),
        recovery: None,
    };
    RestorePlan::new(&set_facts(&facts()), files, &request)
}

#[test]
fn a_mapped_tablespace_changes_link_map_and_manifest_together() {
    let place = tempfile::tempdir().unwrap();
    let (into, space) = (place.path().join("data"), place.path().join("space"));
    let plan = plan(&into, &table(), &[("/srv/one", &space)]).unwrap();
    plan.prepare().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // As the server does it: a cluster with group access has it in every directory.
    assert_eq!((mode(&into), mode(&space)), (0o750, 0o750));

    let layout = plan.layout(table());
    assert_eq!(
        layout.mounts,
        [(b"pg_tblspc/16400".to_vec(), space.clone())]
    );
    assert_eq!(layout.files.0[1].link_target, space.as_os_str().as_bytes());
    let map = format!("16400 {}\n", space.display()).into_bytes();
    assert_eq!(layout.replace[0], (FileNo(3), map.clone()));
    assert_eq!(layout.files.0[3].crc32c, crc32c(&map));
    let (number, text) = &layout.replace[1];
    assert_eq!(
        (*number, layout.files.0[4].bytes),
        (FileNo(4), text.len() as u64)
    );
    let manifest: serde_json::Value = serde_json::from_slice(text).unwrap();
    let listed = manifest["Files"].as_array().unwrap();
    let map_entry = listed
        .iter()
        .find(|file| file["Path"] == "tablespace_map")
        .unwrap();
    assert_eq!(map_entry["Size"], map.len());
}

#[test]
fn a_part_does_not_go_over_a_cluster_that_is_there() {
    let place = tempfile::tempdir().unwrap();
    let (into, space) = (place.path().join("data"), place.path().join("space"));
    std::fs::create_dir(&into).unwrap();
    std::fs::write(into.join("PG_VERSION"), "15\n").unwrap();
    let names = [(16_500, "crm".to_owned()), (16_501, "shop".to_owned())];
    let left_out = LeftOut::all_but((&names.into(), &["shop".to_owned()]), (&[], &[])).unwrap();
    let plan = |left_out: LeftOut| {
        let request = RestoreRequest {
            into: into.clone(),
            delta: true,
            force: true,
            tablespace_map: vec![("/srv/one".into(), space.clone())],
            left_out,
            ..RestoreRequest::default()
        };
        RestorePlan::new(&set_facts(&facts()), &table(), &request)
    };
    assert!(plan(LeftOut::default()).unwrap().over.is_some());
    let error = plan(left_out).unwrap_err();
    let is_refused = matches!(error, PostgresError::TargetKept(_, OverFault::Part));
    assert!(is_refused, "{error}");
}

#[test]
fn directories_that_hold_something_overlap_or_are_odd_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let (into, space) = (place.path().join("data"), place.path().join("space"));
    std::fs::create_dir(&space).unwrap();
    std::fs::write(space.join("x"), "x").unwrap();
    let error = plan(&into, &table(), &[("/srv/one", &space)]).unwrap_err();
    assert!(
        matches!(error, PostgresError::TargetNotEmpty { .. }),
        "{error}"
    );
    let error = plan(&space, &table(), &[]).unwrap_err();
    assert!(
        matches!(error, PostgresError::TargetNotEmpty { .. }),
        "{error}"
    );
    for (to, expected) in [
        (into.join("inside"), "lie in each other"),
        (into.join("../elsewhere"), "'..'"),
        (PathBuf::from("relative"), "not absolute"),
    ] {
        let error = plan(&into, &table(), &[("/srv/one", &to)])
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let other = place.path().join("other");
    let error = plan(&into, &table(), &[("/srv/two", &other)])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("not the directory of a tablespace"),
        "{error}"
    );
}

#[test]
fn two_directories_that_links_make_one_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let (into, real, linked) = (at("data"), at("real"), at("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &linked).unwrap();
    let mut files = table();
    files.0.push(link(6, "pg_tblspc/16401", "/srv/two"));
    let mapped = |one: &Path, two: &Path, into: &Path| {
        let map: [(&str, &Path); 2] = [("/srv/one", one), ("/srv/two", two)];
        plan(into, &files, &map).map(drop)
    };
    // The last two do not exist yet, and one lies in the other.
    for (one, two) in [
        (real.clone(), linked.clone()),
        (linked.clone(), real.join("deep/er")),
        (real.join("deep/er"), linked.clone()),
        (real.join("x/y"), linked.join("x")),
    ] {
        let error = mapped(&one, &two, &into).unwrap_err().to_string();
        let says = "two tablespaces may not lie in each other";
        assert!(error.contains(says), "{one:?} {two:?}: {error}");
    }
    for (one, into) in [
        (&linked, &real),
        (&linked, &real.join("d")),
        (&linked.join("s"), &real),
    ] {
        let error = mapped(one, &at("other"), into).unwrap_err().to_string();
        let says = "a tablespace and the data directory may not lie in each other";
        assert!(error.contains(says), "{one:?} {into:?}: {error}");
    }
    mapped(&linked, &at("other"), &into).unwrap();
    assert!(!into.exists());
}

#[test]
fn a_tablespace_that_is_mapped_twice_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let (one, two) = (at("one"), at("two"));
    for was in ["/srv/one", "/srv/one/"] {
        let map: [(&str, &Path); 2] = [("/srv/one", &one), (was, &two)];
        let error = plan(&at("data"), &table(), &map).unwrap_err();
        assert!(error.to_string().contains("is mapped twice"), "{error}");
    }
}

#[test]
fn a_tablespace_that_the_facts_do_not_list_must_be_mapped() {
    let place = tempfile::tempdir().unwrap();
    let (into, space) = (place.path().join("data"), place.path().join("space"));
    let mut files = table();
    files.0.push(link(6, "pg_tblspc/16401", "/srv/two"));
    let error = plan(&into, &files, &[("/srv/one", &space)]).unwrap_err();
    assert!(error.to_string().contains("16401"), "{error}");
    assert!(error.hint().unwrap().contains("Map that directory"));
    let other = place.path().join("other");
    let map: [(&str, &Path); 2] = [("/srv/one", &space), ("/srv/two", &other)];
    plan(&into, &files, &map).unwrap();
    assert!(!into.exists());
}

#[test]
fn a_live_server_is_named_and_a_dead_ones_remains_are_not_empty() {
    let place = tempfile::tempdir().unwrap();
    let pid = place.path().join("postmaster.pid");
    std::fs::write(&pid, format!("{}\n", std::process::id())).unwrap();
    let error = plan(place.path(), &table(), &[]).unwrap_err();
    assert!(
        matches!(error, PostgresError::TargetRunning { .. }),
        "{error}"
    );
    std::fs::write(&pid, "2147483646\n").unwrap();
    let error = plan(place.path(), &table(), &[]).unwrap_err();
    assert!(
        matches!(error, PostgresError::TargetNotEmpty { .. }),
        "{error}"
    );
}

#[test]
fn a_set_that_is_no_clusters_is_refused() {
    let into = Path::new("/nonexistent/windlass-test");
    let without = |path: &str| {
        FileTable(
            table()
                .0
                .into_iter()
                .filter(|entry| entry.path != path.as_bytes())
                .collect(),
        )
    };
    for path in ["PG_VERSION", "backup_label", "global/pg_control"] {
        let error = plan(into, &without(path), &[]).unwrap_err();
        assert!(error.to_string().contains(path), "{error}");
    }
    let mut hostile = table();
    hostile.0.push(link(9, "base/evil", "/etc"));
    assert!(matches!(
        plan(into, &hostile, &[]),
        Err(PostgresError::Set { .. })
    ));
    let mut other = set_facts(&facts());
    other.database["kind"] = "sqlite".into();
    let error = RestorePlan::new(&other, &table(), &RestoreRequest::default()).unwrap_err();
    assert!(error.to_string().contains("sqlite"), "{error}");
}

#[test]
fn the_next_step_is_a_command_to_paste() {
    let place = tempfile::tempdir().unwrap();
    let plan = plan(
        &place.path().join("new data"),
        &table(),
        &[("/srv/one", Path::new("/nonexistent/w"))],
    );
    let text = plan.unwrap().next_steps();
    assert!(text.contains("new data' -w start"), "{text}");
    assert!(text.contains("consistent at 0/2000100"), "{text}");
}

#[test]
fn the_owner_of_the_new_directory_starts_the_server() {
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("data");
    let plan = plan(&into, &table(), &[("/srv/one", &place.path().join("w"))]).unwrap();
    std::fs::create_dir(&into).unwrap();
    if nix::unistd::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(4_000_000), Gid::from_raw(4_000_000));
        nix::unistd::chown(&into, Some(user), Some(group)).unwrap();
        assert!(plan.next_steps().contains("as 4000000:"));
    } else {
        let us = crate::users::user_name(nix::unistd::geteuid().as_raw());
        assert!(plan.next_steps().contains(&format!("as {us}:")));
    }
}

#[test]
fn a_file_is_no_place_for_a_cluster() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error =
        super::checks::check_data_directory(&file, &RestoreRequest::default(), 7).unwrap_err();
    assert!(
        matches!(error, PostgresError::TargetNotDirectory { .. }),
        "{error}"
    );
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("a directory"))
    );
}

#[test]
fn the_configuration_outside_is_named_in_the_command_that_starts_the_server() {
    let paths = |names: &[&str]| {
        let paths = names
            .iter()
            .map(|name| format!("/etc/postgresql/15/main/{name}"));
        configuration_options(&paths.collect::<Vec<_>>())
    };
    assert_eq!(
        paths(&["postgresql.conf", "pg_hba.conf", "pg_ident.conf"]),
        " -c config_file=/etc/postgresql/15/main/postgresql.conf \
         -c hba_file=/etc/postgresql/15/main/pg_hba.conf \
         -c ident_file=/etc/postgresql/15/main/pg_ident.conf"
    );
    assert_eq!(
        paths(&["pg_hba.conf"]),
        " -c hba_file=/etc/postgresql/15/main/pg_hba.conf"
    );
    assert_eq!(
        paths(&["pg_hba.conf", "shop.conf"]),
        " -c config_file=PATH -c hba_file=/etc/postgresql/15/main/pg_hba.conf -c ident_file=PATH"
    );
}

/// A server that begins with pg_control does not know how far it must recover to be consistent.
#[test]
fn a_set_of_what_a_crash_left_needs_no_label_and_recovers_only_to_what_lies_behind_it() {
    let end = facts().stop_lsn;
    let crashed = DatabaseFacts {
        crash_lsn: Some(Lsn(end.0 + 100)),
        ..facts()
    };
    let mut files = table();
    files.0.retain(|entry| entry.path != b"backup_label");
    assert!(check_set(&set_facts(&facts()), &files).is_err());
    check_set(&set_facts(&crashed), &files).unwrap();
    for (point, is_behind) in [
        (RecoveryPoint::Latest, true),
        (RecoveryPoint::Immediate, false),
        (RecoveryPoint::Name("x".into()), false),
        (RecoveryPoint::Transaction(7), false),
        (RecoveryPoint::Lsn(Lsn(end.0 + 99)), false),
        (RecoveryPoint::Lsn(Lsn(end.0 + 100)), true),
    ] {
        let checked = Recovery::to(point.clone()).check(&crashed);
        assert_eq!(checked.is_ok(), is_behind, "{point}");
        Recovery::to(point).check(&facts()).unwrap();
    }
}

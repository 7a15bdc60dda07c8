//! Opened clusters whose own files are damaged: the error says so and names the file, whichever
//! part of a server meets the damage first.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use windlass_engine::Cancel;
use windlass_postgres::{PostgresError, Server, inspect};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::open::Opened;
use crate::support::{Wish, try_backup};

/// What a test does to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Removes it.
    Gone,
    /// Makes it empty.
    Empty,
    /// Fills its first page with zeros.
    Zero,
    /// Fills its beginning with another byte.
    Garbage,
}
use Harm::{Empty, Garbage, Gone, Zero};

fn harm(path: &Path, harm: Harm) {
    let write = || std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = std::fs::metadata(path).unwrap().len().min(8192);
    let fill = |byte: u8| {
        let page = vec![byte; usize::try_from(bytes).unwrap()];
        write().write_all_at(&page, 0).unwrap();
    };
    match harm {
        Gone => std::fs::remove_file(path).unwrap(),
        Empty => write().set_len(0).unwrap(),
        Zero => fill(0),
        Garbage => fill(0xA5),
    }
}

/// A set of a cluster with a database of its own, and the number of that database.
fn set_of(options: &ClusterOptions) -> (Opened, String) {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(options);
    source.sql("postgres", "CREATE DATABASE shop");
    source.sql("shop", "CREATE TABLE t AS SELECT generate_series(1, 9) i");
    let shop = "SELECT oid FROM pg_database WHERE datname = 'shop'";
    let shop = source.sql("postgres", shop);
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(source.bin(), place);
    std::fs::rename(view(&opened), opened.place.path().join("sound")).unwrap();
    (opened, shop)
}

fn view(opened: &Opened) -> std::path::PathBuf {
    opened.place.path().join("view")
}

/// Makes the files of the set, and does this to one of them.
fn renew(opened: &Opened, path: &str, how: Harm) {
    let (sound, scratch) = ("sound", "scratch");
    let at = |name: &str| opened.place.path().join(name);
    for name in ["view", scratch] {
        std::fs::remove_dir_all(at(name)).unwrap_or_default();
    }
    std::fs::create_dir(at(scratch)).unwrap();
    succeed(
        Command::new("cp")
            .arg("-a")
            .arg(at(sound))
            .arg(view(opened)),
    );
    harm(&view(opened).join(path), how);
}

/// Opens the files with one of them damaged. The error must say that they are, and name the file,
/// or its directory.
fn refused(opened: &Opened, (path, rest): (&str, &str), how: Harm) {
    renew(opened, &format!("{path}{rest}"), how);
    let error = Server::start(opened.request(15), &Cancel::new()).unwrap_err();
    let said = error.to_string();
    assert!(error.is_damage(), "{path} {how:?}: {said}");
    assert!(said.contains(path), "{path} {how:?}: {said}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("damaged"), "{path} {how:?}: {hint}");
}

#[test]
fn damage_in_a_shared_catalog_is_called_damage_of_that_file() {
    for options in [
        ClusterOptions::default().initdb("--data-checksums"),
        ClusterOptions::default(),
    ] {
        let (opened, _) = set_of(&options);
        // Roles, databases, and an index of each.
        for number in [1260, 1262, 2671, 2676] {
            for how in [Gone, Empty, Zero, Garbage] {
                refused(&opened, (&format!("global/{number}"), ""), how);
            }
        }
    }
}

#[test]
fn damage_in_the_files_that_a_server_reads_first_is_called_damage_of_that_file() {
    let (opened, _) = set_of(&ClusterOptions::default());
    for path in ["PG_VERSION", "global/pg_control", "global/pg_filenode.map"] {
        for how in [Gone, Empty, Garbage] {
            refused(&opened, (path, ""), how);
        }
    }
    // Any content of a segment could be right.
    for directory in ["pg_xact", "pg_multixact/offsets", "pg_multixact/members"] {
        for how in [Gone, Empty] {
            refused(&opened, (directory, "/0000"), how);
        }
    }
}

#[test]
fn a_wrong_role_is_no_damage() {
    let (opened, _) = set_of(&ClusterOptions::default());
    renew(&opened, "postgresql.conf", Garbage);
    let mut request = opened.request(15);
    request.role = Some("nobody".into());
    let error = Server::start(request, &Cancel::new()).unwrap_err();
    assert!(!error.is_damage(), "{error}");
    assert!(
        matches!(error, PostgresError::OpenedConnect { .. }),
        "{error}"
    );
}

#[test]
fn a_database_that_nobody_can_use_is_a_fault_and_the_others_are_checked() {
    let (opened, shop) = set_of(&ClusterOptions::default());
    for (file, how) in [
        ("pg_filenode.map", Gone),
        ("pg_filenode.map", Garbage),
        ("PG_VERSION", Gone),
        ("PG_VERSION", Garbage),
        ("1259", Garbage),
        ("1249", Gone),
    ] {
        let path = format!("base/{shop}/{file}");
        renew(&opened, &path, how);
        let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
        let found = inspect(&server, &view(&opened), 2, &Cancel::new()).unwrap();
        let of_shop = |fault: &&windlass_postgres::RelationFault| fault.database == "shop";
        let fault = found.faults.iter().find(of_shop).unwrap();
        assert!(
            fault.what.contains(&format!("base/{shop}")),
            "{path} {how:?}: {fault:?}"
        );
        assert_eq!(found.databases, 2, "{path} {how:?}: {found:?}");
        server.stop().unwrap();
    }
}

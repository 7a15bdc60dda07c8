//! A data directory that the user of a run may not enter is a data directory all the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::process::Command;

use super::*;

const NOBODY: u32 = 65534;

/// A cluster's directories, which only their owner may enter, beside a database of user `nobody`.
fn closed_cluster() -> Place {
    let place = Place::new();
    place.back_up();
    plant_cluster(&place);
    fs::create_dir(place.path("space/PG_17_202406281/5/6")).unwrap();
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    for directory in ["data", "space"] {
        fs::set_permissions(place.path(directory), Permissions::from_mode(0o700)).unwrap();
    }
    place
}

#[test]
fn root_makes_no_directory_in_a_cluster_that_the_owner_of_the_database_may_not_see() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = closed_cluster();
    let nobody = Some(NOBODY);
    lchown(place.dir.path(), nobody, nobody).unwrap();
    for name in ["shop.db", "shop.db-wal", "shop.db-shm", "sets"] {
        if place.path(name).exists() {
            lchown(place.path(name), nobody, nobody).unwrap();
        }
    }
    let db = place.arg("shop.db");
    for inside in ["data", "data/base", "to-data", "space"] {
        let new = place.arg(&format!("{inside}/new"));
        refused(&place, &["backup", &db, "--to", &new]);
        refused(&place, &["tune", &db, "--to", &new]);
        let output = windlass(&["backup", &db, "--to", &new]);
        let printed = text(&output);
        let says = ["it is in the data directory", "it is in the tablespace"];
        assert!(says.iter().any(|it| printed.contains(it)), "{printed}");
    }
}

#[test]
fn an_output_goes_into_no_directory_that_may_not_be_entered() {
    let place = closed_cluster();
    let sets = place.path("sets");
    fs::set_permissions(&sets, Permissions::from_mode(0o755)).unwrap();
    let stripe = sets.join(&place.sets()[0]);
    fs::set_permissions(&stripe, Permissions::from_mode(0o644)).unwrap();
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(env!("CARGO_BIN_EXE_windlass"));
            command
        }
        false => {
            fs::set_permissions(place.path("data"), Permissions::from_mode(0o000)).unwrap();
            Command::new(env!("CARGO_BIN_EXE_windlass"))
        }
    };
    let command = command.arg("verify").arg(&stripe).arg("--metrics-file");
    let command = command.arg(place.path("data/base/new"));
    let output = command.env("WINDLASS_CONFIG", "/dev/null").output();
    fs::set_permissions(place.path("data"), Permissions::from_mode(0o700)).unwrap();
    let output = output.unwrap();
    let printed = text(&output);
    // No run fails for its metrics, and nothing is written there.
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let says = format!("may not enter {}", place.arg("data"));
    assert!(printed.contains(&says), "{printed}");
    assert!(!place.path("data/base/new").exists());
}

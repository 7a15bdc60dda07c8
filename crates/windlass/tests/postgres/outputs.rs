//! No output of a backup goes into the cluster that is being backed up.

use crate::support::*;

#[test]
fn no_output_goes_into_the_cluster_or_a_place_that_a_link_in_it_leads_to() {
    let place = Place::new();
    let space = place.path("space");
    std::fs::create_dir(&space).unwrap();
    place.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'",
        space.display()
    ));
    let (conninfo, sets) = (place.server.conninfo(), place.arg("sets"));
    std::fs::create_dir(&sets).unwrap();
    let data = place.data();
    let to_data = place.arg("to-data");
    std::os::unix::fs::symlink(&data, &to_data).unwrap();
    let set = place.back_up("set");
    for inside in [
        &data,
        &to_data,
        &format!("{data}/base"),
        &place.arg("space"),
    ] {
        let new = format!("{inside}/new");
        for words in [
            &["--to", inside][..],
            &["--to", &new],
            &["--to", &new, "--overwrite"],
            &["--to", &format!("{inside}/PG_VERSION"), "--overwrite"],
            &["--to", &sets, "--events", &new],
            &["--to", &sets, "--metrics-file", &new],
        ] {
            let output = windlass(&[&["backup", &conninfo], words].concat());
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
            assert!(printed.contains("cannot write "), "{words:?}: {printed}");
            assert!(printed.contains("hint: "), "{words:?}: {printed}");
            assert!(!std::path::Path::new(&new).exists(), "{words:?}");
        }
        if *inside != place.arg("space") {
            // The tablespace's own place is not empty, which would be another reason.
            let map = format!("{}={}", place.arg("space"), place.arg("other-space"));
            let words = ["restore", &set, "--into", &new, "--tablespace-map", &map];
            let output = windlass(&words);
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            assert!(text(&output).contains("cannot write "), "{}", text(&output));
        }
    }
    assert_eq!(std::fs::read_dir(&sets).unwrap().count(), 0);
}

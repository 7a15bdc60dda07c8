//! The hook's library stands where Windlass does not write: in a file that the configuration
//! includes, or on the command line. The server has snapshots, and whoever takes the library out is
//! told where it stands.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root};

use crate::opening::{Scratch, open_to_all};
use crate::snapshot_hook::{forget, library, restart, run};

#[test]
fn a_library_that_stands_elsewhere_is_used_and_taken_out_where_it_stands() {
    stay_root();
    let scratch = Scratch::new();
    let library = library(&scratch).display().to_string();
    let included = scratch.path().join("included.conf");
    let include = |list: &str| {
        let text = format!("# libraries\nshared_preload_libraries = '{list}'\n");
        std::fs::write(&included, text).unwrap();
        open_to_all(&included, 0o644);
    };
    include(&library);
    let options = ClusterOptions::default();
    let options = options.setting(format!("include '{}'", included.display()));
    let mut cluster = PrivateCluster::start(&options);
    let conninfo = cluster.conninfo();
    let enable = ["snapshot", "enable", &conninfo];
    let disable = ["snapshot", "disable", &conninfo];
    let create = ["snapshot", "create", &conninfo, "one", "--method", "hook"];
    let drop = ["snapshot", "drop", &conninfo, "one"];
    let state = |words: &[&str]| {
        let said = run(&scratch, 0, &[words, &["--json"]].concat());
        let said: Value = serde_json::from_str(said.trim()).unwrap();
        ["changed", "active", "restart_needed"].map(|key| said[key].as_bool().unwrap())
    };
    let system = || {
        let path = cluster.data().join("postgresql.auto.conf");
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(state(&enable), [false, true, false]);
    // A warning: the included file is no part of the snapshot.
    run(&scratch, 3, &create);
    let said = run(&scratch, 1, &disable);
    assert!(said.contains("one snapshot would be lost"), "{said}");
    run(&scratch, 0, &drop);

    // Nothing that Windlass could write makes the list empty.
    let line = format!("{} line 2", included.display());
    let elsewhere = format!("still reads shared_preload_libraries from {line}");
    let said = run(&scratch, 1, &disable);
    for part in [&elsewhere[..], "Change that line"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!system().contains("shared_preload"), "{}", system());
    assert_eq!(state(&enable), [false, true, false]);
    // The user does what the hint says.
    include("");
    assert_eq!(state(&disable), [false, true, true]);
    restart(&mut cluster);
    assert_eq!(state(&disable), [false, false, false]);

    // The command line is stronger than every file.
    cluster.stop("fast");
    cluster.option(&format!("-c shared_preload_libraries={library}"));
    cluster.run();
    assert_eq!(state(&enable), [false, true, false]);
    run(&scratch, 3, &create);
    run(&scratch, 0, &drop);
    let said = run(&scratch, 1, &disable);
    for part in ["set by the command line", "where the server is started"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    forget(&cluster);
    scratch.assert_clean();
}

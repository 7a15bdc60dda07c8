//! Backups of clusters that do not stay as they are.

use std::process::Stdio;

use crate::support::*;

/// Returns 1 while the backup's session waits for the files to be copied.
const STARTED: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass' \
    AND state = 'idle' AND query LIKE '%pg_backup_start%'";

#[test]
fn a_server_that_is_stopped_during_the_backup_is_named_with_what_to_do() {
    for mode in ["fast", "immediate"] {
        let mut place = Place::new();
        std::fs::create_dir(place.path("sets")).unwrap();
        let mut backup = command();
        backup.args([
            "backup",
            &place.server.conninfo(),
            "--to",
            &place.arg("sets"),
        ]);
        // The copy would take minutes, and the test must not wait for it.
        backup.args(["--max-rate", "64KiB", "--transfer-size", "64KiB"]);
        let (out, err) = (Stdio::piped(), Stdio::piped());
        let child = backup.stdout(out).stderr(err).spawn().unwrap();
        place.server.wait_until(STARTED, "1");
        place.server.stop(mode);
        let output = child.wait_with_output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{mode}: {printed}");
        let hint = "hint: The server was stopped or restarted";
        assert!(printed.contains(hint), "{mode}: {printed}");
        let left = std::fs::read_dir(place.path("sets")).unwrap();
        assert_eq!(left.count(), 0, "{mode}");
    }
}

//! What a person sees at a glance: units, the end of a run, progress, and what a terminal is given.

use crate::support::*;

#[test]
fn rates_are_read_in_decimal_and_binary_units_and_shown_in_binary_ones() {
    let place = Place::new();
    for (rate, shown) in [("200MB/s", "191 MiB/s"), ("200MiB/s", "200 MiB/s")] {
        let storage = format!("rate:{rate}");
        let words = ["plan", "--used-bytes", "1GB", "--source", &storage];
        let words = [&words[..], &["--target", "nul", "--compress", "none"]].concat();
        let printed = text(&windlass(&words));
        assert!(printed.contains(shown), "{printed}");
        let db = place.arg("shop.db");
        let backup = windlass(&["backup", &db, "--to", "nul", "--max-rate", rate]);
        assert_eq!(backup.status.code(), Some(0), "{}", text(&backup));
    }
}

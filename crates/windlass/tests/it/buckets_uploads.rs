//! Uploads of parts that were given up: they go when the server knows them no more, and not before
//! their writer is gone.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{File, read_to_string, write};
use std::process::Command;
use std::time::{Duration, SystemTime};

use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place};
use crate::run::text;

/// More often than any run tries.
const ALWAYS: usize = 100_000;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What lies in the bucket while a stripe is written: its markers.
fn markers(shop: &Shop) -> Vec<String> {
    let mut keys = shop.server.keys();
    keys.retain(|key| key.contains("begun/"));
    keys
}

/// A backup of which all parts have come, and that is given up then.
fn give_up(shop: &Shop, database: &str, night: &str) {
    shop.proxy.rule(
        Asked::Complete,
        (0, ALWAYS),
        Evil::Answer(403, "AccessDenied"),
    );
    shop.ends(&["backup", database, "--to", night], 1);
}

#[test]
fn an_upload_is_aborted_until_the_server_knows_no_such_upload() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    // The server says that it aborted the upload, and a part that came late keeps it.
    shop.proxy
        .rule(Asked::Abort, (0, 3), Evil::Answer(200, "Late"));
    give_up(&shop, &database, &night);
    assert!(shop.proxy.count(Asked::Abort) > 4);
    assert_eq!(shop.server.uploads(), 0);
    assert_eq!(shop.server.keys(), [""; 0]);
}

#[test]
fn an_upload_of_which_nobody_says_that_it_is_gone_is_named_and_aborted_again() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    let late = || {
        let evil = Evil::Answer(200, "Late");
        shop.proxy.rule(Asked::Abort, (0, ALWAYS), evil);
    };
    late();
    give_up(&shop, &database, &night);
    assert_eq!(shop.server.uploads(), 1);
    let left = markers(&shop);
    assert_eq!(left.len(), 2, "they lead to the upload");
    shop.proxy.reset();
    late();
    let said = text(&shop.run(&["backup", &database, "--to", &night]));
    assert!(said.contains("parts of its upload"), "{said}");
    assert_eq!(markers(&shop), left);
    assert_eq!(shop.server.uploads(), 1);
    shop.restores(&night, &database);
    shop.proxy.reset();
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(markers(&shop), [""; 0]);
    assert_eq!(shop.server.uploads(), 0);
}

/// The date of some days ago, as a server says it.
fn days_ago(days: u32) -> String {
    let mut command = Command::new("date");
    command.env("LC_ALL", "C").args(["-u", "-d"]);
    command.arg(format!("{days} days ago"));
    let output = command.arg("+%a, %d %b %Y %H:%M:%S GMT").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_clock_that_runs_ahead_takes_no_writer_elsewhere_for_one_that_is_gone() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    shop.killed_before(Asked::Part, &["backup", &database, "--to", &night]);
    // Another machine writes it, and began a moment ago by the clock of the server, which is eight
    // days behind the clock of this machine.
    let begun = markers(&shop);
    assert_eq!(begun.len(), 2);
    let boot = read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for key in &begun {
        let path = shop.server.objects().join(key);
        let own = read_to_string(&path).unwrap();
        let other = own.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
        assert_ne!(own, other);
        write(&path, other).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - 8 * DAY).unwrap();
    }
    shop.proxy.date(days_ago(8));
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(markers(&shop), begun);
    // By the right clock it is a week old.
    shop.proxy.reset();
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(markers(&shop), [""; 0]);
    assert_eq!(shop.server.uploads(), 0);
    shop.restores(&night, &database);
}

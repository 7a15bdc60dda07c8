//! Sets in a bucket of Google Cloud Storage: a stub that is as strict as the service (the testkit's
//! `google`), because no real server runs here.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{read, write};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use windlass_testkit::evil::{Asked, Evil};
use windlass_testkit::google::{BUCKET, GoogleStub};

use crate::buckets::{Beside, kinds, sqlite};
use crate::run::text;

/// A stub with a bucket, and what a test has beside it.
struct Shop {
    stub: GoogleStub,
    beside: Beside,
}

impl Deref for Shop {
    type Target = Beside;

    fn deref(&self) -> &Beside {
        &self.beside
    }
}

impl Shop {
    fn new() -> Self {
        let stub = GoogleStub::start();
        let beside = Beside::new(stub.port);
        let text = format!(
            "[object]\nendpoint = {:?}\npart-size = \"5MiB\"\ndeadline = \"60s\"\n",
            beside.proxy.endpoint(),
        );
        write(beside.path("windlass.toml"), text).unwrap();
        Self { stub, beside }
    }

    /// The objects of the bucket by what they are.
    fn objects(&self) -> [usize; 4] {
        kinds(&self.stub.keys())
    }
}

fn place(name: &str) -> String {
    format!("gs://{BUCKET}/{name}")
}

#[test]
fn a_chain_in_googles_bucket_is_listed_restored_verified_and_read_like_any_other() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    let said = shop.done(&["check", &database, "--to", &night]);
    let can = format!("{night} can be written to and read back");
    assert!(said.contains(&can), "{said}");
    assert_eq!(shop.stub.keys(), [""; 0], "check leaves nothing behind");
    shop.done(&["backup", &database, "--to", &night]);
    assert!(shop.proxy.count(Asked::Part) > 2, "it is uploaded in parts");
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
    let sql = "update item set name = 'sold' where id % 500 = 0";
    sqlite(Path::new(&database), sql);
    let incremental = ["--type", "incr", "--strict"];
    let backup = ["backup", &database, "--to", &night];
    shop.done(&[&backup[..], &incremental].concat());
    assert_eq!(shop.objects(), [2, 2, 2, 0]);
    assert_eq!(shop.stub.uploads(), 0);
    let listed = shop.done(&["info", &night]);
    assert!(listed.contains("shop.db"), "{listed}");
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
    let query = "select name from item where id = 1000";
    let said = shop.done(&["open", &night, "--", "sqlite3", "{}", query]);
    assert!(said.lines().any(|line| line == "sold"), "{said}");
    shop.done(&["extract", &night, "*", "--into", &shop.word("files")]);
    assert!(read(shop.path("files/shop.db")).unwrap() == read(&database).unwrap());
    // What has expired is hidden by one run, and removed by the next one.
    shop.done(&["backup", &database, "--to", &night]);
    for _ in 0..2 {
        shop.done(&["expire", &night, "--keep-full", "1", "--grace", "0"]);
    }
    assert_eq!(shop.objects(), [1, 1, 1, 0]);
    shop.restores(&night, &database);
}

#[test]
fn an_object_of_somebody_else_in_googles_bucket_is_not_replaced() {
    let shop = Shop::new();
    let (database, taken) = (shop.database(100), place("mine.windlass"));
    shop.done(&["backup", &database, "--to", &taken]);
    let before = shop.stub.keys();
    let said = shop.ends(&["backup", &database, "--to", &taken], 1);
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(shop.stub.keys(), before);
    shop.restores(&taken, &database);
    let said = shop.ends(&["backup", &database, "--to", "gs://nobody/night"], 1);
    assert!(said.contains("gs://nobody"), "{said}");
}

#[test]
fn what_networks_do_costs_no_backup_to_google_and_a_kill_leaves_nothing() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    use Asked::{Begin, Complete, Get, Head, List, Name, Part, Remove};
    let faults = [
        ("503", Evil::Answer(503, "ServiceUnavailable")),
        ("lost", Evil::LostAnswer),
        ("hang", Evil::Hang(Duration::from_millis(500))),
    ];
    for (name, fault) in faults {
        // Markers, seals and names are all written in one request.
        for asked in [Begin, Part, Complete, Head, Name, List, Get, Remove] {
            shop.proxy.rule(asked, (0, 1), fault.clone());
        }
        shop.done(&["backup", &database, "--to", &place(name)]);
        assert_eq!(shop.proxy.reset(), 0, "{name}: every fault happened");
        shop.restores(&place(name), &database);
    }
    let [names, data, seals, markers] = shop.objects();
    assert_eq!([names, data, seals, markers], [3, 3, 3, 0]);
    // Of an upload that was begun and not completed nothing is left by the next run.
    let before = shop.stub.uploads();
    let killed = place("killed");
    shop.proxy.rule(Part, (1, 1), Evil::KillBefore);
    let mut run = shop.spawn(&["backup", &database, "--to", &killed]);
    shop.proxy.victim(run.id());
    assert_eq!(run.wait().unwrap().code(), None);
    shop.proxy.reset();
    assert_eq!(shop.stub.uploads(), before + 1);
    let listed = text(&shop.command(&["info", &killed, "--json"]).output().unwrap());
    assert!(listed.contains(".windlass.partial"), "{listed}");
    shop.done(&["backup", &database, "--to", &killed]);
    assert_eq!(shop.stub.uploads(), before);
    shop.restores(&killed, &database);
    shop.done(&["verify", &killed]);
}

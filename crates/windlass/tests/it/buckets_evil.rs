//! What servers and networks do on bad days, row by row: each operation of a bucket meets each
//! fault. A run succeeds, or it fails in a bounded time and says why; what it leaves is no set.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{read, remove_file};
use std::sync::OnceLock;
use std::time::Duration;

use windlass_testkit::bucket::SECRET_KEY;
use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place, sqlite};
use crate::run::text;

use Asked::{Abort, Begin, Complete, Data, Get, Head, List, Marker, Name, Part, Remove, Seal};

/// More often than any run tries.
const ALWAYS: usize = 100_000;

/// The objects of a place.
fn objects(shop: &Shop, folder: &str) -> Vec<String> {
    let mut keys = shop.server.keys();
    keys.retain(|key| key.starts_with(&format!("{folder}/")));
    keys
}

#[test]
fn what_a_server_refuses_for_good_ends_a_backup_at_once_and_leaves_nothing() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let mut has_late_parts = false;
    for (status, code) in [
        (403, "AccessDenied"),
        (400, "ExpiredToken"),
        (403, "RequestTimeTooSkewed"),
        (301, "PermanentRedirect"),
    ] {
        for (asked, skip) in [
            (Marker, 0),
            (Begin, 0),
            (Complete, 0),
            (Head, 1),
            (Seal, 0),
            (Part, 1),
        ] {
            let folder = format!("{code}-{asked:?}");
            let evil = Evil::Answer(status, code);
            shop.proxy.rule(asked, (skip, ALWAYS), evil);
            let to = place(&folder);
            let said = shop.ends(&["backup", &database, "--to", &to], 1);
            let tries = shop.proxy.count(asked);
            shop.proxy.reset();
            let words = [code, &status.to_string(), "redirect"];
            assert!(
                words.iter().any(|word| said.contains(word)),
                "{folder}: {said}"
            );
            assert!(tries <= skip + 6, "{folder}: {tries} requests");
            assert_eq!(objects(&shop, &folder), [""; 0], "{folder}");
            // A part that is under way when its upload is aborted may come after that.
            has_late_parts |= asked == Part;
            let left = shop.server.uploads();
            assert!(left == 0 || has_late_parts, "{folder}: {left}");
        }
        // A set that is sealed and has no name yet gets it from the next run.
        let folder = format!("{code}-name");
        let to = place(&folder);
        shop.proxy
            .rule(Name, (0, ALWAYS), Evil::Answer(status, code));
        shop.ends(&["backup", &database, "--to", &to], 1);
        shop.proxy.reset();
        shop.done(&["backup", &database, "--to", &to]);
        let names = objects(&shop, &folder).into_iter();
        assert_eq!(
            names.filter(|key| key.ends_with(".windlass")).count(),
            2,
            "{folder}"
        );
        shop.done(&["verify", &to]);
    }
}

#[test]
fn what_a_server_refuses_for_good_ends_a_reader_and_writes_nothing() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    for (status, code) in [(403, "AccessDenied"), (400, "ExpiredToken"), (301, "Moved")] {
        for asked in [List, Get] {
            for words in [
                &["restore", night.as_str(), "--into", &shop.word("copy.db")][..],
                &["info", &night],
                &["verify", &night],
            ] {
                shop.proxy
                    .rule(asked, (0, ALWAYS), Evil::Answer(status, code));
                let said = shop.ends(words, 1);
                let tries = shop.proxy.count(asked);
                shop.proxy.reset();
                assert!(
                    tries <= 12,
                    "{words:?} {code} {asked:?}: {tries} requests: {said}"
                );
                assert!(!shop.path("copy.db").exists(), "{words:?}: {said}");
            }
        }
    }
    shop.restores(&night, &database);
}

#[test]
fn what_may_pass_is_tried_until_the_deadline_and_no_longer() {
    // All of them wait most of the time, so they do it at once.
    std::thread::scope(|scope| {
        for (asked, skip) in [
            (Marker, 0),
            (Begin, 0),
            (Part, 1),
            (Complete, 0),
            (Head, 1),
            (Seal, 0),
            (List, 0),
            (Get, 0),
        ] {
            scope.spawn(move || is_tried_until_the_deadline(asked, skip));
        }
    });
}

/// What the server does answer has the same deadline. It is one that a machine meets which stands
/// still for some seconds.
fn is_tried_until_the_deadline(asked: Asked, skip: usize) {
    let shop = Shop::new();
    let database = shop.database(12_000);
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "10s");
    let evil = Evil::Answer(503, "SlowDown");
    shop.proxy.rule(asked, (skip, ALWAYS), evil);
    let said = shop.ends(&["backup", &database, "--to", &place("slow")], 1);
    let tries = shop.proxy.count(asked);
    shop.proxy.reset();
    assert!(
        said.contains("SlowDown") || said.contains("503"),
        "{asked:?}: {said}"
    );
    assert!(said.contains("(tried "), "{asked:?}: {said}");
    // Each of three parts is tried five times a second at most, with three requests.
    assert!((2..=450).contains(&tries), "{asked:?}: {tries} requests");
    let left = objects(&shop, "slow").into_iter();
    assert_eq!(
        left.filter(|key| key.ends_with(".windlass")).count(),
        0,
        "{asked:?}"
    );
}

#[test]
fn an_upload_that_cannot_be_aborted_is_shown_and_goes_with_the_next_run() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "5s");
    // All parts have come when the upload is to be completed.
    shop.proxy
        .rule(Complete, (0, ALWAYS), Evil::Answer(403, "AccessDenied"));
    shop.proxy
        .rule(Abort, (0, ALWAYS), Evil::Answer(503, "SlowDown"));
    shop.ends(&["backup", &database, "--to", &night], 1);
    shop.proxy.reset();
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "60s");
    assert_eq!(shop.server.uploads(), 1);
    let said = text(&shop.run(&["info", &night]));
    assert!(said.contains("unfinished"), "{said}");
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(shop.server.uploads(), 0);
    assert_eq!(objects(&shop, "night").len(), 3);
}

#[test]
fn an_error_in_a_good_answer_and_a_write_that_shows_late_cost_no_backup() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let not_yet = || Evil::Answer(404, "NoSuchKey");
    // The status says that the upload is complete, and the body that it is not.
    shop.proxy
        .rule(Complete, (0, 1), Evil::Answer(200, "InternalError"));
    shop.done(&["backup", &database, "--to", &place("complete")]);
    assert_eq!(shop.proxy.reset(), 0);
    for asked in [Head, Get] {
        shop.proxy.rule(asked, (1, 2), not_yet());
        let to = place(&format!("late-{asked:?}"));
        shop.done(&["backup", &database, "--to", &to]);
        assert_eq!(shop.proxy.reset(), 0, "{asked:?}");
        shop.restores(&to, &database);
    }
    // What never shows is no success.
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "2s");
    for asked in [Head, Get] {
        shop.proxy.rule(asked, (1, ALWAYS), not_yet());
        let folder = format!("never-{asked:?}");
        shop.ends(&["backup", &database, "--to", &place(&folder)], 1);
        shop.proxy.reset();
        let keys = objects(&shop, &folder).into_iter();
        assert_eq!(
            keys.filter(|key| key.ends_with(".windlass")).count(),
            0,
            "{folder}"
        );
    }
}

#[test]
fn a_request_that_is_cut_or_changed_on_its_way_is_no_set_of_wrong_bytes() {
    let shop = Shop::new();
    let (large, small) = (shop.database(12_000), shop.path("small.db"));
    sqlite(&small, "create table t(a); insert into t values('small')");
    let small = small.display().to_string();
    for (asked, database) in [
        (Marker, &large),
        (Part, &large),
        (Seal, &large),
        (Name, &large),
        (Data, &small),
    ] {
        let to = place(&format!("cut-{asked:?}"));
        shop.proxy.rule(asked, (0, 1), Evil::CutSent(20));
        shop.done(&["backup", database, "--to", &to]);
        assert_eq!(shop.proxy.reset(), 0, "{asked:?}");
        shop.restores(&to, database);
        // The server sees by the signature that the bytes are others.
        let folder = format!("flip-{asked:?}");
        let to = place(&folder);
        shop.proxy.rule(asked, (0, 1), Evil::FlipSent);
        let output = shop.run(&["backup", database, "--to", &to]);
        assert_eq!(shop.proxy.reset(), 0, "{asked:?}");
        match output.status.code() {
            Some(0) => shop.restores(&to, database),
            code => {
                assert_eq!(code, Some(1), "{asked:?}: {}", text(&output));
                shop.done(&["backup", database, "--to", &to]);
                shop.done(&["verify", &to]);
                shop.restores(&to, database);
            }
        }
    }
}

#[test]
fn an_answer_with_a_wrong_length_or_a_wrong_bit_never_becomes_a_database() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    for (evil, good_at_least) in [
        (Evil::Length(100), 3),
        (Evil::Length(-100), 1),
        (Evil::Flip, 0),
        (Evil::Trickle(16 << 10, Duration::from_millis(1)), 3),
    ] {
        let (mut good, mut number) = (0, 0);
        loop {
            shop.proxy.rule(Get, (number, 1), evil.clone());
            let copy = shop.word("copy.db");
            let output = shop.run(&["restore", &night, "--into", &copy]);
            let was_used = shop.proxy.reset() == 0;
            let case = format!("{evil:?} {number}: {}", text(&output));
            match output.status.code() {
                Some(0) => {
                    assert!(read(&copy).unwrap() == read(&database).unwrap(), "{case}");
                    remove_file(&copy).unwrap();
                    good += usize::from(was_used);
                }
                _ => assert!(!shop.path("copy.db").exists(), "{case}"),
            }
            if !was_used {
                break;
            }
            number += 1;
        }
        assert!(
            number > 3 && good >= good_at_least,
            "{evil:?}: {good} of {number}"
        );
    }
    // A server that is too slow is given up.
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "2s");
    let slow = Evil::Trickle(1, Duration::from_millis(20));
    shop.proxy.rule(Get, (0, ALWAYS), slow);
    let said = shop.ends(&["restore", &night, "--into", &shop.word("copy.db")], 1);
    assert!(!shop.path("copy.db").exists(), "{said}");
}

#[test]
fn an_own_object_that_reads_back_wrong_once_is_not_taken_for_that_of_another() {
    let shop = Shop::new();
    let database = shop.database(100);
    for evil in [Evil::Flip, Evil::Length(-1)] {
        let mut number = 0;
        loop {
            let to = place(&format!("{number}-{evil:?}").replace(['(', ')'], ""));
            shop.proxy.rule(Get, (number, 1), evil.clone());
            shop.done(&["backup", &database, "--to", &to]);
            if shop.proxy.reset() > 0 {
                break;
            }
            number += 1;
        }
        // The marker, the seal and the name are each read before and after.
        assert!(number >= 6, "{evil:?}: {number} objects were read");
    }
}

/// A list that shows nothing yet.
fn nothing(list: String) -> String {
    let mut rest = list;
    while let Some(from) = rest.find("<Contents>") {
        let end = rest.find("</Contents>").unwrap() + "</Contents>".len();
        rest.replace_range(from..end, "");
    }
    rest
}

/// A list that leaves its first object out.
fn without_first(list: String) -> String {
    let mut list = list;
    if let Some(from) = list.find("<Contents>") {
        let end = list.find("</Contents>").unwrap() + "</Contents>".len();
        list.replace_range(from..end, "");
    }
    list
}

/// The key that lists leave out.
static LEFT_OUT: OnceLock<String> = OnceLock::new();

/// A list that leaves this object out.
fn without_one(list: String) -> String {
    let key = format!("<Key>{}</Key>", LEFT_OUT.get().unwrap());
    let mut list = list;
    if let Some(at) = list.find(&key) {
        let from = list[..at].rfind("<Contents>").unwrap();
        let end = at + list[at..].find("</Contents>").unwrap() + "</Contents>".len();
        list.replace_range(from..end, "");
    }
    list
}

/// A list that always has another page, which is this one.
fn endless(list: String) -> String {
    list.replace(
        "<IsTruncated>false</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>",
    )
}

#[test]
fn a_list_that_is_stale_or_not_whole_hides_sets_and_harms_none() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    let to = ["--to", night.as_str(), "--to", &night];
    shop.done(&[&["backup", database.as_str()][..], &to].concat());
    let before = shop.server.keys();
    let name = before
        .iter()
        .find(|key| key.ends_with(".windlass"))
        .unwrap();
    let stripe = format!("s3://shop/{name}");
    // Whoever names a stripe needs no list.
    shop.proxy.rule(List, (0, ALWAYS), Evil::Edit(nothing));
    shop.restores(&stripe, &database);
    shop.ends(&["restore", &night, "--into", &shop.word("copy2.db")], 1);
    shop.proxy.reset();
    // The other stripe is found where the set says that it is.
    shop.proxy
        .rule(List, (0, ALWAYS), Evil::Edit(without_first));
    shop.restores(&night, &database);
    shop.done(&["info", &night]);
    shop.done(&["verify", &night]);
    shop.proxy.reset();
    assert_eq!(shop.server.keys(), before);
    // The newer set is whole, although lists leave out one of its stripes: the older one goes.
    shop.done(&[&["backup", database.as_str()][..], &to].concat());
    let mut newer = objects(&shop, "night");
    newer.retain(|key| !before.contains(key));
    assert_eq!(newer.len(), 6);
    let name = newer.iter().rfind(|key| key.ends_with(".windlass"));
    LEFT_OUT.set(name.unwrap().clone()).unwrap();
    shop.proxy.rule(List, (0, ALWAYS), Evil::Edit(without_one));
    let said = shop.ends(&["expire", &night, "--keep-full", "1", "--grace", "0"], 0);
    shop.proxy.reset();
    assert_eq!(objects(&shop, "night"), newer, "{said}");
    shop.restores(&night, &database);
}

#[test]
fn a_list_that_repeats_itself_ends_the_command() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let before = shop.server.keys();
    for words in [
        &["info", night.as_str()][..],
        &["verify", &night],
        &["restore", &night, "--into", &shop.word("copy.db")],
        &["backup", &database, "--to", &night],
        &["expire", &night, "--keep-full", "1"],
    ] {
        shop.proxy.rule(List, (0, ALWAYS), Evil::Edit(endless));
        let said = shop.ends(words, 1);
        let lists = shop.proxy.count(List);
        shop.proxy.reset();
        assert!(said.contains("the same page again and again"), "{said}");
        assert!(lists <= 8, "{words:?}: {lists} lists");
    }
    assert_eq!(shop.server.keys(), before);
}

/// Keys that may write and read, and not remove: what is there stays there.
#[test]
fn a_bucket_that_refuses_deletes_takes_one_set_after_the_other() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    for _ in 0..3 {
        shop.proxy
            .rule(Remove, (0, ALWAYS), Evil::Answer(403, "AccessDenied"));
        shop.done(&["backup", &database, "--to", &night]);
        shop.proxy.reset();
        shop.restores(&night, &database);
    }
    let said = shop.done(&["info", &night, "--json"]);
    assert!(!said.contains(".partial"), "{said}");
    shop.done(&["verify", &night]);
    // A check says so, and that it is no failure.
    shop.proxy
        .rule(Remove, (0, ALWAYS), Evil::Answer(403, "AccessDenied"));
    let said = shop.ends(&["check", &database, "--to", &night], 3);
    assert!(
        said.contains("nothing can be removed there: remove"),
        "{said}"
    );
    assert!(said.contains("AccessDenied"), "{said}");
}

/// The server did it, nobody heard of it, and the next try is refused because it is done.
#[test]
fn a_lost_answer_of_a_bucket_that_protects_everything_costs_no_backup() {
    let shop = Shop::new();
    let (large, small) = (shop.database(12_000), shop.path("small.db"));
    sqlite(&small, "create table t(a); insert into t values('small')");
    let small = small.display().to_string();
    shop.server.protect_all();
    for (asked, skip, database) in [
        (Marker, 0, &large),
        // The one that names the upload: the first marker is written twice.
        (Marker, 2, &large),
        (Complete, 0, &large),
        (Seal, 0, &large),
        (Name, 0, &large),
        (Data, 0, &small),
    ] {
        let to = place(&format!("lost-{asked:?}-{skip}"));
        shop.proxy.rule(asked, (skip, 1), Evil::LostAnswer);
        shop.done(&["backup", database, "--to", &to]);
        assert_eq!(shop.proxy.reset(), 0, "{asked:?}");
        shop.restores(&to, database);
    }
}

/// A bucket with a default retention: what is there is neither replaced nor removed.
#[test]
fn a_bucket_that_protects_everything_takes_one_set_after_the_other() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    shop.server.protect_all();
    for _ in 0..3 {
        shop.done(&["backup", &database, "--to", &night]);
        shop.restores(&night, &database);
    }
    shop.done(&["verify", &night]);
    // Markers, notes and marks stay, too, and say nothing.
    let names = |shop: &Shop| {
        let endings = [".windlass", ".data", ".seal"];
        let mut keys = objects(shop, "night");
        keys.retain(|key| endings.iter().any(|ending| key.ends_with(ending)));
        keys
    };
    let before = names(&shop);
    assert_eq!(before.len(), 9);
    let expire = ["expire", &night, "--keep-full", "1", "--grace", "0"];
    let said = text(&shop.run(&expire));
    assert_eq!(names(&shop), before, "{said}");
    shop.restores(&night, &database);
    let said = shop.ends(&["check", &database, "--to", &night], 3);
    assert!(said.contains("nothing can be removed there"), "{said}");
    assert!(!said.contains("ignores conditions"), "{said}");
}

//! What others lost backups by, and what libraries and servers do that nobody expects: each as a
//! test with a real server.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{create_dir_all, read, write};
use std::process::Command;

use windlass_testkit::bucket::{S3Server, SECRET_KEY};
use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place};
use crate::run::text;

use Asked::{Begin, Complete, Get, List, Marker, Name, Part, Seal};

/// More often than any run tries.
const ALWAYS: usize = 100_000;

/// How many names of stripes a folder has.
fn names(shop: &Shop, folder: &str) -> usize {
    let keys = shop.server.keys().into_iter();
    let names = keys.filter(|key| key.starts_with(&format!("{folder}/")));
    names.filter(|key| key.ends_with(".windlass")).count()
}

/// The answer to the completion is lost, and the server knows no such upload when it is asked
/// again.
#[test]
fn an_upload_that_is_not_there_any_more_is_complete_only_if_its_object_is() {
    let shop = Shop::new();
    let database = shop.database(12_000);
    let unknown = || Evil::Answer(404, "NoSuchUpload");
    shop.proxy.rule(Complete, (0, 1), Evil::LostAnswer);
    shop.proxy.rule(Complete, (0, 1), unknown());
    shop.done(&["backup", &database, "--to", &place("lost")]);
    assert_eq!(shop.proxy.reset(), 0);
    shop.restores(&place("lost"), &database);
    shop.proxy.rule(Complete, (0, ALWAYS), unknown());
    let said = shop.ends(&["backup", &database, "--to", &place("never")], 1);
    shop.proxy.reset();
    let words = ["NoSuchUpload", "404"];
    assert!(words.iter().any(|word| said.contains(word)), "{said}");
    assert_eq!(names(&shop, "never"), 0);
    assert_eq!(shop.server.uploads(), 0);
}

/// The library takes the status for a mistake of the client, and does not try again.
#[test]
fn a_server_that_gave_up_on_a_slow_request_is_asked_again() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    let given_up = || Evil::Answer(400, "RequestTimeout");
    for asked in [Marker, Begin, Part, Complete, Seal, Name, List] {
        shop.proxy.rule(asked, (0, 1), given_up());
    }
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(shop.proxy.reset(), 0);
    for asked in [List, Get] {
        shop.proxy.rule(asked, (0, 1), given_up());
    }
    shop.restores(&night, &database);
    assert_eq!(shop.proxy.reset(), 0);
}

/// Some servers ignore the condition under which an object is created. What is there already is
/// seen before such a request is sent.
#[test]
fn nobody_asks_for_an_object_whose_name_is_taken() {
    let shop = Shop::new();
    let (database, taken) = (shop.database(100), place("night/own.windlass"));
    shop.done(&["backup", &database, "--to", &taken]);
    shop.proxy.reset();
    shop.ends(&["backup", &database, "--to", &taken], 1);
    assert_eq!(shop.proxy.count(Name), 0);
    assert_eq!(names(&shop, "night"), 1);
}

#[test]
fn of_two_runs_with_one_name_the_first_has_it_and_the_other_says_so() {
    let shop = Shop::new();
    let (database, taken) = (shop.database(100), place("night/own.windlass"));
    shop.proxy.rule(Name, (0, ALWAYS), Evil::Hold);
    let mut late = shop.spawn(&["backup", &database, "--to", &taken]);
    assert!(shop.proxy.holds(&mut late));
    // The other run passes by the proxy.
    shop.configure(&shop.server.endpoint(), SECRET_KEY, "60s");
    shop.done(&["backup", &database, "--to", &taken]);
    let name = shop.server.objects().join("night/own.windlass");
    let first = read(&name).unwrap();
    shop.proxy.let_go();
    assert_eq!(late.wait().unwrap().code(), Some(1));
    assert!(read(&name).unwrap() == first);
    shop.restores(&taken, &database);
    // What is left of the other is named, and harms nobody.
    let said = text(&shop.run(&["backup", &database, "--to", &place("night")]));
    assert!(said.contains("something else has its name"), "{said}");
    assert_eq!(names(&shop, "night"), 2);
    shop.done(&["verify", &place("night")]);
}

/// A server that takes a connection and then nothing, or gives nothing: whoever waits for it ends.
#[test]
fn a_server_that_stands_still_ends_a_run_and_what_comes_late_harms_no_other() {
    // All of them wait most of the time, so they do it at once.
    std::thread::scope(|scope| {
        for asked in [Begin, Part, Complete, Seal, List, Get] {
            scope.spawn(move || stands_still(asked));
        }
    });
}

fn stands_still(asked: Asked) {
    let shop = Shop::new();
    let (database, night) = (shop.database(7_000), place("night"));
    if asked == Get {
        shop.done(&["backup", &database, "--to", &night]);
    }
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "2s");
    shop.proxy.rule(asked, (0, ALWAYS), Evil::Hold);
    let copy = shop.word("copy.db");
    let words = match asked {
        Get => ["restore", &night, "--into", &copy],
        _ => ["backup", &database, "--to", &night],
    };
    shop.ends(&words, 1);
    assert!(!shop.path("copy.db").exists(), "{asked:?}");
    // The server goes on with what nobody waits for any more.
    shop.proxy.let_go();
    shop.proxy.reset();
    assert_eq!(
        names(&shop, "night"),
        usize::from(asked == Get),
        "{asked:?}"
    );
    shop.configure(&shop.proxy.endpoint(), SECRET_KEY, "60s");
    shop.done(&["backup", &database, "--to", &night]);
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
    assert_eq!(shop.server.uploads(), 0, "{asked:?}");
}

/// Services give at most 1,000 objects at once.
#[test]
fn a_list_of_several_pages_is_read_to_its_end() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    let lists = || {
        shop.proxy.reset();
        let listed = shop.done(&["info", &night]);
        assert!(listed.contains("shop.db"), "{listed}");
        shop.proxy.count(List)
    };
    shop.done(&["backup", &database, "--to", &night]);
    let before = lists();
    // These come before the set's in the order of the keys.
    let folder = shop.server.objects().join("night");
    create_dir_all(&folder).unwrap();
    for number in 0..1100 {
        write(folder.join(format!("0-{number:04}.txt")), "a note").unwrap();
    }
    assert!(lists() > before);
    shop.restores(&night, &database);
    shop.done(&["backup", &database, "--to", &night]);
    assert_eq!(names(&shop, "night"), 2);
}

/// Makes a certificate and its key, and returns their files.
fn certificate(shop: &Shop, name: &str, more: &[&str]) -> [String; 2] {
    let [own, key] = ["pem", "key"].map(|end| shop.word(&format!("{name}.{end}")));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30";
    let mut openssl = Command::new("openssl");
    openssl
        .args(words.split(' '))
        .args(["-keyout", &key, "-out", &own]);
    let output = openssl.args(more).output().expect("openssl");
    assert!(output.status.success(), "{}", text(&output));
    [own, key]
}

#[test]
fn only_a_server_whose_authority_is_trusted_gets_a_set() {
    let shop = Shop::new();
    let (database, night) = (shop.database(12_000), place("night"));
    let authority = ["authority", "other"].map(|name| {
        let [own, key] = certificate(&shop, name, &["-subj", &format!("/CN={name}")]);
        (own, key)
    });
    let [(trusted, key), (other, _)] = &authority;
    let leaf = [
        &["-CA", trusted, "-CAkey", key, "-subj", "/CN=server"][..],
        &["-addext", "subjectAltName=IP:127.0.0.1"],
        &["-addext", "basicConstraints=critical,CA:FALSE"],
    ];
    let server = S3Server::start_encrypted(certificate(&shop, "server", &leaf.concat()));
    let backup = ["backup", &database, "--to", &night];
    for lines in [String::new(), format!("ca-file = {other:?}\n")] {
        shop.configure(&server.endpoint(), SECRET_KEY, "60s");
        shop.append(&lines);
        let said = shop.ends(&backup, 1);
        assert!(
            said.contains("certificate") && said.contains("hint:"),
            "{said}"
        );
        assert!(server.keys().is_empty());
    }
    shop.configure(&server.endpoint(), SECRET_KEY, "60s");
    shop.append(&format!("ca-file = {trusted:?}\n"));
    shop.done(&backup);
    shop.restores(&night, &database);
    shop.done(&["verify", &night]);
    // The same from the environment, where the tools of the service have it.
    shop.configure(&server.endpoint(), SECRET_KEY, "60s");
    shop.ends(&["info", &night], 1);
    let mut info = shop.command(&["info", &night]);
    let output = info.env("AWS_CA_BUNDLE", trusted).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

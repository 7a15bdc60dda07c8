//! What lies beside sets in buckets, who may read them, repositories there, and what only
//! directories can do.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{read, remove_file, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::buckets::{Shop, place, sqlite};

/// Two pairs, whose private keys are 32 times the byte 42 and 43 (hexadecimal).
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const OTHER_IDENTITY: &str =
    "AGE-SECRET-KEY-1GDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDP5XS6RGDPSST380Y";
const OTHER_RECIPIENT: &str = "age:age1ehhas7p6jx6yveqw9c0e2kvakd0ysjsqwx7jrq4nkcxssykpp3cq0wk9nt";

/// Writes an identity, and returns the word for it.
fn identity(shop: &Shop, name: &str, content: &str) -> String {
    let path = shop.path(name);
    write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("identity-file:{}", path.display())
}

#[test]
fn an_encrypted_set_in_a_bucket_is_read_with_its_key_and_with_one_that_came_later() {
    let shop = Shop::new();
    let (database, night) = (shop.database(3_000), place("night"));
    sqlite(
        Path::new(&database),
        "update item set name = 'a-secret-row' where id = 7",
    );
    let own = identity(&shop, "id", IDENTITY);
    let other = identity(&shop, "other", OTHER_IDENTITY);
    let full = ["backup", &database, "--to", &night, "--encrypt", RECIPIENT];
    shop.done(&full);
    sqlite(
        Path::new(&database),
        "update item set name = 'sold' where id = 9",
    );
    shop.done(&[&full[..], &["--key", &own, "--type", "incr"]].concat());
    for key in shop.server.keys() {
        let bytes = read(shop.server.objects().join(&key)).unwrap();
        let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(!has(b"a-secret-row") && !has(b"create table"), "{key}");
    }
    let copy = shop.word("copy.db");
    let restored = |key: &[&str], code: i32| {
        let words = ["restore", &night, "--into", &copy];
        let said = shop.ends(&[&words, key].concat(), code);
        if code == 0 {
            assert!(read(&copy).unwrap() == read(&database).unwrap());
            remove_file(&copy).unwrap();
        }
        said
    };
    let said = restored(&[], 1);
    assert!(said.contains("--key"), "{said}");
    let said = restored(&["--key", &other], 1);
    assert!(!shop.path("copy.db").exists(), "{said}");
    restored(&["--key", &own], 0);
    let listed = shop.done(&["info", &night]);
    assert!(listed.contains("encrypted"), "{listed}");
    // New envelopes lie beside the sets, and are written anew the second time.
    for _ in 0..2 {
        shop.done(&[
            "key",
            "rotate",
            &night,
            "--key",
            &own,
            "--encrypt",
            OTHER_RECIPIENT,
        ]);
    }
    restored(&["--key", &other], 0);
    let listed = shop.done(&["key", "list", &night]);
    assert!(listed.contains(&OTHER_RECIPIENT[4..]), "{listed}");
    shop.done(&["verify", &night, "--key", &other]);
}

#[test]
fn a_repository_may_lie_in_a_bucket() {
    let shop = Shop::new();
    let (database, copy) = (shop.database(500), shop.word("copy.db"));
    shop.append(&format!(
        "\n[repository.main]\nto = [\"{}\"]\n[database.shop]\nsource = {database:?}\nrepo = \
         \"main\"\n",
        place("main")
    ));
    shop.done(&["check", "shop"]);
    shop.done(&["backup", "shop"]);
    for words in [
        &["restore", "shop", "--into", copy.as_str()][..],
        &["restore", "main", "--into", &copy],
        &["restore", "shop", "--repo", "main", "--into", &copy],
    ] {
        shop.done(words);
        assert!(read(&copy).unwrap() == read(&database).unwrap());
        remove_file(&copy).unwrap();
    }
    let listed = shop.done(&["info", "main"]);
    assert!(listed.contains("shop"), "{listed}");
    shop.done(&["verify", "--repo", "main"]);
    let said = shop.done(&["check", "shop", "--repo", "main"]);
    assert!(said.contains("s3://shop/main can be written to"), "{said}");
}

/// A damaged object is found, and nothing that is asked of it is proven.
#[test]
fn a_set_in_a_bucket_is_proven_by_a_drill() {
    let shop = Shop::new();
    let (database, night) = (shop.database(300), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let count = ["--query", "select count(*), max(id) from item"];
    let drill = |expected: &str, code: i32| {
        let words = [&["drill", &night][..], &count, &["--expect", expected]];
        shop.ends(&words.concat(), code)
    };
    let said = drill("300|300", 0);
    assert!(said.contains("first answer after"), "{said}");
    let said = drill("301|300", 1);
    assert!(said.contains("was expected"), "{said}");
    let keys = shop.server.keys().into_iter();
    let data = keys.filter(|key| key.ends_with(".data"));
    for key in data {
        let object = shop.server.objects().join(key);
        let mut bytes = read(&object).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 20_000].fill(0x55);
        write(&object, bytes).unwrap();
    }
    drill("300|300", 4);
}

#[test]
fn a_set_in_a_bucket_can_be_held() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    shop.done(&["hold", &night, "--reason", "for the auditors"]);
    let listed = shop.done(&["info", &night, "--json"]);
    assert!(listed.contains("for the auditors"), "{listed}");
    shop.restores(&night, &database);
    shop.done(&["hold", &night, "--release"]);
    let listed = shop.done(&["info", &night, "--json"]);
    assert!(!listed.contains("for the auditors"), "{listed}");
}

#[test]
fn what_only_directories_can_do_is_refused_and_changes_nothing() {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let before = shop.server.keys();
    let said = shop.ends(&["tune", &database, "--to", &night], 2);
    assert!(said.contains("is in a bucket, and"), "{said}");
    // What to do instead can be typed as it is.
    let probe = "windlass lab probe s3://shop/night";
    let plan = "--target s3://shop/night";
    assert!(said.contains(probe) && said.contains(plan), "{said}");
    assert_eq!(shop.server.keys(), before);
    assert!(!Path::new("s3:").exists());
}

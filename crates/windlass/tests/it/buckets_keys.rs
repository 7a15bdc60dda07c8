//! Where the keys of a bucket come from: the environment, a file of the environment, or one of the
//! configuration.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::write;
use std::process::Output;

use windlass_testkit::bucket::{ACCESS_KEY, SECRET_KEY};

use crate::buckets::{Shop, place};
use crate::run::text;

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";
const PROFILE: &str = "AWS_PROFILE";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// A set in a bucket, a configuration without keys, and a file whose section `night` has the right
/// ones. Returns the place of the set, and the path of the file.
fn shop() -> (Shop, String, String) {
    let shop = Shop::new();
    let (database, night) = (shop.database(100), place("night"));
    shop.done(&["backup", &database, "--to", &night]);
    let text = format!(
        "[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = of-another\n\n\
         [night]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    );
    write(shop.path("shared"), text).unwrap();
    configure(&shop, "");
    shop.proxy.reset();
    let file = shop.word("shared");
    (shop, night, file)
}

/// Writes a configuration of the server, and these lines of it.
fn configure(shop: &Shop, lines: &str) {
    let server = shop.proxy.endpoint();
    let text = format!("[object]\nendpoint = {server:?}\nregion = \"us-east-1\"\n{lines}");
    write(shop.path("windlass.toml"), text).unwrap();
}

fn info(shop: &Shop, place: &str, environment: &[(&str, &str)]) -> Output {
    let mut info = shop.command(&["info", place]);
    info.envs(environment.iter().copied());
    info.output().unwrap()
}

#[test]
fn keys_come_from_the_environment_or_from_a_section_of_its_file() {
    let (shop, night, file) = shop();
    let file = file.as_str();
    let own = [(ID, ACCESS_KEY), (SECRET, SECRET_KEY)];
    let both = [own[0], own[1], (FILE, file)];
    let refused = "SignatureDoesNotMatch";
    for (environment, says) in [
        (&own[..], None),
        (&[(ID, ACCESS_KEY), (SECRET, "of-another")], Some(refused)),
        (&[(FILE, file), (PROFILE, "night")], None),
        (&[(FILE, file)], Some(refused)),
        (&[(FILE, file), (PROFILE, "day")], Some("no keys of [day]")),
        // The file's usual section has wrong ones.
        (&both[..], None),
    ] {
        let output = info(&shop, &night, environment);
        let said = text(&output);
        let code = i32::from(says.is_some());
        assert_eq!(output.status.code(), Some(code), "{environment:?}: {said}");
        assert!(said.contains(says.unwrap_or_default()), "{said}");
        assert!(!said.contains(SECRET_KEY) && !said.contains("of-another"));
    }
    // Whoever names a section in the configuration means that of the file.
    configure(&shop, "profile = \"night\"\n");
    let wrong = [(ID, ACCESS_KEY), (SECRET, "of-another"), (FILE, file)];
    let output = info(&shop, &night, &wrong);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// A server that knows sessions refuses keys with the token of others.
#[test]
fn the_token_of_a_session_goes_with_the_keys_beside_it_only() {
    let (shop, night, file) = shop();
    let session = [
        (ID, ACCESS_KEY),
        (SECRET, SECRET_KEY),
        (TOKEN, "of-a-session"),
    ];
    // This server has no sessions, so what it answers does not count.
    configure(&shop, "deadline = \"10s\"\n");
    info(&shop, &night, &session);
    let seen = shop.proxy.seen();
    assert!(!seen.is_empty() && seen.iter().all(|one| one.has_token));
    shop.proxy.reset();
    configure(
        &shop,
        &format!("credentials-file = {file:?}\nprofile = \"night\"\n"),
    );
    let output = info(&shop, &night, &session);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let seen = shop.proxy.seen();
    assert!(!seen.is_empty() && !seen.iter().any(|one| one.has_token));
}

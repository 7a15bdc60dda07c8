//! A bucket whose name is part of the host's name, as Amazon's own S3 prefers it.

use windlass_testkit::bucket::{HOST_BUCKET, HOST_DOMAIN, S3Server, SECRET_KEY};

use crate::buckets::Shop;

/// The server takes the bucket from the name of the host, and the whole path for a key. A request
/// with the bucket in its path would be about an object of that name.
#[test]
fn a_bucket_may_be_part_of_the_name_of_the_host() {
    let shop = Shop::new();
    let server = S3Server::start_of_hosts();
    let endpoint = format!("http://{HOST_DOMAIN}:{}", server.port);
    shop.configure(&endpoint, SECRET_KEY, "60s");
    shop.append("path-style = false\n");
    let night = format!("s3://{HOST_BUCKET}/night");
    // Several parts, which are uploaded in their own way.
    let database = shop.database(12_000);
    shop.done(&["backup", &database, "--to", &night]);
    let keys = server.keys();
    assert!(!keys.is_empty());
    assert!(keys.iter().all(|key| key.starts_with("night/")), "{keys:?}");
    shop.done(&["info", &night]);
    shop.done(&["verify", &night]);
    shop.restores(&night, &database);
    shop.done(&["check", &database, "--to", &night]);
    assert_eq!(shop.server.keys(), [""; 0]);
}

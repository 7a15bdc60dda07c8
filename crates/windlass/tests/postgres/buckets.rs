//! Clusters in buckets of a real S3 server.

use std::process::Output;

use windlass_testkit::bucket::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use windlass_testkit::evil::Proxy;
use windlass_testkit::postgres::PrivateCluster;

use crate::support::*;

/// Runs a command that must succeed, with the keys in its environment. Returns what it printed.
fn done(server: &S3Server, words: &[&str]) -> String {
    done_at(server.endpoint(), words)
}

/// The same, by way of this address.
fn done_at(endpoint: String, words: &[&str]) -> String {
    let output: Output = command()
        .args(words)
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_ENDPOINT_URL", endpoint)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words:?}: {}",
        text(&output)
    );
    text(&output)
}

#[test]
fn a_cluster_in_buckets_and_directories_is_restored_and_goes_on_with_its_log() {
    let place = Place::new();
    let server = S3Server::start();
    let bucket = format!("s3://{BUCKET}/pg/night");
    std::fs::create_dir_all(place.path("disk/log")).unwrap();
    let disk = place.arg("disk");
    place.sql(
        "CREATE TABLE t AS SELECT i, repeat(i::text, 50) AS v FROM generate_series(1, 30000) i",
    );
    let database = place.server.conninfo();
    let to = ["backup", &database, "--to", &bucket, "--to", &disk];
    let said = done(&server, &["check", &database, "--to", &bucket]);
    assert!(said.contains("can be written to and read back"), "{said}");
    done(&server, &to);
    place.sql("DELETE FROM t WHERE i % 2 = 0");
    done(&server, &to);
    done(&server, &["verify", &bucket, &disk]);
    place.sql("DELETE FROM t WHERE i > 20000");
    // The log of a cluster whose sets are in a bucket is kept in a directory.
    done(
        &server,
        &["backup", &database, "--type", "log", "--to", &disk],
    );
    let restored = |words: &[&str], into: &str, rows: &str| {
        let into = place.arg(into);
        let words = [&["restore", &bucket, &disk, "--into", &into], words].concat();
        done(&server, &words);
        let copy = PrivateCluster::adopt(into.as_ref(), place.server.bin());
        copy.wait_until("SELECT pg_is_in_recovery()", "f");
        assert_eq!(copy.sql("postgres", "SELECT count(*) FROM t"), rows);
    };
    restored(&["--set", "latest"], "set", "15000");
    restored(&["--log-from", &disk], "log", "10000");
}

/// What comes from the bucket follows what is asked for.
#[test]
fn a_part_of_a_cluster_in_a_bucket_costs_what_it_reads() {
    let place = Place::new();
    let server = S3Server::start();
    let proxy = Proxy::start(server.port);
    let bucket = format!("s3://{BUCKET}/pg/parts");
    for name in ["large", "small"] {
        place.sql(&format!("CREATE DATABASE {name}"));
    }
    // No codec makes much less of these.
    let rows = |count: u32| {
        format!(
            "CREATE TABLE t AS SELECT i, md5(i::text) || md5((-i)::text) AS v \
             FROM generate_series(1, {count}) i"
        )
    };
    place.server.sql("large", &rows(300_000));
    place.server.sql("small", &rows(500));
    let path = "SELECT pg_relation_filepath('t')";
    let path = place.server.sql("small", path);
    let database = place.server.conninfo();
    done(&server, &["backup", &database, "--to", &bucket]);
    let cost = |words: &[&str]| {
        proxy.reset();
        done_at(proxy.endpoint(), words);
        (proxy.received(), words.join(" "))
    };
    let (whole, part) = (place.arg("whole"), place.arg("part"));
    let (all, _) = cost(&["restore", &bucket, "--into", &whole]);
    let into = place.arg("files");
    let extract = ["extract", &bucket, &path, "--into", &into];
    let restore = ["restore", &bucket, "--into", &part];
    let only = ["--only-database", "small"];
    for words in [extract.to_vec(), [&restore[..], &only].concat()] {
        let (received, what) = cost(&words);
        assert!(received * 2 < all, "{what}: {received} of {all} bytes");
    }
    let restored = PrivateCluster::adopt(part.as_ref(), place.server.bin());
    assert_eq!(restored.sql("small", "SELECT count(*) FROM t"), "500");
    assert!(place.path("files").join(&path).exists());
}

//! Backups of clusters take pages apart without being asked.

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::run::*;

const ORDERS: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY, customer int, price numeric(12, 2), state text);
    INSERT INTO orders SELECT n, n * 7919 % 900, n / 7.0, 'state ' || n % 5
        FROM generate_series(1, 100000) n;
    CHECKPOINT";
const HASH: &str = "SELECT md5(string_agg(o::text, '|' ORDER BY id)) FROM orders o";

/// A cluster with orders, and a place for sets.
struct Orders {
    server: PrivateCluster,
    dir: tempfile::TempDir,
}

impl Orders {
    fn start() -> Self {
        become_server_user();
        let options = ClusterOptions::default().initdb("--data-checksums");
        // Autovacuum would log whole pages during one of the backups, and that set would be larger.
        let server = PrivateCluster::start(&options.setting("autovacuum = off"));
        server.sql("postgres", ORDERS);
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        Self { server, dir }
    }

    fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Backs up with these words. Returns the report, and what the set says about its pages.
    fn back_up(&self, name: &str, words: &[&str]) -> (Value, String) {
        let (database, to) = (self.server.conninfo(), self.arg(name));
        let all = [&["backup", &database, "--to", &to], words].concat();
        let (code, report) = json(&all);
        assert_eq!(code, 0, "{report}");
        let (_, info) = json(&["info", &format!("{to}@latest")]);
        let pages = &info["sets"][0]["facts"]["options"]["pages"];
        (report, pages.as_str().unwrap_or_default().to_owned())
    }
}

fn apart_bytes(report: &Value) -> u64 {
    report["pages"]["apart_bytes"].as_u64().unwrap_or_default()
}

#[test]
fn a_backup_takes_pages_apart_unless_that_would_cost_time() {
    let place = Orders::start();
    let (apart, pages) = place.back_up("usual", &[]);
    assert_eq!(pages, "auto");
    assert!(apart_bytes(&apart) > 4 << 20, "{apart}");
    let (plain, pages) = place.back_up("off", &["--pages", "off"]);
    assert_eq!((apart_bytes(&plain), pages.as_str()), (0, "off"));
    let written = |report: &Value| report["bytes_written"].as_f64().unwrap();
    assert!(written(&apart) < 0.8 * written(&plain), "{apart} {plain}");
    let (fast, pages) = place.back_up("fast", &["--compress", "lz4"]);
    assert_eq!((apart_bytes(&fast), pages.as_str()), (0, "off"));
    let (asked, pages) = place.back_up("asked", &["--compress", "lz4", "--pages", "auto"]);
    assert_eq!(pages, "auto");
    assert!(apart_bytes(&asked) > 4 << 20, "{asked}");
    let (small, pages) = place.back_up("small", &["--max-memory", "8MiB"]);
    assert_eq!((apart_bytes(&small), pages.as_str()), (0, "off"));
}

/// Each set of a chain may be of either kind.
#[test]
fn a_chain_of_sets_whose_pages_were_taken_apart_comes_back() {
    let place = Orders::start();
    let kinds: [&[&str]; 4] = [
        &[],
        &["--type", "incr", "--strict"],
        &["--type", "incr", "--strict", "--pages", "off"],
        &["--type", "diff", "--strict", "--pages", "auto"],
    ];
    for (number, words) in kinds.iter().enumerate() {
        place.server.sql(
            "postgres",
            &format!(
                "UPDATE orders SET state = 'changed {number}' WHERE id % 9 = {number};
                 INSERT INTO orders SELECT n, {number}, 0.5, 'more'
                     FROM generate_series(100001 + {number} * 20000, 120000 + {number} * 20000) n;
                 CHECKPOINT"
            ),
        );
        let hash = place.server.sql("postgres", HASH);
        let (report, pages) = place.back_up("chain", words);
        let is_off = words.contains(&"off");
        assert_eq!(pages, if is_off { "off" } else { "auto" }, "{words:?}");
        assert_eq!(apart_bytes(&report) == 0, is_off, "{report}");
        let into = place.arg(&format!("restored-{number}"));
        let output = windlass(&["restore", &place.arg("chain"), "--into", &into]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let restored = PrivateCluster::adopt(into.as_ref(), place.server.bin());
        assert_eq!(restored.sql("postgres", HASH), hash, "{words:?}");
    }
    let output = windlass(&["verify", &place.arg("chain")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    merges(&place);
}

/// The merged set of the chain takes pages apart like a backup, and has the content of its last
/// set.
fn merges(place: &Orders) {
    let (chain, merged) = (place.arg("chain"), place.arg("merged"));
    let merge = |to: &str, words: &[&str]| {
        let (code, report) = json(&[&["merge", &chain, "--to", to], words].concat());
        assert_eq!(code, 0, "{report}");
        report
    };
    let apart = merge(&merged, &[]);
    assert!(apart_bytes(&apart) > 4 << 20, "{apart}");
    let plain = merge(&place.arg("plain"), &["--pages", "off"]);
    assert_eq!(apart_bytes(&plain), 0, "{plain}");
    let written = |report: &Value| report["bytes_written"].as_f64().unwrap();
    assert!(written(&apart) < 0.8 * written(&plain), "{apart} {plain}");
    let into = place.arg("restored-merged");
    let output = windlass(&["restore", &merged, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let restored = PrivateCluster::adopt(into.as_ref(), place.server.bin());
    let hash = place.server.sql("postgres", HASH);
    assert_eq!(restored.sql("postgres", HASH), hash);
}

#[test]
fn a_backup_of_a_snapshot_takes_pages_apart() {
    let place = Orders::start();
    let (database, set) = (place.server.conninfo(), place.arg("set.windlass"));
    let hash = place.server.sql("postgres", HASH);
    let (code, made) = json(&[
        "snapshot", "create", &database, "before", "--method", "copy",
    ]);
    assert_eq!(code, 0, "{made}");
    place
        .server
        .sql("postgres", "DROP TABLE orders; CHECKPOINT");
    let (code, report) = json(&["backup", &format!("{database}@before"), "--to", &set]);
    assert_eq!(code, 0, "{report}");
    assert!(apart_bytes(&report) > 4 << 20, "{report}");
    let into = place.arg("restored");
    let output = windlass(&["restore", &set, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let restored = PrivateCluster::adopt(into.as_ref(), place.server.bin());
    assert_eq!(restored.sql("postgres", HASH), hash);
    let (code, dropped) = json(&["snapshot", "drop", &database, "before"]);
    assert_eq!(code, 0, "{dropped}");
}

#[test]
fn lab_pages_says_what_each_relation_of_a_cluster_would_take() {
    let place = Orders::start();
    let database = place.server.conninfo();
    let (code, found) = json(&["lab", "pages", &database]);
    assert_eq!(code, 0, "{found}");
    let relations = found["relations"].as_array().unwrap();
    assert!(relations.len() >= 2, "{found}");
    let said = text(&windlass(&["lab", "pages", &database]));
    // The largest come first: the catalogs of a new cluster are small.
    for (one, name) in relations.iter().zip(["orders", "orders_pkey"]) {
        let path = format!("SELECT pg_relation_filepath('{name}')");
        assert_eq!(one["path"], place.server.sql("postgres", &path), "{found}");
        assert!(one["name"].as_str().unwrap().contains(name), "{one}");
        assert!(said.contains(name), "{said}");
        assert!(one["sample_bytes"].as_u64() > Some(1 << 20), "{one}");
        let ways = one["ways"].as_array().unwrap();
        assert_eq!(ways.len(), 2, "{one}");
        for way in ways {
            let stored = |what: &str| way[what]["stored_bytes"].as_u64().unwrap();
            assert!(stored("apart") < stored("plain"), "{name}: {way}");
        }
    }
    let (code, largest) = json(&["lab", "pages", &database, "--relations", "1"]);
    assert_eq!(code, 0, "{largest}");
    assert_eq!(largest["relations"].as_array().unwrap().len(), 1);
    assert_eq!(largest["relations"][0]["path"], relations[0]["path"]);
}

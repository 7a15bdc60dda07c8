//! `backup --pages auto` of a SQLite database, and `lab pages`, as their users see them.

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::sqlite::run_once;

use crate::clusters::{directory, place};
use crate::support::{Place, text, windlass};

/// Orders as shops have them: numbers that count up, days, prices, a few words.
const ORDERS: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT, price REAL, day TEXT, state TEXT);
    CREATE INDEX by_customer ON orders (customer, day);
    INSERT INTO orders WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 30000)
        SELECT n, n * 7919 % 900, (n * 7919 % 100000) / 100.0,
            date('2020-01-01', '+' || (n * 31 % 1000) || ' days'),
            CASE n % 3 WHEN 0 THEN 'open' WHEN 1 THEN 'paid' ELSE 'sent' END FROM n";

/// A plan knows that a backup takes pages apart. How much of the sample it sees depends on time.
#[test]
fn a_plan_foresees_how_long_a_set_of_a_cluster_becomes() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sql = "CREATE TABLE orders AS SELECT n AS id, n % 911 AS customer, \
        DATE '2020-01-01' + n % 1000 AS day, 'open' AS state FROM generate_series(1, 1000000) n";
    source.sql("postgres", sql);
    source.sql("postgres", "CHECKPOINT");
    let (set, conninfo) = (directory(place.path(), "set"), source.conninfo());
    let codec = ["--compress", "zstd:1", "--json"];
    let to = ["--to", set.to_str().unwrap(), "--pages", "off"];
    let plain = json(&[&["backup", &conninfo][..], &to, &codec].concat());
    let ends = ["--source", "hdd", "--target", "nul"];
    let plan = json(&[&["plan", &conninfo][..], &ends, &codec].concat());
    let stored = plan["alternatives"][0]["stored_bytes"].as_f64().unwrap();
    let written = plain["bytes_written"].as_f64().unwrap();
    assert!(stored < 0.6 * written, "{plan} {plain}");
}

fn json(words: &[&str]) -> Value {
    let output = windlass(words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn orders(place: &Place) -> String {
    run_once(&place.path("orders.db"), ORDERS).unwrap();
    place.arg("orders.db")
}

#[test]
fn a_sqlite_database_takes_less_room_with_its_pages_taken_apart_and_comes_back() {
    let place = Place::new();
    let database = orders(&place);
    let set = place.arg("set.windlass");
    let back_up = |to: &str, pages: &str| {
        json(&["backup", &database, "--to", to, "--pages", pages, "--json"])
    };
    let apart = back_up(&set, "auto");
    let plain = back_up(&place.arg("plain.windlass"), "off");
    let bytes = |report: &Value| report["bytes_written"].as_f64().unwrap();
    assert!(bytes(&apart) < 0.7 * bytes(&plain), "{apart} {plain}");
    assert!(
        apart["pages"]["apart_bytes"].as_u64() > Some(1 << 20),
        "{apart}"
    );
    assert_eq!(apart["pages"]["wrong_frames"], 0);
    assert!(plain["pages"].is_null());
    let info = json(&["info", &set, "--json"]);
    assert_eq!(info["sets"][0]["facts"]["options"]["pages"], "auto");

    for words in [&["verify", &set][..], &["diff", &set, &database]] {
        let output = windlass(words);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
    }
    let into = place.arg("restored.db");
    let output = windlass(&["restore", &set, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(
        std::fs::read(&into).unwrap(),
        std::fs::read(&database).unwrap()
    );
    let again = place.arg("again.windlass");
    let merged = json(&["merge", &set, "--to", &again, "--pages", "auto", "--json"]);
    assert!(bytes(&merged) < 0.7 * bytes(&plain), "{merged} {plain}");
    let output = windlass(&["diff", &again, &database]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// SQLite's pages stay as they are by default. A backup that takes them apart is foreseen as such.
#[test]
fn a_plan_and_a_dry_run_know_that_the_backup_was_asked_to_take_pages_apart() {
    let place = Place::new();
    // Rows that are alike: how much of the sample is seen depends on time.
    let rows = "CREATE TABLE items AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)
        SELECT i, i * 7919 % 900 AS c, i % 5 AS s FROM n";
    run_once(&place.path("items.db"), rows).unwrap();
    let (database, set) = (place.arg("items.db"), place.arg("set.windlass"));
    let plan = |pages: &[&str]| {
        let words = ["plan", &database, "--source", "hdd", "--target", "nul"];
        let plan = json(&[&words[..], &["--json"], pages].concat());
        plan["alternatives"][0]["stored_bytes"].as_f64().unwrap()
    };
    let dry_run = |pages: &[&str]| {
        let emulated = ["source=rate:1MB/s", "--emulate", "target=rate:1GB/s"];
        let words = ["backup", &database, "--to", &set, "--dry-run", "--emulate"];
        let found = json(&[&words[..], &emulated, &["--json"], pages].concat());
        let stored = found["prediction"]["stored_bytes"].as_f64();
        stored.unwrap_or_else(|| panic!("{found}"))
    };
    let choices = [["--pages", "auto"], ["--pages", "off"]];
    let foreseen = [choices.map(|it| plan(&it)), choices.map(|it| dry_run(&it))];
    for [apart, plain] in foreseen {
        assert!(apart < 0.85 * plain, "{apart} {plain}");
    }
}

#[test]
fn a_backup_says_how_much_memory_pages_take_and_goes_without_the_proof_if_asked() {
    let place = Place::new();
    let (database, set) = (orders(&place), place.arg("set.windlass"));
    let back_up = |words: &[&str]| {
        let words = [&["backup", &database, "--to", &set, "--overwrite"], words].concat();
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        text(&output)
    };
    let said = back_up(&["--threads", "2", "--pages", "auto", "--no-frame-proof"]);
    assert!(
        said.contains("pages         about 8 MiB more, to take them apart"),
        "{said}"
    );
    let info = json(&["info", &set, "--json"]);
    let options = &info["sets"][0]["facts"]["options"];
    assert_eq!(options["pages"], "auto, without proof");
    let output = windlass(&["verify", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(!back_up(&["--pages", "off"]).contains("to take them apart"));

    let too_little = ["--threads", "2", "--pages", "auto", "--max-memory", "14MiB"];
    let words = ["backup", &database, "--to", &set, "--overwrite"];
    let output = windlass(&[&words[..], &too_little].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("taking pages apart needs 15728640 bytes"),
        "{said}"
    );
    assert!(said.contains("hint: Pass --max-memory 15728640"), "{said}");
}

#[test]
fn lab_pages_says_what_the_page_codec_brings_for_a_sqlite_database() {
    let place = Place::new();
    let database = orders(&place);
    let found = json(&["lab", "pages", &database, "--json"]);
    let [one] = found["relations"].as_array().unwrap().as_slice() else {
        panic!("one database: {found}")
    };
    assert_eq!(
        (&one["name"], &one["path"]),
        (&"orders.db".into(), &database.as_str().into())
    );
    assert_eq!(one["bytes"], std::fs::metadata(&database).unwrap().len());
    for way in one["ways"].as_array().unwrap() {
        let stored = |what: &str| way[what]["stored_bytes"].as_u64().unwrap();
        assert!(stored("apart") < stored("plain"), "{way}");
    }
    let shown = text(&windlass(&["lab", "pages", &database]));
    assert!(
        shown.contains("orders.db") && shown.contains("apart"),
        "{shown}"
    );

    let empty = place.path("empty.db");
    std::fs::File::create(&empty).unwrap();
    let shown = text(&windlass(&["lab", "pages", empty.to_str().unwrap()]));
    assert!(
        shown.contains("nothing has pages that can be taken apart"),
        "{shown}"
    );
}

/// `lab sweep` compares both ways to treat pages: in backups, and in restores of their sets.
#[test]
fn a_sweep_compares_pages_that_are_taken_apart_with_pages_as_they_are() {
    let place = Place::new();
    let (database, sets, out) = (orders(&place), place.arg("sets"), place.arg("out"));
    let grid = ["lab", "sweep", "grid", &database, "--to", &sets];
    let once = ["--repeat", "1", "--out", &out, "--json"];
    let ways = ["--compress", "zstd:1", "--pages", "auto,off"];
    let length = std::fs::metadata(&database).unwrap().len();
    let (backups, restores): (&[&str], &[&str]) = (&[], &["--restore"]);
    for (more, of_set, of_database) in [
        (backups, "bytes_written", "bytes_read"),
        (restores, "bytes_read", "bytes_written"),
    ] {
        let document = json(&[&grid[..], &once, &ways, more].concat());
        let series = &document["series"];
        let reports = ["auto", "off"].map(|pages| {
            let cases = series["cases"].as_array().unwrap();
            let case = cases.iter().position(|case| case["pages"] == pages);
            let runs = series["runs"].as_array().unwrap();
            let run = runs.iter().find(|run| run["case"] == case.unwrap());
            run.unwrap()["report"].clone()
        });
        let bytes = |what: &str| reports.each_ref().map(|one| one[what].as_f64().unwrap());
        let [apart, plain] = bytes(of_set);
        assert!(apart < 0.7 * plain, "{more:?}: {apart} {plain}");
        for one in bytes(of_database) {
            assert!(one > 0.9 * length as f64, "{more:?}: {one} of {length}");
        }
        let kept = document["kept"][1].as_str().unwrap();
        let page = std::fs::read_to_string(kept).unwrap();
        assert!(page.contains("Size of a set by pages"), "{more:?}");
        assert_eq!(place.sets(), [""; 0]);
    }
}

//! Differences between sets and data directories, by relation.

use serde_json::{Value, json};

use crate::support::*;

/// The entry of a relation, by its name.
fn relation<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let relations = report["relations"].as_array().unwrap();
    relations.iter().find(|one| one["name"] == name)
}

/// Pages of the main fork that changed.
fn changed(report: &Value, name: &str) -> Value {
    let found = relation(report, name).unwrap_or_else(|| panic!("no {name} in {report:#}"));
    let forks = found["forks"].as_array().unwrap();
    let main = forks.iter().find(|fork| fork["fork"] == "main");
    main.map_or(Value::Null, |fork| fork["ranges"].clone())
}

#[test]
fn what_happened_to_each_relation_is_told_by_its_name() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE touched AS SELECT i, repeat('x', 500) w FROM generate_series(1, 3000) i",
    );
    for table in ["rewritten", "dropped", "old_name", "untouched"] {
        place.sql(&format!(
            "CREATE TABLE {table} AS SELECT generate_series(1, 2000) i"
        ));
    }
    place.sql("CREATE TABLE long (i int PRIMARY KEY, t text)");
    place.sql("ALTER TABLE long ALTER t SET STORAGE EXTERNAL");
    // Nothing may change by itself later, so all hint bits are set now.
    place.sql("VACUUM FREEZE");
    place.sql("CHECKPOINT");
    let first = place.back_up("first");
    // A page has 15 rows, and the short new rows fit beside the old ones.
    place.sql("UPDATE touched SET w = 'y' WHERE i = 1 OR i = 1501");
    place.sql("VACUUM FULL rewritten");
    place.sql("DROP TABLE dropped");
    place.sql("ALTER TABLE old_name RENAME TO new_name");
    place.sql("INSERT INTO new_name VALUES (1)");
    place.sql("INSERT INTO long SELECT 1, repeat('long ', 10000)");
    place.sql("CREATE TABLE created AS SELECT generate_series(1, 2000) i");
    place.sql("CHECKPOINT");
    let second = place.back_up("second");

    let (code, report) = json(&["diff", &first, &second, "--pages"]);
    assert_eq!(code, 3, "they differ");
    assert_eq!(report["same"], false);
    assert_eq!(
        changed(&report, "postgres.public.touched"),
        json!([[0, 0], [100, 100]])
    );
    let rewritten = relation(&report, "postgres.public.rewritten").unwrap();
    assert_eq!(rewritten["forks"], json!([]));
    for side in ["only_first", "only_second"] {
        assert!(
            !rewritten[side].as_array().unwrap().is_empty(),
            "{rewritten}"
        );
    }
    let path = place.sql("SELECT pg_relation_filepath('created')");
    let created = relation(&report, "postgres.public.created").unwrap();
    assert_eq!(created["only_second"][0]["path"], path);
    assert_eq!(created["only_first"], json!([]));
    let dropped = relation(&report, "postgres.public.dropped").unwrap();
    assert_eq!(dropped["only_second"], json!([]));
    let renamed = relation(&report, "postgres.public.old_name").unwrap();
    assert_eq!(renamed["renamed"], "postgres.public.new_name");
    assert!(relation(&report, "postgres.public.untouched").is_none());
    let relations = report["relations"].as_array().unwrap();
    let toast = relations.iter().find(|one| one["kind"] == "TOAST");
    assert_eq!(toast.unwrap()["serves"], "public.long");
    assert_eq!(
        changed(&report, "postgres.public.long_pkey"),
        json!([[0, 1]])
    );

    let lines = text(&windlass(&["diff", &first, &second]));
    for line in [
        "differs       postgres.public.touched  2 of 200 pages: 0, 100".to_owned(),
        "rewritten     postgres.public.rewritten  only in the first: 13 pages in base/".to_owned(),
        format!("only second   postgres.public.created  only in the second: 9 pages in {path}"),
        "(in the second image postgres.public.new_name)".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line} is not in\n{lines}");
    }
}

#[test]
fn a_database_that_one_image_alone_has_is_one_line() {
    let place = Place::new();
    let first = place.back_up("first");
    place.sql("CREATE DATABASE fresh");
    place.sql("CREATE TABLE kept (i int)");
    place.sql("CHECKPOINT");
    let second = place.back_up("second");
    for (images, which) in [([&first, &second], "second"), ([&second, &first], "first")] {
        let lines = text(&windlass(&["diff", images[0], images[1]]));
        let begin = format!("{:<13} database fresh  ", format!("only {which}"));
        let line = lines.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("no {begin:?} in\n{lines}"));
        assert!(
            line.contains(" relations in ") && line.ends_with("MiB"),
            "{line}"
        );
        assert!(!lines.contains(" fresh.pg_catalog"), "{lines}");
        assert!(lines.contains(" postgres.public.kept  "), "{lines}");
        let all = text(&windlass(&["diff", images[0], images[1], "--pages"]));
        assert!(all.contains(" fresh.pg_catalog.pg_class  "), "{all}");
    }
}

#[test]
fn checksums_and_bytes_say_the_same_and_a_set_is_like_itself() {
    let place = Place::new();
    place.sql("CREATE TABLE t AS SELECT generate_series(1, 200000) i");
    let first = place.back_up("first");
    place.sql("UPDATE t SET i = 0 WHERE i % 20000 = 7");
    place.sql("CHECKPOINT");
    let second = place.back_up("second");
    let (_, quick) = json(&["diff", &first, &second, "--pages"]);
    let (_, exact) = json(&["diff", &first, &second, "--pages", "--every-byte"]);
    assert_eq!(quick["relations"], exact["relations"]);
    // pg_control differs too, although the CRC-32C of a file that holds its own is always the same.
    assert_eq!(quick["files"], exact["files"]);
    assert!(exact["files"].to_string().contains("global/pg_control"));
    assert_eq!(exact["bytes_by_checksum"], 0);
    let read = |report: &Value| report["bytes_read"].as_u64().unwrap();
    assert!(
        read(&quick) < read(&exact) / 2,
        "{} and {}",
        read(&quick),
        read(&exact)
    );

    let (code, same) = json(&["diff", &first, &first]);
    assert_eq!((code, &same["same"]), (0, &json!(true)));
    let believed = same["bytes_by_checksum"].as_u64().unwrap();
    assert!(
        read(&same) < believed / 20,
        "only what is no relation is read: {same}"
    );
    let (_, all) = json(&["diff", &first, &first, "--quick"]);
    assert_eq!(read(&all), 0);
}

#[test]
fn a_data_directory_equals_its_set_until_somebody_writes() {
    let mut place = Place::new();
    let space = place.path("space");
    std::fs::create_dir(&space).unwrap();
    place.sql(&format!(
        "CREATE TABLESPACE away LOCATION '{}'",
        space.display()
    ));
    place.sql("CREATE TABLE t TABLESPACE away AS SELECT generate_series(1, 5000) i");
    place.sql("CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 5000) i");
    place.sql("VACUUM FREEZE");
    place.sql("CHECKPOINT");
    let set = place.back_up("set");
    let (_, report) = json(&["diff", &set, &place.data()]);
    assert_eq!(report["relations"], json!([]), "{report:#}");
    place.sql("UPDATE t SET i = -1 WHERE i = 1");
    place.server.stop("fast");
    let data = place.data();
    for words in [[&set, &data], [&data, &set]] {
        let (code, report) = json(&["diff", words[0], words[1], "--pages"]);
        assert_eq!(code, 3);
        assert_eq!(changed(&report, "postgres.public.t")[0], json!([0, 0]));
        let unlogged = report["relations"].as_array().unwrap().iter();
        assert_eq!(
            unlogged
                .filter(|one| one["name"] == "postgres.public.u")
                .count(),
            0
        );
        for file in report["files"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap();
            assert!(
                !path.starts_with("pg_wal") && path != "backup_label",
                "{path}"
            );
        }
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = Place::new();
    let set = place.back_up("set");
    let file = place.path("empty.db");
    std::fs::write(&file, "").unwrap();
    let output = windlass(&["diff", &set, file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("different kinds of database"));
    let nothing = windlass(&["diff", &set, &place.arg("nothing")]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing));
}

//! `windlass open` on sets of PostgreSQL clusters. Writes do not reach the set, and nothing that
//! breaks leads to a wrong answer.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use windlass_testkit::postgres::{ClusterOptions, DEFAULT_BIN, PrivateCluster, succeed};

use crate::clusters::{back_up, bindir, bytes, directory, place};
use crate::opening::{Opened, Scratch, User, open_to_all, users, wait_until};
use crate::support::text;

/// Changes the files of a writable copy in every way.
fn assert_takes_everything(major: u32, bin: &Path, settings: &[&str], user: User) {
    let place = place();
    let options = ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default().initdb("--data-checksums")
    };
    let source = PrivateCluster::start(&options);
    succeed(
        source
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    let space = directory(place.path(), "space");
    let sql = format!("CREATE TABLESPACE s LOCATION '{}'", space.display());
    source.sql("postgres", &sql);
    source.sql(
        "postgres",
        "CREATE TABLE t TABLESPACE s AS SELECT generate_series(1, 9000) i",
    );
    let set = back_up(&source, place.path(), &[]);
    drop(source);
    let before = bytes(&set);
    let scratch = Scratch::new();
    let script = "set -e
        run() { psql -XqAt -v ON_ERROR_STOP=1 -c \"$1\"; }
        pgbench -n -c 2 -t 150 >/dev/null 2>&1
        run 'VACUUM FULL'; run 'REINDEX DATABASE postgres'
        run 'CREATE DATABASE copy TEMPLATE template0 TABLESPACE s'
        mkdir $PGHOST/made; chmod 777 $PGHOST/made
        chown --reference=$PGHOST $PGHOST/made
        run \"CREATE TABLESPACE made LOCATION '$PGHOST/made'\"
        run 'ALTER TABLE pgbench_accounts SET TABLESPACE made'
        run 'TRUNCATE t'; run 'DROP TABLE t'; run 'CHECKPOINT'
        run \"SELECT sum(abalance) = (SELECT sum(bbalance) FROM pgbench_branches),
            (SELECT count(*) FROM pgbench_history) FROM pgbench_accounts\"
        run 'SHOW server_version_num' | cut -c 1-2; run 'SELECT pg_is_in_recovery()'";
    let bin = bin.to_str().unwrap();
    let mut words = vec!["open", "--quiet", "--writable", "--bindir", bin, &set];
    words.extend(settings.iter().flat_map(|setting| ["-c", setting]));
    words.extend(["--", "sh", "-c", script]);
    let output = scratch.run(user, &words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said, format!("t|300\n{major}\nf\n"));
    scratch.assert_clean();
    assert!(before == bytes(&set), "the set has changed");
}

#[test]
fn a_writable_copy_takes_everything_and_the_set_stays_as_it_is() {
    let users = users();
    let (root, ordinary) = (users[0], users[users.len() - 1]);
    assert_takes_everything(15, Path::new(DEFAULT_BIN), &[], root);
    assert_takes_everything(14, &bindir(14), &[], ordinary);
    assert_takes_everything(17, &bindir(17), &[], root);
    assert_takes_everything(18, &bindir(18), &["io_method=worker"], ordinary);
    assert_takes_everything(18, &bindir(18), &["io_method=sync"], root);
}

/// An uncompressed set of a cluster with a table whose words can be found in the stripe.
pub fn set_with_words(place: &Path) -> (PrivateCluster, String) {
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE TABLE words AS SELECT i, 'needle-' || i AS word FROM generate_series(1, 50000) i");
    sql("CREATE TABLE plain AS SELECT generate_series(1, 50000) i");
    let set = back_up(&source, place, &["--compress", "none"]);
    (source, set)
}

/// Changes a byte of the stripe at many rows of the table. A second call changes it back. Whoever
/// reads the set meanwhile finds all other bytes.
pub fn rot(set: &str) {
    let (stripe, bytes) = bytes(set).remove(0);
    // A frame at an end of the table has bytes of other files. The parts of the table may stand in
    // any order, so the rows are chosen by their numbers: 43000 to 45999 of 50000.
    let is_meant = |word: &[u8]| {
        word.starts_with(b"needle-4")
            && (b'3'..=b'5').contains(&word[8])
            && word[9..].iter().all(u8::is_ascii_digit)
    };
    let words = bytes.windows("needle-43000".len()).enumerate();
    let places = words.filter(|(_, word)| is_meant(word)).map(|(at, _)| at);
    let places: Vec<_> = places.step_by(25).collect();
    assert!(
        places.len() > 100,
        "the table is not where it is looked for"
    );
    let file = std::fs::File::options().write(true).open(stripe).unwrap();
    for at in places {
        let changed = [bytes[at - 1] ^ 0x20];
        file.write_all_at(&changed, at as u64 - 1).unwrap();
    }
}

const SUM: &str = "SELECT count(*), sum(i), max(length(word)) FROM words";
const SUM_ANSWER: &str = "50000|1250025000|12\n";

#[test]
fn rot_in_an_open_set_is_an_error_and_never_a_wrong_answer() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    for user in users() {
        let opened = Opened::start(&scratch, user, &[&set]);
        // The server's recovery writes, and still the status says what `open` says.
        let status = || text(&scratch.run(user, &["status"]));
        wait_until(|| status().contains("opened, "));
        assert!(status().contains("opened, read-only"), "{}", status());
        rot(&set);
        let damaged = opened.sql(SUM);
        assert!(!damaged.status.success(), "{}", text(&damaged));
        assert!(
            text(&damaged).contains("could not read"),
            "{}",
            text(&damaged)
        );
        // Undamaged tables can still be read. When the damage is undone, everything can.
        assert_eq!(
            text(&opened.sql("SELECT sum(i) FROM plain")),
            "1250025000\n"
        );
        rot(&set);
        assert_eq!(text(&opened.sql(SUM)), SUM_ANSWER);
        assert_eq!(opened.end("TERM"), Some(4), "it has met damage");
        scratch.assert_clean();
    }
}

fn is_alive(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

#[test]
fn a_killed_open_takes_its_server_with_it_and_the_next_one_cleans_up() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    for user in users() {
        let opened = Opened::start(&scratch, user, &["--writable", &set]);
        let server = opened.server();
        assert!(is_alive(&server));
        let sleeping = opened.sql("SELECT pg_backend_pid()");
        assert!(sleeping.status.success());
        let mut psql = Command::new(Path::new(DEFAULT_BIN).join("psql"));
        psql.args(["-XqAtd", &opened.says("conninfo")]);
        psql.args(["-c", &format!("SELECT pg_sleep(1000); {SUM}")]);
        let query = psql
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let query = query.spawn().unwrap();
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        wait_until(|| text(&opened.sql(asleep)) == "1\n");
        assert_eq!(opened.end("KILL"), None);
        let answer = query.wait_with_output().unwrap();
        assert!(!answer.status.success(), "{}", text(&answer));
        wait_until(|| !is_alive(&server));
        assert_eq!(scratch.left().len(), 1);
        let output = scratch.run(
            user,
            &["open", "--quiet", &set, "--", "psql", "-XqAtc", SUM],
        );
        assert_eq!(
            (output.status.code(), text(&output)),
            (Some(0), SUM_ANSWER.to_owned())
        );
        scratch.assert_clean();
    }
}

/// Starts twenty servers on a set at once.
fn twenty(scratch: &Scratch, users: &[User], set: &str) -> Vec<Opened> {
    let open = |index: usize| Opened::start(scratch, users[index % users.len()], &[set]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20).map(|i| scope.spawn(move || open(i))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

#[test]
fn one_table_goes_back_into_another_database_while_others_have_the_set_open() {
    let place = place();
    let (source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    let users = users();
    let others = twenty(&scratch, &users, &set);
    assert_eq!(scratch.left().len(), others.len());
    source.sql("postgres", "DROP TABLE words");
    let program = env!("CARGO_BIN_EXE_windlass");
    // The command must not get settings that lead a client elsewhere.
    let elsewhere = "PGPASSWORD=x PGSERVICE=nowhere PGHOST=203.0.113.1";
    let script = format!(
        "{elsewhere} '{program}' open '{set}' -- pg_dump -t words postgres | psql -Xqd '{}'",
        source.conninfo()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("TMPDIR", scratch.path());
    shell
        .env("WINDLASS_CONFIG", "/dev/null")
        .env("PATH", format!("{DEFAULT_BIN}:/usr/bin:/bin"));
    let script = shell.output().unwrap();
    assert_eq!(
        source.sql("postgres", SUM),
        SUM_ANSWER.trim_end(),
        "{}",
        text(&script)
    );
    for other in others {
        assert_eq!(text(&other.sql(SUM)), SUM_ANSWER);
        assert_eq!(other.end("TERM"), Some(0));
    }
    scratch.assert_clean();
}

#[test]
fn what_cannot_be_opened_says_why() {
    let place = place();
    let (_source, set) = set_with_words(place.path());
    let scratch = Scratch::new();
    let refused = |options: &[&str], says: &str, hints: &str| {
        let words = [&["open", &set], options, &["--", "true"]].concat();
        let output = scratch.run(None, &words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.contains(says) && said.contains(hints),
            "{words:?}: {said}"
        );
        scratch.assert_clean();
    };
    let other = bindir(17);
    let other = other.to_str().unwrap();
    refused(
        &["--bindir", other],
        "no programs of PostgreSQL 15",
        "--bindir",
    );
    refused(
        &["--bindir", other],
        &format!("{other} is PostgreSQL 17"),
        "hint: ",
    );
    refused(
        &["--preload", "no_such_library"],
        "no_such_library",
        "hint: ",
    );
    refused(
        &["-c", "no_such_setting=1"],
        "no_such_setting",
        "-c NAME=VALUE",
    );
    for (setting, fault) in [
        ("work_mem=1kB", "range for parameter \"work_mem\""),
        (
            "fsync=maybe",
            "parameter \"fsync\" requires a Boolean value",
        ),
    ] {
        refused(&["-c", setting], fault, "-c NAME=VALUE");
    }
    refused(&["--user", "nobody_here"], "nobody_here", "--user");
    let long = scratch.path().join("x".repeat(90));
    std::fs::create_dir(&long).unwrap();
    open_to_all(&long, 0o777);
    refused(
        &["--scratch", long.to_str().unwrap()],
        "too long",
        "--scratch",
    );
    refused(&["--scratch", "/nowhere"], "/nowhere", "--scratch");
}

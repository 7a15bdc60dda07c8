//! PostgreSQL's own regression database, the richest schema there is: backed up while it is being
//! made, and again when it is done.
//!
//! WINDLASS_TEST_PG_REGRESS is the directory of the built suite; `scripts/test` makes it.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, restore_and_judge, restore_set, try_backup, verify_backup};

const SUITE: &str = "WINDLASS_TEST_PG_REGRESS";
/// Slow enough to see several groups of tests go by.
const SOURCE_RATE: u64 = 12 << 20;

fn start_suite(source: &PrivateCluster, output: &Path) -> Child {
    let suite =
        std::env::var(SUITE).unwrap_or_else(|_| panic!("{SUITE} is not set: run scripts/test"));
    std::fs::create_dir(output).unwrap();
    let suite = PathBuf::from(suite);
    let mut run = source.tool("psql");
    // The tool's environment, another program.
    let variables: Vec<_> = run
        .get_envs()
        .map(|(k, v)| (k.to_owned(), v.unwrap().to_owned()))
        .collect();
    run = std::process::Command::new(suite.join("pg_regress"));
    run.envs(variables)
        .env_remove("PGDATABASE")
        .env_remove("LC_ALL")
        .current_dir(&suite);
    run.arg(format!("--bindir={}", source.bin().display()))
        .arg("--inputdir=.");
    run.arg("--dlpath=.")
        .arg(format!("--outputdir={}", output.display()));
    run.arg(format!("--host={}", source.place().display()))
        .args(["--port=5432", "--user=postgres"]);
    run.args(["--max-connections=8", "--schedule=parallel_schedule"]);
    run.stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn dump(server: &PrivateCluster) -> Vec<String> {
    // Unlogged tables are restored empty, as they are after a crash.
    let mut tool = server.tool("pg_dumpall");
    let text = succeed(tool.args(["--no-sync", "--no-unlogged-table-data"]));
    // Newer minor releases put a random key into every dump.
    let random = |line: &&str| line.starts_with("\\restrict") || line.starts_with("\\unrestrict");
    text.lines()
        .filter(|line| !random(line))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_regression_database_is_backed_up_in_the_making_and_when_done() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    let mut suite = start_suite(&source, &place.path().join("output"));
    let begun = "SELECT count(*) FROM pg_stat_database WHERE datname = 'regression' \
        AND tup_inserted > 200000";
    source.wait_until(begun, "1");
    let wish = Wish {
        source_rate: Some(SOURCE_RATE),
        ..Wish::default()
    };
    let live = place.path().join("live");
    let outcome = try_backup(&source, &live, &wish).unwrap();
    assert_eq!(
        outcome.facts.checksums.pages_bad, 0,
        "{:?}",
        outcome.facts.checksums
    );
    suite.wait().unwrap();
    drop(restore_and_judge(
        &source,
        &live,
        &place.path().join("restored-live"),
        &[],
    ));

    let relations = source.sql(
        "regression",
        "SELECT count(*) FROM pg_class WHERE relkind = 'r'",
    );
    assert!(
        relations.parse::<u32>().unwrap() > 500,
        "{relations} tables: the suite did not run"
    );
    let done = place.path().join("done");
    try_backup(&source, &done, &Wish::default()).unwrap();
    let into = place.path().join("restored-done");
    restore_set(&done, &into, &[]);
    verify_backup(&source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    let (ours, theirs) = (dump(&server), dump(&source));
    let differing = ours
        .iter()
        .zip(&theirs)
        .find(|(ours, theirs)| ours != theirs);
    assert_eq!(differing, None);
    assert_eq!(ours.len(), theirs.len());
    assert!(
        ours.len() > 50_000,
        "{} lines of dump prove little",
        ours.len()
    );
}

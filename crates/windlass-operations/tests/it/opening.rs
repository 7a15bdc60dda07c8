//! A set that a program opens that is not the command line.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use windlass_engine::Cancel;
use windlass_operations::opening::{OpenRequest, OpenedSet, open};
use windlass_operations::{
    BackupRequest, Caller, OpenSettings, Opened, SetRequest, Unobserved, back_up,
};

use super::text;

const CACHE_BYTES: u64 = 16 << 20;

fn opened(place: &std::path::Path) -> OpenedSet {
    let (shop, backups) = (place.join("shop.db"), place.join("backups"));
    let connection = rusqlite::Connection::open(&shop).unwrap();
    connection
        .execute_batch("create table item(name); insert into item values ('pen')")
        .unwrap();
    let caller = Caller::sharing("a test 1.0", Arc::new(Unobserved));
    let mut request = BackupRequest::new(&text(&shop), &[&text(&backups)]);
    request.keep_prediction = false;
    back_up(&caller, &request, &Cancel::new()).unwrap();
    let request = OpenRequest {
        set: SetRequest {
            words: vec![backups],
            ..SetRequest::default()
        },
        at: None,
        settings: OpenSettings {
            scratch: Some(place.to_owned()),
            cache_bytes: CACHE_BYTES,
            bindir: None,
            preload: String::new(),
            settings: Vec::new(),
            role: None,
            run_as: None,
            port: None,
            listen: String::new(),
            writable: false,
            name: None,
        },
    };
    open(&caller, &request, &Cancel::new()).unwrap()
}

#[test]
fn a_program_reads_an_opened_set_and_its_number_is_known() {
    let place = tempfile::tempdir().unwrap();
    let opened = opened(place.path());
    let Opened::Sqlite { database, .. } = opened.database() else {
        panic!("a SQLite database is a file");
    };
    let found: String = rusqlite::Connection::open(database)
        .unwrap()
        .query_row("select name from item", [], |row| row.get(0))
        .unwrap();
    assert_eq!(found, "pen");
    let never = AtomicBool::new(false);
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words);
        opened.run(command, &never)
    };
    assert_eq!(run("sh", &["-c", "exit 7"]).unwrap().code(), Some(7));
    let error = run("/nonexistent/program", &[]).unwrap_err();
    assert_eq!(error.program, "/nonexistent/program");
    // The wish to end is passed on.
    let asked = AtomicBool::new(true);
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let ended = opened.run(sleep, &asked).unwrap();
    assert_eq!(ended.code(), None, "a signal ended it");
    assert!(opened.close().unwrap().is_none(), "no damage was found");
}

#[test]
fn an_opened_set_is_served_until_the_caller_ends_it() {
    let place = tempfile::tempdir().unwrap();
    let mut opened = opened(place.path());
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| opened.serve(&cancel));
        cancel.cancel();
        served.join().unwrap().unwrap();
    });
    assert!(opened.close().unwrap().is_none());
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 2, "the database and its backups");
}

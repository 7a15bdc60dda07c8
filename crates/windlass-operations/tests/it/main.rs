//! Operations as a program calls them that is not the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod laboratory;
mod opening;

use std::path::Path;
use std::sync::{Arc, Mutex};

use windlass_engine::Cancel;
use windlass_operations::{
    BackupRequest, Caller, Ending, Notice, Observer, RestoreRequest, RunEnd, SetRequest,
    VerifyRequest, back_up, restore, verify,
};

/// Keeps the ends of runs, as a history would.
#[derive(Default)]
struct History(Mutex<Vec<RunEnd>>);

impl Observer for History {
    fn notice(&self, notice: &Notice<'_>) {
        if let Notice::RunEnded(end) = notice {
            self.0.lock().unwrap().push((*end).clone());
        }
    }
}

impl History {
    /// The one run that has ended since the last call.
    fn last(&self) -> RunEnd {
        let mut ends = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends.remove(0)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn each_run_tells_once_how_it_ended() {
    let place = tempfile::tempdir().unwrap();
    let (shop, backups) = (place.path().join("shop.db"), place.path().join("backups"));
    let connection = rusqlite::Connection::open(&shop).unwrap();
    connection.execute_batch("create table item(name)").unwrap();
    let history = Arc::new(History::default());
    let caller = Caller::sharing("a test 1.0", Arc::clone(&history) as Arc<dyn Observer>);
    let backup = |to: &str| {
        let mut request = BackupRequest::new(&text(&shop), &[to]);
        request.keep_prediction = false;
        back_up(&caller, &request, &Cancel::new())
    };
    let (made, _) = backup(&text(&backups)).unwrap();
    let end = history.last();
    assert_eq!((end.run.command, end.ending), ("backup", Ending::Done));
    assert_eq!(end.run.subject, "shop");
    assert!(end.run.started <= end.ended);
    let counts = end.counts.unwrap();
    assert_eq!(counts.set_id, made.report.set_id);
    assert_eq!(counts.bytes_read, made.report.bytes_read);
    assert_eq!(counts.verdict, made.report.verdict);

    backup("nul").unwrap();
    assert_eq!(history.last().run.operation, "trial");

    let request = VerifyRequest {
        set: SetRequest::at(&backups),
        ..VerifyRequest::default()
    };
    verify(&caller, &request, &Cancel::new()).unwrap();
    let end = history.last();
    assert_eq!((end.run.command, end.ending), ("verify", Ending::Done));

    let mut request = RestoreRequest::new(&backups, place.path().join("copy.db"));
    request.keep_prediction = false;
    restore(&caller, &request, &Cancel::new()).unwrap();
    let end = history.last();
    assert_eq!((end.run.command, end.ending), ("restore", Ending::Done));

    // The database is there now.
    let refused = restore(&caller, &request, &Cancel::new()).unwrap_err();
    let end = history.last();
    assert_eq!(end.ending, refused.ending());
    assert_eq!(end.error, Some(refused.to_string()));
    assert!(end.counts.is_none());
}

#[test]
fn two_operations_of_one_process_do_not_disturb_each_other() {
    let place = tempfile::tempdir().unwrap();
    let names = ["one", "two", "three"];
    std::thread::scope(|scope| {
        for name in names {
            let place = place.path();
            scope.spawn(move || {
                let database = place.join(format!("{name}.db"));
                let connection = rusqlite::Connection::open(&database).unwrap();
                connection.execute_batch("create table item(name)").unwrap();
                let history = Arc::new(History::default());
                let observer = Arc::clone(&history) as Arc<dyn Observer>;
                let caller = Caller::sharing("a test 1.0", observer);
                let to = text(&place.join(format!("{name}-backups")));
                let mut request = BackupRequest::new(&text(&database), &[&to]);
                request.keep_prediction = false;
                let (_, ending) = back_up(&caller, &request, &Cancel::new()).unwrap();
                assert_eq!(ending, Ending::Done);
                assert_eq!(history.last().run.subject, name);
            });
        }
    });
}

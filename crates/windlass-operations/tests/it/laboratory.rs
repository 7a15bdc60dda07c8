//! The experiments of the laboratory, called by a program that is not the command line.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_engine::media::Codec;
use windlass_lab::{Chosen, Direction, Experiment};
use windlass_model::Emulation;
use windlass_operations::rehearsing::{RehearseError, RehearseRequest, rehearse};
use windlass_operations::sweeping::{
    CaseRun, RunCommand, SweepError, SweepRequest, SweepStep, SweptWork, sweep,
};
use windlass_operations::tuning::{PresentSetting, TuneRequest, tune};
use windlass_operations::{
    Caller, DeviceError, Ending, Notice, Observer, OperationError, PageChoice, ProcessUse, Rates,
    Unobserved,
};

use super::text;

/// Counts what is told.
#[derive(Default)]
struct Told {
    trials: Mutex<usize>,
    begun: Mutex<Vec<(usize, usize)>>,
}

impl Observer for Told {
    fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Tried(_) => *self.trials.lock().unwrap() += 1,
            Notice::Sweeping(SweepStep::Begins { cases, repeat }) => {
                self.begun.lock().unwrap().push((*cases, *repeat));
            }
            _ => {}
        }
    }
}

fn own(observer: Arc<dyn Observer>) -> Caller {
    Caller {
        process: ProcessUse::Own,
        ..Caller::sharing("a test 1.0", observer)
    }
}

fn shop(place: &Path) -> String {
    let path = place.join("shop.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("create table item(name)").unwrap();
    text(&path)
}

fn tuning(database: &str, to: &[&str]) -> TuneRequest {
    TuneRequest {
        database: database.to_owned(),
        name: None,
        to: to.iter().map(|word| (*word).to_owned()).collect(),
        codecs: vec![Codec::None, Codec::Lz4],
        pages: PageChoice::default(),
        budget: Duration::from_secs(30),
        budget_bytes: u64::MAX,
        trial_bytes: Some(1 << 20),
        rates: Rates::default(),
        memory_limit: None,
        cores_max: None,
        emulation: Emulation::default(),
        present: None,
        exhaustive: false,
    }
}

/// The trials are backups like those to come: with the pages taken apart they write less.
#[test]
fn tuning_takes_pages_apart_as_the_backups_will() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("orders.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)";
    let rows =
        format!("CREATE TABLE orders AS {rows} SELECT i, i * 7919 % 900 AS c, i % 5 AS s FROM n");
    connection.execute_batch(&rows).unwrap();
    let ratio = |pages| {
        let mut request = tuning(&text(&path), &["nul"]);
        (request.codecs, request.pages) = (vec![Codec::Zstd(1)], pages);
        let caller = Caller::sharing("a test 1.0", Arc::new(Told::default()));
        let found = tune(&caller, &request, &Cancel::new()).unwrap();
        found.tuned.first.ratio
    };
    let (apart, plain) = (ratio(PageChoice::Auto), ratio(PageChoice::Off));
    assert!(apart > 1.3 * plain, "{apart} {plain}");
    let usual = ratio(PageChoice::Usual);
    assert!((usual / plain - 1.0).abs() < 0.1, "SQLite: {usual} {plain}");
}

#[test]
fn tuning_begins_with_the_present_setting_and_tells_each_trial() {
    let place = tempfile::tempdir().unwrap();
    let told = Arc::new(Told::default());
    let caller = Caller::sharing("a test 1.0", Arc::clone(&told) as Arc<dyn Observer>);
    let mut request = tuning(&shop(place.path()), &["nul"]);
    request.present = Some(PresentSetting {
        codec: Some(Codec::Lz4),
        buffers: Some(9),
        ..PresentSetting::default()
    });
    let found = tune(&caller, &request, &Cancel::new()).unwrap();
    assert!(found.is_present);
    let first = &found.tuned.first.setting;
    assert_eq!((first.codec, first.buffers), (Codec::Lz4, 9));
    assert_eq!(found.trial_bytes, 1 << 20);
    assert_eq!(*told.trials.lock().unwrap(), found.tuned.trials.len());
    let tried = found.tuned.trials.iter();
    let tried: Vec<_> = tried.map(|trial| &trial.setting).collect();
    assert!(tried.contains(&found.advised()));
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 1, "the database alone");
}

#[test]
fn tuning_for_devices_that_cannot_be_used_makes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let shop = shop(place.path());
    let caller = Caller::sharing("a test 1.0", Arc::new(Unobserved));
    let refused = |to: &[&str]| match tune(&caller, &tuning(&shop, to), &Cancel::new()) {
        Err(OperationError::Device(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{to:?} was tuned for"),
    };
    assert!(matches!(refused(&[]), DeviceError::NoneNamed));
    let new = text(&place.path().join("new"));
    assert!(matches!(refused(&[&new, "nul"]), DeviceError::Mixed));
    let file = text(&place.path().join("a.windlass"));
    let twice = refused(&[&file, &file]);
    assert!(matches!(twice, DeviceError::Twice { .. }), "{twice}");
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 1, "the database alone");
}

fn sweeping(place: &Path) -> SweepRequest {
    SweepRequest {
        experiment: Experiment::Grid,
        databases: vec![shop(place)],
        to: vec!["nul".to_owned()],
        direction: Direction::Backup,
        into: None,
        chosen: Chosen::default(),
        repeat: Some(1),
        budget: Duration::from_secs(1),
        out: Some(place.join("out")),
        arguments: Vec::new(),
    }
}

/// A process that prints something and ends with a number.
fn ends_with(number: u8) -> Box<RunCommand<'static>> {
    Box::new(move |run: &CaseRun<'_>| {
        let SweptWork::Backup { to, .. } = run.work else {
            panic!("{run:?}");
        };
        assert_eq!(
            (to.len(), to[0].as_os_str()),
            (run.case.devices, "nul".as_ref())
        );
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("echo said; echo complained >&2; exit {number}"),
        ]);
        Ok(command)
    })
}

#[test]
fn a_sweep_ends_as_the_run_of_it_that_failed() {
    let place = tempfile::tempdir().unwrap();
    let request = sweeping(place.path());
    let told = Arc::new(Told::default());
    let caller = own(Arc::clone(&told) as Arc<dyn Observer>);
    for (number, ending) in [
        (1, Ending::Failed),
        (2, Ending::Usage),
        (4, Ending::Damage),
        (101, Ending::Failed),
    ] {
        let swept = sweep(&caller, &request, &ends_with(number), &Cancel::new());
        let error = swept.err().unwrap();
        assert_eq!(error.ending(), ending, "{error}");
        let OperationError::Sweep(SweepError::Failed(run)) = error else {
            panic!("{error}");
        };
        assert_eq!(
            (run.output.as_str(), run.errors.as_str()),
            ("said\n", "complained\n")
        );
    }
    assert_eq!(*told.begun.lock().unwrap(), [(1, 1); 4]);
    assert!(!place.path().join("out").exists());
}

#[test]
fn a_sweep_believes_no_run_without_a_report() {
    let place = tempfile::tempdir().unwrap();
    let request = sweeping(place.path());
    let caller = own(Arc::new(Unobserved));
    let swept = sweep(&caller, &request, &ends_with(0), &Cancel::new());
    let error = swept.err().unwrap();
    let is_report = matches!(error, OperationError::Sweep(SweepError::NoReport { .. }));
    assert!(is_report, "{error}");
}

#[test]
fn a_sweep_is_refused_where_other_operations_run() {
    let place = tempfile::tempdir().unwrap();
    let request = sweeping(place.path());
    let caller = Caller::sharing("a test 1.0", Arc::new(Unobserved));
    let swept = sweep(&caller, &request, &ends_with(0), &Cancel::new());
    let error = swept.err().unwrap();
    let is_shared = matches!(error, OperationError::Sweep(SweepError::SharedProcess));
    assert!(is_shared, "{error}");
}

#[test]
fn a_rehearsal_of_nothing_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let caller = Caller::sharing("a test 1.0", Arc::new(Unobserved));
    let request = RehearseRequest {
        path: place.path().to_owned(),
        bytes: 1 << 20,
        only: "no such set-up".to_owned(),
        errors_max: None,
    };
    let error = rehearse(&caller, &request, &Cancel::new()).err().unwrap();
    assert_eq!(error.ending(), Ending::Usage);
    let is_none = matches!(
        error,
        OperationError::Rehearse(RehearseError::NoSetUp { .. })
    );
    assert!(is_none, "{error}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

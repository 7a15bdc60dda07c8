//! Series with known answers: what is there is found and held against the article, and what is not
//! there is not found.

use super::experiment::names;
use super::*;
use crate::sweep::{Environment, rounds};

fn setting(axis: &str, place: u32, label: &str) -> SnapshotSetting {
    SnapshotSetting {
        axis: axis.to_owned(),
        place: f64::from(place),
        label: label.to_owned(),
    }
}

fn value(name: &str, kind: ValueKind, value: f64) -> Value {
    Value {
        name: name.to_owned(),
        kind,
        value,
    }
}

fn series(experiment: SnapshotExperiment, repeat: usize) -> SnapshotSeries {
    let inputs = SnapshotInputs {
        experiment,
        server: "15.18".to_owned(),
        method: "hook".to_owned(),
        scale: 1,
        cluster_bytes: 64 << 20,
        seconds: 1.0,
        repeat,
        into: "/var/tmp/lab".to_owned(),
        settings: vec![("shared_buffers".to_owned(), "128MB".to_owned())],
    };
    SnapshotSeries::new("now".to_owned(), inputs, Environment::default(), Vec::new())
}

/// Throughput with 0 to 5 snapshots at two loads; each snapshot costs this share at each load.
fn throughput(costs: [f64; 2]) -> SnapshotSeries {
    let mut series = series(SnapshotExperiment::Throughput, 4);
    let mut expected = Vec::new();
    for (clients, cost) in [(2, costs[0]), (8, costs[1])] {
        for count in [0, 1, 3, 5] {
            series.cases.push(SnapshotCase(vec![
                setting(names::CLIENTS, clients, &format!("{clients} clients")),
                setting(names::SNAPSHOTS, count, &format!("{count} snapshots")),
            ]));
            expected.push(f64::from(clients) * 100.0 * (1.0 - cost * f64::from(count)));
        }
    }
    let mut state = 5;
    for (round, order) in rounds(expected.len(), 4, 1).into_iter().enumerate() {
        for case in order {
            state = crate::sample::next(state);
            let chance = f64::from(u8::try_from(state % 101).unwrap()) / 10_000.0;
            series.runs.push(SnapshotRun {
                case,
                round,
                values: vec![value(
                    names::THROUGHPUT,
                    ValueKind::PerSecond,
                    expected[case] * (1.0 + chance),
                )],
                steps: Vec::new(),
                samples: Vec::new(),
                making: None,
            });
        }
    }
    series
}

#[test]
fn what_the_article_found_is_held_against_the_runs() {
    let found = findings(&throughput([0.0, 0.05])).found.join("\n");
    let low = "at the lower load, throughput hardly changes with the number of snapshots; here too";
    assert!(found.contains(low), "{found}");
    let high = "at the higher load, throughput falls with every snapshot; here too: 8 clients: -25";
    assert!(found.contains(high), "{found}");
    let found = findings(&throughput([0.05, 0.0])).found.join("\n");
    assert_eq!(found.matches("not here").count(), 1, "{found}");
    assert_eq!(
        found.matches("the runs here do not tell").count(),
        1,
        "{found}"
    );
}

#[test]
fn a_difference_within_the_noise_is_not_found() {
    let findings = findings(&throughput([0.0, 0.05]));
    assert_eq!(findings.unclear.len(), 1, "{findings:?}");
    assert!(
        findings.unclear[0].starts_with("2 clients: throughput"),
        "{findings:?}"
    );
    assert!(
        findings.found[0].starts_with("8 clients: throughput -2"),
        "{findings:?}"
    );
    let mut once = throughput([0.0, 0.05]);
    once.runs.retain(|run| run.round == 0);
    let findings = super::findings(&once);
    assert_eq!(findings.unclear.len(), 2, "{findings:?}");
    assert!(
        findings
            .found
            .iter()
            .all(|words| words.contains("one round cannot tell"))
    );
}

#[test]
fn a_kept_series_is_the_same_and_its_report_too() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("series.json");
    let series = throughput([0.0, 0.05]);
    let outputs = windlass_engine::Outputs::default();
    series.save(&path, &outputs).unwrap();
    // Its own kind is replaced, and nothing else is.
    series.save(&path, &outputs).unwrap();
    let loaded = SnapshotSeries::load(&path).unwrap();
    assert_eq!(loaded, series);
    assert_eq!(report(&loaded), report(&series));
    std::fs::copy("/etc/hostname", &path).unwrap();
    assert!(series.save(&path, &outputs).is_err());
    assert!(SnapshotSeries::load(&path).is_err());
}

#[test]
fn the_newest_row_lies_in_the_step_that_it_was_committed_in() {
    let mut series = series(SnapshotExperiment::AsOf, 1);
    series.cases = vec![SnapshotCase(vec![setting(names::START, 0, "a checkpoint")])];
    let step = |name: &str, seconds: f64| StepTook {
        name: name.to_owned(),
        seconds,
        of: TookOf::Making,
    };
    series.runs.push(SnapshotRun {
        case: 0,
        round: 0,
        values: vec![
            value(names::NEWEST, ValueKind::Seconds, 0.25),
            value(names::TOLD, ValueKind::Seconds, 0.26),
        ],
        steps: vec![
            step("checkpoint", 0.2),
            step("flip", 0.1),
            step("publish", 0.3),
        ],
        samples: Vec::new(),
        making: None,
    });
    let found = findings(&series).found.join("\n");
    assert!(found.contains("in the step \"flip\" of 0.600 s"), "{found}");
    let html = report(&series);
    assert!(html.contains("Figure 9"), "the article's figure");
}

#[test]
fn the_share_of_recovery_is_held_against_the_article() {
    let step = |name: &str, seconds: f64, of: TookOf| StepTook {
        name: name.to_owned(),
        seconds,
        of,
    };
    let found = |redo: &[f64]| {
        let mut series = series(SnapshotExperiment::Steps, 1);
        for (case, redo) in redo.iter().enumerate() {
            let place = u32::try_from(case).unwrap();
            let setting = setting(names::CLIENTS, place, &format!("{place} clients"));
            series.cases.push(SnapshotCase(vec![setting]));
            series.runs.push(SnapshotRun {
                case,
                round: 0,
                values: Vec::new(),
                steps: vec![
                    step("linking files", 1.0, TookOf::Making),
                    step("redo", *redo, TookOf::Opening),
                    step("checkpoint after the redo", 0.5, TookOf::Opening),
                ],
                samples: Vec::new(),
                making: None,
            });
        }
        findings(&series).found.join("\n")
    };
    let mostly = "the article found: recovery (analysis, redo, undo) takes most of the time; ";
    for (redo, said) in [
        (
            &[1.5, 8.5][..],
            "here too: 0 clients: 67 %, 1 clients: 90 %",
        ),
        (&[0.5 / 3.0, 8.5], "here with some loads: 0 clients: 40 %"),
        (&[0.0], "not here: 0 clients: 33 %"),
    ] {
        let found = found(redo);
        assert!(found.contains(&format!("{mostly}{said}")), "{found}");
    }
}

#[test]
fn a_figure_without_a_finding_says_so() {
    for experiment in SnapshotExperiment::ALL {
        let found = findings(&series(experiment, 1)).found.join("\n");
        let has_none = found.contains("held against nothing");
        let of = [SnapshotExperiment::Timeline, SnapshotExperiment::Index];
        assert_eq!(
            has_none,
            of.contains(&experiment),
            "{experiment:?}: {found}"
        );
    }
}

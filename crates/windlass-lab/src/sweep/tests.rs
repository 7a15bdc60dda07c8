//! Series with known answers: the sweep finds what is there, and does not find what is not.

use super::*;
use crate::plan::Direction;
use windlass_engine::{
    Cause, Limit, Outputs, Resource, RunReport, StageName, StageReport, WaitReport,
};

fn record(seconds: f64) -> RunReport {
    RunReport {
        set_id: None,
        seconds,
        data_seconds: seconds,
        cpu_seconds: seconds,
        peak_memory_bytes: 20 << 20,
        bytes_read: 1 << 30,
        bytes_written: 1 << 29,
        buffers: 7,
        buffers_peak: 7,
        transfer_bytes: 1 << 20,
        buffer_bytes: 7 << 20,
        stages: vec![StageReport {
            name: StageName::Reader,
            threads: 2,
            busy_seconds: 0.1,
            cpu_seconds: 0.1,
            operations: 1024,
            bytes: 1 << 30,
            waits: vec![WaitReport {
                cause: Cause::FreeBuffer,
                seconds: seconds / 2.0,
                count: 100,
            }],
        }],
        devices: Vec::new(),
        limit: Limit {
            stage: Resource::Device,
            device: None,
            rate: 1e9 / seconds,
            share_of_probed: None,
            next: None,
            conclusive: true,
            resources: Vec::new(),
        },
        verdict: String::new(),
        compression: None,
        pages: None,
    }
}

/// Runs of these seconds for each case. Each round drifts by a tenth, and chance adds a little.
fn series(experiment: Experiment, chosen: &Chosen, seconds: &[f64], repeat: usize) -> Series {
    let cases = chosen.cases(experiment, false);
    assert_eq!(cases.len(), seconds.len());
    let inputs = Inputs {
        experiment,
        direction: Direction::Backup,
        kind: "SQLite".to_owned(),
        database_bytes: 1 << 30,
        to: vec!["nul".to_owned()],
        repeat,
        arguments: Vec::new(),
    };
    let mut series = Series::new("now".to_owned(), inputs, Environment::default(), cases);
    let mut state = 7;
    for (round, order) in rounds(seconds.len(), repeat, 1).into_iter().enumerate() {
        for case in order {
            state = crate::sample::next(state);
            let chance = f64::from(u8::try_from(state % 101).unwrap()) / 100.0 - 0.5;
            let drift = 1.0 + 0.1 * f64::from(u8::try_from(round).unwrap());
            let report = record(seconds[case] * drift * (1.0 + 0.01 * chance));
            series.runs.push(SweptRun {
                case,
                round,
                process_cpu_seconds: report.seconds * 0.5,
                report,
            });
        }
    }
    series
}

fn devices(counts: &[usize]) -> Chosen {
    Chosen {
        devices: counts.to_vec(),
        ..Chosen::default()
    }
}

#[test]
fn each_experiment_has_its_cases_each_once() {
    let count = |experiment: Experiment, restore| {
        let cases = Chosen::default().cases(experiment, restore);
        for (index, case) in cases.iter().enumerate() {
            assert!(!cases[..index].contains(case), "{case:?}");
        }
        cases.len()
    };
    for (experiment, cases) in [
        (Experiment::Waits, 2),
        (Experiment::Buffers, 7),
        (Experiment::BufferDefaults, 5),
        (Experiment::Stripes, 4),
        (Experiment::Blocksize, 4),
        (Experiment::Matrix, 24),
        (Experiment::IopsStep, 4),
        (Experiment::Nul, 53),
        (Experiment::Disk, 53),
        (Experiment::Grid, 1),
    ] {
        assert_eq!(count(experiment, false), cases, "{experiment:?}");
        assert_eq!(count(experiment, true), cases, "{experiment:?}");
    }
}

#[test]
fn what_is_kept_is_the_same_series_to_the_last_bit() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("series.json");
    let mut kept = series(Experiment::Stripes, &devices(&[1]), &[1.0], 50);
    let mut random = windlass_testkit::sqlite::Random(3);
    for run in &mut kept.runs {
        run.report.seconds = f64::from_bits(random.bits() >> 2);
        run.process_cpu_seconds = f64::from(random.below(u32::MAX)) / 1e9;
    }
    kept.save(&path, &Outputs::new()).unwrap();
    assert!(Series::load(&path).unwrap() == kept);
}

#[test]
fn what_is_chosen_replaces_an_axis_and_nothing_else() {
    let chosen = Chosen {
        devices: vec![1, 2],
        buffers: vec![Some(8), None],
        scale: Some(0.5),
        pages: vec!["auto".to_owned(), "off".to_owned()],
        ..Chosen::default()
    };
    let cases = chosen.cases(Experiment::Matrix, false);
    assert_eq!(cases.len(), 4 * 2 * 2 * 2 * 2);
    let emulate = &cases[0].set_up.as_ref().unwrap().emulate;
    assert!(emulate.contains(&"scale=0.5".to_owned()), "{emulate:?}");
    assert!(!emulate.contains(&"scale=0.25".to_owned()), "{emulate:?}");
}

#[test]
fn sets_have_a_size_for_each_codec_and_each_way_to_treat_pages() {
    let chosen = Chosen {
        codecs: vec!["none".to_owned(), "zstd:1".to_owned()],
        pages: vec!["auto".to_owned(), "off".to_owned()],
        ..Chosen::default()
    };
    let mut series = series(Experiment::Grid, &chosen, &[1.0; 4], 2);
    for run in &mut series.runs {
        run.report.bytes_written = [300, 400, 100, 200][run.case];
    }
    let chart = super::report::sizes(&series, &[Axis::Codec, Axis::Pages]);
    let groups = chart.groups.iter();
    let groups: Vec<_> = groups
        .map(|group| (group.label.as_str(), group.values.as_slice()))
        .collect();
    let expected = [
        ("none, pages auto", &[300.0][..]),
        ("none, pages off", &[400.0]),
        ("zstd:1, pages auto", &[100.0]),
        ("zstd:1, pages off", &[200.0]),
    ];
    assert_eq!(groups, expected);
    let page = report(&series);
    assert!(page.contains("Size of a set by codec and pages"));
}

#[test]
fn a_set_up_may_have_a_name() {
    let named = Storage::parse("slow disk: source=hdd target=rate:20MB/s").unwrap();
    assert_eq!(named.name, "slow disk");
    assert_eq!(named.emulate, ["source=hdd", "target=rate:20MB/s"]);
    let plain = Storage::parse("source=gp2:1.5TB").unwrap();
    assert_eq!(plain.name, "source=gp2:1.5TB");
    assert!(Storage::parse("slow: source=tape").is_err());
}

#[test]
fn every_case_runs_once_a_round_in_an_order_that_changes() {
    let rounds = rounds(12, 5, 42);
    for round in &rounds {
        let mut sorted = round.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>());
    }
    assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(
        rounds,
        super::rounds(12, 5, 42),
        "the same seed, the same order"
    );
}

#[test]
fn a_difference_beyond_noise_is_found_through_drift() {
    // Rounds drift by 20 %, settings differ by 5 %: without rounds the difference would drown.
    let series = series(Experiment::Grid, &devices(&[1, 2, 4]), &[10.0, 9.5, 9.5], 4);
    let noise = Noise::of(&series, Measure::Seconds, 6);
    assert!((noise.drift - 0.3).abs() < 0.02, "{}", noise.drift);
    assert!(noise.spread < 0.01, "{}", noise.spread);
    let (better, same) = (noise.compare(0, 1), noise.compare(1, 2));
    assert!(
        better.apart && (better.ratio - 0.95).abs() < 0.01,
        "{better:?}"
    );
    assert!(!same.apart, "{same:?}");
    let findings = findings(&series);
    let all = findings.found.join("\n");
    assert!(all.contains("times as fast"), "{all}");
    let unclear = findings.unclear.join("\n");
    assert!(unclear.contains("is not told apart from"), "{unclear}");
}

#[test]
fn equal_settings_are_rarely_called_different() {
    // The error is 5 % over all comparisons: of 40 series of 8 equal settings a few at most.
    let mut wrong = 0;
    for shift in 0..40_usize {
        let counts: Vec<usize> = (1..=8).map(|one| one + shift).collect();
        let mut series = series(Experiment::Grid, &devices(&counts), &[1.0; 8], 3);
        let mut state = shift as u64;
        for run in &mut series.runs {
            // Chance whose size differs from run to run, without a pattern.
            state = crate::sample::next(state);
            let chance = f64::from(u8::try_from(state % 101).unwrap()) / 1000.0;
            run.report.seconds *= 1.0 + chance;
        }
        let noise = Noise::of(&series, Measure::Seconds, 7);
        wrong += usize::from((1..8).any(|case| noise.compare(0, case).apart));
    }
    assert!(wrong <= 5, "{wrong} of 40");
}

#[test]
fn one_run_each_tells_nothing_apart() {
    let series = series(Experiment::Grid, &devices(&[1, 2]), &[10.0, 1.0], 1);
    let findings = findings(&series);
    assert!(
        findings.method[0].contains("repeat the runs"),
        "{findings:?}"
    );
    let found = findings.found.join("\n");
    assert!(
        !found.contains("times as fast") && !found.contains("duration"),
        "{found}"
    );
}

#[test]
fn a_series_is_read_as_it_was_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("series.json");
    let series = series(Experiment::Buffers, &Chosen::default(), &[1.0; 7], 2);
    series.save(&path, &Outputs::new()).unwrap();
    let kept = Series::load(&path).unwrap();
    // The last digit of a number may change. What the findings say about it may not.
    assert_eq!((&kept.inputs, &kept.cases), (&series.inputs, &series.cases));
    assert_eq!(kept.runs.len(), series.runs.len());
    assert_eq!(findings(&kept), findings(&series));
    let broken = Series {
        cases: series.cases[..3].to_vec(),
        ..series
    };
    broken.save(&path, &Outputs::new()).unwrap();
    let error = Series::load(&path).unwrap_err().to_string();
    assert!(error.contains("a case that is not there"), "{error}");
}

#[test]
fn others_are_compared_with_the_case_least_touched() {
    let series = series(Experiment::Buffers, &Chosen::default(), &[1.0; 7], 1);
    assert_eq!(series.cases[series.baseline()].buffers, Some(7));
    assert_eq!(series.axes(), [Axis::TransferSize, Axis::Buffers]);
    assert_eq!(series.values(Axis::TransferSize), ["1 MiB", "4 MiB"]);
}

#[test]
fn a_chart_draws_every_run_and_rings_for_what_is_not_told_apart() {
    let chosen = Chosen {
        buffers: [7, 14, 28, 56].map(Some).to_vec(),
        transfer_bytes: vec![1 << 20],
        ..Chosen::default()
    };
    // The second is as fast as the first except for chance; the others are faster.
    let seconds = [10.0, 9.99, 8.0, 6.0];
    for (repeat, rings) in [(5, 1), (1, 3)] {
        let found = series(Experiment::Buffers, &chosen, &seconds, repeat);
        let html = report(&found);
        let figure = |title: &str| {
            let mut figures = html.split("<figure").skip(1);
            let figure = figures.find(|figure| figure.contains(title));
            figure.unwrap_or_else(|| panic!("{title}")).to_owned()
        };
        let lines = figure("by buffers</h3>");
        // Each is drawn twice, wide and narrow, hence the division.
        let count = |figure: &str, what: &str| figure.matches(what).count() / 2;
        assert_eq!(count(&lines, "<circle class=\"run "), 4 * repeat);
        assert_eq!(
            count(&lines, "<circle class=\"dot hollow "),
            rings,
            "{repeat} rounds"
        );
        assert_eq!(count(&lines, "<circle class=\"dot "), 4);
        assert_eq!(
            count(&lines, "<path class=\"band "),
            usize::from(repeat > 1)
        );
        let bars = figure("Speed-up against the baseline");
        assert_eq!(count(&bars, "<circle class=\"run\""), 4 * repeat);
        assert_eq!(count(&bars, "class=\"bar hollow "), rings);
        assert_eq!(
            count(&bars, "<rect class=\"noise\""),
            usize::from(repeat > 1)
        );
    }
}

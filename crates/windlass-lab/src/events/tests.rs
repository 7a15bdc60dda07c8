//! Sums and percentiles are compared with the simple way to compute them. Then files with faults.

use std::path::Path;

use proptest::prelude::*;

use super::{EventFile, EventTable, Spread, event_page};

const HEADER: &str = concat!(
    r#"{"event":"header","format":"windlass-events","version":1,"tool":"windlass 1","#,
    r#""command":"backup","subject":"shop","started":"2026-01-01T00:00:00Z","#,
    r#""stages":["reader","compressor","writer"],"#,
    r#""devices":[{"device":0,"name":"/backup/0","role":"stripe"},"#,
    r#"{"device":1,"name":"source","role":"source"}]}"#
);

fn read(text: &str) -> Result<EventFile, String> {
    let file = EventFile::read(text.as_bytes(), Path::new("x"));
    file.map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn a_spread_is_that_of_every_value_written_out(
        values in prop::collection::vec((0u64..1_000_000, 1u64..9), 1..60),
    ) {
        let spread = Spread::of(values.clone());
        let mut all: Vec<u64> = values
            .iter()
            .flat_map(|(value, weight)| (0..*weight).map(|_| *value))
            .collect();
        all.sort_unstable();
        let at = |percent: usize| (all.len() * percent).div_ceil(100).max(1) - 1;
        let rank = |percent: usize| all[at(percent)] as f64 / 1e9;
        let total = all.iter().sum::<u64>() as f64 / 1e9;
        prop_assert_eq!(spread.count, all.len() as u64);
        prop_assert!((spread.total_seconds - total).abs() < 1e-9);
        prop_assert!((spread.mean_seconds - total / all.len() as f64).abs() < 1e-9);
        prop_assert!((spread.p50_seconds - rank(50)).abs() < 1e-12);
        prop_assert!((spread.p99_seconds - rank(99)).abs() < 1e-12);
        prop_assert!((spread.max_seconds - *all.last().unwrap() as f64 / 1e9).abs() < 1e-12);
    }

    #[test]
    fn shares_add_up_to_one_and_nothing_is_counted_twice(
        events in prop::collection::vec((0usize..3, 0usize..3, 1u64..1_000_000, 1u64..5), 1..50),
    ) {
        let stages = ["reader", "compressor", "writer"];
        let causes = ["jobs", "free_buffer", "frames"];
        let mut text = format!("{HEADER}\n");
        for (stage, cause, nanos, weight) in &events {
            let (stage, cause) = (stages[*stage], causes[*cause]);
            text += &format!(
                "{{\"event\":\"wait\",\"cause\":\"{cause}\",\"stage\":\"{stage}\",\"thread\":0,\
                 \"start_nanos\":0,\"duration_nanos\":{nanos},\"weight\":{weight}}}\n"
            );
        }
        let table = EventTable::of(&read(&text).unwrap());
        let count: u64 = table.waits.iter().map(|row| row.spread.count).sum();
        prop_assert_eq!(count, events.iter().map(|event| event.3).sum::<u64>());
        let share: f64 = table.waits.iter().map(|row| row.share).sum();
        prop_assert!((share - 1.0).abs() < 1e-9);
        let total = |row: &super::WaitRow| row.spread.total_seconds;
        prop_assert!(table.waits.is_sorted_by(|a, b| total(a) >= total(b)));
        for row in &table.waits {
            let of_row = |event: &&(usize, usize, u64, u64)| {
                stages[event.0] == row.stage && causes[event.1] == row.cause
            };
            let own: u64 = events.iter().filter(of_row).map(|event| event.2 * event.3).sum();
            prop_assert!((row.spread.total_seconds - own as f64 / 1e9).abs() < 1e-9);
        }
    }
}

#[test]
fn a_file_cut_off_in_a_line_is_read_up_to_there() {
    let whole = concat!(
        r#"{"event":"io","cause":"device_write","stage":"writer","thread":1,"device":0,"#,
        r#""start_nanos":1,"duration_nanos":5,"bytes":8,"depth":2}"#
    );
    let file = read(&format!("{HEADER}\n{whole}\n{}", &whole[..50])).unwrap();
    let table = EventTable::of(&file);
    assert_eq!(table.outcome, "cut_off");
    assert_eq!(table.ios.len(), 1);
    assert_eq!(
        (table.ios[0].device.as_str(), table.ios[0].bytes),
        ("/backup/0", 8)
    );
    assert!(event_page(&file, &table).contains("cut off"));
    assert!(event_page(&file, &table).contains("2026-01-01 00:00:00 UTC"));
}

#[test]
fn what_is_no_file_of_events_is_refused_by_line() {
    assert!(read("").unwrap_err().contains("empty"));
    assert!(read("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n").is_err());
    let newer = HEADER.replace("\"version\":1", "\"version\":2");
    assert!(read(&format!("{newer}\n")).unwrap_err().contains("newer"));
    let torn = read(&format!("{HEADER}\nnonsense\n")).unwrap_err();
    assert!(torn.contains("line 2"), "{torn}");
}

#[test]
fn lines_and_words_of_a_newer_program_are_passed_over() {
    let text = format!(
        "{HEADER}\n{{\"event\":\"comet\"}}\n{{\"event\":\"wait\",\"cause\":\"moon\",\"stage\":\
         \"reader\",\"thread\":0,\"start_nanos\":0,\"duration_nanos\":1}}\n"
    );
    assert!(read(&text).unwrap().events.is_empty());
}

#[test]
fn a_stripe_that_got_nothing_is_shown_and_other_silent_devices_are_not() {
    let two = r#"{"device":1,"name":"/backup/idle","role":"stripe"},{"device":2,"name":"source""#;
    let header = HEADER.replace(r#"{"device":1,"name":"source""#, two);
    let sample = |at: u64, bytes: u64| {
        format!(
            "{{\"event\":\"sample\",\"at_nanos\":{at},\"stage_bytes\":[0,0,0],\"device_bytes\":\
             [{bytes},0,0]}}"
        )
    };
    let samples = [
        sample(1000, 0),
        sample(2_000_000, 5000),
        sample(9_000_000, 9000),
    ];
    let file = read(&format!("{header}\n{}\n", samples.join("\n"))).unwrap();
    let page = event_page(&file, &EventTable::of(&file));
    let (_, chart) = page.split_once("Throughput by device").unwrap();
    let (chart, _) = chart.split_once("Throughput by stage").unwrap();
    assert!(chart.contains(">0<") && chart.contains(">idle<"), "{chart}");
    assert!(!chart.contains(">source<"), "{chart}");
}

#[test]
fn devices_of_one_name_are_told_apart() {
    let header = HEADER.replace("\"name\":\"source\"", "\"name\":\"/other/0\"");
    let file = read(&format!("{header}\n")).unwrap();
    assert_eq!(file.short_names(), ["0 (1)", "0 (2)"]);
    let file = read(&format!("{HEADER}\n")).unwrap();
    assert_eq!(file.short_names(), ["0", "source"]);
}

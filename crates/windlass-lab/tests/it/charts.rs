//! A page with every kind of chart, as a browser shows it.

use windlass_engine::durable;
use windlass_lab::chart::{
    BarChart, BarLayout, Cell, Group, LineChart, Page, Scale, Series, Table, Unit,
};
use windlass_testkit::browser::{Browser, check_page};

fn lines(names: &[&str], xs: &[f64], slope: f64) -> Vec<Series> {
    let series = |(index, name): (usize, &&str)| Series {
        name: (*name).to_owned(),
        points: xs
            .iter()
            .map(|x| (*x, (1.0 + index as f64) * slope * (1.0 + x.ln_1p())))
            .collect(),
        ..Series::default()
    };
    names.iter().enumerate().map(series).collect()
}

fn transfer_sizes() -> LineChart {
    let sizes: Vec<f64> = (16..=22).map(|power| f64::from(1 << power)).collect();
    LineChart {
        title: "Rate by transfer size <b>& devices</b>".to_owned(),
        description: "Backup to one to five devices; the mean of three runs each.".to_owned(),
        x: ("transfer size".to_owned(), Unit::Bytes),
        x_scale: Scale::Log2,
        y: Unit::BytesPerSecond,
        series: lines(
            &[
                "1 device",
                "2 devices",
                "3 devices",
                "4 devices",
                "5 devices",
            ],
            &sizes,
            21e6,
        ),
        marked: true,
        ..LineChart::default()
    }
}

fn codecs() -> LineChart {
    let names = ["none", "lz4", "zstd:1", "zstd:3", "zstd:6", "zstd:9"];
    LineChart {
        title: "CPU seconds by codec".to_owned(),
        description: "What a codec costs, with and without a hook.".to_owned(),
        x: ("codec".to_owned(), Unit::Count),
        x_scale: Scale::Named,
        x_names: names.iter().map(|name| (*name).to_owned()).collect(),
        y: Unit::Seconds,
        series: lines(&["with", "without"], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3.3),
        marked: true,
        ..LineChart::default()
    }
}

fn over_time() -> LineChart {
    let times: Vec<f64> = (0..900).map(f64::from).collect();
    LineChart {
        title: "Buffers".to_owned(),
        description: "Who has them.".to_owned(),
        x: ("time".to_owned(), Unit::Seconds),
        y: Unit::Count,
        series: lines(&["inputs", "outputs", "free"], &times, 1.0),
        stacked: true,
        ..LineChart::default()
    }
}

fn bars(layout: BarLayout) -> BarChart {
    let causes = [
        "source read",
        "free buffer",
        "device write",
        "frames",
        "rate limit",
        "jobs",
        "full buffer",
        "ring",
    ];
    let group = |label: &str, scale: f64| Group {
        label: label.to_owned(),
        values: (1..=causes.len())
            .map(|index| scale * index as f64)
            .collect(),
        ..Group::default()
    };
    BarChart {
        title: "Waits by stage".to_owned(),
        description: "Summed over threads.".to_owned(),
        unit: Unit::Seconds,
        series: causes.iter().map(|cause| (*cause).to_owned()).collect(),
        groups: vec![
            group("reader", 0.4),
            group(
                "a compressor with a name that is longer than a telephone is wide",
                1.1,
            ),
        ],
        layout,
        reference: Some(1.0),
        band: Some((0.9, 1.1)),
    }
}

fn table() -> Table {
    let columns = [
        "set-up", "rate", "cpu", "wall", "buffers", "memory", "wait", "speed-up",
    ];
    let row = |name: &str| {
        let mut cells = vec![Cell::Text(name.to_owned())];
        cells.resize(columns.len(), Cell::Number("1 234.5 MB/s".to_owned()));
        cells
    };
    Table {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        rows: vec![
            row("default"),
            row("5 devices of 4 MiB, 27 buffers, zstd:1"),
        ],
    }
}

fn everything() -> Page {
    let long = "/mnt/backup/".repeat(20);
    let mut page = Page::new(&format!("Sweep of <shop> to {long}"));
    page.finding(&format!(
        "The device {long} bound every run; more buffers changed nothing."
    ));
    page.figures(&[("Runs", "42".to_owned()), ("Longest", long)]);
    page.heading("Rates");
    for chart in [
        transfer_sizes(),
        codecs(),
        over_time(),
        LineChart::default(),
    ] {
        page.chart(&chart.figure());
    }
    page.heading("Bars");
    for layout in [BarLayout::Stacked, BarLayout::Grouped] {
        page.chart(&bars(layout).figure());
    }
    page.paragraph("Differences below 2 % are noise.");
    page.table(&table());
    page
}

#[test]
fn a_browser_shows_every_chart_at_any_width_without_fault() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    durable::write(&path, everything().html().as_bytes(), 0o644).unwrap();
    // Keeps a copy for people who want to look at the page too.
    if let Some(copy) = std::env::var_os("WINDLASS_TEST_KEEP_PAGE") {
        std::fs::copy(&path, copy).unwrap();
    }
    let text = check_page(&path, 6);
    for words in [
        "Sweep of <shop>",
        "<b>& devices</b>",
        "zstd:9",
        "Differences below",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
}

#[test]
fn the_browser_finds_what_is_wrong_with_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.html");
    let bad = r#"<title>bad</title><link rel="icon" href="data:,"><svg role="img" width="2000"
        height="50"><text x="5" y="30" font-size="5">small</text><text x="1990" y="20">outside
        </text><text x="100" y="30">one</text><text x="105" y="31">two</text></svg>
        <script>console.error("a word"); nothing()</script>
        <img alt="" src="http://windlass.invalid/x.png">"#;
    durable::write(&path, bad.as_bytes(), 0o644).unwrap();
    let faults = Browser::start().look(&path, 360, "light").faults.join("\n");
    for fault in [
        "the body is",
        "without a label",
        "\"small\" is",
        "is cut off",
        "overlap",
        "a word",
        "exception",
        "loads http://windlass.invalid",
    ] {
        assert!(faults.contains(fault), "{fault} is not among {faults}");
    }
}

//! What else changed where the rate or the ratio did: settings, versions, data, devices. Each with
//! its numbers. Whether it is the reason is for the reader to judge: it came at the same time.

use serde_json::Value;
use windlass_repository::CatalogRun;

/// Two numbers are different if one is this much larger.
const FACTOR_DATA: f64 = 1.2;
const FACTOR_DEVICE: f64 = 1.5;

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// What kind of change.
    pub kind: CauseKind,
    /// What it was before.
    pub before: String,
    /// What it has been since.
    pub after: String,
}

/// What kind of change.
#[derive(Clone, Debug, PartialEq)]
pub enum CauseKind {
    /// A setting, by its name.
    Setting(&'static str),
    /// The version of the program.
    Version,
    /// The places of the stripes.
    Places,
    /// What limited the runs.
    Limit,
    /// Bytes that were read: before and after as numbers.
    Data(f64, f64),
    /// The median time of a transfer with the device of this place, in microseconds.
    Latency(String, f64, f64),
    /// Processor seconds for each byte read.
    Processor(f64, f64),
}

/// What changed between two rows of runs.
pub(super) fn between(before: &[&CatalogRun], after: &[&CatalogRun]) -> Vec<Cause> {
    let (old, new) = (Side::new(before), Side::new(after));
    let mut causes = Vec::new();
    let option = |key: &'static str| {
        move |run: &CatalogRun, settings: &Value| {
            let _ = run;
            text(&settings["options"][key])
        }
    };
    let own = |key: &'static str| {
        move |run: &CatalogRun, settings: &Value| {
            let _ = run;
            text(&settings[key])
        }
    };
    for name in ["compress", "pages", "frame_bytes", "block_bytes"] {
        causes.extend(usual(CauseKind::Setting(name), (&old, &new), option(name)));
    }
    for name in ["buffers", "transfer_bytes"] {
        causes.extend(usual(CauseKind::Setting(name), (&old, &new), own(name)));
    }
    let sides = (&old, &new);
    causes.extend(usual(CauseKind::Version, sides, |run, _| {
        Some(run.tool.clone())
    }));
    causes.extend(usual(CauseKind::Places, sides, |_, settings| {
        places(settings)
    }));
    causes.extend(usual(CauseKind::Limit, sides, |run, _| run.limit.clone()));
    causes.extend(data(&old, &new));
    causes.extend(devices(&old, &new));
    causes.extend(processor(&old, &new));
    causes
}

/// Runs on one side of a break, with their settings.
struct Side<'a>(Vec<(&'a CatalogRun, Value)>);

impl<'a> Side<'a> {
    fn new(runs: &[&'a CatalogRun]) -> Self {
        let read = |run: &&'a CatalogRun| {
            let settings = serde_json::from_str(&run.settings);
            (*run, settings.unwrap_or(Value::Null))
        };
        Self(runs.iter().map(read).collect())
    }

    /// The value that most runs have.
    fn most(&self, of: impl Fn(&CatalogRun, &Value) -> Option<String>) -> Option<String> {
        let mut values: Vec<_> = self.0.iter().filter_map(|(run, it)| of(run, it)).collect();
        values.sort();
        let runs = values.chunk_by(|one, other| one == other);
        runs.max_by_key(|same| same.len())
            .map(|same| same[0].clone())
    }

    fn median(&self, of: impl Fn(&CatalogRun, &Value) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<_> = self.0.iter().filter_map(|(run, it)| of(run, it)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

/// A value that most runs before had, and most runs after do not.
fn usual(
    kind: CauseKind,
    (old, new): (&Side<'_>, &Side<'_>),
    of: impl Fn(&CatalogRun, &Value) -> Option<String>,
) -> Option<Cause> {
    let (before, after) = (old.most(&of)?, new.most(&of)?);
    (before != after).then_some(Cause {
        kind,
        before,
        after,
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn places(settings: &Value) -> Option<String> {
    let devices = settings["devices"].as_array()?.iter();
    let places: Vec<_> = devices.filter_map(|one| one["place"].as_str()).collect();
    (!places.is_empty()).then(|| places.join(", "))
}

fn is_apart(before: f64, after: f64, factor: f64) -> bool {
    let (low, high) = (before.min(after), before.max(after));
    low > 0.0 && high / low >= factor
}

fn data(old: &Side<'_>, new: &Side<'_>) -> Option<Cause> {
    let read = |run: &CatalogRun, _: &Value| run.bytes_read.map(super::figures::float);
    let (before, after) = (old.median(read)?, new.median(read)?);
    is_apart(before, after, FACTOR_DATA).then(|| Cause {
        kind: CauseKind::Data(before, after),
        before: format!("{before:.0} bytes"),
        after: format!("{after:.0} bytes"),
    })
}

/// Devices whose transfers take another time. Those of places that are new cannot be compared.
fn devices(old: &Side<'_>, new: &Side<'_>) -> Vec<Cause> {
    let devices = |it: &Value| it["devices"].as_array().cloned().unwrap_or_default();
    let all = old.0.iter().chain(&new.0);
    let names = all.flat_map(|(_, it)| devices(it));
    let names = names.filter_map(|one| one["place"].as_str().map(str::to_owned));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    let latency = |place: &str, side: &Side<'_>| {
        side.median(|_, it| {
            let found = devices(it).into_iter();
            let mut found = found.filter(|one| one["place"] == place);
            found.find_map(|one| one["latency_micros_p50"].as_f64())
        })
    };
    let cause = |place: String| {
        let (before, after) = (latency(&place, old)?, latency(&place, new)?);
        is_apart(before, after, FACTOR_DEVICE).then(|| Cause {
            kind: CauseKind::Latency(place, before, after),
            before: format!("{before:.0} us"),
            after: format!("{after:.0} us"),
        })
    };
    names.into_iter().filter_map(cause).collect()
}

fn processor(old: &Side<'_>, new: &Side<'_>) -> Option<Cause> {
    let spent = |run: &CatalogRun, it: &Value| {
        let bytes = run.bytes_read.filter(|bytes| *bytes > 0)?;
        Some(it["cpu_seconds"].as_f64()? / super::figures::float(bytes))
    };
    let (before, after) = (old.median(spent)?, new.median(spent)?);
    is_apart(before, after, FACTOR_DEVICE).then(|| Cause {
        kind: CauseKind::Processor(before, after),
        before: format!("{:.2} s a GB", before * 1e9),
        after: format!("{:.2} s a GB", after * 1e9),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(settings: &Value, bytes: i64, tool: &str) -> CatalogRun {
        let mut run = CatalogRun::new("backup", "backup", ("shop", "shop"), 0);
        run.settings = settings.to_string();
        run.bytes_read = Some(bytes);
        run.tool = tool.to_owned();
        run
    }

    fn of(compress: &str, micros: u64) -> Value {
        let device = json!({"place": "/disk1", "latency_micros_p50": micros});
        json!({"options": {"compress": compress}, "devices": [device], "buffers": 7})
    }

    fn kinds(before: &CatalogRun, after: &CatalogRun) -> Vec<Cause> {
        between(&[before, before, before], &[after, after])
    }

    #[test]
    fn what_changed_is_named_with_its_numbers_and_what_did_not_is_not() {
        let before = run(&of("zstd:1", 400), 1000, "windlass 1");
        assert_eq!(kinds(&before, &before), []);
        let found = kinds(&before, &run(&of("zstd:9", 400), 1000, "windlass 1"));
        let words = |cause: &Cause| (cause.before.clone(), cause.after.clone());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, CauseKind::Setting("compress"));
        assert_eq!(words(&found[0]), ("zstd:1".to_owned(), "zstd:9".to_owned()));
        let found = kinds(&before, &run(&of("zstd:1", 4000), 1000, "windlass 1"));
        let slow = CauseKind::Latency("/disk1".to_owned(), 400.0, 4000.0);
        assert_eq!(
            found.iter().map(|one| one.kind.clone()).collect::<Vec<_>>(),
            [slow]
        );
        let found = kinds(&before, &run(&of("zstd:1", 400), 2000, "windlass 2"));
        let kinds: Vec<_> = found.iter().map(|one| one.kind.clone()).collect();
        assert_eq!(kinds, [CauseKind::Version, CauseKind::Data(1000.0, 2000.0)]);
    }
}

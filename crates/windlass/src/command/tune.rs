//! `windlass tune`: finds the setting that makes backups of this database to these devices fastest.

mod gain;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use windlass_engine::{parse_size, show_rate, show_size, to_json};
use windlass_lab::{Ended, Settings};
use windlass_model::Emulation;
use windlass_operations::tuning::{PresentSetting, TuneOutcome, TuneRequest, tune};

use crate::cli::{Global, Tune};
use crate::compression::parse_codec;
use crate::config::edit;
use crate::exit::{Code, Failure};
use crate::outputs::outputs;
use crate::words::trial_text;
use crate::{output, requests, signals};
use gain::gain_text;

pub fn run(global: &Global, arguments: &Tune) -> Result<Code, Failure> {
    if arguments.write {
        outputs().check(&edit::file(global.config.as_deref()))?;
    }
    let cancel = signals::cancel_on_signals()?;
    let request = request(arguments)?;
    let found = tune(&requests::quiet_caller(global), &request, &cancel)?;
    let written = match arguments.write && !found.keeps_present() {
        true => Some(write::write(global, arguments, &found)?),
        false => None,
    };
    let kept = arguments.write && written.is_none();
    show((global, arguments), &found, written, kept);
    Ok(Code::Done)
}

fn request(arguments: &Tune) -> Result<TuneRequest, Failure> {
    let codecs = arguments.compress.iter();
    let codecs = codecs.map(|text| Ok(parse_codec(text)?));
    let emulation = arguments.bounds.emulate.iter().map(String::as_str);
    Ok(TuneRequest {
        database: arguments.database.clone(),
        name: arguments.name.clone(),
        to: arguments.to.clone(),
        codecs: codecs.collect::<Result<_, Failure>>()?,
        pages: requests::page_choice(arguments.pages.as_deref()),
        budget: Duration::from_secs_f64(arguments.budget),
        budget_bytes: arguments.budget_bytes,
        trial_bytes: arguments.trial_bytes,
        rates: requests::rates(&arguments.rates),
        memory_limit: arguments.bounds.max_memory,
        cores_max: arguments.max_cpu,
        emulation: Emulation::parse(emulation)?,
        present: present(&arguments.present),
        exhaustive: arguments.exhaustive,
    })
}

/// The setting that backups have now by the configuration; `None` if it leaves all of it to the
/// defaults, or to each run (`--compress auto`).
fn present(configured: &BTreeMap<String, String>) -> Option<PresentSetting> {
    if configured.is_empty() {
        return None;
    }
    let text = |key: &str| configured.get(key).map(String::as_str);
    let number = |key: &str| match text(key) {
        Some(text) => text.parse().ok().map(Some),
        None => Some(None),
    };
    let transfer_bytes = match text("transfer-size") {
        Some(text) => Some(usize::try_from(parse_size(text).ok()?).ok()?),
        None => None,
    };
    Some(PresentSetting {
        codec: match text("compress") {
            Some(text) => Some(parse_codec(text).ok()?),
            None => None,
        },
        buffers: number("buffers")?,
        transfer_bytes,
        readers: number("readers")?,
        threads: number("threads")?,
    })
}

fn show(
    (global, arguments): (&Global, &Tune),
    found: &TuneOutcome,
    written: Option<(PathBuf, String)>,
    kept: bool,
) {
    let tuned = &found.tuned;
    if global.json {
        let mut document = to_json(tuned);
        document["predicted_limit"] = serde_json::json!(found.limit);
        document["first_is_configured"] = found.is_present.into();
        document["trial_bytes"] = found.trial_bytes.into();
        document["advised"] = to_json(found.advised());
        document["written"] = serde_json::json!(written);
        return output::line(&document.to_string());
    }
    let (best, first) = (&tuned.best, &tuned.first);
    let (label, words) = match found.is_present {
        true => ("present", "present setting"),
        false => ("default", "default"),
    };
    output::line(&format!("{label}       {}", trial_text(first)));
    output::line(&format!("best          {}", trial_text(best)));
    output::line(&format!(
        "gain          {}",
        gain_text(&tuned.difference, words, best.setting == first.setting)
    ));
    output::line(&format!("limit         {}", best.verdict));
    let predicted = found
        .limit
        .map(|limit| format!(", predicted limit {}", show_rate(limit)));
    output::line(&format!(
        "ended         {}{}; {} trials, {:.1} s, {} read",
        ended_text(tuned.ended),
        predicted.unwrap_or_default(),
        tuned.trials.len(),
        tuned.seconds,
        show_size(tuned.bytes)
    ));
    let used = options(found.advised(), arguments.pages.as_deref());
    output::line(&format!("use           {used}"));
    if let Some((path, name)) = written {
        output::line(&format!(
            "written       [database.{name}] of {}",
            path.display()
        ));
    }
    if kept {
        output::line("written       nothing: the present setting stays, as no gain was shown");
    }
}

/// A setting as options of a backup, with what its trials were asked to do with pages.
fn options(setting: &Settings, pages: Option<&str>) -> String {
    let Settings {
        codec,
        buffers,
        transfer_bytes,
        readers,
        threads,
    } = setting;
    let pages = pages.map_or(String::new(), |how| format!(" --pages {how}"));
    format!(
        "--compress {codec}{pages} --buffers {buffers} --transfer-size {}KiB --readers {readers} \
         --threads {threads}",
        transfer_bytes >> 10
    )
}

fn ended_text(ended: Ended) -> &'static str {
    match ended {
        Ended::AtTheLimit => "at the predicted limit",
        Ended::AtTheRate => "at --max-rate",
        Ended::NoGain => "nothing more gains",
        Ended::Budget => "budget spent",
    }
}

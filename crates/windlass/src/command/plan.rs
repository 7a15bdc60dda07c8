//! `windlass plan`: how long a backup or restore would take, or how a snapshot would grow, without
//! making it.

mod answer;
mod growth;

use windlass_engine::media::BackupType;
use windlass_lab::{Direction, Records};
use windlass_operations::plan::{PlanRequest, PlannedLink, plan, records};

use crate::cli::{Global, Plan, PlannedKind};
use crate::compression::parse_codec;
use crate::exit::{Code, Failure};
use crate::{output, requests};
use answer::Answer;
use windlass_operations::{Ending, Rates};

pub fn run(global: &Global, arguments: &Plan) -> Result<Code, Failure> {
    if arguments.accuracy {
        show_accuracy(global, &records()?);
        return Ok(Code::Done);
    }
    if arguments.snapshot {
        return growth::run(global, arguments);
    }
    let outcome = plan(&requests::quiet_caller(global), &request(arguments)?)?;
    let answer = Answer(&outcome);
    match global.json {
        true => output::line(&answer.document().to_string()),
        false => answer.show(),
    }
    if let (Some(window), Ending::Warnings) = (arguments.within, outcome.ending()) {
        output::note(&format!(
            "warning: nothing here ends within {}",
            answer::duration(window)
        ));
        output::note("hint: Compare more --files and other codecs, or name faster storage.");
    }
    Ok(outcome.ending().into())
}

fn request(arguments: &Plan) -> Result<PlanRequest, Failure> {
    let codecs = arguments.compress.iter();
    let codecs = codecs.map(|text| Ok(parse_codec(text)?));
    Ok(PlanRequest {
        database: arguments.database.clone(),
        used_bytes: arguments.used_bytes,
        file_bytes: arguments.file_bytes,
        ratio: arguments.ratio,
        sources: arguments.source.clone(),
        targets: arguments.target.clone(),
        instance: arguments.instance.clone(),
        stripes: arguments.files.clone(),
        codecs: codecs.collect::<Result<_, Failure>>()?,
        pages: requests::page_choice(arguments.pages.as_deref()),
        cores: arguments.cores,
        direction: match arguments.restore {
            true => Direction::Restore,
            false => Direction::Backup,
        },
        chain: arguments.chain.clone(),
        link: link(arguments)?,
        within: arguments.within,
        rates: Rates {
            read: arguments.max_rate,
            write: arguments.max_device_rate,
        },
        buffers: requests::request(&arguments.buffers, &arguments.layout)?,
    })
}

/// The backup that builds on an earlier set, if one is asked for.
fn link(arguments: &Plan) -> Result<Option<PlannedLink>, Failure> {
    let backup_type = match arguments.kind {
        PlannedKind::Full => return Ok(None),
        PlannedKind::Diff => BackupType::Diff,
        PlannedKind::Incr => BackupType::Incr,
    };
    if arguments.places.is_empty() && arguments.base.is_none() {
        return Err(Failure::usage(
            "plan --type: nothing says where the sets are",
            "Name their place with --in PLACE.",
        ));
    }
    Ok(Some(PlannedLink {
        backup_type,
        places: arguments.places.clone(),
        base: arguments.base.clone(),
    }))
}

fn show_accuracy(global: &Global, records: &Records) {
    let both = [Direction::Backup, Direction::Restore];
    let known: Vec<_> = both
        .into_iter()
        .filter_map(|one| records.accuracy(one))
        .collect();
    if global.json {
        let document = serde_json::json!({
            "accuracy": known,
            "runs": records.records.len(),
            "too_short": records.too_short(),
            "unreadable": records.unreadable,
        });
        return output::line(&document.to_string());
    }
    let (all, short) = (records.records.len() as u64, records.too_short() as u64);
    let short = match short {
        1 => "1 run took less than 1 s and does not count".to_owned(),
        more => format!(
            "{} took less than 1 s and do not count",
            output::count(more, "run")
        ),
    };
    if all == 0 {
        output::line("no run has been predicted yet");
        output::note(
            "hint: A plan alone is compared with nothing. Probe the storage of both ends \
             (`windlass lab probe PATH`): then Windlass predicts every backup and restore.",
        );
    } else if known.is_empty() {
        output::line(&format!("no prediction can be judged yet: {short}"));
        output::note(
            "hint: Back up or restore a larger database: a shorter run is mostly its beginning \
             and its end.",
        );
    }
    for one in &known {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        output::line(&format!(
            "{:<9} {}: median error {}, nine in ten within {}, worst {}; {}; limit right in {}",
            format!("{:?}", one.direction).to_lowercase(),
            output::count(one.runs as u64, "run"),
            percent(one.error_median),
            percent(one.error_p90),
            percent(one.error_worst),
            bias(one.bias),
            percent(one.limit_right),
        ));
    }
    if !known.is_empty() && records.too_short() > 0 {
        output::line(&short);
    }
    if records.unreadable > 0 {
        output::note(&format!(
            "warning: {} lines could not be read",
            records.unreadable
        ));
    }
}

fn bias(share: f64) -> String {
    match share {
        share if share < -0.005 => format!("{:.1} % too short as a rule", -share * 100.0),
        share if share > 0.005 => format!("{:.1} % too long as a rule", share * 100.0),
        _ => "neither too short nor too long as a rule".to_owned(),
    }
}

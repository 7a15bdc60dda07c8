//! `windlass plan`: how long a backup or restore would take, without making it.

mod answer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::media::Codec;
use windlass_engine::{Cancel, FileDeviceOptions};
use windlass_lab::{
    Alternative, ChainPrediction, Direction, LabError, Link, Operation, Prediction, Predictions,
    Profile, Question, Records, Speeds, choose, measure_codecs, state_directory, sureness, to_f64,
};
use windlass_model::{Instance, Model};
use windlass_postgres::Cluster;
use windlass_sqlite::Database;

use crate::cli::{Global, Plan};
use crate::database::DatabaseName;
use crate::exit::{Code, Failure};
use crate::output;
use crate::privilege;
use crate::requests;
use answer::Answer;
use windlass_operations::ProcessUse;

/// The most bytes of a database that are read for a sample.
const SAMPLE_BYTES: u64 = 64 << 20;
/// How long codecs are measured on the sample.
const SAMPLE_TIME: Duration = Duration::from_secs(3);

pub fn run(global: &Global, arguments: &Plan) -> Result<Code, Failure> {
    let state = state_directory();
    let records = match &state {
        Some(directory) => Predictions::of(directory).read()?,
        None => Records::default(),
    };
    if arguments.accuracy {
        show_accuracy(global, &records);
        return Ok(Code::Done);
    }
    let asked = Asked::of(arguments, state.as_deref())?;
    let alternatives = asked.alternatives(arguments)?;
    let predictions = alternatives.iter().map(|one| asked.question.predict(one));
    let predictions = predictions.collect::<Result<Vec<_>, _>>()?;
    let chains = match arguments.chain.as_slice() {
        [] => Vec::new(),
        links => asked.chains((&alternatives, &predictions), links)?,
    };
    let direction = asked.question.direction;
    let known = records.accuracy(direction);
    let answer = Answer {
        asked: &asked,
        choice: choose(&whole(direction, &predictions, &chains), arguments.within),
        sure: sureness(direction, known.as_ref(), arguments.database.is_some()),
        predictions,
        chains,
    };
    if global.json {
        output::line(&answer.document().to_string());
    } else {
        answer.show();
    }
    Ok(match (&answer.choice, arguments.within) {
        (Some(choice), Some(window)) if !choice.meets => {
            output::note(&format!(
                "warning: nothing here ends within {}",
                answer::duration(window)
            ));
            output::note("hint: Compare more --files and other codecs, or name faster storage.");
            Code::Warnings
        }
        _ => Code::Done,
    })
}

/// The question, and remarks on how it was understood.
struct Asked {
    question: Question,
    /// The user's ratio, for every codec that compresses.
    ratio: Option<f64>,
    notes: Vec<String>,
}

impl Asked {
    fn of(arguments: &Plan, state: Option<&Path>) -> Result<Self, Failure> {
        let mut notes = Vec::new();
        let measured = match &arguments.database {
            Some(text) => Some(measure(text, &codecs(arguments)?)?),
            None => None,
        };
        let used_bytes = measured.as_ref().map(|measured| measured.bytes);
        let used_bytes = used_bytes.or(arguments.used_bytes).ok_or_else(|| {
            let hint = "Name a database to measure, or say --used-bytes.";
            Failure::usage("plan: there is no size to plan for", hint)
        })?;
        let speeds = match &measured {
            Some(measured) => measured.speeds.clone(),
            None => Speeds::probed(state)?,
        };
        if measured.is_none() && arguments.ratio.is_none() {
            notes.push(format!(
                "the ratio of each codec is that of {}",
                speeds.origin
            ));
        }
        let instance = arguments.instance.as_deref().map(instance).transpose()?;
        let cores = arguments.cores.map(usize::from);
        let cores = cores.or(instance.as_ref().map(|instance| instance.cores));
        let restore = arguments.restore;
        let mut question = Question {
            direction: if restore {
                Direction::Restore
            } else {
                Direction::Backup
            },
            used_bytes,
            file_bytes: arguments.file_bytes.unwrap_or(used_bytes).max(used_bytes),
            sources: ends("--source", &arguments.source, Operation::Read, state)?,
            targets: ends("--target", &arguments.target, Operation::Write, state)?,
            cores: cores
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            instance,
            request: requests::request(&arguments.buffers, &arguments.layout)?,
            write_depth: FileDeviceOptions::default().depth,
            read_rate: arguments.max_rate.map(to_f64),
            write_rate: arguments.max_device_rate.map(to_f64),
            speeds,
        };
        if question.orient() {
            notes.push("an object store holds no live database: taken as the backup's end".into());
        }
        Ok(Self {
            question,
            ratio: arguments.ratio,
            notes,
        })
    }

    /// Every combination of a number of files and a codec.
    fn alternatives(&self, arguments: &Plan) -> Result<Vec<Alternative>, Failure> {
        let mut alternatives = Vec::new();
        for codec in codecs(arguments)? {
            for files in &arguments.files {
                alternatives.push(Alternative {
                    files: usize::from(*files),
                    codec,
                    ratio: match codec {
                        Codec::None => 1.0,
                        codec => self.ratio.unwrap_or(self.question.speeds.of(codec).ratio),
                    },
                });
            }
        }
        Ok(alternatives)
    }

    /// The chain that begins with each alternative.
    fn chains(
        &self,
        (alternatives, full): (&[Alternative], &[Prediction]),
        links: &[Link],
    ) -> Result<Vec<ChainPrediction>, LabError> {
        let each = alternatives.iter().zip(full);
        each.map(|(one, full)| self.question.predict_chain(one, full, links))
            .collect()
    }
}

/// What the window applies to: each backup by itself, or the restore of the whole chain.
fn whole(
    direction: Direction,
    predictions: &[Prediction],
    chains: &[ChainPrediction],
) -> Vec<Prediction> {
    let mut whole = predictions.to_vec();
    if direction == Direction::Restore {
        for (prediction, chain) in whole.iter_mut().zip(chains) {
            prediction.seconds = chain.seconds;
        }
    }
    whole
}

fn codecs(arguments: &Plan) -> Result<Vec<Codec>, Failure> {
    let codecs = arguments.compress.iter();
    codecs
        .map(|text| Ok(crate::compression::parse_codec(text)?))
        .collect()
}

fn instance(name: &str) -> Result<Instance, Failure> {
    Instance::named(name).ok_or_else(|| {
        let known: Vec<_> = Instance::names().collect();
        Failure::usage(
            format!("--instance {name:?} is not known"),
            format!(
                "Known are {}; or say the limits as keys of a model.",
                known.join(", ")
            ),
        )
    })
}

/// The models of one end of the pipeline.
fn ends(
    option: &str,
    texts: &[String],
    operation: Operation,
    state: Option<&Path>,
) -> Result<Vec<Model>, Failure> {
    if texts.is_empty() {
        return Err(Failure::usage(
            format!("{option} is missing"),
            format!("Say what storage is there: {}.", Model::EXAMPLES),
        ));
    }
    texts
        .iter()
        .map(|text| model(text, operation, state))
        .collect()
}

/// A model by its name, or by a path that was probed.
fn model(text: &str, operation: Operation, state: Option<&Path>) -> Result<Model, Failure> {
    let path = Path::new(text);
    if !text.starts_with(['/', '.']) {
        return Ok(Model::parse(text)?);
    }
    path.metadata().map_err(|error| {
        Failure::usage(
            format!("{text}: {error}"),
            "Name a path on storage that `windlass lab probe` has measured, or a model.",
        )
    })?;
    let profile = match state {
        Some(state) => Profile::for_path(state, path)?,
        None => None,
    };
    let profile = profile.ok_or_else(|| {
        Failure::usage(
            format!("{text} has not been probed"),
            format!("Run: windlass lab probe {text}"),
        )
    })?;
    Ok(profile.model(operation))
}

/// What a look at a database found out.
pub(super) struct Measured {
    /// Bytes that a backup reads.
    pub(super) bytes: u64,
    /// Ratio and speed of each codec on a sample.
    pub(super) speeds: Speeds,
}

/// Looks at a database as its owner.
pub(super) fn measure(text: &str, codecs: &[Codec]) -> Result<Measured, Failure> {
    let name = DatabaseName::resolve(text)?;
    privilege::as_user(ProcessUse::Own, name.owner(), || {
        let (bytes, files) = match &name {
            DatabaseName::Sqlite(path) => {
                (Database::open(path)?.estimate_bytes(), vec![path.clone()])
            }
            DatabaseName::Postgres(conninfo) => cluster(conninfo)?,
        };
        let sample = windlass_lab::Sample::of_files(&files, SAMPLE_BYTES)?;
        let speeds = measure_codecs(&sample, codecs, SAMPLE_TIME, &Cancel::new())?;
        Ok(Measured { bytes, speeds })
    })
}

pub(super) fn cluster(conninfo: &str) -> Result<(u64, Vec<PathBuf>), Failure> {
    let cluster = Cluster::connect(conninfo)?;
    let root = &cluster.facts().data_directory;
    let mut files = Vec::new();
    for part in ["base", "global", "pg_tblspc"] {
        files.extend(windlass_lab::plain_files(&root.join(part))?);
    }
    Ok((cluster.estimate_bytes()?, files))
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

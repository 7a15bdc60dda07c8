//! What the experiments of the laboratory tell, in words.

use windlass_engine::show_size;
use windlass_lab::Axis;
use windlass_operations::Notice;
use windlass_operations::experimenting::ExperimentStep;
use windlass_operations::sweeping::SweepStep;

use crate::output;
use crate::words::{point_text, trial_text};

/// The words; nothing if no experiment tells this.
pub(super) fn text(notice: &Notice<'_>) -> Option<String> {
    Some(match notice {
        Notice::MeasuresCodecs => "measuring codecs on a sample of the database".to_owned(),
        Notice::Probing {
            directory,
            scratch_bytes,
            budget,
        } => format!(
            "probing {} with a scratch file of {} for {:.0} s",
            directory.display(),
            show_size(*scratch_bytes),
            budget.as_secs_f64()
        ),
        Notice::ProbingBucket {
            place,
            bound,
            budget,
        } => format!(
            "probing {} for {:.0} s: at most {}, {} sent and {} received, besides what has to be \
             tried again; a provider may charge for them",
            place.display(),
            budget.as_secs_f64(),
            output::count(bound.requests, "request"),
            show_size(bound.sent_bytes),
            show_size(bound.received_bytes)
        ),
        Notice::Probed {
            index,
            count,
            point,
        } => format!("{index:>4} of {count}  {}", point_text(point)),
        Notice::Tried(trial) => format!("{}  {}", trial_text(trial), trial.verdict),
        Notice::Rehearsing {
            number,
            count,
            setup,
        } => format!("{number:>4} of {count}  {setup}"),
        Notice::Sweeping(step) => swept(step),
        Notice::Experimenting(step) => experimented(step),
        _ => return None,
    })
}

fn swept(step: &SweepStep<'_>) -> String {
    match step {
        SweepStep::Begins { cases, repeat } => format!(
            "{cases} settings, {} each, and one before that to warm up",
            output::count(*repeat as u64, "run"),
        ),
        SweepStep::MakesSet(case) => {
            format!("backing up to restore from: {}", case.words(&Axis::ALL))
        }
        SweepStep::Ran {
            done,
            count,
            run,
            case,
            axes,
            left_seconds,
        } => format!(
            "{done:>4} of {count}  {:>8.2} s  {}  (about {left_seconds:.0} s left)",
            run.report.seconds,
            case.words(axes),
        ),
        SweepStep::Round {
            round,
            count,
            budget,
        } => format!("round {round} of {count}: {:.0} s", budget.as_secs_f64()),
    }
}

fn experimented(step: &ExperimentStep<'_>) -> String {
    match step {
        ExperimentStep::MakesCluster {
            directory,
            version,
            scale,
        } => format!(
            "making a cluster of PostgreSQL {version} in {}, scale {scale}; it is removed at the end",
            directory.display()
        ),
        ExperimentStep::Begins { units, repeat } => format!(
            "{}, {} each",
            output::count(*units as u64, "setting"),
            output::count(*repeat as u64, "run"),
        ),
        ExperimentStep::Ran {
            done,
            count,
            words,
            left_seconds,
        } => format!("{done:>4} of {count}  {words}  (about {left_seconds:.0} s left)"),
    }
}

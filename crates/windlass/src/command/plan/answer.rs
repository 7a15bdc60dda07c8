//! The answer of `windlass plan`: a table of alternatives, the recommended one, and how certain
//! that is.

use windlass_engine::{show_rate, to_json};
use windlass_lab::{ChainPrediction, Direction, LinkKind, PREDICTED_SECONDS_MIN, Prediction};
use windlass_model::Model;
use windlass_operations::plan::PlanOutcome;

use crate::foretold;
use crate::{output, words};
use windlass_engine::show_size;

/// The whole answer.
pub(super) struct Answer<'a>(pub(super) &'a PlanOutcome);

impl Answer<'_> {
    /// As JSON.
    pub(super) fn document(&self) -> serde_json::Value {
        let question = &self.0.question;
        let names = |models: &[Model]| -> Vec<String> {
            models.iter().map(|model| model.name.clone()).collect()
        };
        let document = |one: &Prediction| {
            let mut document = foretold::document(one);
            let range = (!one.is_too_short()).then(|| self.range(one));
            document["minutes_low"] = range.map(|(low, _)| low).into();
            document["minutes_high"] = range.map(|(_, high)| high).into();
            document
        };
        let mut alternatives: Vec<_> = self.0.predictions.iter().map(document).collect();
        for (index, chain) in self.0.chains.iter().enumerate() {
            alternatives[index]["chain"] = to_json(chain);
        }
        serde_json::json!({
            "direction": question.direction,
            "used_bytes": question.used_bytes,
            "file_bytes": question.file_bytes,
            "source": names(&question.sources),
            "target": names(&question.targets),
            "instance": question.instance.as_ref().map(|instance| &instance.name),
            "cores": question.cores,
            "alternatives": alternatives,
            "choice": self.0.choice,
            "sure": self.0.sure,
            "notes": self.0.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// The shortest and the longest time it should take, in minutes.
    fn range(&self, one: &Prediction) -> (f64, f64) {
        let share = self.0.sure.share.min(0.9);
        (one.minutes * (1.0 - share), one.minutes * (1.0 + share))
    }

    /// How certain the time of an alternative is, in words.
    fn sure_text(&self, one: &Prediction) -> String {
        if one.is_too_short() {
            return words::TOO_SHORT.to_owned();
        }
        let (low, high) = self.range(one);
        let (low, high) = (duration(low * 60.0), duration(high * 60.0));
        format!("{low} to {high}: {}", self.0.sure.why)
    }

    /// For people.
    pub(super) fn show(&self) {
        let question = &self.0.question;
        let what = match question.direction {
            Direction::Backup => "backup",
            Direction::Restore => "restore",
        };
        let size = match question.direction {
            Direction::Backup => question.used_bytes,
            Direction::Restore => question.file_bytes,
        };
        let from = |models: &[Model]| models.first().map_or("", |model| &model.name).to_owned();
        output::line(&format!(
            "{what} of {} from {} to {}, {}",
            show_size(size),
            from(&question.sources),
            from(&question.targets),
            output::count(question.cores as u64, "core")
        ));
        output::line("");
        output::line(
            "  files  codec       time        rate     stored    buffers   CPU      bound by",
        );
        for (index, one) in self.0.predictions.iter().enumerate() {
            let chosen = self
                .0
                .choice
                .as_ref()
                .is_some_and(|choice| choice.index == index);
            show_prediction(one, chosen);
        }
        output::line("");
        if let Some(choice) = &self.0.choice {
            let one = &self.0.predictions[choice.index];
            output::line(&format!(
                "choice        {}, {}: {}",
                output::count(one.files as u64, "file"),
                one.compress,
                choice.why
            ));
            output::line(&format!("sure          {}", self.sure_text(one)));
            if let Some(next) = &one.next {
                output::line(&format!("next limit    {}", next.words()));
            }
            if let Some(chain) = self.0.chains.get(choice.index) {
                show_chain(question.direction, chain);
            }
        }
        for note in &self.0.notes {
            output::line(&format!("note          {note}"));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes for people"
)]
fn show_prediction(one: &Prediction, chosen: bool) {
    output::line(&format!(
        "{} {:>5}  {:<8} {:>8}  {:>10}  {:>9}  {:>9}  {:>7}  {}",
        if chosen { '*' } else { ' ' },
        one.files,
        one.compress,
        duration(one.seconds),
        match one.is_too_short() {
            true => "-".to_owned(),
            false => show_rate(one.rate),
        },
        show_size(one.stored_bytes as u64),
        format!("{} x {}", one.buffers, show_size(one.transfer_bytes as u64)),
        duration(one.cpu_seconds),
        one.limit.words(),
    ));
}

/// The chain that begins with the alternative that was chosen.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes for people"
)]
fn show_chain(direction: Direction, chain: &ChainPrediction) {
    let whole = match direction {
        Direction::Backup => "for all its backups",
        Direction::Restore => "to restore all of it, and the log's replay after that",
    };
    output::line(&format!(
        "whole chain   {} {whole}; {} stored",
        duration(chain.seconds),
        show_size(chain.stored_bytes as u64)
    ));
    for set in &chain.sets {
        let kind = match set.link.kind {
            LinkKind::Diff => "differential",
            LinkKind::Incr => "incremental",
            LinkKind::Log => "log",
        };
        let takes = match &set.limit {
            Some(limit) => format!("{} each, {}", duration(set.seconds_each), limit.words()),
            None => "read in place of the full one's pages".to_owned(),
        };
        let size = show_size(set.link.bytes);
        output::line(&format!(
            "              {} x {kind} of {size}: {takes}",
            set.link.count
        ));
    }
}

/// A time for people: `42 s`, `66 min`, `3.5 h`. A time below a second is too short to predict.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < PREDICTED_SECONDS_MIN => "< 1 s".to_owned(),
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 4.0 * 3600.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        assert_eq!(duration(0.26), "< 1 s");
        assert_eq!(duration(3.26), "3.3 s");
        assert_eq!(duration(90.0), "90 s");
        assert_eq!(duration(3960.0), "66 min");
        assert_eq!(duration(20_000.0), "5.6 h");
    }
}

//! Shows what a verification finds, set by set, as soon as it is known.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_engine::{Progress, RunReport, SetEntry, show_size};
use windlass_operations::verify::{NotRead, Opening, SetResult, VerifiedSet, VerifyStep};
use windlass_operations::{Notice, Observer};

use super::{message, relations};
use crate::cli::{Global, Verify};
use crate::damage::{Limits, Pages, print_damage};
use crate::observer::{Terminal, mending};
use crate::output;
use crate::places::{Identity, short_id};
use crate::table::{self, Finished};
use crate::words::{duration, local_time};

/// Prints what is found.
pub(super) struct Lines {
    terminal: Terminal,
    json: bool,
    quiet: bool,
    details: bool,
    /// Whether the set is one of several, which have one line each.
    brief: AtomicBool,
}

impl Lines {
    pub(super) fn new(global: &Global, arguments: &Verify, terminal: Terminal) -> Self {
        Self {
            terminal,
            json: global.json,
            quiet: global.quiet,
            details: arguments.watching.details,
            brief: AtomicBool::new(false),
        }
    }

    fn step(&self, step: &VerifyStep<'_>) {
        match step {
            VerifyStep::Begins { of } => self.brief.store(of.is_some(), Ordering::Relaxed),
            VerifyStep::Read { of, verified } => self.read(*of, verified),
            VerifyStep::Opened { of, verified } => self.opened(*of, verified),
            VerifyStep::Log { log } if !self.json => super::logs::show(log, self.quiet),
            VerifyStep::Log { .. } => {}
            VerifyStep::NotRead { of, result } => self.not_read(*of, result),
        }
    }

    fn read(&self, of: Option<&SetEntry>, verified: &VerifiedSet) {
        // The set is named before anything else is printed about it.
        if let (Some(set), false) = (of, self.waits(verified)) {
            output::line(&self.line(set, verified));
        }
        if let Some(mends) = verified.mends.as_ref().filter(|_| !self.json) {
            let lines = mending::lines(mends);
            lines
                .iter()
                .for_each(|line| output::note(&format!("warning: {line}")));
            output::note("hint: `windlass repair-set` writes what is damaged or missing anew.");
        }
        let brief = of.is_some();
        if !(self.json || brief && verified.damage.is_empty()) {
            self.show(verified, verified.run.as_ref().filter(|_| !brief));
        }
    }

    /// Whether the line of a set is not printed before something is wrong with it.
    fn waits(&self, verified: &VerifiedSet) -> bool {
        self.json || self.quiet && verified.damage.is_empty()
    }

    fn opened(&self, of: Option<&SetEntry>, verified: &VerifiedSet) {
        let is_damaged = match &verified.opened {
            Some(Opening::Inspected(found)) => found.is_damaged(),
            Some(Opening::Failed(_)) => true,
            None => return,
        };
        if let (Some(set), true, false) = (of, is_damaged, self.json)
            && self.waits(verified)
        {
            output::line(&self.line(set, verified));
        }
        let found = match &verified.opened {
            Some(Opening::Inspected(found)) => found,
            Some(Opening::Failed(error)) => {
                return output::note(&format!("cannot be opened: {}", message(error)));
            }
            None => return,
        };
        if !self.json {
            relations::print(found, self.quiet);
        }
        relations::warn(found);
    }

    fn not_read(&self, of: Option<&SetEntry>, result: &SetResult) {
        let SetResult::NotRead { name, why, .. } = result else {
            return;
        };
        if self.json {
            return;
        }
        output::line(&match (why, of) {
            (NotRead::Denied(_), _) => format!("not readable  {why}"),
            (_, None) => format!("damaged       {name}: {why}"),
            (_, Some(set)) => format!("{}  {why}", title(set)),
        });
    }

    /// The one line about a set that is one of several.
    fn line(&self, set: &SetEntry, verified: &VerifiedSet) -> String {
        let (title, bytes) = (title(set), show_size(verified.stripe_bytes));
        if verified.locked.is_some() && verified.damage.is_empty() {
            return format!(
                "{title}  encrypted: sealed and whole, content not checked without a key"
            );
        }
        match (verified.damage.is_empty(), verified.run.is_none()) {
            (false, _) => format!("{title}  damaged"),
            (true, true) => format!("{title}  sealed, all index blocks right"),
            (true, false) => format!("{title}  all {bytes} read and right"),
        }
    }

    /// Prints the findings. `run` is present if everything was read.
    fn show(&self, verified: &VerifiedSet, run: Option<&RunReport>) {
        if !verified.damage.is_empty() {
            let limits = Limits::new(self.details);
            print_damage(&verified.damage, &Pages::of(&verified.database), limits);
            if let Some(run) = run.filter(|_| !self.quiet) {
                table::print_verdict(run);
                if self.details {
                    table::print_details(run);
                }
            }
            return;
        }
        let id = verified.id;
        if let Some(recipients) = &verified.locked {
            let stripes = output::count(verified.stripes as u64, "stripe");
            let who = recipients.join(", ");
            return output::note(&format!(
                "warning: set {id} is encrypted, and no key was given: its content was not \
                 checked. {stripes} sealed and as long as they must be. It can be read by {who}"
            ));
        }
        match run {
            None if self.quiet => {}
            None => {
                let stripes = output::count(verified.stripes as u64, "stripe");
                output::line(&format!(
                    "set {id}: {stripes} sealed, all index blocks right"
                ));
            }
            Some(run) => {
                let (bytes, seconds) = (show_size(verified.stripe_bytes), duration(run.seconds));
                let finished = Finished {
                    result: (
                        "verified",
                        format!("set {id}: all {bytes} read and right, in {seconds}"),
                    ),
                    then: vec![],
                    report: run,
                    judgement: None,
                    remarks: vec![],
                    details: self.details,
                };
                finished.print(self.quiet);
            }
        }
    }
}

impl Observer for Lines {
    fn notice(&self, notice: &Notice<'_>) {
        let brief = self.brief.load(Ordering::Relaxed);
        match notice {
            Notice::Verifying(step) => self.step(step),
            other => self.terminal.brief(brief).notice(other),
        }
    }

    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Any>> {
        self.terminal.watch(progress)
    }

    fn is_degraded(&self) -> bool {
        self.terminal.is_degraded()
    }
}

/// The name of a set at the beginning of a line.
fn title(set: &SetEntry) -> String {
    let of = Identity::of(set).map_or("?".to_owned(), |of| of.name().to_owned());
    let begun = local_time(set.begun_nanos);
    format!("{:<14}{begun}  {of}", short_id(set))
}

//! `windlass expire`: shows what goes and why the rest stays, and removes it.

use serde_json::{Value, json};
use windlass_engine::media::SetId;
use windlass_engine::show_size;
use windlass_operations::expire::{
    DatabasePlan, ExpireOutcome, ExpireRequest, Fate, LogExpiry, PlannedSet, Step, Unclear, expire,
};
use windlass_operations::{SetChoice, SetRequest};
use windlass_repository::retention::{Policy, Rule};

use super::info::type_name;
use crate::cli::{Expire, Global};
use crate::exit::{Code, Failure};
use crate::output::{self, Tone};
use crate::requests;
use crate::words::{local_time, timestamp};

const UNFINISHED: &str = "a backup that is under way, or was cut off";

pub fn run(global: &Global, arguments: &Expire) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = ExpireRequest {
        set: SetRequest {
            words: arguments.set.clone(),
            choice: SetChoice {
                which: None,
                of: arguments.of.clone(),
            },
            configured: global.configured.clone(),
        },
        policy: policy(arguments),
        dry_run: arguments.dry_run,
        grace: arguments.grace,
        now: None,
    };
    let (outcome, ending) = expire(&caller, &request)?;
    match global.json {
        true => output::line(&document(&outcome, arguments.dry_run).to_string()),
        false => show(&outcome, arguments.dry_run, global.quiet),
    }
    complain(&outcome);
    Ok(ending.into())
}

fn policy(arguments: &Expire) -> Policy {
    Policy {
        full: arguments.keep_full,
        within: arguments.keep_within,
        daily: arguments.keep_daily,
        weekly: arguments.keep_weekly,
        monthly: arguments.keep_monthly,
        yearly: arguments.keep_yearly,
    }
}

fn show(outcome: &ExpireOutcome, is_dry: bool, quiet: bool) {
    // What was asked with --dry-run is the answer; what was done need not be read.
    if quiet && !is_dry {
        return;
    }
    for database in &outcome.plan.databases {
        output::entry("database", &database.of.to_string(), Tone::Plain);
        for set in &database.sets {
            show_set(set, outcome);
        }
        let logs = match is_dry {
            true => database.logs.iter().collect(),
            false => Vec::new(),
        };
        logs.into_iter().for_each(show_log);
    }
    outcome.logs.iter().for_each(show_log);
    for (set, fate) in &outcome.plan.unknown {
        let why = match fate {
            Fate::Unfinished => UNFINISHED,
            Fate::Faulty(fault) => fault,
            _ => "does not say its database",
        };
        let words = format!("{}  {why}", &set.to_string()[..8]);
        output::entry("stays", &words, Tone::Plain);
    }
    if let Some((label, words)) = sum_hidden(outcome, is_dry) {
        output::entry(label, &words, Tone::Good);
    }
    let (label, words) = sum(outcome, is_dry);
    output::entry(label, &words, Tone::Good);
}

fn show_set(set: &PlannedSet, outcome: &ExpireOutcome) {
    let id = &set.id.to_string()[..8];
    let kind = type_name(set.backup_type);
    let begun = local_time(set.begun_nanos);
    let size = show_size(set.bytes);
    let (label, why) = match &set.fate {
        Fate::Goes if outcome.in_use.contains(&set.id) => ("stays", words(Rule::InUse).to_owned()),
        Fate::Goes if is_failed(outcome, set.id) => ("stays", "could not be removed".to_owned()),
        Fate::Goes => step_words(set),
        Fate::Stays(rules) if set.hidden_nanos.is_some() => {
            ("stays", format!("{}, was hidden", reasons(rules.iter())))
        }
        Fate::Stays(rules) => ("stays", reasons(rules.iter())),
        Fate::Faulty(fault) => ("stays", format!("cannot be restored: {fault}")),
        Fate::Unfinished => ("stays", UNFINISHED.to_owned()),
    };
    let line = format!("{id} {kind:<4}  {begun}  {size:>9}  {why}");
    output::entry(label, line.trim_end(), Tone::Plain);
}

fn is_failed(outcome: &ExpireOutcome, set: SetId) -> bool {
    outcome.failed.iter().any(|(failed, _)| *failed == set)
}

/// What is done with a set that goes.
fn step_words(set: &PlannedSet) -> (&'static str, String) {
    let since = set.hidden_nanos.map(local_time);
    let since = since.map_or(String::new(), |since| format!("hidden since {since}"));
    match set.step {
        None | Some(Step::Remove) => ("goes", since),
        Some(Step::Hide) => ("hides", String::new()),
        Some(Step::Wait {
            until_nanos: Some(until),
        }) => (
            "waits",
            format!("{since}, goes after {}", local_time(until)),
        ),
        Some(Step::Wait { until_nanos: None }) => {
            ("waits", format!("{since}, goes after what builds on it"))
        }
    }
}

fn reasons<'a>(rules: impl Iterator<Item = &'a Rule>) -> String {
    let words: Vec<_> = rules.map(|rule| words(*rule)).collect();
    words.join(", ")
}

fn words(rule: Rule) -> &'static str {
    match rule {
        Rule::Full => "--keep-full",
        Rule::SinceFull => "made since a full set of --keep-full",
        Rule::Within => "--keep-within",
        Rule::Window => "the first moment of --keep-within needs it",
        Rule::Daily => "--keep-daily",
        Rule::Weekly => "--keep-weekly",
        Rule::Monthly => "--keep-monthly",
        Rule::Yearly => "--keep-yearly",
        Rule::LastFull => "the newest full set",
        Rule::Timeline => "leads to the newest timeline",
        Rule::Held => "held",
        Rule::InUse => "in use",
        Rule::Base => "sets that stay build on it",
        Rule::Unclear => "a set that cannot be read may build on it",
    }
}

fn show_log(log: &LogExpiry) {
    let objects = output::count(log.gone.objects.len() as u64, "object");
    let (size, place) = (show_size(log.gone.bytes), log.log.place().display());
    let before = log.up_to.position();
    let words = format!("{objects} of log before {before}, {size}, in {place}");
    output::entry("goes", &words, Tone::Plain);
}

/// What was hidden, or would be, and what comes back.
fn sum_hidden(outcome: &ExpireOutcome, is_dry: bool) -> Option<(&'static str, String)> {
    let is_hidden = |set: &&PlannedSet| match is_dry {
        true => set.step == Some(Step::Hide),
        false => outcome.hidden.contains(&set.id),
    };
    let hidden: Vec<_> = outcome.plan.gone().filter(is_hidden).collect();
    let bytes: u64 = hidden.iter().map(|set| set.bytes).sum();
    let shown = match is_dry {
        true => outcome.plan.shown_again().count(),
        false => outcome.shown.len(),
    };
    let mut words = Vec::new();
    if !hidden.is_empty() {
        let sets = output::count(hidden.len() as u64, "set");
        let hours = outcome.plan.grace.as_hours();
        let grace = match hours % 24 {
            0 => output::count((hours / 24).unsigned_abs(), "day"),
            _ => output::count(hours.unsigned_abs(), "hour"),
        };
        words.push(format!(
            "{sets}, {}: no command shows them, and the first run after {grace} removes them",
            show_size(bytes)
        ));
    }
    if shown > 0 {
        let sets = output::count(shown as u64, "set");
        words.push(format!("{sets} shown again"));
    }
    let label = if is_dry { "would hide" } else { "hidden" };
    (!words.is_empty()).then(|| (label, words.join("; ")))
}

/// What was removed, or would be.
fn sum(outcome: &ExpireOutcome, is_dry: bool) -> (&'static str, String) {
    let sets: Vec<_> = match is_dry {
        true => {
            let removed = outcome.plan.gone();
            removed
                .filter(|set| set.step == Some(Step::Remove))
                .collect()
        }
        false => {
            let planned = outcome.plan.databases.iter().flat_map(|one| &one.sets);
            planned
                .filter(|set| outcome.removed.contains(&set.id))
                .collect()
        }
    };
    let finished = match is_dry {
        true => outcome.plan.begun.len(),
        false => outcome.finished.len(),
    };
    let logs: Vec<_> = match is_dry {
        true => outcome
            .plan
            .databases
            .iter()
            .flat_map(|one| &one.logs)
            .collect(),
        false => outcome.logs.iter().collect(),
    };
    let bytes: u64 = sets.iter().map(|set| set.bytes).sum();
    let mut words = format!(
        "{}, {}",
        output::count(sets.len() as u64, "set"),
        show_size(bytes)
    );
    let objects: usize = logs.iter().map(|log| log.gone.objects.len()).sum();
    if objects > 0 {
        let bytes: u64 = logs.iter().map(|log| log.gone.bytes).sum();
        let objects = output::count(objects as u64, "object");
        words = format!("{words}; {objects} of log, {}", show_size(bytes));
    }
    if finished > 0 {
        let finished = output::count(finished as u64, "set");
        words = format!("{words}; the rest of {finished} whose removal was cut off");
    }
    match is_dry {
        true => ("would remove", words),
        false => ("removed", words),
    }
}

/// Says what keeps sets from going that should go.
fn complain(outcome: &ExpireOutcome) {
    for database in &outcome.plan.databases {
        if let Some((set, begun)) = database.future {
            let (of, set) = (database.of.name(), &set.to_string()[..8]);
            let begun = local_time(begun);
            output::note(&format!(
                "error: set {set} of {of} was begun in the future, at {begun}: nothing of {of} expires"
            ));
            output::note(
                "hint: Set this machine's clock. If the clock was wrong when the set was made, \
                 move the files of the set to another directory.",
            );
        }
    }
    let withheld = outcome.plan.databases.iter().map(|one| &one.withheld);
    let mut said = Vec::new();
    for one in withheld.filter(|one| !one.is_empty()) {
        if !said.contains(&&one.because) {
            say_withheld(&one.because);
            said.push(&one.because);
        }
    }
    for (set, error) in &outcome.failed {
        let set = &set.to_string()[..8];
        output::note(&format!("error: set {set} stays: {error}"));
    }
    if !outcome.failed.is_empty() {
        output::note(
            "hint: The next run tries again. Removing takes the right to delete, and ends at what \
             the storage protects.",
        );
    }
    for set in &outcome.in_use {
        let set = &set.to_string()[..8];
        output::note(&format!("warning: set {set} is in use, so it stays"));
    }
}

/// Says which sets keep others, or log, from going.
fn say_withheld(because: &[Unclear]) {
    const NAMED_MAX: usize = 3;
    for (one, id) in because
        .iter()
        .take(NAMED_MAX)
        .map(|one| (one, one.set.to_string()))
    {
        let fault = match one.is_locked {
            true => "it is encrypted, and no key opens it",
            false => &*one.fault,
        };
        output::note(&format!(
            "warning: what set {} may need stays: {fault}",
            &id[..8]
        ));
    }
    if because.len() > NAMED_MAX {
        let more = output::count((because.len() - NAMED_MAX) as u64, "other set");
        output::note(&format!("warning: the same for {more}"));
    }
    let is_locked = because.iter().any(|one| one.is_locked);
    let is_away = because.iter().all(|one| one.is_away);
    output::note(match is_locked {
        _ if is_away => {
            "hint: Name all places of a database together. Then the rules count for these sets, \
             too."
        }
        true => {
            "hint: Name the key: --key identity-file:PATH. Then Windlass knows what the set needs."
        }
        false => {
            "hint: Mount or name the place of what the set lacks. If it is lost, remove the files of the set."
        }
    });
}

fn document(outcome: &ExpireOutcome, is_dry: bool) -> Value {
    let ids = |sets: &[SetId]| -> Vec<_> { sets.iter().map(ToString::to_string).collect() };
    let unknown = outcome.plan.unknown.iter().map(|(set, _)| *set);
    let databases = outcome.plan.databases.iter().map(database_document);
    json!({
        "dry_run": is_dry,
        "databases": databases.collect::<Vec<_>>(),
        "unknown": ids(&unknown.collect::<Vec<_>>()),
        "removed": ids(&outcome.removed),
        "in_use": ids(&outcome.in_use),
        "finished": ids(&outcome.finished),
        "hidden": ids(&outcome.hidden),
        "shown_again": ids(&outcome.shown),
        "failed": outcome.failed.iter().map(|(set, error)| json!({
            "set_id": set.to_string(),
            "error": error.to_string(),
        })).collect::<Vec<_>>(),
        "grace_seconds": outcome.plan.grace.as_secs(),
        "logs_removed": outcome.logs.iter().map(log_document).collect::<Vec<_>>(),
    })
}

fn database_document(database: &DatabasePlan) -> Value {
    json!({
        "database": database.of.name(),
        "key": database.of.key(),
        "sets": database.sets.iter().map(set_document).collect::<Vec<_>>(),
        "logs": database.logs.iter().map(log_document).collect::<Vec<_>>(),
        "withheld": json!({
            "sets": database.withheld.sets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "logs": database.withheld.logs.iter().map(log_document).collect::<Vec<_>>(),
            "because": database.withheld.because.iter().map(|one| json!({
                "set_id": one.set.to_string(),
                "fault": one.fault,
                "encrypted": one.is_locked,
                "elsewhere": one.is_away,
            })).collect::<Vec<_>>(),
        }),
        "set_of_the_future": database.future.map(|(set, _)| set.to_string()),
    })
}

fn set_document(set: &PlannedSet) -> Value {
    let (fate, rules, fault) = match &set.fate {
        Fate::Goes => ("goes", Vec::new(), None),
        Fate::Stays(rules) => (
            "stays",
            rules.iter().map(|rule| rule.name()).collect(),
            None,
        ),
        Fate::Faulty(fault) => ("faulty", Vec::new(), Some(fault)),
        Fate::Unfinished => ("unfinished", Vec::new(), None),
    };
    let (step, until) = match set.step {
        None => (None, None),
        Some(Step::Remove) => (Some("remove"), None),
        Some(Step::Hide) => (Some("hide"), None),
        Some(Step::Wait { until_nanos }) => (Some("wait"), until_nanos),
    };
    let time = |nanos: i64| timestamp(nanos).to_string();
    json!({
        "step": step,
        "goes_after": until.map(time),
        "hidden_since": set.hidden_nanos.map(time),
        "set_id": set.id.to_string(),
        "type": type_name(set.backup_type),
        "begun": timestamp(set.begun_nanos).to_string(),
        "stored_bytes": set.bytes,
        "fate": fate,
        "reasons": rules,
        "fault": fault,
    })
}

fn log_document(log: &LogExpiry) -> Value {
    json!({
        "place": log.log.place().to_string_lossy(),
        "system": log.log.system(),
        "before": log.up_to.position().to_string(),
        "objects": log.gone.objects.len(),
        "stored_bytes": log.gone.bytes,
    })
}

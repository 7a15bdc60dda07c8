//! Tells a webhook how a command ended that does something with backups.
//!
//! Invariants
//! - The exit code is never another one because of it: what goes wrong here is a warning.
//! - A command that only answers, or that changes nothing, tells nobody.

use std::path::PathBuf;

use windlass_operations::notify::{CommandEnd, Told};

use crate::cli::{Cli, Command};
use crate::config::Notify;
use crate::exit::Code;
use crate::output;
use crate::words::typed;

/// Whom to tell of the end of this command.
pub struct Notifier {
    notify: Option<Notify>,
    host: String,
    operation: String,
    database: String,
}

impl Notifier {
    /// Nobody is told of a command that does nothing with backups.
    pub fn of(cli: &Cli) -> Self {
        let database = subject(&cli.command);
        Self {
            notify: cli.global.notify.clone().filter(|_| database.is_some()),
            host: cli.global.host(),
            operation: cli.global.command.clone(),
            database: database.unwrap_or_default(),
        }
    }

    /// Tells. Returns what went wrong with that.
    pub fn ended(&self, code: Code) -> Option<String> {
        let notify = self.notify.as_ref()?;
        let webhook = match &notify.webhook {
            Ok(webhook) => webhook,
            Err(fault) => return Some(format!("nobody hears of failures: {fault}")),
        };
        let exit_code = code.number();
        if !notify.on.contains(&Told::of(exit_code)) {
            return None;
        }
        let said = output::so_far();
        let end = CommandEnd {
            host: self.host.clone(),
            operation: self.operation.clone(),
            database: self.database.clone(),
            exit_code,
            message: said.error.or(said.warning),
            hint: said.hint,
            run: said.run,
            tool: format!("windlass {}", env!("CARGO_PKG_VERSION")),
        };
        let sent = webhook.send(end.document().to_string());
        let host = webhook.host();
        sent.err()
            .map(|error| format!("the webhook at {host} was not told: {error}"))
    }
}

/// What a command works on; none if nobody is told of its end.
fn subject(command: &Command) -> Option<String> {
    let of = |words: &[PathBuf], of: Option<&String>| match of {
        Some(database) => database.clone(),
        None => typed(words),
    };
    Some(match command {
        Command::Backup(it) if !it.dry_run && it.to != ["nul"] => {
            it.name.clone().unwrap_or_else(|| it.database.clone())
        }
        Command::Check(it) => it.name.clone().unwrap_or_else(|| it.database.clone()),
        Command::Restore(it) if !it.dry_run => of(&it.set, it.choice.of.as_ref()),
        Command::Verify(it) => of(&it.set, it.choice.of.as_ref()),
        Command::Drill(it) => of(&it.set, it.choice.of.as_ref()),
        Command::Merge(it) => of(&it.set, it.choice.of.as_ref()),
        Command::Expire(it) if !it.dry_run => of(&it.set, it.of.as_ref()),
        _ => return None,
    })
}

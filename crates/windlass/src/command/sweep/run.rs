//! A run of a sweep as a command line of this program.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_operations::sweeping::{CaseRun, SweptWork};

/// The command that makes this run. `more` are the options that the user adds to every run.
pub(super) fn command(run: &CaseRun<'_>, more: &[String]) -> io::Result<Command> {
    let mut command = own_command()?;
    command.args(words(run)).args(more);
    Ok(command)
}

/// This program, without the variables of the environment: these are meant for the user's own
/// backups. So is the history: what an experiment does is not in it.
pub(in crate::command) fn own_command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command.env("WINDLASS_NO_HISTORY", "1");
    Ok(command)
}

fn words(run: &CaseRun<'_>) -> Vec<String> {
    let case = run.case;
    let mut words = match run.work {
        SweptWork::Backup { database, to } => backup(database, to),
        SweptWork::Restore { stripes, into } => restore(stripes, into),
    };
    if let SweptWork::Backup { .. } = run.work {
        words.push(format!("--compress={}", case.codec));
        words.extend(case.pages.iter().map(|how| format!("--pages={how}")));
        words.push(format!("--block-size={}", case.block_bytes));
    }
    words.push(format!("--transfer-size={}", case.transfer_bytes));
    words.extend(case.buffers.map(|buffers| format!("--buffers={buffers}")));
    let emulate = case.set_up.iter().flat_map(|set_up| &set_up.emulate);
    words.extend(emulate.map(|item| format!("--emulate={item}")));
    words.extend(["--json".to_owned(), "--config=/dev/null".to_owned()]);
    // Experiments do not show how well plans predict the user's own runs.
    words.push("--no-prediction".to_owned());
    words
}

fn backup(database: &str, to: &[PathBuf]) -> Vec<String> {
    let mut words = vec!["backup".to_owned(), database.to_owned()];
    for path in to {
        words.extend(["--to".to_owned(), text(path)]);
    }
    words
}

fn restore(stripes: &[PathBuf], into: &Path) -> Vec<String> {
    let mut words = vec!["restore".to_owned()];
    words.extend(stripes.iter().map(|path| text(path)));
    words.extend(["--into".to_owned(), text(into)]);
    words
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::own_command;

    #[test]
    fn the_runs_of_experiments_stay_out_of_the_history() {
        let command = own_command().unwrap();
        let set: Vec<_> = command
            .get_envs()
            .filter(|(_, value)| value.is_some())
            .map(|(name, value)| (name.to_str(), value.and_then(|value| value.to_str())))
            .collect();
        assert_eq!(set, [(Some("WINDLASS_NO_HISTORY"), Some("1"))]);
    }
}

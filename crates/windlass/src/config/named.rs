//! Which file the configuration is, and which keys there are, if somebody names them on the command
//! line or in the environment: a command that a server runs later is told the same.

use std::ffi::OsString;
use std::path::PathBuf;

/// The configuration named on the command line or in the environment.
pub fn named(arguments: &[OsString]) -> Option<PathBuf> {
    let said = values(arguments, "--config").next();
    let said = said.or_else(|| std::env::var_os("WINDLASS_CONFIG"));
    said.map(PathBuf::from)
}

/// The words for keys named on the command line or in the environment that another process can use
/// as well. A descriptor is of this process alone.
pub fn keys(arguments: &[OsString]) -> Vec<String> {
    let mut said: Vec<_> = values(arguments, "--key").collect();
    if said.is_empty() {
        said.extend(std::env::var_os("WINDLASS_KEY"));
    }
    let words = said.into_iter().filter_map(|word| word.into_string().ok());
    let words = words.filter(|word| !word.starts_with("fd:"));
    words.map(|word| in_full(&word)).collect()
}

/// The word with the whole path of its file: a server has another working directory.
fn in_full(word: &str) -> String {
    match word.split_once(':') {
        Some((kind, path)) if kind.ends_with("-file") => {
            let full = std::path::absolute(path).unwrap_or_else(|_| path.into());
            format!("{kind}:{}", full.display())
        }
        _ => word.to_owned(),
    }
}

/// The values of an option, as they stand on the command line.
fn values(arguments: &[OsString], option: &str) -> impl Iterator<Item = OsString> {
    // What follows belongs to another program.
    let mut words = arguments.iter().take_while(|word| *word != "--");
    std::iter::from_fn(move || {
        while let Some(word) = words.next() {
            if word == option {
                return words.next().cloned();
            }
            let after = word.to_str().and_then(|word| word.strip_prefix(option));
            if let Some(value) = after.and_then(|after| after.strip_prefix('=')) {
                return Some(value.into());
            }
        }
        None
    })
}

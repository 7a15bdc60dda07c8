//! Which file the configuration is, if somebody names one.

use std::ffi::OsString;
use std::path::PathBuf;

/// The configuration named on the command line or in the environment.
pub fn named(arguments: &[OsString]) -> Option<PathBuf> {
    // What follows belongs to another program.
    let mut words = arguments.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(PathBuf::from);
        }
        if let Some(path) = word
            .to_str()
            .and_then(|word| word.strip_prefix("--config="))
        {
            return Some(path.into());
        }
    }
    std::env::var_os("WINDLASS_CONFIG").map(PathBuf::from)
}

//! Completes the word for a set: stripes, directories, and the ids of the sets in them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use windlass_engine::SetList;

use crate::config;
use crate::places::{self, Identity, short_id};
use crate::words::local_time;

/// The most ids that are offered; these are the newest ones.
const OFFERED_MAX: usize = 100;

/// Offers stripes, and directories, which may hold stripes. After `DIRECTORY@` it offers the sets
/// there.
pub fn stripes(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_stripe = |path: &Path| path.extension().is_some_and(|end| end == "windlass");
    let offered = PathCompleter::any().filter(move |path| path.is_dir() || is_stripe(path));
    chosen(current).unwrap_or_else(|| with_names(current, offered.complete(current)))
}

/// Offers any file or directory. After `DIRECTORY@` it offers the sets there.
pub fn images(current: &OsStr) -> Vec<CompletionCandidate> {
    let files = || PathCompleter::any().complete(current);
    chosen(current).unwrap_or_else(|| with_names(current, files()))
}

/// The configured names that begin like the word, and then these files.
fn with_names(current: &OsStr, files: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let mut offered = super::words(current, config::database_names());
    offered.extend(files);
    offered
}

/// `DIRECTORY@WHICH` for each set of a directory.
fn chosen(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let (directory, begun) = current.to_str()?.rsplit_once('@')?;
    let list = places::list(&places_of(directory.into())).ok()?;
    let offered = named(&list, begun).into_iter();
    let whole = offered.map(|one| one.add_prefix(format!("{directory}@")));
    Some(whole.collect())
}

/// The ids of the sets in the directories that the command line names.
pub fn ids(current: &OsStr) -> Vec<CompletionCandidate> {
    let list = places::list(&directories()).unwrap_or_default();
    named(&list, &current.to_string_lossy())
}

/// `latest`, and the newest ids, with the time and the database of each.
fn named(list: &SetList, begun: &str) -> Vec<CompletionCandidate> {
    let sets = list.sets.iter().rev().take(OFFERED_MAX);
    let ids = sets.map(|set| {
        let of = Identity::of(set).map_or(String::new(), |of| format!("  {}", of.name()));
        let help = format!("{}{of}  {}", local_time(set.begun_nanos), set.state.name());
        CompletionCandidate::new(short_id(set)).help(Some(help.into()))
    });
    let latest = CompletionCandidate::new("latest").help(Some("the newest sealed set".into()));
    let all = std::iter::once(latest).chain(ids);
    all.filter(|one| one.get_value().to_string_lossy().starts_with(begun))
        .collect()
}

/// The databases of these sets, by name.
pub fn databases(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let list = places::list(&directories()).unwrap_or_default();
    let names = list.sets.iter().filter_map(Identity::of);
    let mut names: Vec<_> = names.map(|of| of.name().to_owned()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| name.starts_with(&*begun));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The directories that the words of the command line that is being completed name, or mean as
/// configured names.
fn directories() -> Vec<PathBuf> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    let places = words.flat_map(|word| places_of(word.into()));
    places.filter(|place| place.is_dir()).collect()
}

/// The places of a configured database, or the word itself if it is a path.
fn places_of(word: PathBuf) -> Vec<PathBuf> {
    if word.exists() {
        return vec![word];
    }
    let all = config::configured_databases();
    let named = all
        .into_iter()
        .find(|one| word.as_os_str() == one.name.as_str());
    named.map_or(vec![word], |one| one.places)
}

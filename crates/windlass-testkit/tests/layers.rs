//! The picture of the crates in ARCHITECTURE.md, compared with Cargo.
//!
//! The picture is the indented lines that begin with the name of a crate. A line names crates of
//! one layer. What a crate uses is in the layers below its own, never beside or above it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The layer of each crate, from the top.
fn layers(page: &str) -> BTreeMap<String, usize> {
    let lines = page.lines().filter(|line| line.starts_with("    windlass"));
    lines
        .enumerate()
        .flat_map(|(layer, line)| {
            let names = line.split_whitespace();
            names
                .take_while(|word| word.starts_with("windlass"))
                .map(move |name| (name.to_owned(), layer))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The crates of the workspace that a crate uses. What its tests use does not count.
fn used(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && line.starts_with("windlass") {
            let name = line.split(['.', ' ', '=']).next().unwrap();
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn no_crate_uses_one_of_its_own_layer_or_above() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let layers = layers(&page);
    let mut faults = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // What only tests use, and the library inside the server, stand beside the layers.
        if ["windlass-testkit", "windlass-interpose"].contains(&name.as_str()) {
            continue;
        }
        let Some(layer) = layers.get(&name) else {
            faults.push(format!("{name} is not in the picture"));
            continue;
        };
        for other in used(&path.join("Cargo.toml")) {
            if layers.get(&other).is_none_or(|below| below <= layer) {
                faults.push(format!("{name} uses {other}, which is not below it"));
            }
        }
    }
    assert!(faults.is_empty(), "ARCHITECTURE.md: {faults:#?}");
}

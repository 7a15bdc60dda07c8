//! Every link in the documents leads to an existing file and to an existing heading in it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents of the repository, by their paths in it.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("docs")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            } else if is_document(&path) {
                found.push(path);
            }
        }
    }
    for entry in fs::read_dir(root()).unwrap() {
        let path = PathBuf::from(entry.unwrap().file_name());
        found.extend(is_document(&path).then_some(path));
    }
    assert!(found.len() > 30, "only {} documents", found.len());
    found
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The text between `](` and `)`.
fn links(text: &str) -> Vec<&str> {
    let ends = text.split("](").skip(1);
    ends.filter_map(|rest| rest.split(')').next())
        .filter(|link| !link.contains(char::is_whitespace) && !link.contains("://"))
        .collect()
}

/// The anchors of a document's headings, as the usual renderers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            words
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

/// The path without its `..`: `docs/manual/../lab.md` is `docs/lab.md`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{}", path.display()),
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn every_link_in_the_documents_leads_to_a_file_and_a_heading() {
    let mut faults = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => normal(&document.parent().unwrap().join(file)),
            };
            let path = root().join(&target);
            let leads = match anchor {
                "" => path.exists(),
                anchor => {
                    fs::read_to_string(path).is_ok_and(|text| anchors(&text).contains(anchor))
                }
            };
            if !leads {
                faults.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "links to nowhere:\n  {}",
        faults.join("\n  ")
    );
}

#[test]
fn every_page_of_the_manual_is_in_its_index() {
    let index = fs::read_to_string(root().join("docs/manual.md")).unwrap();
    let listed: BTreeSet<&str> = links(&index).into_iter().collect();
    for document in documents() {
        if let Ok(name) = document.strip_prefix("docs/manual") {
            let link = format!("manual/{}", name.display());
            assert!(
                listed.contains(link.as_str()),
                "docs/manual.md does not list {link}"
            );
        }
    }
}

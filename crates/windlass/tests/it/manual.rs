//! Man pages and completions.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use crate::support::{Place, windlass};

const SECTIONS: [&str; 8] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "EXAMPLES",
    "EXIT STATUS",
    "FILES",
    "ENVIRONMENT",
    "SEE ALSO",
];

/// The names and texts of all man pages. Their directory lives as long as the place.
fn pages(place: &Place) -> Vec<(String, String)> {
    fs::create_dir(place.path("man")).unwrap();
    let made = windlass(&["man", &place.arg("man")]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let mut pages: Vec<_> = fs::read_dir(place.path("man"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    pages.sort();
    assert!(pages.len() > 15, "{}", pages.len());
    pages
}

#[test]
fn every_man_page_has_the_sections_that_readers_look_for() {
    let place = Place::new();
    let mut missing = Vec::new();
    for (name, text) in pages(&place) {
        for section in SECTIONS {
            let heads = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
            let found = heads.iter().find_map(|head| text.split_once(head.as_str()));
            if !found.is_some_and(|(_, rest)| {
                rest.lines()
                    .next()
                    .is_some_and(|line| !line.starts_with(".SH"))
            }) {
                missing.push(format!("{name}: {section}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn man_pages_refer_to_all_others_and_to_none_that_does_not_exist() {
    let place = Place::new();
    let pages = pages(&place);
    for (name, text) in &pages {
        let (_, also) = text.split_once("SEE ALSO").unwrap();
        let words = also.replace('\\', "").replace("fB", " ").replace("fR", " ");
        let ours = words
            .split_whitespace()
            .filter(|word| word.starts_with("windlass"));
        let mut named: Vec<_> = ours.clone().map(|page| format!("{page}.1")).collect();
        named.push(name.clone());
        named.sort();
        named.dedup();
        let all: Vec<_> = pages.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(named, all, "{name}");
        for other in ours {
            let file = format!("{other}.1");
            assert!(
                pages.iter().any(|(name, _)| *name == file),
                "{name}: {other}"
            );
        }
    }
}

#[test]
fn mandoc_finds_nothing_wrong_with_the_man_pages() {
    let place = Place::new();
    for (name, _) in pages(&place) {
        let lint = Command::new("mandoc")
            .args(["-T", "lint", &place.arg(&format!("man/{name}"))])
            .output()
            .expect("mandoc runs: scripts/test installs it");
        let said = String::from_utf8(lint.stdout).unwrap();
        let faults: Vec<_> = said
            .lines()
            .filter(|line| !line.contains(": STYLE: "))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let made = windlass(&["completions", shell]);
        assert_eq!(made.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(made.stdout).unwrap();
        assert!(script.contains("WINDLASS_COMPLETE"), "{shell}: {script}");
    }
}

/// What bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let completed = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .current_dir(place.path(""))
        .env("WINDLASS_COMPLETE", "bash")
        .env("WINDLASS_CONFIG", place.path("windlass.toml"))
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true")
        .env("_CLAP_IFS", "\n")
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    let text = String::from_utf8(completed.stdout).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn completions_know_the_sets_of_a_directory() {
    let place = Place::new();
    let stripe = place.back_up();
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let id = &name[name.find('.').unwrap() - 8..][..8];
    let at = format!("sets@{}", &id[..2]);
    let cases: [(&[&str], &str); 5] = [
        (&["windlass", "restore", "sets", "--set", &id[..2]], id),
        (&["windlass", "restore", "sets", "--set", "la"], "latest"),
        (&["windlass", "open", "sets", "--database", "sh"], "shop.db"),
        (&["windlass", "diff", &at], &format!("sets@{id}")),
        (&["windlass", "mount", "sets@la"], "sets@latest"),
    ];
    for (words, expected) in cases {
        let offered = offered(&place, words);
        assert_eq!(offered, [expected], "{words:?}");
    }
}

#[test]
fn completions_know_the_sets_of_a_configured_database() {
    let place = Place::new();
    let stripe = place.back_up();
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let id = &name[name.find('.').unwrap() - 8..][..8];
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let config = format!("[database.orders]\nsource = {db:?}\nto = [{sets:?}]\n");
    let mut file = File::create(place.path("windlass.toml")).unwrap();
    file.write_all(config.as_bytes()).unwrap();
    for command in [
        "restore", "open", "mount", "extract", "verify", "info", "diff",
    ] {
        let offered = offered(&place, &["windlass", command, "ord"]);
        assert_eq!(offered, ["orders"], "{command}");
    }
    let at = format!("orders@{}", &id[..2]);
    let cases: [(&[&str], &str); 3] = [
        (&["windlass", "restore", "orders", "--set", &id[..2]], id),
        (
            &["windlass", "info", "orders", "--database", "sh"],
            "shop.db",
        ),
        (&["windlass", "diff", &at], &format!("orders@{id}")),
    ];
    for (words, expected) in cases {
        let offered = offered(&place, words);
        assert_eq!(offered, [expected], "{words:?}");
    }
}

/// This runs bash itself, with the printed script and the words as a person types them.
#[test]
fn bash_completes_the_id_of_a_set() {
    let place = Place::new();
    let stripe = place.back_up();
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let id = &name[name.find('.').unwrap() - 8..][..8];
    let script = r#"
        shopt -s extglob
        source <(windlass completions bash)
        words=(windlass restore sets --set "")
        COMP_WORDS=("${words[@]}") COMP_CWORD=4 COMP_TYPE=9 COMP_LINE="${words[*]}" COMP_POINT=99
        function=$(complete -p windlass | sed 's/.*-F \([^ ]*\).*/\1/')
        "$function" windlass "" --set
        printf '%s\n' "${COMPREPLY[@]}""#;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_windlass"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script]).env("PATH", path);
    let completed = bash.current_dir(place.path("")).output().unwrap();
    let text = String::from_utf8(completed.stdout.clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines, ["latest", id], "{completed:?}");
}

#[test]
fn completions_know_databases_sets_devices_codecs_and_experiments() {
    let place = Place::new();
    let config = "[database.warehouse]\nsource = \"/srv/warehouse.db\"\n";
    let mut file = File::create(place.path("windlass.toml")).unwrap();
    file.write_all(config.as_bytes()).unwrap();
    for name in ["one.windlass", "one.txt"] {
        File::create(place.path(name)).unwrap();
    }
    let cases: [(&[&str], &str); 6] = [
        (&["windlass", "backup", "wa"], "warehouse"),
        (&["windlass", "backup", "warehouse", "--to", "nu"], "nul"),
        (
            &["windlass", "backup", "warehouse", "--compress", "zstd:1"],
            "zstd:1",
        ),
        (&["windlass", "restore", "on"], "one.windlass"),
        (&["windlass", "lab", "sweep", "buffer-"], "buffer-defaults"),
        (
            &["windlass", "backup", "warehouse", "--lock-w"],
            "--lock-wait",
        ),
    ];
    for (words, expected) in cases {
        let offered = offered(&place, words);
        let found = offered.iter().any(|word| word.trim() == expected);
        assert!(found, "{words:?}: {offered:?}");
    }
    let sets = offered(&place, &["windlass", "restore", "on"]);
    assert!(!sets.iter().any(|word| word.contains("txt")), "{sets:?}");
}

//! The text below the options of `--help`, as sections of a man page.
//!
//! The text consists of blocks between empty lines. A block that begins with a line like
//! `Examples:` gets a section with that name. Its lines are pairs: a command, indented by two, and
//! its purpose, indented by six. Other blocks are notes.

use clap_mangen::roff::{Roff, bold, roman};

/// Adds the sections of `help`.
pub fn add(roff: &mut Roff, help: &str) {
    let blocks: Vec<&str> = help.split("\n\n").map(str::trim_end).collect();
    let is_note = |block: &&&str| title(block).is_none() && !block.is_empty() && !is_codes(block);
    let notes: Vec<&&str> = blocks.iter().filter(is_note).collect();
    for block in blocks.iter().filter(|block| title(block).is_some()) {
        titled(roff, block);
    }
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    for (index, block) in notes.into_iter().enumerate() {
        note(roff, block, index == 0);
    }
}

/// The title of a block: `Examples` if it begins with `Examples:` and has indented lines.
fn title<'a>(block: &&'a str) -> Option<&'a str> {
    let (first, rest) = block.split_once('\n')?;
    let title = first.strip_suffix(':')?;
    (rest.starts_with("  ") && !title.contains(' ')).then_some(title)
}

/// Whether the block lists the exit codes, which have a section of their own on every page.
fn is_codes(block: &str) -> bool {
    block.starts_with("Exit codes:")
}

fn titled(roff: &mut Roff, block: &str) {
    let name = title(&block).unwrap_or_default().to_uppercase();
    roff.control("SH", [name.as_str()]);
    let lines: Vec<&str> = block.lines().skip(1).collect();
    if !lines.iter().any(|line| is_explanation(line)) {
        return preformatted(roff, &lines);
    }
    for line in lines {
        if is_explanation(line) {
            roff.text([roman(line.trim())]);
        } else {
            roff.control("TP", []);
            roff.text([bold(line.trim())]);
        }
    }
}

fn is_explanation(line: &str) -> bool {
    line.starts_with("      ")
}

/// Writes a paragraph. Indented lines stay as they are.
fn note(roff: &mut Roff, block: &str, is_first: bool) {
    if !is_first {
        roff.control("PP", []);
    }
    let (shown, words): (Vec<&str>, Vec<&str>) =
        block.lines().partition(|line| line.starts_with("  "));
    let before = words.len().min(
        block
            .lines()
            .take_while(|line| !line.starts_with("  "))
            .count(),
    );
    for line in &words[..before] {
        roff.text([roman(*line)]);
    }
    if !shown.is_empty() {
        preformatted(roff, &shown);
    }
    for line in &words[before..] {
        roff.text([roman(*line)]);
    }
}

fn preformatted(roff: &mut Roff, lines: &[&str]) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
}

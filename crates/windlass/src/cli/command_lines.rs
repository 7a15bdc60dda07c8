//! Every command line of Windlass in the documentation, in hints and in messages is one that the
//! program takes.
//!
//! Words in capitals and words in braces stand for something else, so their values are not checked.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::Cli;

/// What may be wrong with a command line that is only mentioned: it need not be whole.
const INCOMPLETE: [ErrorKind; 5] = [
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::DisplayVersion,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a directory with this ending.
fn files(place: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).expect("a directory of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            found.append(&mut files(&path, ending));
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
    found
}

/// The command lines of a text: after a prompt, in backquotes, or alone on a line of an example.
fn lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let line = line.trim_start_matches("//! ").trim_start_matches("/// ");
        if let Some(command) = line.strip_prefix("$ ") {
            found.extend(command.strip_prefix("windlass ").map(ToOwned::to_owned));
        } else if let Some(command) = line.strip_prefix("windlass ") {
            // A table may have a column with the name.
            found.extend((!command.starts_with(' ')).then(|| command.to_owned()));
        }
    }
    // Prose is wrapped, and code in it too.
    let flat = text.replace("\n//! ", " ").replace("\n/// ", " ");
    let parts = flat.split('`').skip(1).step_by(2);
    let quoted = parts.filter_map(|part| part.strip_prefix("windlass "));
    found.extend(quoted.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")));
    // A hint may end with a command line.
    let after = text.split(": windlass ").skip(1);
    let ends = ['"', '`', '\n'];
    found.extend(after.filter_map(|part| Some(part.split(ends).next()?.to_owned())));
    found
}

/// The source text of a program with each text of several lines on one, and in place of what is
/// put into it a word that no option is.
fn literals(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("\\\n") {
        text.push_str(before);
        rest = after.trim_start();
    }
    text.push_str(rest);
    text.replace("\\\"", "\"").replace("\\n", "\n")
}

/// The words of the command line, up to what only the shell reads. None if it is no command line:
/// a sentence that goes on, or the name of a program that begins like this.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.trim_end_matches(['.', ',', ':', ';', '"', '\\']);
    let mut words = vec!["windlass".to_owned()];
    for word in shell_words(line)? {
        if [
            "|",
            ">",
            "&&",
            "&",
            ";",
            "2>&1",
            "#",
            ">/dev/full",
            ">&-",
            "--json|",
        ]
        .contains(&&*word)
        {
            break;
        }
        words.push(word);
    }
    Some(words)
}

/// Splits as a shell does, as far as quotes go.
fn shell_words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Whether a value stands for something else.
fn stands_for(word: &str) -> bool {
    let letters = || word.chars().filter(|letter| letter.is_alphabetic());
    let is_upper = letters().count() > 0 && letters().all(char::is_uppercase);
    is_upper || word.contains(['{', '}', '[', ']', '<', '\u{2026}']) || word.contains("...")
}

/// What is wrong with a command line, if anything is.
fn fault(command: &Command, line: &str) -> Option<String> {
    let words = words(line)?;
    let is_any = |word: &String| stands_for(word) || word.contains('|');
    if words.get(1).is_some_and(is_any) {
        return None;
    }
    let error = command.clone().try_get_matches_from(&words).err()?;
    let kind = error.kind();
    let of_value = matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    let may_be = of_value && words.iter().any(|word| stands_for(word));
    if INCOMPLETE.contains(&kind) || may_be {
        return None;
    }
    let first = error.to_string();
    let first = first.lines().next().unwrap_or_default().to_owned();
    Some(format!("windlass {line}\n    {first}"))
}

#[test]
fn every_command_line_in_the_documentation_and_in_hints_is_taken() {
    let command = Cli::command();
    let mut texts = Vec::new();
    for page in files(&root().join("docs"), "md") {
        texts.push((page.clone(), fs::read_to_string(page).expect("a page")));
    }
    let readme = root().join("README.md");
    texts.push((readme.clone(), fs::read_to_string(readme).expect("a page")));
    for source in files(&root().join("crates"), "rs") {
        if source.components().any(|part| part.as_os_str() == "src") && !source.ends_with(file!()) {
            let text = fs::read_to_string(&source).expect("a source");
            texts.push((source, literals(&text)));
        }
    }
    let (mut count, mut faults) = (0, Vec::new());
    for (path, text) in &texts {
        for line in lines(text) {
            count += 1;
            let found = fault(&command, &line);
            faults.extend(found.map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(count > 300, "{count} command lines were found");
    assert!(faults.is_empty(), "{count}:\n{}", faults.join("\n"));
}

#[test]
fn an_option_that_does_not_exist_is_found_in_any_text() {
    let command = Cli::command();
    let text =
        "Type `windlass verify PLACE\n/// --latests`, or\n    $ windlass backup a --tu nul | cat\n";
    let found: Vec<_> = lines(text)
        .iter()
        .filter_map(|line| fault(&command, line))
        .collect();
    assert_eq!(found.len(), 2, "{found:?}");
    let source =
        literals("format!(\"Use `windlass info \\\n             {place} --lung` first.\")");
    assert_eq!(lines(&source), ["info {place} --lung"]);
    assert!(fault(&command, &lines(&source)[0]).is_some());
    assert_eq!(fault(&command, "info {place} --set {id} --long"), None);
    assert!(fault(&command, "nonsense").is_some());
}

//! SYNOPSIS and OPTIONS of a man page: arguments first, then options as `--help` orders them.

use clap::{Arg, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// How the command is typed, in one line.
pub fn synopsis(roff: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let name = command.get_bin_name().unwrap_or_default();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(usage.strip_prefix(name).unwrap_or(usage))]);
}

/// A section for each group of options.
pub fn sections(roff: &mut Roff, command: &Command) {
    let shown = |one: &&Arg| !one.is_hide_set();
    let mut headings = vec![None];
    for argument in command.get_arguments().filter(shown) {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    for heading in headings {
        let group = || {
            let arguments = command.get_arguments().filter(shown);
            arguments.filter(move |one| one.get_help_heading() == heading)
        };
        if group().next().is_some() {
            roff.control("SH", [heading.unwrap_or("Options").to_uppercase().as_str()]);
        }
        for argument in group().filter(|one| one.is_positional()) {
            option(roff, argument);
        }
        for argument in group().filter(|one| !one.is_positional()) {
            option(roff, argument);
        }
    }
}

fn option(roff: &mut Roff, argument: &Arg) {
    roff.control("TP", []);
    roff.text(head(argument));
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut words = help.trim_end_matches('.').to_owned();
    let default = default(argument).filter(|_| !help.contains("[default"));
    if let Some(default) = default {
        words.push_str(&format!(" [default: {default}]"));
    }
    roff.text([roman(words)]);
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect();
    if values.len() > 1 && argument.get_num_args().is_some_and(|n| n.takes_values()) {
        roff.text([roman(format!("[one of: {}]", values.join(", ")))]);
    }
}

fn head(argument: &Arg) -> Vec<Inline> {
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let mut line = vec![bold(names.join(", "))];
    let takes_value = argument.get_num_args().is_some_and(|n| n.takes_values());
    if takes_value || argument.is_positional() {
        let value = argument.get_value_names().map(|names| names.join(" "));
        let value = value.unwrap_or_else(|| argument.get_id().as_str().to_uppercase());
        if !names.is_empty() {
            line.push(roman(" "));
        }
        line.push(italic(value));
    }
    line
}

fn default(argument: &Arg) -> Option<String> {
    let takes_value = argument.get_num_args().is_some_and(|n| n.takes_values());
    if argument.is_hide_default_value_set() || !takes_value {
        return None;
    }
    let values = argument.get_default_values().iter();
    let words: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    let words = words.join(",");
    (!words.is_empty()).then_some(words)
}

//! Man pages and shell completions, made from the same definition as `--help`.
//!
//! The names, the help and the examples come from clap. `sections` adds what readers expect from a
//! man page besides: exit status, files, environment, and related pages.

mod examples;
mod options;
mod sections;

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::Roff;
use windlass_engine::Outputs;

use crate::cli::Cli;
use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs::{MAN_PAGE, outputs};

/// When these pages were last changed. The title line of a man page has a date.
const DATE: &str = "2026-11-22";

pub fn completions(shell: clap_complete::Shell) -> Result<Code, Failure> {
    let mut script = Vec::new();
    crate::completions::script(shell, &mut script).map_err(|error| {
        let message = format!("cannot make completions: {error}");
        Failure::new(Code::Failed, message, "Name one of the shells in --help.")
    })?;
    output::text(&String::from_utf8_lossy(&script));
    Ok(Code::Done)
}

pub fn pages(into: &Path) -> Result<Code, Failure> {
    if !into.is_dir() {
        let message = format!("there is no directory {}", into.display());
        let hint = "Name a directory that exists.";
        return Err(Failure::new(Code::Failed, message, hint));
    }
    let mut windlass = Cli::command().disable_help_subcommand(true);
    windlass.build();
    write_pages(&windlass, (&windlass, into), &outputs())?;
    Ok(Code::Done)
}

/// Writes the page of this command, and those of the commands below it.
fn write_pages(
    command: &Command,
    (windlass, into): (&Command, &Path),
    outputs: &Outputs,
) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(below, (windlass, into), outputs)?;
    }
    let man = Man::new(command.clone());
    let path = into.join(man.get_filename());
    let mut text = Vec::new();
    write_page((command, windlass), &man, &mut text).map_err(|error| {
        let message = format!("cannot make {}: {error}", path.display());
        Failure::hinted(Code::Failed, message, None)
    })?;
    Ok(outputs.replace(&path, &MAN_PAGE, &text, 0o644)?)
}

fn write_page(
    (command, windlass): (&Command, &Command),
    man: &Man,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut roff = Roff::new();
    let name = command.get_display_name().unwrap_or("windlass");
    let version = concat!("windlass ", env!("CARGO_PKG_VERSION"));
    let title = [&name.to_uppercase(), "1", DATE, version, "Windlass"];
    roff.control("TH", title);
    roff.to_writer(out)?;
    man.render_name_section(out)?;

    let mut roff = Roff::new();
    options::synopsis(&mut roff, command);
    roff.to_writer(out)?;
    man.render_description_section(out)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }

    let mut roff = Roff::new();
    options::sections(&mut roff, command);
    let help = command.get_after_long_help().map(ToString::to_string);
    examples::add(&mut roff, help.as_deref().unwrap_or_default());
    sections::exit_status(&mut roff, command);
    sections::files(&mut roff, command);
    sections::environment(&mut roff, command);
    sections::see_also(&mut roff, command, windlass);
    roff.to_writer(out)
}

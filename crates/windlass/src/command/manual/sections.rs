//! The sections of a man page that clap does not know: exit status, files, environment, see also.

use clap::{Arg, Command};
use clap_mangen::roff::{Roff, bold, italic, roman};

/// What each exit code means, in the words of the manual.
const CODES: [(&str, &str); 6] = [
    ("0", "Done."),
    ("1", "Failed. Nothing that existed before was changed."),
    (
        "2",
        "Usage: Windlass cannot understand the arguments or the configuration, or they ask for \
         something impossible.",
    ),
    (
        "3",
        "Done, with warnings on standard error. After windlass diff: the images differ.",
    ),
    (
        "4",
        "Damage: bytes of a set are wrong, or stripes are missing, unsealed, present twice, or of \
         different sets.",
    ),
    ("130", "Interrupted by Ctrl-C or SIGTERM."),
];

const CONFIGURATION: [(&str, &str); 2] = [
    (
        "/etc/windlass/windlass.toml",
        "The configuration: names of databases, and defaults of options.",
    ),
    (
        "/etc/windlass/conf.d/*.toml",
        "More of the same, read after it in the order of the names.",
    ),
];

const STATE: (&str, &str) = (
    "/var/lib/windlass",
    "What Windlass remembers for root: profiles of devices, predictions, sweeps. Other users have \
     $XDG_STATE_HOME/windlass or ~/.local/state/windlass.",
);

const PASSWORDS: (&str, &str) = (
    "~/.pgpass, ~/.pg_service.conf, ~/.postgresql/",
    "Passwords, services and certificates for PostgreSQL, as for psql.",
);

const PARTIAL: (&str, &str) = (
    "*.partial",
    "A stripe whose backup is still running or was interrupted. The next backup to the same \
     directory removes what an interrupted one left.",
);

/// The words of a command, without `windlass`: `lab probe`.
fn words(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_default();
    name.strip_prefix("windlass")
        .unwrap_or(name)
        .trim()
        .to_owned()
}

fn connects(command: &Command) -> bool {
    matches!(
        words(command).as_str(),
        "backup" | "check" | "receive" | "tune" | "plan" | "lab probe" | "lab sweep" | "lab pages"
    )
}

fn remembers(command: &Command) -> bool {
    let words = words(command);
    words.starts_with("lab")
        || matches!(
            words.as_str(),
            "" | "backup" | "restore" | "verify" | "history" | "plan" | "tune"
        )
}

/// EXIT STATUS
pub fn exit_status(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in CODES {
        entry(roff, code, meaning);
    }
    if words(command) == "open" {
        roff.control("PP", []);
        roff.text([roman(
            "With a COMMAND, windlass open exits with the code of the command. If that is 0 and \
             damage was met, it exits with 4.",
        )]);
    }
}

/// FILES
pub fn files(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["FILES"]);
    for (file, meaning) in CONFIGURATION {
        entry(roff, file, meaning);
    }
    if remembers(command) {
        entry(roff, STATE.0, STATE.1);
    }
    if connects(command) {
        entry(roff, PASSWORDS.0, PASSWORDS.1);
    }
    if words(command) == "backup" {
        entry(roff, PARTIAL.0, PARTIAL.1);
    }
}

/// ENVIRONMENT: a variable for each option that has one, and the variables that several commands
/// read.
pub fn environment(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["ENVIRONMENT"]);
    for argument in command.get_arguments().filter(|one| !one.is_hide_set()) {
        let Some(variable) = argument.get_env() else {
            continue;
        };
        let same = format!(
            "The same as {}. The command line wins over it.",
            shown(argument)
        );
        entry(roff, &variable.to_string_lossy(), &same);
    }
    if remembers(command) {
        entry(
            roff,
            "WINDLASS_STATE_DIR",
            "The directory for what Windlass remembers; see FILES.",
        );
    }
    if connects(command) {
        entry(
            roff,
            "PGHOST, PGPORT, PGUSER, PGPASSFILE, PGSERVICE, PGSSLMODE ...",
            "The connection to PostgreSQL, as for psql.",
        );
    }
}

fn shown(argument: &Arg) -> String {
    match argument.get_long() {
        Some(long) => format!("--{long}"),
        None => argument.get_id().as_str().to_uppercase(),
    }
}

/// The names of the pages of this command and of all below it.
fn all_pages(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let own = command.get_display_name().unwrap_or("windlass");
    std::iter::once(own.to_owned())
        .chain(shown.flat_map(all_pages))
        .collect()
}

/// SEE ALSO: the command above, those that belong to the same work, all others of `windlass`, and
/// programs of other projects.
pub fn see_also(roff: &mut Roff, command: &Command, windlass: &Command) {
    roff.control("SH", ["SEE ALSO"]);
    let near = beside(&words(command)).iter();
    let mut pages: Vec<String> = near.map(|name| format!("windlass-{name}")).collect();
    if !words(command).is_empty() {
        pages.insert(0, "windlass".to_owned());
    }
    // All others follow, so that no page is missing anywhere.
    let own = command.get_display_name().unwrap_or_default();
    for page in all_pages(windlass) {
        if page != own && !pages.contains(&page) {
            pages.push(page);
        }
    }
    pages.extend(others(&words(command)).iter().map(|&name| name.to_owned()));
    let mut line = Vec::new();
    for (index, page) in pages.iter().enumerate() {
        let comma = if index + 1 < pages.len() { ", " } else { "" };
        line.push(bold(page.as_str()));
        line.push(roman(format!("(1){comma}")));
    }
    roff.text(line);
    roff.control("PP", []);
    roff.text([
        roman("The manual, with more examples: "),
        italic("docs/manual.md"),
        roman(" of the source."),
    ]);
}

fn beside(words: &str) -> &'static [&'static str] {
    match words {
        "backup" => &["restore", "verify", "tune"],
        "restore" => &["backup", "verify", "open", "info"],
        "verify" => &["info", "open", "restore"],
        "info" => &["verify", "restore"],
        "merge" => &["backup", "info", "verify"],
        "repair" => &["verify", "restore", "archive-push"],
        "diff" => &["verify", "open"],
        "extract" => &["open", "mount", "restore"],
        "mount" => &["open", "extract"],
        "open" => &["mount", "extract", "restore", "verify"],
        "plan" => &["tune", "lab", "lab-probe"],
        "tune" => &["plan", "backup", "lab-probe"],
        "lab" => &["plan", "tune"],
        "lab probe" | "lab sweep" | "lab rehearse" | "lab pages" => &["lab", "plan", "tune"],
        "events" | "status" => &["backup", "restore", "verify", "history"],
        "history" => &["info", "status", "events"],
        "drill" => &["verify", "open", "history"],
        "check" => &["backup", "verify"],
        "receive" => &["archive-push", "restore"],
        "archive-push" => &["archive-get", "receive", "restore"],
        "archive-get" => &["archive-push", "restore"],
        _ => &[],
    }
}

fn others(words: &str) -> &'static [&'static str] {
    match words {
        "backup" => &["pg_basebackup", "sqlite3"],
        "restore" => &["pg_verifybackup", "pg_ctl"],
        "verify" => &["pg_amcheck", "sqlite3"],
        "repair" => &["pg_checksums", "pg_amcheck"],
        "mount" => &["fusermount3"],
        "open" => &["psql", "pg_dump", "sqlite3", "fusermount3"],
        _ => &[],
    }
}

fn entry(roff: &mut Roff, head: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(head)]);
    roff.text([roman(meaning)]);
}

//! The files that a command line names.
//!
//! The log may be none of them. It is opened before anything else. If one file were named for two
//! purposes, the log would create the file, and the command would then find something that nobody
//! put there.
//!
//! A word that can be no path, whatever is there, is refused before anything is done with it.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use windlass_engine::{EngineError, Outputs, partial_path};

use super::{
    Backup, Cli, Command, Drill, Events, Expire, History, Hold, Lab, Merge, Repair, Restore,
    Snapshot, Verify, Watching,
};
use crate::exit::Failure;

/// The files that this command line names, apart from the log itself. A stream may have several
/// purposes, so terminals and pipes are not among them.
pub fn named(cli: &Cli) -> Result<Outputs, EngineError> {
    of(cli).protected()
}

/// Refuses words that can be no paths.
pub fn check(cli: &Cli) -> Result<(), Failure> {
    let files = of(cli).0;
    let mut words = files.iter().filter(|(path, what)| is_path(path, what));
    words.try_for_each(|(path, _)| check_path(path))
}

fn of(cli: &Cli) -> Files {
    let mut files = Files::default();
    files.add(&cli.global.config, "the configuration is read from there");
    match &cli.command {
        Command::Backup(backup) | Command::Check(backup) => files.of_backup(backup),
        Command::Restore(restore) => files.of_restore(restore),
        Command::Verify(verify) => files.of_verify(verify),
        Command::Merge(merge) => files.of_merge(merge),
        Command::Repair(repair) => files.of_repair(repair),
        Command::RepairSet(repair) => files.of_set(&repair.set),
        Command::Info(info) => files.of_set(&info.set),
        Command::Expire(Expire { set, .. }) | Command::Hold(Hold { set, .. }) => files.of_set(set),
        Command::Key(key) => files.of_set(&key.of().set),
        Command::Diff(diff) => {
            files.of_set([&diff.first]);
            files.of_set(&diff.second);
            files.of_moment(&diff.log.log_from, &diff.recovering.scratch);
        }
        Command::Extract(extract) => {
            files.of_set([&extract.set]);
            files.of_moment(&extract.at.log.log_from, &extract.recovering.scratch);
            files.add([&extract.into], "the extracted files go there");
        }
        Command::Mount(mount) => {
            files.of_set([&mount.set]);
            files.of_moment(&mount.at_moment.log.log_from, &mount.recovering.scratch);
            files.add([&mount.at], "the set is mounted there");
            files.add(&mount.overlay, "the changes are kept there");
        }
        Command::Open(open) => {
            files.of_set(&open.set);
            files.of_moment(&open.at.log.log_from, &open.opening.scratch);
        }
        Command::Events(events) => files.of_events(events),
        Command::Drill(drill) => files.of_drill(drill),
        Command::History(history) => files.of_history(history),
        Command::Tune(tune) => {
            files.add([PathBuf::from(&tune.database)], DATABASE);
            files.add(tune.to.iter().map(PathBuf::from), STRIPE);
        }
        Command::Lab(lab) => files.of_lab(lab),
        Command::Snapshot(snapshot) => files.of_snapshot(snapshot),
        Command::ArchivePush(push) => files.of_log(&push.path, &push.to),
        Command::Receive(receive) => files.add([&receive.to], "the log is kept there"),
        Command::ArchiveGet(get) => files.of_log(&get.into, &get.from),
        Command::Man { into } => files.add([into], "the man pages are written there"),
        Command::Schedule(schedule) => files.add(&schedule.units().dir, "the units are there"),
        Command::Plan(_) | Command::Status | Command::Close(_) => {}
        Command::Completions { .. } => {}
    }
    files
}

const LOG: &str = "the log is read from there";
const DATABASE: &str = "it is the database";
const SCRATCH: &str = "it is the scratch directory";
const STRIPE: &str = "a stripe is written there";
const UNSEALED: &str = "a stripe has this name until it is sealed";
const BESIDE: &str = "it belongs to the database that this run restores";

/// Files, each with what is done with it, in words that follow `cannot write PATH:`.
#[derive(Default)]
struct Files(Vec<(PathBuf, &'static str)>);

impl Files {
    fn of_lab(&mut self, lab: &Lab) {
        match lab {
            Lab::Sweep(sweep) => {
                self.add(sweep.databases.iter().map(PathBuf::from), DATABASE);
                self.add(sweep.to.iter().map(PathBuf::from), STRIPE);
                self.add(&sweep.into, "restored files go there");
                self.add(&sweep.out, "the series and the report are written there");
                self.add(&sweep.from, "the series is read from there");
            }
            Lab::Snapshots(snapshots) => {
                self.add(&snapshots.into, "the experiment's cluster is made there");
                self.add(&snapshots.to, "the snapshots are made there");
                self.add(
                    &snapshots.out,
                    "the series and the report are written there",
                );
                self.add(&snapshots.from, "the series is read from there");
            }
            Lab::Probe(_) | Lab::Rehearse(_) | Lab::Pages(_) => {}
        }
    }

    fn of_events(&mut self, events: &Events) {
        self.add([&events.file], "the events are read from there");
        self.add(&events.html, "the page is written there");
    }

    fn of_snapshot(&mut self, snapshot: &Snapshot) {
        let (of, to) = match snapshot {
            Snapshot::Create(create) => (&create.of, &create.making.to),
            Snapshot::Rotate(rotate) => (&rotate.of, &rotate.making.to),
            Snapshot::Undo(undo) => (&undo.of, &None),
            _ => return,
        };
        self.add([PathBuf::from(&of.database)], DATABASE);
        self.add(to, "the snapshot is made there");
    }

    fn of_repair(&mut self, repair: &Repair) {
        self.add([&repair.data], "it is the cluster to repair");
        self.of_set([&repair.from]);
        self.add(&repair.keep, "damaged pages are kept there");
        self.of_moment(&repair.log_from, &repair.recovering.scratch);
    }

    fn add<P: Into<PathBuf>>(&mut self, paths: impl IntoIterator<Item = P>, what: &'static str) {
        let paths = paths.into_iter().map(|path| (path.into(), what));
        self.0.extend(paths);
    }

    fn of_moment(&mut self, log: &Option<PathBuf>, scratch: &Option<PathBuf>) {
        self.add(log, LOG);
        self.add(scratch, SCRATCH);
    }

    fn of_log(&mut self, file: &Path, place: &Path) {
        self.add([file], "it is a file of the server");
        self.add([place], "the log is kept there");
    }

    fn of_set<'a>(&mut self, words: impl IntoIterator<Item = &'a PathBuf>) {
        self.add(words, "the set is read from there");
    }

    fn of_backup(&mut self, backup: &Backup) {
        self.add([PathBuf::from(&backup.database)], DATABASE);
        self.of_stripes(&backup.to);
        self.of_watching(&backup.watching);
    }

    fn of_verify(&mut self, verify: &Verify) {
        self.of_set(&verify.set);
        self.add(&verify.opening.scratch, SCRATCH);
        self.of_watching(&verify.watching);
    }

    fn of_drill(&mut self, drill: &Drill) {
        self.of_set(&drill.set);
        self.add(&drill.opening.scratch, SCRATCH);
        self.add(&drill.into, "the drill restores there");
        self.add(&drill.metrics_file, "the metrics of this run go there");
    }

    fn of_history(&mut self, history: &History) {
        self.of_set(&history.from);
        self.add(&history.html, "the page is written there");
    }

    fn of_merge(&mut self, merge: &Merge) {
        self.of_set(&merge.set);
        self.of_stripes(&merge.to);
        self.of_watching(&merge.watching);
    }

    fn of_stripes(&mut self, to: &[String]) {
        for word in to.iter().filter(|word| *word != "nul") {
            let path = PathBuf::from(word);
            self.add([partial_path(&path)], UNSEALED);
            self.add([path], STRIPE);
        }
    }

    fn of_restore(&mut self, restore: &Restore) {
        self.of_set(&restore.set);
        let what = "this run restores the database there";
        self.add([&restore.into], what);
        // If it is no SQLite database, nothing has these names.
        let files = windlass_sqlite::files_of(&restore.into);
        self.add(files.into_iter().flatten(), BESIDE);
        let spaces = restore.tablespace_map.iter().map(|(_, becomes)| becomes);
        self.add(spaces, "this run restores a tablespace there");
        self.add(&restore.target.log_from, LOG);
        self.of_watching(&restore.watching);
    }

    fn of_watching(&mut self, watching: &Watching) {
        self.add(&watching.events, "the events of this run go there");
        self.add(&watching.metrics_file, "the metrics of this run go there");
    }

    fn protected(self) -> Result<Outputs, EngineError> {
        let mut outputs = Outputs::new();
        let is_named = |path: &PathBuf| !path.as_os_str().is_empty();
        for (path, what) in self.0.into_iter().filter(|(path, _)| is_named(path)) {
            outputs.protect_output(&path, what)?;
        }
        Ok(outputs)
    }
}

/// Whether a word is a path that somebody typed.
fn is_path(word: &Path, what: &str) -> bool {
    let text = word.to_string_lossy();
    let is_connection = what == DATABASE && (text.contains('=') || text.contains("://"));
    ![UNSEALED, BESIDE].contains(&what) && !is_connection
}

fn check_path(word: &Path) -> Result<(), Failure> {
    let errno = |path: &Path| Errno::from_io_error(&path.metadata().err()?);
    // The word may go on after the place: PLACE@WHICH.
    let text = word.to_str().unwrap_or_default();
    let place = text
        .rsplit_once('@')
        .map_or(word, |(place, _)| Path::new(place));
    let name = word.display();
    match errno(word) {
        Some(Errno::LOOP) => Err(Failure::usage(
            format!("{name} is a symbolic link that leads back to itself"),
            format!("`ls -l {name}` shows where it leads. Name a file or directory itself."),
        )),
        Some(Errno::NAMETOOLONG) if errno(place) == Some(Errno::NAMETOOLONG) => {
            Err(Failure::usage(
                format!("{name} is too long: a name has at most 255 bytes, and a path 4095"),
                "Write a shorter path, for example one from within its directory.",
            ))
        }
        _ => Ok(()),
    }
}

//! `windlass restore`: writes a set into a new data directory, or into a new database file.

mod dry;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{
    Cancel, DirectoryTarget, OpenSet, OpenStripe, Outputs, RunReport, restore, show_size, to_json,
};
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{
    DatabaseFacts, Kept, ReplayedTablespace, RestorePlan, RestoreRequest, check_unoccupied,
    replayed_tablespaces,
};
use windlass_sqlite::Left;

use crate::cli::{Global, Layout, OffOrKeep, Restore};
use crate::exit::{Code, Failure};
use crate::foretold::{Done, Judgement, State};
use crate::images::AsCluster;
use crate::observer::Terminal;
use crate::probed::Ends;
use crate::signals;
use crate::table::Finished;
use crate::{output, outputs, places, privilege, requests, words};
use windlass_operations::run::{Run, RunEnd};
use windlass_operations::watch::{self, Ended};
use windlass_operations::{Caller, Ending, Held, Notice, ProcessUse, RunSettings};

/// The hint if the user who restores may not use a directory of the restore.
const OWN_DIRECTORY: &str = "Each directory of the restore must belong to the user who will start \
                             the server. Name one that does not exist, or use chown first.";

pub fn run(global: &Global, arguments: &Restore) -> Result<Code, Failure> {
    if arguments.dry_run {
        return dry::run(global, arguments);
    }
    let cancel = signals::cancel_on_signals()?;
    let subject = arguments.into.display().to_string();
    let caller = requests::caller(
        global,
        Terminal::new(global, arguments.watching.details, 10),
    );
    let (watching, hooks) = (
        requests::watching(&arguments.watching),
        requests::hooks(&arguments.hooks)?,
    );
    let about = (&caller, &watching, &hooks);
    let run = Run::new(about, "restore", (&subject, &series(arguments)), &cancel);
    let work = |run: &mut Run<'_>| restore_set((global, arguments), &caller, run, &cancel);
    let (restored, ending) = run.go(work)?;
    show(global, arguments, &restored);
    Ok(output::degraded(ending.into()))
}

/// What was asked for, and by whom.
#[derive(Clone, Copy)]
struct Asked<'a> {
    caller: &'a Caller,
    arguments: &'a Restore,
    settings: &'a RunSettings,
}

/// A restored set.
struct Restored {
    report: RunReport,
    stripe_bytes: u64,
    judgement: Judgement,
    next: String,
}

fn restore_set(
    (global, arguments): (&Global, &Restore),
    caller: &Caller,
    run: &mut Run<'_>,
    cancel: &Cancel,
) -> Result<(Restored, RunEnd), Failure> {
    run.hooks
        .set_owner(privilege::owner(parent(&arguments.into)));
    let found = places::find(
        caller,
        &requests::sets(global, &arguments.set, &arguments.choice),
    )?;
    let set = found.open()?;
    // The profiles belong to the user who probed, who need not be the database's owner.
    let settings = requests::settings(&arguments.buffers, &Layout::default())?;
    let emulation = &settings.emulation;
    let state = State::open(caller, emulation, !arguments.no_prediction);
    let facts = &set.description().facts;
    let asked = Asked {
        caller,
        arguments,
        settings: &settings,
    };
    let restored = match Held::of(set.description())? {
        Held::Postgres => postgres(asked, &set, run, cancel),
        Held::Sqlite => sqlite(asked, &set, run, cancel),
    };
    // Damage in a frame is found only by reading it.
    let (mut report, next) = restored.map_err(|failure: Failure| failure.advised(&found))?;
    let tablespaces = arguments.tablespace_map.iter().map(|(_, becomes)| becomes);
    let places = std::iter::once(&arguments.into).chain(tablespaces);
    let ends = Ends {
        database: places.map(PathBuf::as_path).collect(),
        stripes: set.stripes().iter().map(OpenStripe::location).collect(),
        is_backup: false,
        emulation,
    };
    ends.judge(state.directory(), &mut report);
    let codec = facts.options["compress"].as_str();
    let done = Done {
        report: &report,
        codec: codec.and_then(|text| crate::compression::parse_codec(text).ok()),
        request: settings.buffers.clone(),
        rates: (arguments.max_rate, None),
    };
    let judgement = state.judge(caller, &ends, &done);
    let end = RunEnd::new(caller, Ending::Done, &report);
    let stripe_bytes = set.stripe_bytes();
    let restored = Restored {
        report,
        stripe_bytes,
        judgement,
        next,
    };
    Ok((restored, end))
}

/// The subject of the metrics.
fn series(arguments: &Restore) -> String {
    let into = std::path::absolute(&arguments.into);
    into.unwrap_or(arguments.into.clone()).display().to_string()
}

/// What to restore of a cluster, and where to.
fn request(arguments: &Restore) -> RestoreRequest {
    RestoreRequest {
        into: arguments.into.clone(),
        tablespace_map: arguments.tablespace_map.clone(),
        keep: Kept {
            archive: arguments.archive == OffOrKeep::Keep,
            subscriptions: arguments.subscriptions == OffOrKeep::Keep,
        },
    }
}

fn postgres(
    asked: Asked<'_>,
    set: &OpenSet,
    run: &mut Run<'_>,
    cancel: &Cancel,
) -> Result<(RunReport, String), Failure> {
    let (caller, arguments) = (asked.caller, asked.arguments);
    let description = set.description();
    let owner = cluster_owner(&description.facts.database)?;
    let request = request(arguments);
    let replayed = replayed(set)?;
    let spaces = arguments.tablespace_map.iter().map(|(_, becomes)| becomes);
    let places = std::iter::once(&arguments.into).chain(spaces.clone());
    let targets = restored_into(Outputs::new(), places.clone())?;
    watch::check_log(caller, &targets)?;
    // This says most about a directory that is in use or not empty. Nothing is made yet.
    let plan = privilege::as_user(ProcessUse::Own, owner, || {
        let (facts, files) = (&description.facts, &description.files);
        let map = &request.tablespace_map;
        replayed.iter().try_for_each(|space| space.check(map))?;
        Ok(RestorePlan::new(facts, files, &request)?)
    })
    .map_err(|failure: Failure| failure.or_hint(OWN_DIRECTORY))?;
    // A refused restore must leave no directory behind.
    let outputs = outputs::of_set(set)?;
    // What a restore left that was cut off looks like a tablespace, and is no source.
    spaces
        .clone()
        .try_for_each(|space| check_unoccupied(space))?;
    for place in places.clone() {
        outputs.check(place)?;
    }
    let outputs = restored_into(outputs, places)?;
    run.check(&outputs)?;
    // A tablespace that is not mapped goes to where it was, which may be beside a live one.
    for space in &plan.tablespaces {
        outputs::outputs().check(&space.becomes)?;
    }
    if owner.is_some() {
        run.hooks.set_owner(owner);
    }
    run.hooks.before()?;
    become_cluster_owner(owner, arguments)?;
    plan.prepare()
        .map_err(|error| Failure::from(error).or_hint(OWN_DIRECTORY))?;
    replayed.iter().try_for_each(ReplayedTablespace::prepare)?;
    let layout = plan.layout(description.files.clone());
    let written = DirectoryTarget::create(layout)
        .map_err(Failure::from)
        .and_then(|target| write(asked, run, set, (&target, &outputs), cancel));
    let report = written.map_err(|failure| {
        let spaces = plan.tablespaces.iter().map(|space| space.becomes.as_path());
        failure.or_hint(&left_behind(&plan.into, spaces))
    })?;
    Ok((report, plan.next_steps()))
}

/// Protects these directories, into which a cluster is restored, from the other outputs.
fn restored_into<'a>(
    mut outputs: Outputs,
    places: impl Iterator<Item = &'a PathBuf>,
) -> Result<Outputs, Failure> {
    for place in places {
        let what = format!("this run restores the cluster into {}", place.display());
        outputs.protect_directory(place, &what)?;
    }
    Ok(outputs)
}

/// The tablespaces that replay will create by itself. This version searches the log when it makes a
/// set. So only the log of an older set is read here.
fn replayed(set: &OpenSet) -> Result<Vec<ReplayedTablespace>, Failure> {
    let facts = DatabaseFacts::of_set(&set.description().facts.database)?;
    if facts.log_surveyed {
        return Ok(Vec::new());
    }
    let stripes = set.stripes().iter();
    let stripes: Vec<_> = stripes.map(|it| it.location().to_owned()).collect();
    let options = SetImageOptions::default();
    let image = SetImage::open(Arc::new(places::open_stripes(&stripes)?), &options)?;
    Ok(replayed_tablespaces(&AsCluster(&image), &facts)?)
}

/// The hint after a restore that did not end: no server starts on what it leaves, unless everything
/// was there and only the last sync failed.
fn left_behind<'a>(into: &'a Path, spaces: impl Iterator<Item = &'a Path>) -> String {
    let places = std::iter::once(into).chain(spaces);
    let places: Vec<_> = places.map(|path| path.display().to_string()).collect();
    let places = places.join(" and ");
    // pg_control gets its name when everything else is durable.
    if into.join("global/pg_control").exists() {
        return format!(
            "The restored cluster in {places} is complete, but a power cut may still damage it. \
             Look at the disk first (`dmesg`). Then run `sync`. If that succeeds, you can start \
             the cluster; if not, restore to another disk."
        );
    }
    format!("What is in {places} does not start: remove it before the next try.")
}

/// The user that root becomes: the owner of the source.
fn cluster_owner(database: &serde_json::Value) -> Result<Option<(u32, u32)>, Failure> {
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    let owner = DatabaseFacts::of_set(database)?.owner;
    let ids = privilege::user_ids(&owner).ok_or_else(|| {
        let message = format!("the cluster belonged to user {owner:?}, who is not known here");
        Failure::new(
            Code::Failed,
            message,
            "Run as the user who will own the restored cluster.",
        )
    })?;
    Ok(Some(ids))
}

/// Gives that user the directories that only root can create, then becomes the user.
fn become_cluster_owner(owner: Option<(u32, u32)>, arguments: &Restore) -> Result<(), Failure> {
    let Some(ids) = owner else { return Ok(()) };
    privilege::give_directory(&arguments.into, ids)?;
    for (_, becomes) in &arguments.tablespace_map {
        privilege::give_directory(becomes, ids)?;
    }
    Ok(privilege::become_user(ProcessUse::Own, ids.0, ids.1)?)
}

/// The directory that a restored file goes into.
fn parent(into: &Path) -> &Path {
    let parent = if into.is_dir() {
        Some(into)
    } else {
        into.parent()
    };
    parent
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn sqlite(
    asked: Asked<'_>,
    set: &OpenSet,
    run: &mut Run<'_>,
    cancel: &Cancel,
) -> Result<(RunReport, String), Failure> {
    let (caller, arguments) = (asked.caller, asked.arguments);
    let into = &arguments.into;
    if let Some((uid, gid)) = privilege::owner(parent(into)) {
        privilege::become_user(ProcessUse::Own, uid, gid)?;
    }
    let description = set.description();
    let files = windlass_sqlite::target_files(&description.files, into)?;
    let target = files.first().unwrap_or(into).display();
    let what = format!("this run restores the database {target}");
    watch::check_log(caller, &restored_as(Outputs::new(), &files, &what)?)?;
    run.hooks.before()?;
    let outputs = outputs::of_set(set)?;
    let mut plan = windlass_sqlite::restore_layout(description, into, arguments.force, &outputs)?;
    let mut outputs = restored_as(outputs, &files, &what)?;
    outputs.protect_directory(&plan.staging, &what)?;
    run.check(&outputs)?;
    let staging = plan.staging.display().to_string();
    match plan.prepare()? {
        Left::Nothing => {}
        Left::Unfinished => output::note(&format!(
            "note: a restore that was cut off had left {staging}: this one removes it"
        )),
        Left::Database(path) => output::note(&format!(
            "note: an earlier restore left {}: this one keeps it until its own is complete",
            path.display()
        )),
    }
    let written = DirectoryTarget::create(plan.layout.clone())
        .map_err(Failure::from)
        .and_then(|target| {
            plan.hold(&target)?;
            write(asked, run, set, (&target, &outputs), cancel)
        });
    match written {
        Ok(report) => {
            let next = format!("{} is ready to open\n", plan.target.display());
            plan.publish()?;
            Ok((report, next))
        }
        Err(failure) => match plan.abandon() {
            Ok(()) => Err(failure),
            // What stopped the restore matters more than what it left.
            Err(_) => Err(failure.or_hint(&format!(
                "The next restore to the same path removes {staging}, or remove it yourself."
            ))),
        },
    }
}

/// Protects these files, as which a database is restored, from the other outputs.
fn restored_as(mut outputs: Outputs, files: &[PathBuf], what: &str) -> Result<Outputs, Failure> {
    for file in files {
        outputs.protect_file(file, what)?;
    }
    Ok(outputs)
}

fn write(
    asked: Asked<'_>,
    run: &Run<'_>,
    set: &OpenSet,
    (target, outputs): (&DirectoryTarget, &Outputs),
    cancel: &Cancel,
) -> Result<RunReport, Failure> {
    let arguments = asked.arguments;
    let options = asked
        .settings
        .restore_options(set, arguments.max_rate, true)?;
    asked.caller.observer.notice(&Notice::Settings {
        plan: &options.plan,
        codec: None,
    });
    let subject = arguments.into.display().to_string();
    let watch = run.watch(outputs, (&subject, &series(arguments)))?;
    let restored = restore(set, target, &options, watch.progress(), cancel);
    Ok(watch.end(restored, |report| Ended::well(report))?)
}

fn show(global: &Global, arguments: &Restore, restored: &Restored) {
    let report = &restored.report;
    if global.json {
        let mut document = to_json(report);
        restored.judgement.describe(&mut document);
        document["next"] = restored.next.lines().map(str::trim_start).collect();
        return output::line(&document.to_string());
    }
    let (written, stored) = (
        show_size(report.bytes_written),
        show_size(restored.stripe_bytes),
    );
    let seconds = words::duration(report.seconds);
    let next = restored.next.lines().map(|line| ("next", line.to_owned()));
    let finished = Finished {
        result: (
            "restored",
            format!("{written} from a set of {stored}, in {seconds}"),
        ),
        then: vec![],
        report,
        judgement: Some(&restored.judgement),
        remarks: next.collect(),
        details: arguments.watching.details,
    };
    finished.print(global);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_cluster_that_only_lacks_the_last_sync_is_not_called_useless() {
        let place = tempfile::tempdir().unwrap();
        let (into, space) = (place.path().join("data"), place.path().join("space"));
        std::fs::create_dir_all(into.join("global")).unwrap();
        let hint = || left_behind(&into, std::iter::once(space.as_path()));
        assert!(hint().ends_with("space does not start: remove it before the next try."));
        std::fs::write(into.join("global/pg_control"), "x").unwrap();
        assert!(hint().contains("is complete, but a power cut"));
        assert!(!hint().contains("remove it"));
    }
}

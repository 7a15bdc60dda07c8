//! Files that somebody else changes while no server runs: every snapshot is lost, and says so. What
//! the server and Windlass do themselves loses none, however the server ends.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_image::Image;
use windlass_snapshot::hook::{self, HookError, HookImage};
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster, succeed};

use crate::support::{Snapshot, Source, sums};

const ROWS: &str = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";

fn fill(source: &Source) {
    let server = &source.server;
    server.sql("postgres", &format!("CREATE TABLE t AS {ROWS}"));
    server.sql("postgres", "VACUUM t");
    server.sql("postgres", "CHECKPOINT");
}

/// Some pages are in the store from then on, and others are not.
fn write(source: &Source) {
    let server = &source.server;
    let sql = "UPDATE t SET x = repeat('y', 200) WHERE i < 100";
    server.sql("postgres", sql);
    server.sql("postgres", "CHECKPOINT");
}

fn table(source: &Source) -> PathBuf {
    let sql = "SELECT pg_relation_filepath('t')";
    let path = source.server.sql("postgres", sql);
    source.server.data().join(path)
}

fn made(source: &Source, kind: &str, name: &str) -> Snapshot {
    match kind {
        "late" => source.late(name),
        "durable" => source.durable(name),
        _ => source.snapshot(name),
    }
}

/// Reads all of a file of a snapshot that was opened before.
fn read(image: &HookImage, path: &Path, data: &Path) -> Result<usize, windlass_image::ImageError> {
    let path = path.strip_prefix(data).unwrap().to_str().unwrap();
    let mut files = image.files().0.iter();
    let entry = files.find(|entry| entry.path == path.as_bytes()).unwrap();
    let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
    image.read(entry.file, 0, &mut bytes)
}

fn assert_lost(directory: &Path, what: &str) {
    let lost = hook::state(directory).unwrap().lost.unwrap_or_default();
    assert!(
        lost.contains("changed") || lost.contains("removed"),
        "{what}: {lost}"
    );
    let opened = HookImage::open(directory).err();
    assert!(matches!(opened, Some(HookError::Lost { .. })), "{what}");
}

/// Uses a tool on the stopped server, and expects that the snapshot is lost at once, for those who
/// opened it before, too, and for ever.
fn lost_by(source: &mut Source, (kind, end): (&str, &str), name: &str, tool: &dyn Fn(&Path)) {
    let what = format!("{name}, {kind}, after {end}");
    let snapshot = made(source, kind, &format!("{name}-{kind}-{end}"));
    let before = sums(&snapshot.directory);
    write(source);
    let path = table(source);
    let opened = HookImage::open(&snapshot.directory).unwrap();
    source.end(end);
    assert!(sums(&snapshot.directory) == before, "{what}");
    tool(&path);
    assert_lost(&snapshot.directory, &what);
    let data = source.server.data().to_owned();
    let error = read(&opened, &path, &data).err();
    assert!(error.is_some(), "{what}: an image that was open");
    source.server.run();
    assert_lost(&snapshot.directory, &what);
    hook::remove(&snapshot.directory).unwrap();
}

/// Writes a page that the snapshot still reads from the file.
fn dd(path: &Path) {
    let of = format!("of={}", path.display());
    succeed(Command::new("dd").args([
        "if=/dev/zero",
        &of,
        "bs=8192",
        "count=1",
        "seek=60",
        "conv=notrunc",
    ]));
}

fn cp(options: &[&str], from: &Path, to: &Path) {
    succeed(Command::new("cp").args(options).arg(from).arg(to));
}

#[test]
fn a_file_that_somebody_else_changes_loses_every_snapshot_however_the_server_ended() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    fill(&source);
    let old = source.place.path().join("old");
    cp(&["-p"], &table(&source), &old);
    let copy = |path: &Path| cp(&["-p"], &old, path);
    let other = |path: &Path| {
        let beside = path.with_extension("other");
        cp(&["-p"], path, &beside);
        std::fs::rename(&beside, path).unwrap();
    };
    let cut = |path: &Path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes - 8192).unwrap();
    };
    type Tool<'a> = (&'a str, &'a dyn Fn(&Path));
    let tools: [Tool<'_>; 4] = [("dd", &dd), ("cp", &copy), ("mv", &other), ("cut", &cut)];
    let ends = ["fast", "immediate", "kill"];
    let kinds = ["linked", "late", "durable"];
    for (turn, (name, tool)) in tools.into_iter().enumerate() {
        for (step, end) in ends.into_iter().enumerate() {
            let kind = kinds[(turn + step) % kinds.len()];
            lost_by(&mut source, (kind, end), name, tool);
            source.server.sql("postgres", "DROP TABLE t");
            fill(&source);
            cp(&["-p"], &table(&source), &old);
        }
    }
}

/// Has pg_checksums change pages until it is killed: it never comes to its two hundredth page.
fn killed_halfway(tool: &Path, data: &Path) {
    let control = || std::fs::read(data.join("global/pg_control")).unwrap();
    let before = control();
    let mut strace = Command::new("strace");
    let inject = "inject=write,pwrite64:signal=KILL:when=200";
    strace.args(["-qq", "-o", "/dev/null", "-e", inject]);
    let ended = strace.arg(tool).args(["--enable", "-D"]).arg(data).output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    assert!(control() == before, "it has not come to its end");
}

/// The only name that the file has left is one that the snapshot gave it.
#[test]
fn a_lost_snapshot_names_the_file_of_the_user_and_not_a_link_of_ours() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let replace = |path: &Path| {
        let beside = path.with_extension("other");
        cp(&["-p"], path, &beside);
        std::fs::rename(&beside, path).unwrap();
    };
    let remove = |path: &Path| std::fs::remove_file(path).unwrap();
    let tools: [&dyn Fn(&Path); 2] = [&replace, &remove];
    for (kind, what) in [
        ("linked", "changed"),
        ("durable", "changed"),
        ("late", "removed"),
    ] {
        for (turn, tool) in tools.into_iter().enumerate() {
            fill(&source);
            let snapshot = made(&source, kind, &format!("{kind}-{turn}"));
            let path = table(&source);
            let copy = source.place.path().join("copy");
            source.end("fast");
            cp(&["-p"], &path, &copy);
            tool(&path);
            let name = path.strip_prefix(source.server.data()).unwrap();
            let said = format!("{} was {what} without the hook", name.display());
            assert_eq!(hook::state(&snapshot.directory).unwrap().lost, Some(said));
            cp(&["-p"], &copy, &path);
            source.server.run();
            hook::remove(&snapshot.directory).unwrap();
            source.server.sql("postgres", "DROP TABLE t");
        }
    }
}

#[test]
fn tools_of_the_server_lose_every_snapshot_whole_and_cut_off() {
    let mut source = Source::start_of(DEFAULT_BIN.as_ref(), &[], &[]);
    fill(&source);
    let data = source.server.data().to_owned();
    let bin = source.server.bin().to_owned();
    let run = |tool: &str, option: &str| {
        let mut tool = Command::new(bin.join(tool));
        tool.arg(option).arg("-D").arg(&data).output().unwrap()
    };
    // It has changed all of `global` when it comes to this file, and pg_control not yet.
    let part = data.join("base/1/99999");
    let cut_off = |_: &Path| {
        std::fs::write(&part, [1; 100]).unwrap();
        let control = std::fs::read(data.join("global/pg_control")).unwrap();
        let ended = run("pg_checksums", "--enable");
        assert!(!ended.status.success(), "{ended:?}");
        let now = std::fs::read(data.join("global/pg_control")).unwrap();
        assert!(control == now, "it has not come to its end");
        std::fs::remove_file(&part).unwrap();
    };
    lost_by(
        &mut source,
        ("linked", "fast"),
        "pg_checksums-cut-off",
        &cut_off,
    );
    let killed = |_: &Path| killed_halfway(&bin.join("pg_checksums"), &data);
    lost_by(
        &mut source,
        ("durable", "fast"),
        "pg_checksums-killed",
        &killed,
    );
    let whole = |_: &Path| {
        let ended = run("pg_checksums", "--enable");
        assert!(ended.status.success(), "{ended:?}");
    };
    lost_by(&mut source, ("late", "fast"), "pg_checksums", &whole);
    let reset = |_: &Path| {
        std::fs::remove_file(data.join("postmaster.pid")).unwrap();
        let ended = run("pg_resetwal", "--force");
        assert!(ended.status.success(), "{ended:?}");
    };
    lost_by(&mut source, ("linked", "kill"), "pg_resetwal", &reset);
}

/// Whether checksums are on is behind the first 192 bytes of pg_control.
#[test]
fn pg_control_is_looked_at_as_far_as_the_version_of_checksums() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    fill(&source);
    let control = source.server.data().join("global/pg_control");
    let snapshot = source.snapshot("one");
    source.end("fast");
    let file = OpenOptions::new().read(true).write(true).open(control);
    let file = file.unwrap();
    let mut bytes = [0; 292];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let at = 252;
    assert_eq!(bytes[at], 1, "initdb made checksums");
    file.write_all_at(&[0], at as u64).unwrap();
    assert_lost(&snapshot.directory, "checksums");
    file.write_all_at(&[1], at as u64).unwrap();
    hook::remove(&snapshot.directory).unwrap();
}

#[test]
fn pg_rewind_loses_every_snapshot() {
    let mut source = Source::start_with(DEFAULT_BIN.as_ref(), &["wal_keep_size = '1GB'"]);
    fill(&source);
    let copy = source.place.path().join("standby");
    let mut tool = source.server.tool("pg_basebackup");
    succeed(tool.args(["-c", "fast", "-R", "-D"]).arg(&copy));
    let standby = PrivateCluster::adopt_stopped(&copy, source.server.bin());
    standby.configure(&["shared_preload_libraries = ''"]);
    let mut standby = standby;
    standby.run();
    standby.sql("postgres", "SELECT pg_promote()");
    standby.sql("postgres", "UPDATE t SET x = repeat('z', 200)");
    standby.sql("postgres", "CHECKPOINT");
    let snapshot = source.snapshot("one");
    write(&source);
    source.end("fast");
    let mut tool = Command::new(standby.bin().join("pg_rewind"));
    tool.arg(format!("--source-server={}", standby.conninfo()));
    succeed(tool.arg("--target-pgdata").arg(source.server.data()));
    assert_lost(&snapshot.directory, "pg_rewind");
    let settings = source.server.data().join("postgresql.auto.conf");
    File::create(settings).unwrap();
    let library = source.place.path().join("windlass.so");
    let setting = format!("shared_preload_libraries = '{}'", library.display());
    source.server.configure(&[setting]);
    source.server.run();
    assert_lost(&snapshot.directory, "pg_rewind");
}

/// A cluster gets the old one's files under other names, and the old one loses its pg_control
/// before. No time of a file tells that on file systems whose times come from another clock.
#[test]
fn a_cluster_without_its_pg_control_shows_no_snapshot() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    fill(&source);
    let kept = three(&source);
    let path = table(&source);
    let opened = kept.iter().map(|(it, _)| HookImage::open(&it.directory));
    let opened: Vec<_> = opened.map(Result::unwrap).collect();
    source.end("fast");
    let data = source.server.data().to_owned();
    let control = data.join("global/pg_control");
    let away = data.join("global/pg_control.old");
    std::fs::rename(&control, &away).unwrap();
    for ((snapshot, _), opened) in kept.iter().zip(&opened) {
        assert_lost(&snapshot.directory, "without pg_control");
        assert!(read(opened, &path, &data).is_err());
    }
    // A revert gives it another name for a time, and changes nothing of what is kept.
    let aside = data.join("global/pg_control.windlass-revert-under-way");
    std::fs::rename(&away, &aside).unwrap();
    assert_kept(&kept, "while a revert is under way");
    std::fs::rename(&aside, &control).unwrap();
    assert_kept(&kept, "with pg_control");
    source.server.run();
    assert_kept(&kept, "after a start");
}

#[test]
fn pg_upgrade_with_links_loses_every_snapshot() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    fill(&source);
    let kept = three(&source);
    let new = source.place.path().join("new");
    let mut initdb = source.server.tool("initdb");
    initdb.args(["--auth=trust", "--username=postgres", "--no-sync"]);
    initdb.args(["--encoding=UTF8", "--no-locale", "--data-checksums"]);
    succeed(initdb.arg("-D").arg(&new));
    source.end("fast");
    let data = source.server.data().to_owned();
    // The old server may be of the same version, and the upgrade starts it with the hook.
    let mut tool = source.server.tool("pg_upgrade");
    tool.args(["--link", "--no-sync", "--username=postgres", "-b"]);
    tool.arg(source.server.bin())
        .arg("-B")
        .arg(source.server.bin());
    tool.arg("-d").arg(&data).arg("-D").arg(&new);
    succeed(tool.arg("-s").arg(source.server.place()));
    for (snapshot, _) in &kept {
        assert_lost(&snapshot.directory, "pg_upgrade");
    }
    // Whoever goes back to the old cluster, which pg_upgrade tells how, has the same files.
    let control = data.join("global/pg_control");
    std::fs::rename(data.join("global/pg_control.old"), &control).unwrap();
    for (snapshot, _) in &kept {
        assert_lost(&snapshot.directory, "with the old pg_control");
    }
    source.server.run();
    for (snapshot, _) in &kept {
        assert_lost(&snapshot.directory, "after a start");
    }
}

/// Three snapshots, one of each kind, and what each shows.
fn three(source: &Source) -> Vec<(Snapshot, Vec<(String, u32)>)> {
    let kinds = ["linked", "late", "durable"];
    let each = kinds.map(|kind| {
        let snapshot = made(source, kind, kind);
        write(source);
        let before = sums(&snapshot.directory);
        (snapshot, before)
    });
    each.into()
}

fn assert_kept(kept: &[(Snapshot, Vec<(String, u32)>)], when: &str) {
    for (snapshot, before) in kept {
        let lost = hook::state(&snapshot.directory).unwrap().lost;
        assert_eq!(lost, None, "{when}");
        assert!(sums(&snapshot.directory) == *before, "{when}");
    }
}

/// Writes of every kind, until the server ends.
fn busy(source: &Source) -> std::process::Child {
    let script = source.place.path().join("load.sql");
    let sql = "UPDATE t SET x = md5(random()::text) WHERE i % 50 = (random() * 50)::int;\n\
               UPDATE u SET i = i + 1;\n\
               CREATE TEMP TABLE k AS SELECT generate_series(1, 3000) AS i;\n\
               DROP TABLE k;\n\
               TRUNCATE v;\n\
               INSERT INTO v SELECT generate_series(1, 2000);\n\
               CHECKPOINT;\n";
    std::fs::write(&script, sql).unwrap();
    let mut load = source.server.tool("pgbench");
    load.args(["-n", "-c", "2", "-T", "60", "-d", "postgres", "-f"]);
    load.arg(&script);
    load.stdout(std::process::Stdio::null());
    load.stderr(std::process::Stdio::null()).spawn().unwrap()
}

#[test]
fn what_the_server_and_windlass_do_themselves_loses_no_snapshot() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let space = source.place.path().join("space");
    std::fs::create_dir(&space).unwrap();
    let sql = format!("CREATE TABLESPACE s LOCATION '{}'", space.display());
    source.server.sql("postgres", &sql);
    fill(&source);
    let sql = "CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 2000) AS i; \
               CREATE TABLE v AS SELECT generate_series(1, 2000) AS i; \
               CREATE TABLE w TABLESPACE s AS SELECT generate_series(1, 2000) AS i";
    source.server.sql("postgres", sql);
    let kept = three(&source);
    let more = source.late("more");
    source.server.sql("postgres", "DROP TABLE w");
    source.server.sql("postgres", "CHECKPOINT");
    // The files of the snapshots are where no name of the server leads to.
    source.server.sql("postgres", "DROP TABLESPACE s");
    for end in ["smart", "fast", "immediate", "kill", "immediate", "kill"] {
        let mut load = busy(&source);
        source.server.sql("postgres", "UPDATE t SET x = 'y'");
        let changed = "SELECT count(*) > 100 FROM t WHERE x <> 'y'";
        source.server.wait_until(changed, "t");
        if end == "smart" {
            load.kill().unwrap();
        }
        source.end(end);
        load.wait().unwrap();
        assert_kept(&kept, &format!("stopped by {end}"));
        source.server.run();
        assert_kept(&kept, &format!("started after {end}"));
    }
    // A drop removes links while nothing runs.
    source.end("fast");
    hook::remove(&more.directory).unwrap();
    assert_kept(&kept, "after a drop");
    source.server.run();
    assert_kept(&kept, "started after a drop");
}

/// The shared memory is gone then, and with it all moments that it had.
#[test]
fn a_durable_snapshot_is_lost_by_what_was_changed_before_and_after_a_start_of_the_system() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    fill(&source);
    let snapshot = source.durable("kept");
    let second = source.durable("second");
    let before = sums(&snapshot.directory);
    write(&source);
    let path = table(&source);
    source.end("fast");
    std::fs::remove_file(source.memory().unwrap()).unwrap();
    // It removes links, and no hook sees it.
    hook::remove(&second.directory).unwrap();
    source.server.run();
    assert!(sums(&snapshot.directory) == before);
    source.end("fast");
    std::fs::remove_file(source.memory().unwrap()).unwrap();
    dd(&path);
    source.server.run();
    assert_lost(&snapshot.directory, "dd");
    hook::remove(&snapshot.directory).unwrap();
}

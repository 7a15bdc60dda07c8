//! Modules of the server that write files themselves: what they write is preserved, too, and one
//! that writes in a way that nobody can see is refused.
//!
//! The module is made here, by the C compiler that Rust links with.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass_engine::Cancel;
use windlass_postgres::{BackupRequest, Cluster};
use windlass_snapshot::hook::{self, HookError, HookStart};
use windlass_snapshot::{Maker, PostgresHook, SnapshotError};
use windlass_testkit::postgres::{DEFAULT_BIN, succeed};

use crate::changed::Watched;
use crate::support::{Source, sums};

/// A module of PostgreSQL 15 that writes over the first page of the file that is named in a file of
/// the data directory.
const MODULE: &str = r#"
#include <aio.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct magic { int length, version, arguments, keys, name, by_value; char extra[32]; };
static const struct magic block = { 56, 1500, 100, 32, 64, 1, "PostgreSQL" };
const struct magic *Pg_magic_func(void) { return &block; }

static const struct { int version; } info = { 1 };
const void *pg_finfo_overwrite(void) { return &info; }

unsigned long overwrite(void *call)
{
    char path[256] = { 0 }, page[8192];
    int list = open("overwritten", O_RDONLY);
    ssize_t length = read(list, path, sizeof path - 1);
    int file = open(path, O_WRONLY);

    memset(page, BYTE, sizeof page);
    close(list);
    if (length <= 0 || file < 0 || WRITE(file, page) < 0)
        return 0;
    close(file);
    return 1;
}
"#;

/// A module that keeps its process from making memory writable again: the calls of what is loaded
/// after that cannot be replaced.
const FORBIDDING: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct magic { int length, version, arguments, keys, name, by_value; char extra[32]; };
static const struct magic block = { 56, 1500, 100, 32, 64, 1, "PostgreSQL" };
const struct magic *Pg_magic_func(void) { return &block; }

static const struct { int version; } info = { 1 };
const void *pg_finfo_forbid(void) { return &info; }

unsigned long forbid(void *call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_READ | PROT_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#ifdef AT_ONCE
void _PG_init(void) { forbid(0); }
#endif
"#;

/// A library that is no module, and could have files written unseen.
const PLAIN: &str = r#"
#include <aio.h>

int plain(struct aiocb *what) { return aio_write(what); }
"#;

/// By which call it writes.
const PWRITE: &str = "-DWRITE(file,page)=pwrite(file,page,sizeof(page),0)";
const AIO: &str = "-DWRITE(file,page)=aio_write(&(struct aiocb){.aio_fildes=file,.aio_buf=page})";

fn module(place: &Path, name: &str, flags: &[&str]) -> PathBuf {
    module_of(MODULE, place, name, flags)
}

fn module_of(text: &str, place: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, library) = (place.join("module.c"), place.join(format!("{name}.so")));
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-D_GNU_SOURCE", "-o"])
        .arg(&library);
    succeed(cc.args(flags).arg(&source));
    library
}

/// Has the server load a library before the hook.
fn preload_before(source: &mut Source, library: &Path) {
    let own = source.place.path().join("windlass.so");
    let list = format!("{}, {}", library.display(), own.display());
    source.server.stop("fast");
    let setting = format!("shared_preload_libraries = '{list}'");
    source.server.configure(&[setting]);
    source.server.run();
}

fn overwrite(source: &Source, function: &str, library: &Path, table: &str) {
    let server = &source.server;
    let path = server.sql(
        "postgres",
        &format!("SELECT pg_relation_filepath('{table}')"),
    );
    std::fs::write(server.data().join("overwritten"), path).unwrap();
    let create = format!(
        "CREATE FUNCTION {function}() RETURNS bool AS '{}', 'overwrite' LANGUAGE C",
        library.display()
    );
    server.sql("postgres", &create);
    assert_eq!(server.sql("postgres", &format!("SELECT {function}()")), "t");
}

#[test]
fn what_modules_write_themselves_is_preserved() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path().to_owned();
    let flags = |byte, more: &[&'static str]| {
        let own = [PWRITE, byte];
        [&own[..], more].concat()
    };
    let before_hook = module(&place, "early", &flags("-DBYTE=1", &["-Wl,-z,lazy"]));
    let late = module(
        &place,
        "late",
        &flags("-DBYTE=2", &["-Wl,-z,lazy,-z,norelro"]),
    );
    let bound = module(
        &place,
        "bound",
        &flags("-DBYTE=3", &["-Wl,-z,now,-z,relro"]),
    );
    let old = module(
        &place,
        "old",
        &flags("-DBYTE=4", &["-Wl,--hash-style=sysv"]),
    );
    preload_before(&mut source, &before_hook);
    for table in ["a", "b", "c", "d"] {
        let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 1000) i";
        source
            .server
            .sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
    }
    let snapshot = source.snapshot("one");
    let before = sums(&snapshot.directory);
    let watched = Watched::begin(&source);
    overwrite(&source, "early", &before_hook, "a");
    overwrite(&source, "late", &late, "b");
    overwrite(&source, "bound", &bound, "c");
    overwrite(&source, "old", &old, "d");
    assert!(sums(&snapshot.directory) == before);
    assert!(hook::state(&snapshot.directory).unwrap().lost.is_none());
    watched.assert_named();
    let second = source.snapshot("two");
    let differing = sums(&second.directory)
        .iter()
        .zip(&before)
        .filter(|(a, b)| a != b)
        .count();
    assert!(differing >= 4, "the modules did write: {differing}");
}

/// Nobody knows when a process ends that writes unseen. So no map counts until the server starts.
#[test]
fn a_module_that_cannot_be_seen_blinds_the_map_until_the_server_starts() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path().to_owned();
    let forbidding = module_of(FORBIDDING, &place, "forbidding", &[]);
    let bound = module(
        &place,
        "bound",
        &[PWRITE, "-DBYTE=1", "-Wl,-z,now,-z,relro"],
    );
    let later = module(&place, "later", &[AIO, "-DBYTE=2"]);
    let create = format!(
        "CREATE FUNCTION forbid() RETURNS bool AS '{}', 'forbid' LANGUAGE C",
        forbidding.display()
    );
    source.server.sql("postgres", &create);
    for (name, first, library) in [
        ("one", "SELECT forbid()", &bound),
        ("two", "SELECT true", &later),
    ] {
        let watched = Watched::begin(&source);
        let load = format!("{first}; LOAD '{}'", library.display());
        let loaded = source.server.try_sql("postgres", &load);
        assert!(loaded.status.success(), "{loaded:?}");
        assert_eq!(String::from_utf8_lossy(&loaded.stdout).trim(), "t");
        // As long as the session's process is there, the refusal names its module.
        let refused = loop {
            let refused = watched.refused(&source);
            if !refused.contains("may change files by") {
                break refused;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert!(
            refused.contains("module whose writes the hook does not see"),
            "{refused}"
        );
        let error = source
            .try_snapshot(name, HookStart::Checkpoint)
            .err()
            .unwrap();
        assert!(matches!(error, HookError::Blind { .. }), "{error}");
        source.end("fast");
        source.server.run();
        Watched::begin(&source).assert_named();
    }
}

/// The server is looked at before the checkpoint, and the snapshot is published behind it.
#[test]
fn no_snapshot_is_made_if_a_module_came_unseen_after_the_server_was_checked() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path();
    let later = module(place, "later", &[AIO, "-DBYTE=2"]);
    let makers = [HookStart::Checkpoint, HookStart::Pause].map(|start| {
        let cluster = Cluster::connect(&source.server.conninfo()).unwrap();
        let maker = PostgresHook::new(cluster, BackupRequest::default(), start);
        let obstacle = maker.obstacle(place).unwrap();
        assert!(obstacle.is_none(), "{obstacle:?}");
        maker
    });
    source
        .server
        .sql("postgres", &format!("LOAD '{}'", later.display()));
    for (mut maker, name) in makers.into_iter().zip(["one", "two"]) {
        let into = place.join(name);
        std::fs::create_dir(&into).unwrap();
        let made = maker.make(&into, &Arc::default(), &Cancel::new());
        let error = made.err().unwrap();
        assert!(
            matches!(error, SnapshotError::Hook(HookError::Blind { .. })),
            "{error}"
        );
    }
}

/// The linker finds names by one of two tables. The libraries of other makers may have the older
/// one only.
#[test]
fn a_library_that_is_no_module_blinds_nothing_whichever_table_it_has() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path().to_owned();
    for (name, style) in [
        ("gnu", "-Wl,--hash-style=gnu"),
        ("sysv", "-Wl,--hash-style=sysv"),
    ] {
        let plain = module_of(PLAIN, &place, &format!("lib{name}"), &[style]);
        let needed = ["-Wl,--no-as-needed", plain.to_str().unwrap(), style];
        let with_it = module(&place, name, &[&[PWRITE, "-DBYTE=1"], &needed[..]].concat());
        let snapshot = source.snapshot(&format!("at-{name}"));
        let watched = Watched::begin(&source);
        source
            .server
            .sql("postgres", &format!("LOAD '{}'", with_it.display()));
        watched.assert_named();
        let state = hook::state(&snapshot.directory).unwrap();
        assert_eq!(state.lost, None, "{style}");
    }
}

/// The first process of a server may have the number of that of the one before.
#[test]
fn a_server_whose_calls_cannot_be_replaced_ends_the_map_and_takes_the_place_of_nobody() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path().to_owned();
    let forbidding = module_of(FORBIDDING, &place, "forbidding", &["-DAT_ONCE"]);
    let watched = Watched::begin(&source);
    let memory = std::fs::File::open(source.memory().unwrap()).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, 4 * at).unwrap();
        u32::from_le_bytes(bytes)
    };
    assert_ne!(word(GENERATION), 0);
    assert_ne!(word(FIRST_PROCESS), 0);
    preload_before(&mut source, &forbidding);
    assert_eq!((word(GENERATION), word(FIRST_PROCESS)), (0, 0));
    assert!(
        watched
            .refused(&source)
            .contains("does not write through the hook")
    );
    assert!(!hook::is_active(source.server.data()).unwrap());
}

/// Words of the memory: docs of windlass-layout's `hook/memory`.
const GENERATION: u64 = 5;
const FIRST_PROCESS: u64 = 29;

#[test]
fn a_server_with_a_module_that_writes_unseen_is_refused() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let place = source.place.path().to_owned();
    let unseen = module(&place, "unseen", &[AIO, "-DBYTE=1"]);
    preload_before(&mut source, &unseen);
    let refused = source
        .try_snapshot("one", HookStart::Checkpoint)
        .err()
        .unwrap();
    let HookError::Unseen { library, call } = refused else {
        panic!("{refused}");
    };
    assert_eq!((library, call.as_str()), (unseen, "aio_write"));
}

//! Modules of the server that write files themselves: what they write is preserved, too, and one
//! that writes in a way that nobody can see is refused.
//!
//! The module is made here, by the C compiler that Rust links with.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_snapshot::hook::{self, HookError, HookStart};
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

/// By which call it writes.
const PWRITE: &str = "-DWRITE(file,page)=pwrite(file,page,sizeof(page),0)";
const AIO: &str = "-DWRITE(file,page)=aio_write(&(struct aiocb){.aio_fildes=file,.aio_buf=page})";

fn module(place: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, library) = (place.join("module.c"), place.join(format!("{name}.so")));
    std::fs::write(&source, MODULE).unwrap();
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
    preload_before(&mut source, &before_hook);
    for table in ["a", "b", "c"] {
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
    assert!(sums(&snapshot.directory) == before);
    assert!(hook::state(&snapshot.directory).unwrap().lost.is_none());
    watched.assert_named();
    let second = source.snapshot("two");
    let differing = sums(&second.directory)
        .iter()
        .zip(&before)
        .filter(|(a, b)| a != b)
        .count();
    assert!(differing >= 3, "the modules did write: {differing}");
}

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

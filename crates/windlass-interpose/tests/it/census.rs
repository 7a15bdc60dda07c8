//! The census: by which functions a server can change a file, and whether the hook replaces each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use windlass_testkit::installed::hooked_versions;

use crate::support::{Hooked, wait_until};

/// What can change files, and that the hook replaces if a server imports it.
const REPLACED: [&str; 27] = [
    "pwrite",
    "pwritev",
    "write",
    "writev",
    "open",
    "openat",
    "creat",
    "ftruncate",
    "truncate",
    "posix_fallocate",
    "fallocate",
    "copy_file_range",
    "unlink",
    "rename",
    "link",
    "symlink",
    "mkdir",
    "rmdir",
    "unlinkat",
    "renameat",
    "renameat2",
    "linkat",
    "symlinkat",
    "mkdirat",
    "pwritev2",
    "sendfile",
    "splice",
];
/// What could change files too. No server may import one that the hook does not know.
const UNKNOWN: [&str; 7] = [
    "tee",
    "vmsplice",
    "aio_write",
    "aio_write64",
    "lio_listio",
    "io_submit",
    "process_vm_writev",
];

/// What a tool of the linker says of a program.
fn told(tool: &str, options: &[&str], program: &Path) -> String {
    let output = Command::new(tool).args(options).arg(program).output();
    let output = output.unwrap_or_else(|error| panic!("run {tool}: {error}"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The name of a function without its version, and without the 64 of large files.
fn plain(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    name.trim_end_matches("64").to_owned()
}

/// The functions that a program imports.
fn imports(program: &Path) -> Vec<String> {
    let text = told("nm", &["-D", "--undefined-only"], program);
    let lines = text.lines();
    let names = lines.filter_map(|line| line.split_whitespace().last());
    names.map(plain).collect()
}

/// The functions that the hook replaces in a program, and where their addresses are, from the
/// beginning of the program on.
fn words(program: &Path) -> Vec<(String, u64)> {
    let text = told("readelf", &["-rW"], program);
    let word = |line: &str| {
        // The place, a number, the kind, another number, and the name: `pwrite@GLIBC_2.2.5 + 0`.
        let parts: Vec<_> = line.split_whitespace().collect();
        let [place, _, _, _, name, "+", "0"] = parts[..] else {
            return None;
        };
        let name = plain(name);
        let is_replaced = REPLACED.contains(&name.as_str());
        is_replaced.then(|| (name, u64::from_str_radix(place, 16).unwrap()))
    };
    text.lines().filter_map(word).collect()
}

/// The lines of a file that a process has mapped: from where, up to where.
fn mapped(process: u32, file: &str) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let lines = maps.lines().filter(|line| line.ends_with(file));
    let range = |line: &str| {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(from), number(to))
    };
    lines.map(range).collect()
}

/// The functions whose addresses in a process are not those of the hook.
fn left_alone(process: u32, program: &Path, words: &[(String, u64)]) -> Vec<String> {
    let program = program.canonicalize().unwrap();
    let base = mapped(process, program.to_str().unwrap())[0].0;
    let hook = mapped(process, "/windlass.so");
    assert!(!hook.is_empty());
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let is_hook = |word: u64| {
        let mut address = [0; 8];
        memory.read_exact_at(&mut address, base + word).unwrap();
        let address = u64::from_le_bytes(address);
        hook.iter()
            .any(|(from, to)| (*from..*to).contains(&address))
    };
    let left = words.iter().filter(|(_, word)| !is_hook(*word));
    left.map(|(name, _)| name.clone()).collect()
}

/// Starts the server as a child of this process, which may look into its memory only then.
fn start_as_child(hooked: &mut Hooked, program: &Path) -> std::process::Child {
    hooked.server.stop("fast");
    let mut server = Command::new(program);
    hooked.server.lead(&mut server);
    let sockets = format!(
        "unix_socket_directories={}",
        hooked.server.place().display()
    );
    server.arg("-D").arg(hooked.server.data());
    server.args(["-c", "listen_addresses=", "-c", &sockets, "-p", "5432"]);
    let server = server.stdout(Stdio::null()).stderr(Stdio::null());
    let server = server.spawn().unwrap();
    // It says so there. A session that asks might still be ending later.
    let state = hooked.server.data().join("postmaster.pid");
    let is_up = || std::fs::read_to_string(&state).is_ok_and(|text| text.contains("\nready"));
    wait_until("the server is ready", is_up);
    // The newest version says so before it has begun its last processes.
    wait_until("it has its processes", || hooked.processes().len() > 4);
    server
}

#[test]
fn no_server_imports_a_way_to_write_that_the_hook_does_not_replace() {
    for (major, bin) in hooked_versions() {
        let program = bin.join("postgres");
        let imports = imports(&program);
        let has = |name: &&&str| imports.iter().any(|import| import == **name);
        let unknown: Vec<_> = UNKNOWN.iter().filter(has).collect();
        assert!(unknown.is_empty(), "version {major}: {unknown:?}");
        let replaced: Vec<_> = REPLACED.iter().filter(has).collect();
        assert!(
            replaced.len() >= 10,
            "version {major} imports only {replaced:?} of them"
        );
        let words = words(&program);
        let mut without = replaced.iter();
        let without = without.find(|name| !words.iter().any(|(word, _)| word == **name));
        assert_eq!(without, None, "version {major}: {words:?}");
        let settings: &[&str] = match major {
            18 => &["io_method = sync", "io_method = worker"],
            _ => &["autovacuum = off"],
        };
        for setting in settings {
            let mut hooked = Hooked::start(&bin, &["autovacuum = off", setting]);
            let mut server = start_as_child(&mut hooked, &program);
            for process in hooked.processes() {
                let left = left_alone(process, &program, &words);
                assert!(left.is_empty(), "version {major}, {setting}: {left:?}");
            }
            hooked.server.stop("fast");
            assert!(server.wait().unwrap().success());
        }
    }
}

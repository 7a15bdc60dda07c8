//! The census: by which functions a server can change a file, and whether the hook replaces each.

use std::process::Command;

use windlass_testkit::installed::hooked_versions;

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

/// The functions that a program imports, without versions and without the 64 of large files.
fn imports(program: &std::path::Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--undefined-only"])
        .arg(program)
        .output();
    let output = output.expect("run nm");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let names = names.map(|name| name.split('@').next().unwrap_or(name));
    names
        .map(|name| name.trim_end_matches("64").to_owned())
        .collect()
}

#[test]
fn no_server_imports_a_way_to_write_that_the_hook_does_not_know() {
    for (major, bin) in hooked_versions() {
        let imports = imports(&bin.join("postgres"));
        let has = |name: &&&str| imports.iter().any(|import| import == **name);
        let unknown: Vec<_> = UNKNOWN.iter().filter(has).collect();
        assert!(unknown.is_empty(), "version {major}: {unknown:?}");
        let replaced = REPLACED.iter().filter(has).count();
        assert!(
            replaced >= 10,
            "version {major} imports only {replaced} of them"
        );
    }
}

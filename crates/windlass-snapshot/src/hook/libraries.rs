//! Whether a running server has a module that could change its files unseen by the hook.
//!
//!   mapped by a process --> defines Pg_magic_func? --> imports a call that nobody can follow?
//!
//! The hook replaces the calls that modules make, whenever they are loaded. What it cannot follow
//! is a write that the system makes later, for somebody who only asked for it.
//!
//! Never does: look into libraries that are no modules. Those of the system write no data files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef};

use super::error::HookError;

/// What every module of PostgreSQL defines.
const MODULE: &str = "Pg_magic_func";
/// The section with the names of all symbols.
const NAMES: &str = ".dynstr";

/// Calls that have files written later.
const UNSEEN: [&str; 8] = [
    "aio_write",
    "aio_write64",
    "lio_listio",
    "lio_listio64",
    "io_submit",
    "io_uring_enter",
    "io_uring_submit",
    "io_uring_submit_and_wait",
];

/// The libraries of a server. Each is looked into once.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    known: HashSet<PathBuf>,
}

impl Libraries {
    /// Looks at what a process has mapped, as /proc shows it. Fails if a module writes unseen.
    pub(crate) fn examine(&mut self, process: u32, maps: &str) -> Result<(), HookError> {
        for path in mapped(maps) {
            if !self.known.insert(path.to_owned()) {
                continue;
            }
            // The server may see another root directory.
            let within = format!("/proc/{process}/root{}", path.display());
            if let Some(call) = unseen(Path::new(&within)) {
                let library = path.to_owned();
                return Err(HookError::Unseen { library, call });
            }
        }
        Ok(())
    }
}

/// The libraries whose code is mapped.
fn mapped(maps: &str) -> impl Iterator<Item = &Path> {
    let code = maps.lines().filter(|line| line.contains(" r-xp "));
    let paths = code.filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.filter(|path| path.contains(".so")).map(Path::new)
}

/// By which call a module writes unseen. `None` also for a file that is gone, or no library.
fn unseen(path: &Path) -> Option<String> {
    let cache = ReadCache::new(std::fs::File::open(path).ok()?);
    let library = object::File::parse(&cache).ok()?;
    if !may_be_module(&library) {
        return None;
    }
    let mut call = None;
    let mut is_module = false;
    for symbol in library.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        is_module |= symbol.is_definition() && name == MODULE;
        if symbol.is_undefined() && UNSEEN.contains(&name) {
            call = Some(name.to_owned());
        }
    }
    call.filter(|_| is_module)
}

/// Whether the names of a library have that of every module. Most libraries have thousands of
/// symbols, and to look at each would take longer than all else that a snapshot needs.
fn may_be_module<'a>(library: &object::File<'a, impl ReadRef<'a>>) -> bool {
    let names = library.section_by_name(NAMES);
    let names = names.and_then(|names| names.data().ok());
    names.is_none_or(|names| {
        let mut names = names.split(|byte| *byte == 0);
        names.any(|name| name == MODULE.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_process_is_found_in_its_mappings() {
        let maps = "\
            55d0c0a00000-55d0c0b00000 r-xp 00000000 08:01 12   /usr/bin/server\n\
            7f0000004000-7f0000005000 r-xp 00000000 08:01 14   /usr/lib/a module.so\n\
            7f0000000000-7f0000001000 rw-p 00000000 08:01 13   /usr/lib/data.so\n\
            7f0000002000-7f0000003000 r-xp 00000000 00:00 0    [vdso]\n";
        assert_eq!(
            mapped(maps).collect::<Vec<_>>(),
            [Path::new("/usr/lib/a module.so")]
        );
        assert_eq!(unseen(Path::new("/usr/bin/env")), None);
    }
}

//! The program of a hook: where it is, or why it cannot be run.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Why a program cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramFault {
    /// No directory of `PATH` has it.
    NotInPath,
    /// No file has its path.
    Missing,
    /// It is a directory, or something else that is no file.
    NoFile,
    /// This user may not run the file.
    NotExecutable,
}

impl ProgramFault {
    /// What is wrong with a program that was not found.
    pub(crate) fn of(program: &str) -> Self {
        let path = Path::new(program);
        if !program.contains('/') {
            Self::NotInPath
        } else if path.is_file() {
            Self::NotExecutable
        } else if path.exists() {
            Self::NoFile
        } else {
            Self::Missing
        }
    }

    /// What is wrong with this program, as a sentence.
    pub fn text(self, program: &str) -> String {
        match self {
            Self::NotInPath | Self::Missing => format!("there is no program {program}"),
            Self::NoFile => format!("{program} is no program"),
            Self::NotExecutable => format!("{program} is not executable"),
        }
    }
}

/// The path of a program, found as the system would find it.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let can_run = |path: &PathBuf| {
        path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(can_run);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(can_run)
}

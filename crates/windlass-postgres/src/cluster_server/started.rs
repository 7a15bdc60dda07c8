//! The words that a server was started with, and whether they lead to a data directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a server was started.
#[derive(Clone, Debug)]
pub(super) struct Started {
    pub(super) program: PathBuf,
    /// All words but those of the directory.
    pub(super) arguments: Vec<String>,
    /// The directory that it was started with: the data directory, or that of its configuration.
    pub(super) directory: PathBuf,
}

impl Started {
    /// A program without any words.
    pub(super) fn new(program: PathBuf) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            directory: PathBuf::new(),
        }
    }

    /// What the server itself wrote down: `program "word" "word"`.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let found = Self::parse(text.trim_end())?;
        found.program.is_file().then_some(found)
    }

    fn parse(line: &str) -> Option<Self> {
        let Some((program, rest)) = line.split_once(" \"") else {
            return Some(Self::new(line.into()));
        };
        let mut started = Self::new(program.into());
        let mut all = rest.strip_suffix('"')?.split("\" \"");
        while let Some(word) = all.next() {
            match word.strip_prefix("-D") {
                Some("") => started.directory = all.next()?.into(),
                Some(directory) => started.directory = directory.into(),
                None => started.arguments.push(word.to_owned()),
            }
        }
        Some(started)
    }

    /// Decides which directory it is started with from now on. One that leads to another data
    /// directory, or to none, is not the right one.
    pub(super) fn find_directory(&mut self, data: &Path, process: Option<i32>) {
        let named = absolute(&self.directory, process).and_then(|it| it.canonicalize().ok());
        if let Some(named) = named.filter(|named| named != data) {
            self.directory = named;
            if self.leads_to(data) == Ok(true) {
                return;
            }
        }
        self.directory = data.into();
    }

    /// Whether a server with these words runs on this data directory. PostgreSQL reads its
    /// configuration for that, and starts nothing. An error is what it says.
    pub(super) fn leads_to(&self, data: &Path) -> Result<bool, String> {
        let mut command = Command::new(&self.program);
        command.args(["-C", "data_directory", "-D"]);
        command.arg(&self.directory).args(&self.arguments);
        command.current_dir("/").stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(said.trim().replace('\n', "; "));
        }
        let found = Path::new(OsStr::from_bytes(output.stdout.trim_ascii()));
        Ok(found.canonicalize().is_ok_and(|found| found == data))
    }
}

/// Where a directory is that a server was started with. Only the server's process knows where a
/// relative path began, and which directory it meant without one.
fn absolute(directory: &Path, process: Option<i32>) -> Option<PathBuf> {
    let environment = process.map(|process| std::fs::read(format!("/proc/{process}/environ")));
    let environment = environment.and_then(Result::ok).unwrap_or_default();
    let variable = |name: &str| {
        let mut all = environment.split(|byte| *byte == 0);
        let value = all.find_map(|it| it.strip_prefix(name.as_bytes()))?;
        Some(PathBuf::from(OsStr::from_bytes(value)))
    };
    let directory = match directory.as_os_str().is_empty() {
        true => variable("PGDATA=")?,
        false => directory.to_owned(),
    };
    match directory.is_absolute() {
        true => Some(directory),
        false => Some(variable("PWD=")?.join(directory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_server_are_read() {
        let words = ["-c", "config_file=/etc/a b.conf", "-p", "5433"];
        for (directory, read) in [
            (r#""-D" "data""#, "data"),
            (r#""-D/data""#, "/data"),
            ("", ""),
        ] {
            let line = format!(
                r#"/usr/bin/postgres {directory} "-c" "config_file=/etc/a b.conf" "-p" "5433""#
            );
            let started = Started::parse(&line.replace("  ", " ")).unwrap();
            assert_eq!(started.program, Path::new("/usr/bin/postgres"));
            assert_eq!(started.arguments, words);
            assert_eq!(started.directory, Path::new(read));
        }
        let started = Started::parse("/usr/bin/postgres").unwrap();
        assert_eq!(started.program, Path::new("/usr/bin/postgres"));
        assert!(started.arguments.is_empty());
    }

    #[test]
    fn a_relative_directory_without_a_process_is_not_known() {
        assert_eq!(absolute(Path::new("data"), None), None);
        assert_eq!(absolute(Path::new(""), None), None);
        assert_eq!(absolute(Path::new("/a"), None), Some("/a".into()));
    }
}

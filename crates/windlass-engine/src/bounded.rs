//! Reads a file that somebody named: it may be large by mistake, a device may never end, and a
//! pipe may wait for a writer for ever.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Opens a file without waiting. Only a regular file is opened: somebody may name a pipe or a
/// terminal by mistake.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let what = "not a regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Opens a file that an earlier run made, as `options` say, to write to it. Somebody may have put
/// something else in its place: a link to another file, or another name of one, is refused. So no
/// other file is written to. `options` must not cut the file off.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let file = match options.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refused("it is a symbolic link");
        }
        // A pipe without a reader, or a socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            return refused("it is not a regular file");
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    match (found.is_file(), found.nlink()) {
        (false, _) => refused("it is not a regular file"),
        (true, 0 | 1) => Ok(file),
        (true, _) => refused("it has another name, too (a hard link)"),
    }
}

/// Reads a file that has at most `bytes_max` bytes. For a longer file, the error states the limit.
/// A pipe is an error; a device such as `/dev/null` is not.
pub fn read_at_most(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_at_once(path.as_ref())?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, not a file"));
    }
    read_all(file, bytes_max)
}

/// Reads a file of Windlass's own. Somebody may have put something else in its place, so anything
/// but a regular file is an error.
pub fn read_regular_at_most(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path.as_ref())?, bytes_max)
}

/// Reads the same as [`read_at_most`] from a pipe, too: a shell gives one for `<(command)`. It is
/// an error if nobody writes to the pipe for a while, because no signal would end that wait
/// everywhere.
pub fn read_stream_at_most(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_at_once(path.as_ref())?;
    match file.metadata()?.file_type().is_fifo() {
        true => read_all(
            Pipe {
                file,
                wait: PIPE_WAIT,
            },
            bytes_max,
        ),
        false => read_all(file, bytes_max),
    }
}

fn read_all(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it is larger than {} KiB", bytes_max >> 10);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

/// How long a pipe may be silent.
const PIPE_WAIT: Duration = Duration::from_secs(10);

/// A pipe that was opened without waiting.
struct Pipe {
    file: File,
    wait: Duration,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Without a writer a read returns 0 bytes, which would look like the end of the content.
        let mut asked = [PollFd::new(&self.file, PollFlags::IN)];
        let wait = Timespec::try_from(self.wait).map_err(io::Error::other)?;
        match poll(&mut asked, Some(&wait))? {
            0 => {
                let seconds = self.wait.as_secs();
                let what = format!("it is a pipe to which nobody wrote for {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, what))
            }
            _ => self.file.read(into),
        }
    }
}

/// For a pipe without a writer, a plain open is a wait that no signal ends.
fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_where_the_caller_allows_it_and_a_silent_one_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        assert!(read_at_most(&path, 4096).is_err());
        let writer = {
            let path = path.clone();
            let write = move || {
                let mut pipe = File::options().write(true).open(path).unwrap();
                io::Write::write_all(&mut pipe, &[7; 100_000]).unwrap();
            };
            std::thread::spawn(write)
        };
        assert_eq!(read_stream_at_most(&path, 100_000).unwrap(), [7; 100_000]);
        writer.join().unwrap();
        let silent = Pipe {
            file: open_at_once(&path).unwrap(),
            wait: Duration::from_millis(10),
        };
        let error = read_all(silent, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let endless = read_stream_at_most("/dev/zero", 4096).unwrap_err();
        assert_eq!(endless.to_string(), "it is larger than 4 KiB");
    }

    #[test]
    fn a_file_that_never_ends_is_an_error_and_one_that_fits_is_whole() {
        let error = read_at_most("/dev/zero", 4096).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 4 KiB");
        assert_eq!(read_at_most("/dev/null", 0).unwrap(), b"");
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        crate::durable::write(&path, b"four", 0o600).unwrap();
        assert_eq!(read_at_most(&path, 4).unwrap(), b"four");
        assert!(read_at_most(&path, 3).is_err());
    }
}

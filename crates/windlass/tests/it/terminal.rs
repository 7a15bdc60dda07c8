//! Runs the command on a terminal of any width, and returns what reached the terminal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fd::AsFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A terminal that no person watches.
pub struct Terminal {
    screen: File,
    /// The path of the end that programs open.
    path: PathBuf,
}

impl Terminal {
    pub fn new(columns: u16) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let path = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
        let terminal = Self {
            screen: File::from(screen),
            path: path.into(),
        };
        terminal.resize(columns);
        terminal
    }

    pub fn resize(&self, columns: u16) {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(self.screen.as_fd(), size).unwrap();
    }

    /// Runs a command on the terminal until it succeeds. Returns everything that reached the
    /// terminal. `look` gets what has come so far, each time that more comes.
    pub fn run(&self, mut command: Command, mut look: impl FnMut(&str)) -> String {
        let mut options = OpenOptions::new();
        let end = options.read(true).write(true).open(&self.path).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(end.try_clone().unwrap())
            .stderr(end);
        let mut child = command.spawn().unwrap();
        // This closes the command's copies of the other end.
        drop(command);
        let (mut came, mut part) = (Vec::new(), [0; 4096]);
        // When nobody holds the other end, reading fails.
        while let Ok(count) = (&self.screen).read(&mut part) {
            came.extend_from_slice(&part[..count]);
            look(&String::from_utf8_lossy(&came));
        }
        let came = String::from_utf8(came).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{came}");
        came
    }
}

/// The rows that were written. A new row begins where the cursor goes back to the left. Codes that
/// move the cursor or colour text are left out.
pub fn rows(came: &str) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut letters = came.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' | '\n' => rows.push(String::new()),
            '\u{1b}' => {
                assert_eq!(letters.next(), Some('['), "{came:?}");
                letters.find(char::is_ascii_alphabetic);
            }
            letter => rows.last_mut().unwrap().push(letter),
        }
    }
    rows.retain(|row| !row.is_empty());
    rows
}

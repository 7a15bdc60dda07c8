//! A cluster of the laboratory's own: made in a directory of its own, run, and removed again.
//!
//!   directory --initdb--> data/ --pg_ctl--> server, reachable only through its socket
//!       ^                                              |
//!       +---- the guard stops it and removes all ------+   when this process ends, however it ends
//!
//! Experiments change, stop and revert it. So it is never the cluster of a user.
//!
//! Invariants
//! - The server listens on no network, archives nothing, and is in no directory but its own.
//! - Nothing of it outlives this process: the guard holds a pipe of this process, and does its work
//!   when the pipe ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use postgres::{Client, NoTls};

use crate::error::{IoContext, PostgresError, SqlContext};
use crate::open::{Programs, end_with_this_thread, ending, reasons};

const PORT: u16 = 5432;
const USER: &str = "postgres";
/// Paths outside of the directory that go with the cluster, one in each line.
const LEFTOVERS: &str = "leftovers";
const LOG: &str = "server.log";
/// Waits for the end of the pipe; then stops the server and removes everything.
const GUARD: &str = "cat >/dev/null; \
     \"$1/pg_ctl\" -D \"$2/data\" -m immediate -s stop >/dev/null 2>&1; \
     if [ -f \"$2/leftovers\" ]; then \
       while read -r path; do rm -f -- \"$path\"; done <\"$2/leftovers\"; fi; \
     rm -rf -- \"$2\"";

/// A cluster to make.
#[derive(Clone, Debug)]
pub struct OwnClusterRequest {
    /// An empty directory of the user who runs the server. It goes with the cluster.
    pub directory: PathBuf,
    /// The programs.
    pub programs: Programs,
    /// User and group to run as, if this process runs as root.
    pub run_as: Option<(u32, u32)>,
    /// Whether its pages have checksums.
    pub checksums: bool,
    /// Settings. If a name appears twice, the last one wins.
    pub settings: Vec<(String, String)>,
}

/// A running cluster; stopped and removed when dropped.
#[derive(Debug)]
pub struct OwnCluster {
    request: OwnClusterRequest,
    guard: Child,
}

/// A session with it.
pub struct OwnSession(Client);

impl OwnCluster {
    /// Makes a cluster and starts its server.
    pub fn start(request: OwnClusterRequest) -> Result<Self, PostgresError> {
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh"]);
        guard
            .arg(request.programs.directory())
            .arg(&request.directory);
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C is meant for this process, whose end the guard waits for.
        guard.process_group(0).current_dir("/");
        become_of(&mut guard, request.run_as);
        let guard = guard
            .spawn()
            .doing("start a guard for", &request.directory)?;
        let cluster = Self { request, guard };
        cluster.init()?;
        cluster.configure()?;
        cluster.start_server()?;
        Ok(cluster)
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.request.directory.join("data")
    }

    /// How to reach it.
    pub fn conninfo(&self) -> String {
        let directory = self.request.directory.display();
        format!("host='{directory}' port={PORT} user={USER} dbname=postgres")
    }

    /// A file outside of the directory that goes with the cluster.
    pub fn goes_with_it(&self, path: &Path) -> Result<(), PostgresError> {
        let list = self.request.directory.join(LEFTOVERS);
        let file = OpenOptions::new().create(true).append(true).open(&list);
        let written = file.and_then(|mut file| writeln!(file, "{}", path.display()));
        written.doing("write", &list)
    }

    /// Opens a session.
    pub fn session(&self) -> Result<OwnSession, PostgresError> {
        OwnSession::at(&self.request.directory)
    }

    /// The directory of its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.request.directory
    }

    /// Starts the server. One that runs is left as it is.
    pub fn start_server(&self) -> Result<(), PostgresError> {
        if self.data().join("postmaster.pid").exists() {
            return Ok(());
        }
        let log = self.request.directory.join(LOG);
        let mut start = self.program("pg_ctl");
        start
            .args(["start", "-w", "-s", "-t", "120", "-l"])
            .arg(&log);
        start.arg("-D").arg(self.data());
        // The server would keep a pipe of ours open.
        start
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = start.status().doing("start", start.get_program())?;
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read(&log).doing("read", &log)?;
        Err(PostgresError::ServerEnded {
            status: ending(status),
            log: reasons(&String::from_utf8_lossy(&said)),
        })
    }

    fn init(&self) -> Result<(), PostgresError> {
        let mut initdb = self.program("initdb");
        initdb.args(["-A", "trust", "-U", USER, "-E", "UTF8", "-N"]);
        if self.request.checksums {
            initdb.arg("-k");
        }
        initdb.arg("-D").arg(self.data()).stdin(Stdio::null());
        end_with_this_thread(&mut initdb);
        let Output { status, stderr, .. } = initdb.output().doing("run", initdb.get_program())?;
        match status.success() {
            true => Ok(()),
            false => Err(PostgresError::ServerEnded {
                status: ending(status),
                log: String::from_utf8_lossy(&stderr).trim().to_owned(),
            }),
        }
    }

    fn configure(&self) -> Result<(), PostgresError> {
        let path = self.data().join("postgresql.conf");
        let directory = self.request.directory.display().to_string();
        let always = [
            ("listen_addresses", ""),
            ("unix_socket_directories", directory.as_str()),
            ("archive_mode", "off"),
            ("logging_collector", "off"),
        ];
        let mut text = String::new();
        let asked = self.request.settings.iter();
        let asked = asked.map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in asked.chain(always).chain([("port", "5432")]) {
            let value = value.replace('\\', r"\\").replace('\'', "''");
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        let file = OpenOptions::new().append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.doing("write", &path)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.request.programs.directory().join(name));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .env("LC_ALL", "C")
            .current_dir(&self.request.directory);
        command.process_group(0);
        become_of(&mut command, self.request.run_as);
        command
    }
}

fn become_of(command: &mut Command, run_as: Option<(u32, u32)>) {
    if let Some((uid, gid)) = run_as {
        command.uid(uid).gid(gid);
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Nobody is left to tell about a guard that was killed.
        self.guard.wait().map(drop).unwrap_or_default();
    }
}

impl OwnSession {
    /// Opens a session with the server whose socket is in this directory.
    pub(crate) fn at(directory: &Path) -> Result<Self, PostgresError> {
        let mut config = postgres::Config::new();
        config
            .host_path(directory)
            .port(PORT)
            .user(USER)
            .dbname(USER);
        config.application_name("windlass laboratory");
        let client = config
            .connect(NoTls)
            .doing("connect to the laboratory's server")?;
        Ok(Self(client))
    }

    /// Opens a session with any server; this is how an opened snapshot is asked.
    pub fn with(conninfo: &str) -> Result<Self, PostgresError> {
        let client = Client::connect(conninfo, NoTls).doing("connect to the opened snapshot")?;
        Ok(Self(client))
    }

    /// Runs statements.
    pub fn run(&mut self, sql: &str) -> Result<(), PostgresError> {
        self.try_run(sql).doing("run the load of an experiment")
    }

    pub(crate) fn try_run(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.0.batch_execute(sql)
    }

    /// The first column of the first row, which is a number that fits into 64 bits.
    pub fn number(&mut self, sql: &str) -> Result<i64, PostgresError> {
        let row = self.0.query_one(sql, &[]);
        row.and_then(|row| row.try_get(0))
            .doing("ask for a number of an experiment")
    }
}

//! Private PostgreSQL clusters: each is as initdb makes it, only a unix socket reaches them, and
//! they disappear at the end.
//!
//! PostgreSQL refuses to run as root, and Windlass runs as the owner of the data directory. So a
//! test process that root started becomes the user `postgres` for good, before it creates the first
//! file. If a test needs root itself, it stays root ([`stay_root`]) and only its servers run as
//! that user. The test names the directory of the server programs, which may have any version.
//! Client programs that this directory lacks come from [`DEFAULT_BIN`].

use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use tempfile::TempDir;

use crate::{fresh, session};

/// Debian 12's PostgreSQL.
pub const DEFAULT_BIN: &str = "/usr/lib/postgresql/15/bin";
const SERVER_USER: &str = "postgres";
/// The sockets are in directories of their own, so every server can have the same port.
const PORT: u16 = 5432;

const POLL_PAUSE: Duration = Duration::from_millis(20);
/// What is waited for for this long does not come.
const HANG_MAX: Duration = Duration::from_secs(600);
/// How long pg_ctl waits for a server, in seconds: it only ends a hang.
const PG_CTL_SECONDS: &str = "600";
/// The first number for addresses in the loopback network 127.0.0.0/8. Each server that listens has
/// its own number there, and so its own port 5432.
const LOOPBACK_FIRST: u8 = 64;

static LISTENERS: AtomicU8 = AtomicU8::new(LOOPBACK_FIRST);

static BECOME: Once = Once::new();
static STAY_ROOT: AtomicBool = AtomicBool::new(false);

/// Makes servers run as the user `postgres` from now on. This process stays root if it is root.
pub fn stay_root() {
    STAY_ROOT.store(true, Ordering::Relaxed);
}

/// The user that servers run as, if it is not the user of this process.
pub fn server_ids() -> Option<(u32, u32)> {
    let stay = STAY_ROOT.load(Ordering::Relaxed) && geteuid().is_root();
    let ids = |user: User| (user.uid.as_raw(), user.gid.as_raw());
    stay.then(|| ids(server_user()))
}

fn server_user() -> User {
    let user = User::from_name(SERVER_USER).expect("look up user postgres");
    user.expect("there is no user postgres: install PostgreSQL")
}

/// Creates a directory that belongs to the servers' user.
fn make_place() -> TempDir {
    let place = tempfile::tempdir().expect("make a directory");
    give_to_servers(place.path());
    place
}

/// Gives a file or directory to the servers' user, if that is another user than this process's.
pub fn give_to_servers(path: &Path) {
    if let Some((uid, gid)) = server_ids() {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("give it away");
    }
}

/// Becomes the user `postgres` if it runs as root. Every test calls this first.
pub fn become_server_user() {
    BECOME.call_once(|| {
        if !geteuid().is_root() || STAY_ROOT.load(Ordering::Relaxed) {
            return;
        }
        let user = server_user();
        let name = CString::new(user.name.clone()).expect("a user name has no NUL");
        initgroups(&name, user.gid).expect("take the groups of postgres");
        setgid(user.gid).expect("take the group of postgres");
        // This is the C library's call, because it changes every thread of the process.
        setuid(user.uid).expect("become postgres");
    });
}

/// How to create a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The directory of initdb, pg_ctl and postgres.
    pub bin: PathBuf,
    /// Further arguments of initdb.
    pub initdb: Vec<String>,
    /// Lines of postgresql.conf.
    pub settings: Vec<String>,
    /// Whether it also listens on the loopback network, for clients that pg_hba.conf names.
    pub listens: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            bin: DEFAULT_BIN.into(),
            initdb: Vec::new(),
            settings: Vec::new(),
            listens: false,
        }
    }
}

impl ClusterOptions {
    /// With one more argument of initdb.
    #[must_use]
    pub fn initdb(mut self, argument: impl Into<String>) -> Self {
        self.initdb.push(argument.into());
        self
    }

    /// With one more setting, as in postgresql.conf.
    #[must_use]
    pub fn setting(mut self, line: impl Into<String>) -> Self {
        self.settings.push(line.into());
        self
    }
}

/// A private cluster; stopped when dropped.
#[derive(Debug)]
pub struct PrivateCluster {
    bin: PathBuf,
    data: PathBuf,
    /// The socket directory, the log, and the data directory if the cluster was created here.
    place: TempDir,
    address: Option<Ipv4Addr>,
    running: bool,
    /// Further words for the server's command line.
    options: String,
    /// The directory that the server is started with, if it is not the data directory.
    configuration: Option<PathBuf>,
}

impl PrivateCluster {
    /// Creates and starts a cluster.
    pub fn start(options: &ClusterOptions) -> Self {
        become_server_user();
        let place = make_place();
        let data = place.path().join("data");
        let mut cluster = Self {
            bin: options.bin.clone(),
            data,
            place,
            address: options.listens.then(own_loopback_address),
            running: false,
            options: String::new(),
            configuration: None,
        };
        let kind = (options.bin.clone(), options.initdb.clone());
        fresh::make(kind, &cluster.data, || cluster.initdb(&options.initdb));
        cluster.configure(&[
            "fsync = off",
            "shared_buffers = 16MB",
            "max_connections = 30",
        ]);
        cluster.configure(&options.settings);
        cluster.run();
        cluster
    }

    fn initdb(&self, arguments: &[String]) {
        let mut initdb = self.tool("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--no-sync"]);
        initdb.args(["--encoding=UTF8", "--no-locale"]);
        succeed(initdb.args(arguments).arg("-D").arg(&self.data));
    }

    /// Starts a server on an existing data directory (a restored one).
    pub fn adopt(data: &Path, bin: &Path) -> Self {
        let mut cluster = Self::adopt_stopped(data, bin);
        cluster.run();
        cluster
    }

    /// As [`PrivateCluster::adopt`], but without starting the server.
    pub fn adopt_stopped(data: &Path, bin: &Path) -> Self {
        become_server_user();
        let place = make_place();
        Self {
            bin: bin.into(),
            data: data.into(),
            place,
            address: None,
            running: false,
            options: String::new(),
            configuration: None,
        }
    }

    /// Appends lines to postgresql.conf.
    pub fn configure(&self, lines: &[impl AsRef<str>]) {
        use std::io::Write;
        let path = self.start_directory().join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .expect("open settings");
        lines
            .iter()
            .for_each(|line| writeln!(file, "{}", line.as_ref()).expect("write settings"));
    }

    /// Moves the configuration to another directory, which the server is started with from now on.
    /// It must not run.
    pub fn move_configuration(&mut self, to: &Path) {
        for name in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            let (from, to) = (self.data.join(name), to.join(name));
            std::fs::copy(&from, &to).expect("copy settings");
            std::fs::remove_file(&from).expect("remove settings");
            give_to_servers(&to);
        }
        self.configuration = Some(to.into());
        let places = [
            ("data_directory", self.data.clone()),
            ("hba_file", to.join("pg_hba.conf")),
            ("ident_file", to.join("pg_ident.conf")),
        ];
        self.configure(&places.map(|(name, at)| format!("{name} = '{}'", at.display())));
    }

    /// Starts the server with its data directory again, although its configuration is elsewhere.
    pub fn start_in_data_directory(&mut self) {
        self.configuration = None;
    }

    /// The directory that the server is started with.
    fn start_directory(&self) -> &Path {
        self.configuration.as_deref().unwrap_or(&self.data)
    }

    /// Adds an option to the server's command line, from the next start on.
    pub fn option(&mut self, option: &str) {
        self.options = format!("{} {option}", self.options);
    }

    /// Starts the server and waits until it takes connections.
    pub fn run(&mut self) {
        let started = self.try_run();
        assert!(started.status.success(), "start the server: {}", self.log());
    }

    /// As [`PrivateCluster::run`], for servers that may refuse to start.
    pub fn try_run(&mut self) -> Output {
        let sockets = self.place.path().display();
        let address = self.address.map(|address| address.to_string());
        let address = address.unwrap_or_default();
        let options =
            format!("-c listen_addresses={address} -c unix_socket_directories={sockets} -p {PORT}");
        let options = format!("{options} {}", self.options);
        let mut start = self.tool("pg_ctl");
        start
            .args(["-w", "-t", PG_CTL_SECONDS, "-s", "-o", &options, "-l"])
            .arg(self.log_path());
        start.arg("-D").arg(self.start_directory()).arg("start");
        // The server inherits pg_ctl's descriptors. If it kept a pipe open, the pipe would never
        // end.
        start
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = start.status().expect("run pg_ctl");
        self.running = status.success();
        Output {
            status,
            stdout: Vec::new(),
            stderr: self.log().into_bytes(),
        }
    }

    /// Stops the server in `mode`: `fast` leaves a clean data directory, `immediate` a crashed one.
    pub fn stop(&mut self, mode: &str) {
        let mut stop = self.tool("pg_ctl");
        succeed(
            stop.args(["-w", "-t", PG_CTL_SECONDS, "-s", "-m", mode, "-D"])
                .arg(&self.data)
                .arg("stop"),
        );
        self.running = false;
    }

    /// Kills every process of the server, also if its disk is gone, and waits for their ends. They
    /// are found by their directory, because a process that was just begun has no other mark.
    pub fn kill(&mut self) {
        loop {
            let own = processes_in(&self.data);
            if own.is_empty() {
                break;
            }
            let mut kill = Command::new("kill");
            // One of them may have ended by itself.
            kill.arg("-KILL").args(own).output().expect("run kill");
            std::thread::sleep(POLL_PAUSE);
        }
        self.running = false;
    }

    /// Makes every process of the server stand still, until it is killed.
    pub fn hold(&self) {
        loop {
            // One that was begun while the others were told to stop is seen in the next round.
            let mut own = processes_in(&self.data);
            own.retain(|process| is_moving(process));
            if own.is_empty() {
                break;
            }
            let mut kill = Command::new("kill");
            // One of them may have ended by itself.
            kill.arg("-STOP").args(own).output().expect("run kill");
            std::thread::sleep(POLL_PAUSE);
        }
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The directory of the programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The directory of the socket and of everything else of this cluster.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// The address of a cluster that listens; the port is the usual one.
    pub fn address(&self) -> Ipv4Addr {
        self.address
            .expect("the cluster was made without `listens`")
    }

    /// A connection string for the database `postgres`.
    pub fn conninfo(&self) -> String {
        format!(
            "host={} port={PORT} user=postgres",
            self.place.path().display()
        )
    }

    /// The server log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.place.path().join("server.log")
    }

    /// One of PostgreSQL's programs, with an environment that connects it to this server.
    pub fn tool(&self, name: &str) -> Command {
        let own = self.bin.join(name);
        let path = if own.exists() {
            own
        } else {
            Path::new(DEFAULT_BIN).join(name)
        };
        assert!(
            path.exists(),
            "{} is missing: install PostgreSQL",
            path.display()
        );
        let mut command = Command::new(path);
        self.lead(&mut command);
        command
    }

    /// Connects a program to this server, and runs it as the servers' user.
    pub fn lead(&self, command: &mut Command) {
        command
            .env("PGHOST", self.place.path())
            .env("PGPORT", PORT.to_string());
        command
            .env("PGUSER", SERVER_USER)
            .env("PGDATABASE", "postgres")
            .env("LC_ALL", "C");
        command.current_dir(self.place.path());
        if let Some((uid, gid)) = server_ids() {
            command.uid(uid).gid(gid);
        }
    }

    /// Runs SQL in a database. Returns what `psql -At` would print, without the last line break.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let asked = session::ask(self.place.path(), PORT, database, sql);
        asked.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Repeats a question until the answer is `answer`.
    pub fn wait_until(&self, question: &str, answer: &str) {
        let until = Instant::now() + HANG_MAX;
        loop {
            let found = self.sql("postgres", question);
            if found == answer {
                return;
            }
            assert!(Instant::now() < until, "{question}: {found}");
            std::thread::sleep(POLL_PAUSE);
        }
    }

    /// Runs SQL that may fail, with psql.
    pub fn try_sql(&self, database: &str, sql: &str) -> Output {
        let mut psql = self.tool("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
            "-c",
            sql,
        ]);
        psql.output().expect("run psql")
    }
}

impl Drop for PrivateCluster {
    fn drop(&mut self) {
        if self.running {
            let mut stop = self.tool("pg_ctl");
            stop.args(["-w", "-s", "-m", "immediate", "-D"])
                .arg(&self.data)
                .arg("stop");
            // If a test removed the data directory, there is no server to stop.
            stop.output().map(drop).unwrap_or_default();
        }
    }
}

/// The processes that work in this directory. One that has ended does not, even if nobody has
/// waited for it yet.
fn processes_in(directory: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("list the processes");
    let own = all.flatten().filter(|entry| {
        let place = std::fs::read_link(entry.path().join("cwd"));
        place.is_ok_and(|place| place == directory)
    });
    own.filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Whether a process is neither stopped nor at its end.
fn is_moving(process: &str) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    // The state is behind the name, which may have spaces.
    let state = status.rsplit(") ").next().and_then(|it| it.chars().next());
    !matches!(state, Some('T' | 't' | 'Z' | 'X') | None)
}

fn own_loopback_address() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, LISTENERS.fetch_add(1, Ordering::Relaxed), high, low)
}

/// Runs a program that must succeed. Returns its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("run {command:?}: {error}"));
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (show(&output.stdout), show(&output.stderr));
    assert!(output.status.success(), "{command:?} failed:\n{out}{err}");
    out
}

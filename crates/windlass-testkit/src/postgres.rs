//! Private PostgreSQL clusters: made by initdb, reached by a unix socket only, gone at the end.
//!
//! PostgreSQL refuses to run as root and Windlass runs as the data directory's owner, so a test
//! process that root started becomes the user `postgres`, once and for good, before it makes
//! the first file; or, where a test needs root itself, stays root ([`stay_root`]) and only has
//! its servers run as that user. Server programs of any version are used, from the directory
//! the test names; client programs that a version's directory lacks come from [`DEFAULT_BIN`].

use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use tempfile::TempDir;

/// Debian 12's PostgreSQL.
pub const DEFAULT_BIN: &str = "/usr/lib/postgresql/15/bin";
const SERVER_USER: &str = "postgres";
/// Sockets lie in directories of their own, so every server can have the same port.
const PORT: u16 = 5432;

const POLL_PAUSE: Duration = Duration::from_millis(20);
/// Of the loopback network, which is 127.0.0.0/8: each server that listens has its own number in
/// it, and so its own port 5432.
const LOOPBACK_FIRST: u8 = 64;

static LISTENERS: AtomicU8 = AtomicU8::new(LOOPBACK_FIRST);

static BECOME: Once = Once::new();
static STAY_ROOT: AtomicBool = AtomicBool::new(false);

/// From now on servers run as the user `postgres`, and this process goes on as root if it is.
pub fn stay_root() {
    STAY_ROOT.store(true, Ordering::Relaxed);
}

/// The user that servers run as, when that is not this process's own.
pub fn server_ids() -> Option<(u32, u32)> {
    let stay = STAY_ROOT.load(Ordering::Relaxed) && geteuid().is_root();
    let ids = |user: User| (user.uid.as_raw(), user.gid.as_raw());
    stay.then(|| ids(server_user()))
}

fn server_user() -> User {
    let user = User::from_name(SERVER_USER).expect("look up user postgres");
    user.expect("there is no user postgres: install PostgreSQL")
}

/// A directory of the servers' user.
fn make_place() -> TempDir {
    let place = tempfile::tempdir().expect("make a directory");
    give_to_servers(place.path());
    place
}

/// Gives a file or directory to the servers' user, when that is another.
pub fn give_to_servers(path: &Path) {
    if let Some((uid, gid)) = server_ids() {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("give it away");
    }
}

/// Becomes the user `postgres` when running as root; every test calls it first.
pub fn become_server_user() {
    BECOME.call_once(|| {
        if !geteuid().is_root() || STAY_ROOT.load(Ordering::Relaxed) {
            return;
        }
        let user = server_user();
        let name = CString::new(user.name.clone()).expect("a user name has no NUL");
        initgroups(&name, user.gid).expect("take the groups of postgres");
        setgid(user.gid).expect("take the group of postgres");
        // The C library's call, which changes every thread of the process.
        setuid(user.uid).expect("become postgres");
    });
}

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Where initdb, pg_ctl and postgres are.
    pub bin: PathBuf,
    /// More arguments of initdb.
    pub initdb: Vec<String>,
    /// Lines of postgresql.conf.
    pub settings: Vec<String>,
    /// Whether it listens on the loopback network too, for those that pg_hba.conf names.
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
    /// Socket directory, log, and the data directory of a cluster made here.
    place: TempDir,
    address: Option<Ipv4Addr>,
    running: bool,
    /// More words for the server's command line.
    options: String,
}

impl PrivateCluster {
    /// Makes and starts a cluster.
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
        };
        let mut initdb = cluster.tool("initdb");
        initdb.args([
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
            "--encoding=UTF8",
        ]);
        initdb
            .arg("--no-locale")
            .args(&options.initdb)
            .arg("-D")
            .arg(&cluster.data);
        succeed(&mut initdb);
        cluster.configure(&[
            "fsync = off",
            "shared_buffers = 16MB",
            "max_connections = 30",
        ]);
        cluster.configure(&options.settings);
        cluster.run();
        cluster
    }

    /// Starts a server on a data directory that is there already (a restored one).
    pub fn adopt(data: &Path, bin: &Path) -> Self {
        let mut cluster = Self::adopt_stopped(data, bin);
        cluster.run();
        cluster
    }

    /// As [`PrivateCluster::adopt`], not started yet.
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
        }
    }

    /// Appends lines to postgresql.conf.
    pub fn configure(&self, lines: &[impl AsRef<str>]) {
        use std::io::Write;
        let path = self.data.join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .expect("open settings");
        lines
            .iter()
            .for_each(|line| writeln!(file, "{}", line.as_ref()).expect("write settings"));
    }

    /// Puts an option on the server's command line from the next start on.
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
            .args(["-w", "-t", "120", "-s", "-o", &options, "-l"])
            .arg(self.log_path());
        start.arg("-D").arg(&self.data).arg("start");
        // The server inherits what pg_ctl has; a pipe that it kept open would never end.
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
            stop.args(["-w", "-s", "-m", mode, "-D"])
                .arg(&self.data)
                .arg("stop"),
        );
        self.running = false;
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

    /// Where a cluster that listens does so, at the usual port.
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

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.place.path().join("server.log")
    }

    /// One of PostgreSQL's programs, with the environment that leads it to this server.
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

    /// Leads a program to this server, as the user that servers run as.
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

    /// Runs SQL in a database; what it printed, unaligned, without the last line break.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.try_sql(database, sql);
        assert!(
            output.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Asks again and again until the answer is `answer`.
    pub fn wait_until(&self, question: &str, answer: &str) {
        while self.sql("postgres", question) != answer {
            std::thread::sleep(POLL_PAUSE);
        }
    }

    /// As [`PrivateCluster::sql`], for statements that may fail.
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
            // A test that removed the data directory has no server left to stop.
            stop.output().map(drop).unwrap_or_default();
        }
    }
}

fn own_loopback_address() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, LISTENERS.fetch_add(1, Ordering::Relaxed), high, low)
}

/// Runs a program that must succeed; its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("run {command:?}: {error}"));
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (show(&output.stdout), show(&output.stderr));
    assert!(output.status.success(), "{command:?} failed:\n{out}{err}");
    out
}

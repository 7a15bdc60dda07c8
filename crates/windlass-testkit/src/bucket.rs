//! A real S3 server (versitygw) with a bucket, on this machine and for one test.

#![allow(
    clippy::unwrap_used,
    reason = "a server that does not start ends the test"
)]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Names the program of the server; without it the one in PATH is taken.
const PROGRAM: &str = "WINDLASS_TEST_VERSITYGW";
/// Long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kernel hands out ports from 32768 on to whoever asks for any. None of these is handed out so
/// while its server has not begun to listen, or is stopped.
const PORT_FIRST: u16 = 16_384;
const PORTS: u32 = 16_000;

/// How many ports this process has tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// A port that nobody else in this process gets, and nobody listens on. Other processes of tests
/// begin elsewhere.
fn own_port() -> u16 {
    loop {
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(61).wrapping_add(number) % PORTS;
        let port = PORT_FIRST + u16::try_from(number).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The name of the bucket.
pub const BUCKET: &str = "shop";
/// A bucket and a domain that are an address of this machine together: a server that finds the name
/// of the bucket in that of the host needs no server of names.
pub const HOST_BUCKET: &str = "127";
/// The domain of that bucket.
pub const HOST_DOMAIN: &str = "0.0.1";
/// The key that may do everything.
pub const ACCESS_KEY: &str = "windlass-test";
/// Its secret. Tests look for it where it must not be.
pub const SECRET_KEY: &str = "windlass-test-secret-1f0c9a2e";

/// A running server.
pub struct S3Server {
    process: Option<Child>,
    /// Its port on 127.0.0.1.
    pub port: u16,
    directory: TempDir,
    /// The files with its certificate and with the key of that, if its connections are encrypted.
    certificate: Option<[String; 2]>,
    bucket: &'static str,
}

impl S3Server {
    /// Starts a server with one empty bucket.
    pub fn start() -> Self {
        Self::with(None, BUCKET)
    }

    /// Starts a server with the bucket [`HOST_BUCKET`], whose name is part of that of the host:
    /// requests to this machine's address are about it, and paths are keys.
    pub fn start_of_hosts() -> Self {
        Self::with(None, HOST_BUCKET)
    }

    /// The same, with encrypted connections.
    pub fn start_encrypted(certificate: [String; 2]) -> Self {
        Self::with(Some(certificate), BUCKET)
    }

    fn with(certificate: Option<[String; 2]>, bucket: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("data").join(bucket)).unwrap();
        let mut server = Self {
            process: None,
            port: 0,
            directory,
            certificate,
            bucket,
        };
        server.go_on();
        server
    }

    /// Starts the server again, on its old port if it had one.
    pub fn go_on(&mut self) {
        if self.port == 0 {
            self.port = own_port();
        }
        let program = std::env::var(PROGRAM).unwrap_or_else(|_| "versitygw".to_owned());
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let address = format!("127.0.0.1:{}", self.port);
        let files = self.certificate.iter();
        let encrypted = files.flat_map(|[own, key]| ["--cert", own, "--key", key]);
        let of_hosts = (self.bucket == HOST_BUCKET).then_some(["--virtual-domain", HOST_DOMAIN]);
        let mut process = Command::new(program)
            .args(["--quiet", "--port", &address])
            .args(encrypted)
            .args(of_hosts.into_iter().flatten())
            .arg("posix")
            .arg(self.data())
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{error}: scripts/test installs versitygw, and {PROGRAM} names it")
            });
        let begin = Instant::now();
        while TcpStream::connect(&address).is_err() {
            let ended = process.try_wait().unwrap();
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            assert!(ended.is_none(), "the server ended: {log:?}");
            assert!(begin.elapsed() < PATIENCE, "the server does not answer");
            sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    /// Ends the server. What it has stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        let scheme = match self.certificate {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory in which the server keeps the objects of the bucket, each as a file.
    pub fn objects(&self) -> PathBuf {
        self.data().join(self.bucket)
    }

    /// The keys of all objects, sorted. Unfinished uploads are none.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let root = self.objects();
        gather(&root, &root, &mut keys);
        keys.retain(|key| !key.starts_with(".sgwtmp"));
        keys.sort();
        keys
    }

    /// Protects an object, as its owner would: with a legal hold, in a bucket with Object Lock.
    pub fn protect(&self, key: &str) {
        let flags = rustix::fs::XattrFlags::empty();
        let lock = b"{\"Enabled\":true}";
        rustix::fs::setxattr(self.objects(), "user.bucket-lock", lock, flags).unwrap();
        let object = self.objects().join(key);
        rustix::fs::setxattr(object, "user.object-legal-hold", b"\x01", flags).unwrap();
    }

    /// Protects every object for a day from now on, as Object Lock with a default retention does:
    /// no object that is there is replaced or removed.
    pub fn protect_all(&self) {
        let now = std::process::Command::new("date")
            .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
            .output()
            .unwrap();
        let now = String::from_utf8(now.stdout).unwrap();
        let lock = format!(
            "{{\"Enabled\":true,\"DefaultRetention\":{{\"Days\":1,\"Mode\":\"COMPLIANCE\"}},\
             \"CreatedAt\":\"{}\"}}",
            now.trim()
        );
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(self.objects(), "user.bucket-lock", lock.as_bytes(), flags).unwrap();
    }

    /// Ends the protection of an object.
    pub fn unprotect(&self, key: &str) {
        let object = self.objects().join(key);
        rustix::fs::removexattr(object, "user.object-legal-hold").unwrap();
        rustix::fs::removexattr(self.objects(), "user.bucket-lock").unwrap();
    }

    /// How many unfinished uploads have parts. One without parts takes no room.
    pub fn uploads(&self) -> usize {
        let folder = self.objects().join(".sgwtmp/multipart");
        let of_keys = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let uploads = of_keys.flat_map(|key| std::fs::read_dir(key.path()).into_iter().flatten());
        let has_parts = |upload: &std::fs::DirEntry| {
            let parts = std::fs::read_dir(upload.path()).into_iter().flatten();
            parts.count() > 0
        };
        uploads.flatten().filter(has_parts).count()
    }
}

fn gather(root: &Path, directory: &Path, keys: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(root, &path, keys);
        } else {
            let key = path.strip_prefix(root).unwrap();
            keys.push(key.to_string_lossy().into_owned());
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}

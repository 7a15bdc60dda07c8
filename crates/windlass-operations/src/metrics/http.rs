//! The part of HTTP that Prometheus needs: GET, and one answer for each connection.
//!
//! Invariants
//! - It serves one client at a time, and a client has only a few seconds and a few KiB for its
//!   request. So nobody who can reach the port can cost the run more than that.
//! - The requested path is compared with known paths, and used for nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A larger request does not come from Prometheus.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// How long a client may take to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answer to a request.
pub struct Answer {
    status: &'static str,
    body: String,
}

impl Answer {
    pub fn found(body: String) -> Self {
        let status = "200 OK";
        Self { status, body }
    }

    pub fn not_found() -> Self {
        let body = "not found: see /metrics\n".to_owned();
        let status = "404 Not Found";
        Self { status, body }
    }

    fn refused(status: &'static str) -> Self {
        let body = format!("{status}\n");
        Self { status, body }
    }
}

/// Answers requests on an address until it is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the address and answers in a thread.
    pub fn start(
        address: &str,
        answer: impl Fn(&str) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                // The client has gone or broke the rules, so nobody misses the answer.
                client
                    .and_then(|client| serve(client, &answer))
                    .unwrap_or_default();
            }
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = Some(thread.spawn(body)?);
        Ok(Self {
            address,
            stop,
            thread,
        })
    }

    /// The address at which it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A last connection wakes the thread. If none succeeds, the thread ends with the process.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            thread.join().unwrap_or_default();
        }
    }
}

fn serve(mut client: TcpStream, answer: &impl Fn(&str) -> Answer) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    let request = read(&mut client)?;
    let Answer { status, body } = match words(&request) {
        Some(("GET", path)) => answer(path.split('?').next().unwrap_or_default()),
        Some(_) => Answer::refused("405 Method Not Allowed"),
        None => Answer::refused("400 Bad Request"),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// Reads a request up to its empty line, or up to the largest size.
fn read(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while request.len() < REQUEST_BYTES_MAX && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let got = client.read(&mut part)?;
        if got == 0 || left.is_zero() {
            break;
        }
        request.extend_from_slice(&part[..got]);
    }
    Ok(request)
}

/// The method and the path of a complete request.
fn words(request: &[u8]) -> Option<(&str, &str)> {
    let end = request.windows(2).position(|end| end == b"\r\n")?;
    let line = std::str::from_utf8(&request[..end]).ok()?;
    let mut words = line.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    version.starts_with("HTTP/1.").then_some((method, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, request: &str) -> String {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn known_paths_are_answered_and_everything_else_is_refused() {
        let answer = |path: &str| match path {
            "/metrics" => Answer::found("up 1\n".to_owned()),
            _ => Answer::not_found(),
        };
        let server = Server::start("127.0.0.1:0", answer).unwrap();
        let found = ask(&server, "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
        assert!(found.contains("Content-Length: 5\r\n"), "{found}");
        assert!(found.ends_with("\r\n\r\nup 1\n"), "{found}");
        assert!(ask(&server, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&server, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
        // An endless request is cut off, and the next one is served.
        let endless = "x".repeat(REQUEST_BYTES_MAX);
        assert!(ask(&server, &endless).starts_with("HTTP/1.1 400"));
        assert!(ask(&server, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("up 1\n"));
    }
}

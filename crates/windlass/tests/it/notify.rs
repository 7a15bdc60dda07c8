//! `[notify]`: a webhook hears how runs end, and never changes how they do.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::support::*;

/// What a webhook was sent: the first line, the headers and the object.
struct Heard {
    line: String,
    headers: String,
    object: Value,
}

/// A webhook that gives each sender the same answer.
struct Hook {
    address: String,
    heard: Receiver<Heard>,
    _thread: JoinHandle<()>,
}

impl Hook {
    fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (tell, heard) = channel();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if tell.send(serve(&stream)).is_err() {
                    return;
                }
                // Whoever has the answer may ask at once what was heard. Who hangs up early is not
                // waited for.
                let answered = stream.write_all(answer.as_bytes());
                answered.unwrap_or_default();
            }
        });
        Self {
            address,
            heard,
            _thread: thread,
        }
    }

    /// What was sent since the last time. The sender has ended, so all of it is there.
    fn heard(&self) -> Vec<Heard> {
        self.heard.try_iter().collect()
    }
}

fn serve(stream: &TcpStream) -> Heard {
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line).unwrap();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        let header = header.to_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        headers.push_str(&header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let object = serde_json::from_slice(&body).unwrap();
    Heard {
        line,
        headers,
        object,
    }
}

/// A limit that only ends a hang.
const PATIENT: &str = "timeout = \"2m\"";
const TAKEN: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

/// Writes a configuration with this table, and runs a command with it.
fn run(place: &Place, notify: &str, words: &[&str]) -> Output {
    let text = format!(
        "[notify]\n{notify}\n[database.shop]\nsource = \"{}\"\nto = \"{}\"\n",
        place.arg("shop.db"),
        place.arg("sets"),
    );
    std::fs::write(place.path("windlass.toml"), text).unwrap();
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    command.args(words).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_webhook_hears_of_failures_and_of_nothing_else() {
    let place = Place::new();
    let hook = Hook::new(TAKEN);
    let notify = format!("webhook = \"{}/T0/secret-token\"\n{PATIENT}", hook.address);
    let done = run(&place, &notify, &["backup", "shop", "--quiet"]);
    assert_eq!((code(&done), text(&done)), (0, String::new()));
    assert_eq!(hook.heard().len(), 0, "a success is no failure");
    let failed = run(
        &place,
        &notify,
        &["backup", "shop", "--to", "/nonexistent/a/b"],
    );
    assert_eq!(code(&failed), 1, "{}", text(&failed));
    let heard = hook.heard();
    assert_eq!(heard.len(), 1);
    assert!(
        heard[0].line.starts_with("POST /T0/secret-token "),
        "{}",
        heard[0].line
    );
    assert!(heard[0].headers.contains("content-type: application/json"));
    let object = &heard[0].object;
    assert_eq!(object["event"], "failure");
    assert_eq!(object["operation"], "backup");
    assert_eq!(object["database"], "shop");
    assert_eq!(object["exit_code"], 1);
    let printed = text(&failed);
    for key in ["message", "hint"] {
        let said = object[key].as_str().unwrap();
        assert!(printed.contains(said), "{key}: {said}: {printed}");
    }
    assert!(object["text"].as_str().unwrap().contains("backup of shop"));
    assert!(!printed.contains("secret-token"), "{printed}");
    // Damage that a verification finds, with the set.
    let set = place.path("sets").join(&place.sets()[0]);
    let mut bytes = std::fs::read(&set).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&set, bytes).unwrap();
    let damaged = run(&place, &notify, &["verify", "shop"]);
    assert_eq!(code(&damaged), 4, "{}", text(&damaged));
    let heard = hook.heard();
    assert_eq!(heard[0].object["exit_code"], 4);
    assert_eq!(heard[0].object["operation"], "verify");
    let id = heard[0].object["set_id"].as_str().unwrap();
    assert!(text(&damaged).contains(id), "{id}");
    // A command that only asks tells nobody.
    assert_eq!(code(&run(&place, &notify, &["info", "nowhere"])), 1);
    let dry = ["expire", "shop", "--keep-full", "1", "--dry-run"];
    run(&place, &notify, &dry);
    assert_eq!(hook.heard().len(), 0);
}

#[test]
fn success_and_warnings_are_told_if_asked_for() {
    let place = Place::new();
    let hook = Hook::new(TAKEN);
    let notify = |on: &str| format!("webhook = \"{}\"\non = {on}\n{PATIENT}", hook.address);
    let backup = ["backup", "shop", "--quiet"];
    assert_eq!(code(&run(&place, &notify("[\"success\"]"), &backup)), 0);
    let heard = hook.heard();
    assert_eq!(heard.len(), 1);
    let object = &heard[0].object;
    assert_eq!(
        (&object["event"], &object["type"]),
        (&"success".into(), &"full".into())
    );
    assert_eq!(object["message"], Value::Null);
    assert!(object["set_id"].as_str().unwrap().len() == 32, "{object}");
    assert!(object["seconds"].as_f64().unwrap() > 0.0, "{object}");
    // A symbolic link is a warning of the backup.
    let target = place.path("real.db");
    std::fs::rename(place.path("shop.db"), &target).unwrap();
    std::os::unix::fs::symlink(&target, place.path("shop.db")).unwrap();
    assert_eq!(code(&run(&place, &notify("\"success\""), &backup)), 3);
    assert_eq!(hook.heard().len(), 0);
    assert_eq!(code(&run(&place, &notify("\"warnings\""), &backup)), 3);
    assert_eq!(hook.heard()[0].object["event"], "warnings");
    // A backup that keeps nothing is none.
    let nul = ["backup", "shop", "--to", "nul", "--accept", "symbolic-link"];
    assert_eq!(code(&run(&place, &notify("\"success\""), &nul)), 0);
    assert_eq!(hook.heard().len(), 0);
}

#[test]
fn a_webhook_that_fails_never_changes_the_exit_code() {
    let place = Place::new();
    let log = place.arg("log");
    let all = "on = [\"success\", \"failure\"]";
    let backup = ["backup", "shop", "--quiet", "--log", &log];
    let told = |address: &str, (limit, says): (&str, &str)| {
        let secret = format!("{address}/T0/secret-token?key=secret-key");
        let notify = format!("webhook = \"{secret}\"\ntimeout = \"{limit}\"\n{all}");
        let done = run(&place, &notify, &backup);
        let printed = text(&done);
        assert_eq!(code(&done), 0, "{printed}");
        let is_warning = printed.starts_with("warning: the webhook at ");
        assert!(is_warning && printed.contains(says), "{says}: {printed}");
        assert!(!printed.contains("secret-"), "{printed}");
    };
    let refuses = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    told(&Hook::new(refuses).address, ("2m", "answered 500"));
    // What is sent stays with the host that was named.
    let other = Hook::new(TAKEN);
    let redirect = format!(
        "HTTP/1.1 307 Elsewhere\r\nLocation: {}\r\n\r\n",
        other.address
    );
    told(&Hook::new(redirect.leak()).address, ("2m", "answered 307"));
    assert_eq!(other.heard().len(), 0);
    // Somebody is there, and never answers; nobody is. A port that was free a moment ago may belong
    // to another test by now.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    told(&address, ("300ms", "did not answer within 0.3 s"));
    let address = "http://127.0.0.1:1";
    told(address, ("2m", "cannot be reached"));
    // The search for a name may take longer than anybody waits.
    let nowhere = "http://me:secret-word@nowhere.invalid";
    told(nowhere, ("300ms", "nowhere.invalid was not told"));
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(
        written.contains("the webhook at nowhere.invalid"),
        "{written}"
    );
    assert!(!written.contains("secret-"), "{written}");
    // The run failed, and the webhook too: the exit code is that of the run.
    let failed = run(
        &place,
        &format!("webhook = \"{address}\"\n{all}"),
        &["backup", "shop", "--to", "/nonexistent/a/b"],
    );
    assert_eq!(code(&failed), 1, "{}", text(&failed));
    // The address may stand in a file. If that is gone, one hears of it before it is needed.
    let hook = Hook::new(TAKEN);
    std::fs::write(place.path("hook"), format!("{}/x\n", hook.address)).unwrap();
    let file = format!("webhook-file = \"{}\"\n{all}\n{PATIENT}", place.arg("hook"));
    assert_eq!(code(&run(&place, &file, &backup)), 0);
    assert_eq!(hook.heard().len(), 1);
    std::fs::remove_file(place.path("hook")).unwrap();
    let done = run(&place, &file, &backup);
    assert_eq!(code(&done), 0);
    assert!(
        text(&done).starts_with("warning: nobody hears of failures"),
        "{}",
        text(&done)
    );
}

/// Ends a process when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

const TLS_SERVER: &str = "\
import http.server, ssl, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        open(sys.argv[3], 'ab').write(body + b'\\n')
        self.send_response(204)
        self.end_headers()
server = http.server.HTTPServer(('127.0.0.1', 0), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// Makes an authority, and what it signed: returns the paths of `NAME.pem` and `NAME.key`.
fn certificate(place: &Place, name: &str, more: &[&str]) -> (String, String) {
    let (certificate, key) = (
        place.arg(&format!("{name}.pem")),
        place.arg(&format!("{name}.key")),
    );
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30";
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' '));
    openssl.args(["-keyout", &key, "-out", &certificate]);
    let output = openssl.args(more).output().expect("openssl");
    assert!(output.status.success(), "{}", text(&output));
    (certificate, key)
}

#[test]
fn a_server_that_nobody_knows_is_not_told() {
    let place = Place::new();
    let authority = certificate(&place, "authority", &["-subj", "/CN=test authority"]);
    let leaf = [
        &["-CA", &authority.0, "-CAkey", &authority.1][..],
        &[
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        &["-addext", "basicConstraints=critical,CA:FALSE"],
    ];
    let (certificate, key) = certificate(&place, "server", &leaf.concat());
    let heard = place.arg("heard");
    let mut python = Command::new("python3");
    python.args(["-c", TLS_SERVER, &certificate, &key, &heard]);
    let mut server = python
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    lines.read_line(&mut port).unwrap();
    let _server = Ended(server);
    let notify = format!(
        "webhook = \"https://localhost:{}/x\"\non = \"success\"\n{PATIENT}",
        port.trim()
    );
    let done = run(&place, &notify, &["backup", "shop", "--quiet"]);
    assert_eq!(code(&done), 0);
    assert!(text(&done).contains("cannot be reached"), "{}", text(&done));
    assert!(!Path::new(&heard).exists());
    // The machine's authorities are those that count.
    let mut command = command();
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    command.env("SSL_CERT_FILE", &authority.0);
    let done = command
        .args(["backup", "shop", "--quiet"])
        .output()
        .unwrap();
    assert_eq!((code(&done), text(&done)), (0, String::new()));
    let heard = std::fs::read_to_string(&heard).unwrap();
    let object: Value = serde_json::from_str(heard.trim()).unwrap();
    assert_eq!(object["event"], "success");
}

#[test]
fn a_table_that_tells_nobody_is_refused_without_its_secret() {
    let place = Place::new();
    let refused = |notify: &str, says: &str| {
        let output = run(&place, notify, &["status"]);
        let printed = text(&output);
        assert_eq!(code(&output), 2, "{notify}: {printed}");
        assert!(printed.contains(says), "{says}: {printed}");
        assert!(!printed.contains("secret"), "{printed}");
    };
    refused("on = \"failure\"", "tells nobody");
    refused("webhok = \"https://x\"", "Did you mean webhook?");
    refused(
        "webhook = \"example.com/secret\"",
        "no address of a web server",
    );
    refused(
        "webhook = \"ftp://example.com/secret\"",
        "no address of a web server",
    );
    refused("webhook = 3", "must be a text");
    refused(
        "webhook = \"https://x/secret\"\non = \"always\"",
        "on cannot be",
    );
    refused(
        "webhook = \"https://x/secret\"\ntimeout = \"1h\"",
        "timeout cannot be",
    );
    refused(
        "webhook = \"https://x/secret\"\nwebhook-file = \"/x\"",
        "both say where",
    );
}

/// A crash must not write what the configuration hides to a disk.
#[test]
fn a_process_whose_configuration_has_a_secret_makes_no_core_file() {
    let place = Place::new();
    place.back_up();
    let (_, sets) = place.ends();
    let file = place.arg("address");
    std::fs::write(&file, "https://example.com/T0/secret-token").unwrap();
    let of_file = format!("[notify]\nwebhook-file = \"{file}\"\n");
    for (config, has_secret) in [
        ("[notify]\nwebhook = \"https://example.com/T0/t\"\n", true),
        (of_file.as_str(), true),
        (
            "[database.bank]\nsource = \"postgresql://me:secret@db/bank\"\n",
            true,
        ),
        (
            "[database.bank]\nsource = \"host=db password=secret\"\n",
            true,
        ),
        ("[database.bank]\nsource = \"/srv/bank.db\"\n", false),
    ] {
        std::fs::write(place.path("windlass.toml"), config).unwrap();
        let limit = core_file_limit(&[&sets], &place.path("windlass.toml"));
        assert!(
            limit == "0" || (limit == "1") == has_secret,
            "{config}: {limit}"
        );
    }
}

//! A stub of Google Cloud Storage with a bucket, on this machine and for one test. No server of
//! Google's own runs here, and no other that keeps to its rules.
//!
//! It has what backups use of the XML interface, and these rules of the service: an object that is
//! to be created only where there is none is refused with 412, a part before the last one has at
//! least 5 MiB, an upload that was aborted is not there (404), and so is a removed object. Its
//! lists have short pages, so that every list has several.

#![allow(
    clippy::unwrap_used,
    reason = "a server that does not start ends the test"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The name of the bucket.
pub const BUCKET: &str = "shop";

/// Its arguments: a directory with `objects` and `uploads`, and the name of the bucket.
const STUB: &str = r#"
import http.server, os, re, shutil, sys, threading, urllib.parse, uuid
from email.utils import formatdate
from xml.sax.saxutils import escape

OBJECTS, UPLOADS = (os.path.join(sys.argv[1], name) for name in ('objects', 'uploads'))
BUCKET, PAGE, PART_BYTES_MIN = sys.argv[2], 3, 5 << 20
LOCK = threading.Lock()
# Of each object: how many were written before it, and when it was.
KNOWN, written = {}, 0

def path(key):
    return os.path.join(OBJECTS, urllib.parse.quote(key, safe=''))

def read(name):
    with open(name, 'rb') as file:
        return file.read()

def refused(status, code):
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return status, text.encode(), [], None

def about(key):
    number, time = KNOWN[key]
    tags = [('ETag', f'"{number}"'), ('x-goog-generation', str(number))]
    return tags + [('Last-Modified', formatdate(time, usegmt=True))]

def store(key, body):
    global written
    with open(path(key), 'wb') as file:
        file.write(body)
    written += 1
    KNOWN[key] = (written, os.stat(path(key)).st_mtime)

def put(key, body, headers):
    if headers.get('x-goog-if-generation-match') == '0' and key in KNOWN:
        return refused(412, 'PreconditionFailed')
    store(key, body)
    return 200, b'', about(key), None

def head(key, body, headers):
    if key not in KNOWN:
        return 404, b'', [], 0
    return 200, b'', about(key), os.stat(path(key)).st_size

def get(key, body, headers):
    if key not in KNOWN:
        return refused(404, 'NoSuchKey')
    content, range_ = read(path(key)), headers.get('Range')
    if range_ is None:
        return 200, content, about(key), None
    first, last = (int(word) for word in re.fullmatch(r'bytes=(\d+)-(\d+)', range_).groups())
    if first >= len(content):
        return refused(416, 'InvalidRange')
    last = min(last, len(content) - 1)
    which = ('Content-Range', f'bytes {first}-{last}/{len(content)}')
    return 206, content[first:last + 1], about(key) + [which], None

def delete(key, body, headers):
    if KNOWN.pop(key, None) is None:
        return refused(404, 'NoSuchKey')
    os.remove(path(key))
    return 204, b'', [], None

def begin():
    upload = uuid.uuid4().hex
    os.mkdir(os.path.join(UPLOADS, upload))
    text = f'<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>'
    return 200, (text + '</InitiateMultipartUploadResult>').encode(), [], None

def complete(key, upload, body):
    pattern = r'<ETag>([^<]*)</ETag>\s*<PartNumber>(\d+)</PartNumber>'
    listed = re.findall(pattern, body.decode().replace('&quot;', '"'))
    there = set(os.listdir(upload))
    if not listed or any(n not in there or tag != f'"part-{n}"' for tag, n in listed):
        return refused(400, 'InvalidPart')
    parts = [read(os.path.join(upload, number)) for _, number in listed]
    if any(len(part) < PART_BYTES_MIN for part in parts[:-1]):
        return refused(400, 'EntityTooSmall')
    store(key, b''.join(parts))
    shutil.rmtree(upload)
    tag = escape(dict(about(key))['ETag'])
    text = f'<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>'
    return 200, text.encode(), about(key), None

def of_upload(method, key, query, body):
    if 'uploads' in query:
        return begin()
    upload = os.path.join(UPLOADS, os.path.basename(query['uploadId']))
    if not os.path.isdir(upload):
        return refused(404, 'NoSuchUpload')
    if method == 'POST':
        return complete(key, upload, body)
    if method == 'DELETE':
        shutil.rmtree(upload)
        return 204, b'', [], None
    number = str(int(query['partNumber']))
    with open(os.path.join(upload, number), 'wb') as file:
        file.write(body)
    return 200, b'', [('ETag', f'"part-{number}"')], None

def listed(query):
    prefix, start = query.get('prefix', ''), query.get('start-after', '')
    names = set()
    for key in KNOWN:
        if key.startswith(prefix) and key > start:
            end = key.find('/', len(prefix)) if query.get('delimiter') else -1
            names.add(key if end < 0 else key[:end + 1])
    token = query.get('continuation-token', '')
    names = sorted(name for name in names if name > token)
    text = '<ListBucketResult>'
    for key in (name for name in names[:PAGE] if name in KNOWN):
        tag = escape(dict(about(key))['ETag'])
        # Parts of a second are not told.
        date = formatdate(KNOWN[key][1], usegmt=True).split()
        month = 'JanFebMarAprMayJunJulAugSepOctNovDec'.index(date[2]) // 3 + 1
        text += f'<Contents><Key>{escape(key)}</Key>'
        text += f'<LastModified>{date[3]}-{month:02}-{date[1]}T{date[4]}Z</LastModified>'
        text += f'<ETag>{tag}</ETag><Size>{os.stat(path(key)).st_size}</Size></Contents>'
    for name in (name for name in names[:PAGE] if name not in KNOWN):
        text += f'<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>'
    if len(names) > PAGE:
        text += f'<NextContinuationToken>{escape(names[PAGE - 1])}</NextContinuationToken>'
    return 200, (text + '</ListBucketResult>').encode(), [], None

def answered(method, target, headers, body):
    place, _, query = target.partition('?')
    query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    words = [urllib.parse.unquote(word) for word in place.lstrip('/').split('/', 1)]
    if not (headers.get('Authorization') or '').startswith('Bearer'):
        return refused(401, 'AuthenticationRequired')
    if words[0] != BUCKET:
        return refused(404, 'NoSuchBucket')
    if len(words) == 1 or not words[1]:
        return listed(query)
    if 'uploads' in query or 'uploadId' in query:
        return of_upload(method, words[1], query, body)
    way = {'PUT': put, 'HEAD': head, 'GET': get, 'DELETE': delete}[method]
    return way(words[1], body, headers)

class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = 'HTTP/1.1', True

    def log_message(self, *words):
        pass

    def serve(self):
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        with LOCK:
            reply = answered(self.command, self.path, self.headers, body)
        status, body, headers, length = reply
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header('Content-Length', str(len(body) if length is None else length))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Bucket)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// A running stub.
pub struct GoogleStub {
    process: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    directory: TempDir,
}

impl GoogleStub {
    /// Starts a stub with one empty bucket.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["objects", "uploads"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut process = Command::new("python3")
            .args(["-c", STUB])
            .arg(directory.path())
            .arg(BUCKET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: python3 of Debian's package `python3`"));
        let mut line = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self {
            process,
            port,
            directory,
        }
    }

    /// The keys of all objects, sorted. Unfinished uploads are none.
    pub fn keys(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path().join("objects")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let mut keys: Vec<_> = names
            .map(|name| name.to_string_lossy().replace("%2F", "/"))
            .collect();
        keys.sort();
        keys
    }

    /// How many uploads were begun, and neither completed nor aborted.
    pub fn uploads(&self) -> usize {
        let uploads = std::fs::read_dir(self.directory.path().join("uploads"));
        uploads.unwrap().count()
    }
}

impl Drop for GoogleStub {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

//! A proxy in front of an S3 server that does what networks and servers do on bad days.
//!
//!   client --> [rules: which request, what happens] --> server
//!
//! It passes requests on byte by byte, so signatures stay right. It never makes up an answer but
//! those that a rule asks for, and counts what it sees.

#![allow(
    clippy::unwrap_used,
    reason = "a proxy that does not do its part ends the test"
)]

mod head;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use head::Head;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Writing the marker of a stripe.
    Marker,
    /// Writing the data of a stripe in one request.
    Data,
    /// Writing a seal.
    Seal,
    /// Writing a name object.
    Name,
    /// Writing an object of a log.
    Log,
    /// Writing the note of a reader.
    Note,
    /// Writing a mark that hides a set, or says that it is being removed.
    Mark,
    /// Beginning an upload.
    Begin,
    /// Writing a part.
    Part,
    /// Completing an upload.
    Complete,
    /// Giving an upload up.
    Abort,
    /// Reading an object, or a range of it.
    Get,
    /// Asking for an object's length.
    Head,
    /// Listing.
    List,
    /// Removing.
    Remove,
}

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Evil {
    /// The server does not see it. The client gets this status and this code of an error.
    Answer(u16, &'static str),
    /// The connection is reset before the server sees it.
    Reset,
    /// Nothing happens, for so long.
    Hang(Duration),
    /// The server does it, and the answer is lost.
    LostAnswer,
    /// The server does it, and the client gets only so many bytes of the answer's body.
    Cut(usize),
    /// The server gets only so many bytes of the request's body, and then both connections end.
    CutSent(usize),
    /// The client gets the answer's body in pieces of so many bytes, each after a pause.
    Trickle(usize, Duration),
    /// The answer says that its body is so many bytes longer or shorter than it is, and ends there.
    Length(i64),
    /// One bit in the middle of the answer's body is another one.
    Flip,
    /// One bit in the middle of the request's body is another one.
    FlipSent,
    /// The server does it, and the client gets another answer.
    Edit(fn(String) -> String),
    /// It stands still until it is let go, and passes then.
    Hold,
    /// The victim is killed before the server sees it.
    KillBefore,
    /// The victim is killed after the server did it.
    KillAfter,
}

/// Which request something happens to.
struct Rule {
    asked: Asked,
    /// How many requests like this pass first.
    skip: usize,
    /// How many it happens to.
    times: usize,
    evil: Evil,
}

/// A request that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it was about.
    pub asked: Asked,
    /// Bytes of its body.
    pub sent: u64,
    /// Bytes of the answer's body.
    pub received: u64,
    /// Whether it has a checksum of its body besides its signature.
    pub is_summed: bool,
    /// Whether it names a session, besides its signature.
    pub has_token: bool,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    seen: Vec<Seen>,
    victim: Option<u32>,
    /// What answers say instead of the server's own date.
    date: Option<String>,
    /// How many requests have come and are not done with.
    under_way: usize,
    /// How many requests stand still, or stood still once.
    held: usize,
    is_let_go: bool,
}

/// A request that is not done with, as long as this lives.
struct UnderWay<'a>(&'a Mutex<State>);

impl<'a> UnderWay<'a> {
    fn new(state: &'a Mutex<State>) -> Self {
        lock(state).under_way += 1;
        Self(state)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(self.0).under_way -= 1;
    }
}

/// A running proxy. Its threads end with the process.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy in front of a server on this machine.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // An error ends the connection, as evil as any other.
                std::thread::spawn(move || drop(serve(client, server, &state)));
            }
        });
        Self { port, state }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on this happens to so many of these requests, after `skip` others.
    pub fn rule(&self, asked: Asked, (skip, times): (usize, usize), evil: Evil) {
        let rule = Rule {
            asked,
            skip,
            times,
            evil,
        };
        lock(&self.state).rules.push(rule);
    }

    /// The process that rules kill. They wait until it is known.
    pub fn victim(&self, process: u32) {
        lock(&self.state).victim = Some(process);
    }

    /// From now on every answer says this date: the server's clock is another one.
    pub fn date(&self, date: String) {
        lock(&self.state).date = Some(date);
    }

    /// Waits until a request stands still. False if the process ends and none does.
    pub fn holds(&self, process: &mut Child) -> bool {
        loop {
            let has_ended = process.try_wait().unwrap().is_some();
            let is_held = lock(&self.state).held > 0;
            if is_held || has_ended {
                return is_held;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets requests go on that stand still. Until the proxy is reset, none does again.
    pub fn let_go(&self) {
        lock(&self.state).is_let_go = true;
    }

    /// Waits until all requests are done with, and forgets the rules, the victim and what was seen.
    /// Returns how many times the rules could still have been used.
    pub fn reset(&self) -> usize {
        loop {
            let mut state = lock(&self.state);
            if state.under_way == 0 {
                let rules = std::mem::take(&mut *state).rules;
                return rules.iter().map(|rule| rule.times).sum();
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    /// Bytes of the answers so far. Waits until all requests are done with: how long an answer was
    /// is noted behind it, when its client may have ended already.
    pub fn received(&self) -> u64 {
        loop {
            let state = lock(&self.state);
            if state.under_way == 0 {
                return state.seen.iter().map(|one| one.received).sum();
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many of these requests were seen.
    pub fn count(&self, asked: Asked) -> usize {
        self.seen().iter().filter(|one| one.asked == asked).count()
    }
}

/// Serves one connection. Each connection of the client has one to the server.
fn serve(client: TcpStream, server: u16, state: &Mutex<State>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from_client = BufReader::new(client.try_clone()?);
    let server = TcpStream::connect(("127.0.0.1", server))?;
    server.set_nodelay(true)?;
    let mut server = BufReader::new(server);
    while let Some(head) = Head::read(&mut from_client)? {
        let _under_way = UnderWay::new(state);
        if head.expects {
            (&client).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let asked = head.asked();
        let evil = chosen(state, asked);
        if let Some(Evil::Hang(time)) = evil {
            std::thread::sleep(time);
            return Ok(());
        }
        if let Some(Evil::Hold) = evil {
            hold(state);
        }
        let mut body = vec![0; usize::try_from(head.length.unwrap_or(0)).unwrap()];
        from_client.read_exact(&mut body)?;
        if let Some(Evil::FlipSent) = evil {
            flip(&mut body);
        }
        let place = {
            let seen = &mut lock(state).seen;
            seen.push(head.seen(body.len() as u64));
            seen.len() - 1
        };
        match evil {
            Some(Evil::Answer(status, code)) => {
                (&client).write_all(&answer(status, code, asked))?;
                continue;
            }
            Some(Evil::CutSent(bytes)) => {
                server.get_mut().write_all(&head.bytes())?;
                server.get_mut().write_all(&body[..bytes.min(body.len())])?;
                server.get_ref().shutdown(Shutdown::Both)?;
                return client.shutdown(Shutdown::Both);
            }
            Some(Evil::Reset) => return reset(&client),
            Some(Evil::KillBefore) => return kill(state),
            _ => {}
        }
        server.get_mut().write_all(&head.bytes())?;
        server.get_mut().write_all(&body)?;
        let Some(received) = answered((&client, &mut server), asked, evil, state)? else {
            return Ok(());
        };
        if let Some(seen) = lock(state).seen.get_mut(place) {
            seen.received = received;
        }
    }
    Ok(())
}

/// Passes the server's answer on. Returns the length of its body, or nothing if the connection ends
/// here.
fn answered(
    (mut client, server): (&TcpStream, &mut BufReader<TcpStream>),
    asked: Asked,
    evil: Option<Evil>,
    state: &Mutex<State>,
) -> io::Result<Option<u64>> {
    let Some(mut head) = Head::read(server)? else {
        return Ok(None);
    };
    if let Some(date) = &lock(state).date {
        head.set_date(date);
    }
    let mut body = match asked {
        Asked::Head => Vec::new(),
        _ => content(&head, server)?,
    };
    match evil {
        Some(Evil::Flip) => flip(&mut body),
        Some(Evil::Edit(edit)) => {
            let text = edit(String::from_utf8_lossy(&joined(&head, &body)).into_owned());
            client.write_all(&head.with_length(text.len() as u64))?;
            client.write_all(text.as_bytes())?;
            return Ok(Some(text.len() as u64));
        }
        Some(Evil::Length(more)) => {
            let said = (body.len() as u64).saturating_add_signed(more);
            client.write_all(&head.with_length(said))?;
            client.write_all(&body[..body.len().min(usize::try_from(said).unwrap())])?;
            return client.shutdown(Shutdown::Both).map(|()| None);
        }
        Some(Evil::Trickle(bytes, pause)) => {
            client.write_all(&head.bytes())?;
            for piece in body.chunks(bytes) {
                std::thread::sleep(pause);
                client.write_all(piece)?;
            }
            return Ok(Some(body.len() as u64));
        }
        Some(Evil::LostAnswer) => return reset(client).map(|()| None),
        Some(Evil::KillAfter) => return kill(state).map(|()| None),
        Some(Evil::Cut(bytes)) => {
            client.write_all(&head.bytes())?;
            client.write_all(&body[..bytes.min(body.len())])?;
            return client.shutdown(Shutdown::Both).map(|()| None);
        }
        _ => {}
    }
    client.write_all(&head.bytes())?;
    client.write_all(&body)?;
    Ok(Some(body.len() as u64))
}

/// Makes the end of a connection a reset.
fn reset(client: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(
        client,
        Some(Duration::ZERO),
    )?)
}

/// The rule for the next request of this kind, if there is one.
fn chosen(state: &Mutex<State>, asked: Asked) -> Option<Evil> {
    let mut state = lock(state);
    let rule = state
        .rules
        .iter_mut()
        .find(|rule| rule.asked == asked && rule.times > 0)?;
    if rule.skip > 0 {
        rule.skip -= 1;
        return None;
    }
    rule.times -= 1;
    Some(rule.evil.clone())
}

/// The body of an answer, as it came: chunks stay chunks.
fn content(head: &Head, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if !head.is_chunked {
        let mut rest = from.take(head.length.unwrap_or(0));
        rest.read_to_end(&mut body)?;
        return Ok(body);
    }
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        body.extend_from_slice(line.as_bytes());
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; length + 2];
        from.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk);
        if length == 0 {
            return Ok(body);
        }
    }
}

/// The body of an answer without the lengths of its chunks.
fn joined(head: &Head, body: &[u8]) -> Vec<u8> {
    if !head.is_chunked {
        return body.to_vec();
    }
    let mut rest = body;
    let mut whole = Vec::new();
    loop {
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}

fn flip(body: &mut [u8]) {
    let middle = body.len() / 2;
    body[middle..]
        .iter_mut()
        .take(1)
        .for_each(|byte| *byte ^= 0x10);
}

/// An answer of the proxy's own. One to a question about an object's length has no body.
fn answer(status: u16, code: &str, asked: Asked) -> Vec<u8> {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>on purpose</Message></Error>"
    );
    let length = body.len();
    let body = if asked == Asked::Head { "" } else { &body };
    format!("HTTP/1.1 {status} Evil\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Stands still until requests are let go.
fn hold(state: &Mutex<State>) {
    lock(state).held += 1;
    while !lock(state).is_let_go {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the victim as a power cut would.
fn kill(state: &Mutex<State>) -> io::Result<()> {
    let process = loop {
        let victim = lock(state).victim.take();
        match victim {
            Some(process) => break process,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let process = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
    Ok(())
}

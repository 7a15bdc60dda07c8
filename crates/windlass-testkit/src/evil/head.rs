//! The first lines of requests and answers.

use std::io::{self, BufRead};

use super::{Asked, Seen};

/// The first lines of a message, and the length of its body.
pub(super) struct Head {
    lines: Vec<String>,
    pub(super) length: Option<u64>,
    pub(super) is_chunked: bool,
    pub(super) expects: bool,
}

impl Head {
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line);
        }
        let value = |name: &str| {
            lines.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                let is_it = key.eq_ignore_ascii_case(name);
                is_it.then(|| value.trim().to_owned())
            })
        };
        Ok(Some(Self {
            length: value("content-length").and_then(|text| text.parse().ok()),
            is_chunked: value("transfer-encoding").is_some(),
            expects: value("expect").is_some(),
            lines,
        }))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.lines.concat().into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// The same, with a body of so many bytes that are not in chunks.
    pub(super) fn with_length(&self, bytes: u64) -> Vec<u8> {
        let is_of_body = |line: &&String| {
            let name = line.split(':').next().unwrap_or_default();
            ["content-length", "transfer-encoding"].contains(&name.to_lowercase().as_str())
        };
        let lines: String = self
            .lines
            .iter()
            .filter(|line| !is_of_body(line))
            .cloned()
            .collect();
        format!("{lines}Content-Length: {bytes}\r\n\r\n").into_bytes()
    }

    /// Says another date.
    pub(super) fn set_date(&mut self, date: &str) {
        let is_date = |line: &str| line.to_lowercase().starts_with("date:");
        self.lines.retain(|line| !is_date(line));
        self.lines.push(format!("Date: {date}\r\n"));
    }

    /// The request, with a body of so many bytes, before it has an answer.
    pub(super) fn seen(&self, sent: u64) -> Seen {
        let has = |name: &str| {
            let mut names = self.lines.iter().filter_map(|line| line.split(':').next());
            names.any(|one| one.eq_ignore_ascii_case(name))
        };
        Seen {
            asked: self.asked(),
            sent,
            received: 0,
            is_summed: has("x-amz-checksum-sha256"),
            has_token: has("x-amz-security-token"),
        }
    }

    /// What the request is about.
    pub(super) fn asked(&self) -> Asked {
        let mut words = self.lines[0].split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match method {
            "POST" if query.contains("delete") => Asked::Remove,
            "POST" if query.contains("uploadId") => Asked::Complete,
            "POST" => Asked::Begin,
            "DELETE" if query.contains("uploadId") => Asked::Abort,
            "DELETE" => Asked::Remove,
            "HEAD" => Asked::Head,
            "GET" if query.contains("list-type") => Asked::List,
            "GET" => Asked::Get,
            _ if query.contains("partNumber") => Asked::Part,
            _ if path.ends_with(".data") => Asked::Data,
            _ if path.ends_with(".seal") => Asked::Seal,
            _ if path.ends_with(".wlog") => Asked::Log,
            _ if path.contains("/begun/") => Asked::Marker,
            _ if path.contains("/readers/") => Asked::Note,
            _ if path.ends_with(".hidden") || path.ends_with(".removing") => Asked::Mark,
            _ => Asked::Name,
        }
    }
}

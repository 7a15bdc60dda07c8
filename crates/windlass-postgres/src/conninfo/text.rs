//! The two forms of a connection string: `key=value key='value'`, and `postgresql://...`.

use super::settings::{Settings, fault};
use crate::error::PostgresError;

/// Parses either form.
pub(super) fn parse(conninfo: &str) -> Result<Settings, PostgresError> {
    let schemes = ["postgresql://", "postgres://"];
    match schemes
        .iter()
        .find_map(|scheme| conninfo.strip_prefix(scheme))
    {
        Some(rest) => parse_uri(rest),
        None => parse_keywords(conninfo),
    }
}

fn parse_keywords(text: &str) -> Result<Settings, PostgresError> {
    let mut settings = Settings::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or(rest.len());
        let (keyword, tail) = rest.split_at(end);
        let Some(tail) = tail.trim_start().strip_prefix('=') else {
            return fault(format!("missing \"=\" after {keyword:?}"));
        };
        let (value, tail) = keyword_value(keyword, tail.trim_start())?;
        settings.insert(keyword.to_owned(), value);
        rest = tail.trim_start();
    }
    Ok(settings)
}

/// Parses one value, quoted or not, with backslash escapes. Also returns the text behind it.
fn keyword_value<'a>(keyword: &str, text: &'a str) -> Result<(String, &'a str), PostgresError> {
    let quoted = text.starts_with('\'');
    let body = text.strip_prefix('\'').unwrap_or(text);
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &body[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &body[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return fault(format!("unterminated quote in the value of {keyword:?}"));
    }
    Ok((value, ""))
}

/// `[user[:password]@][host[:port]][,...][/dbname][?keyword=value&...]`, without the scheme.
fn parse_uri(rest: &str) -> Result<Settings, PostgresError> {
    let mut settings = Settings::new();
    let (rest, query) = split(rest, '?');
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    // Take the last @, because the password may contain one that was not encoded.
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (Some(credentials), hosts),
        None => (None, authority),
    };
    if let Some(credentials) = credentials {
        let (user, password) = split(credentials, ':');
        put(&mut settings, "user", user)?;
        put(&mut settings, "password", password.unwrap_or(""))?;
    }
    put_hosts(&mut settings, hosts)?;
    put(
        &mut settings,
        "dbname",
        path.strip_prefix('/').unwrap_or(""),
    )?;
    for pair in query
        .unwrap_or("")
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let Some((keyword, value)) = pair.split_once('=') else {
            return fault(format!("missing \"=\" in URI parameter {pair:?}"));
        };
        // JDBC's keyword for it, which libpq also takes.
        match pair {
            "ssl=true" => put(&mut settings, "sslmode", "require")?,
            _ => put(&mut settings, &decode(keyword)?, value)?,
        }
    }
    Ok(settings)
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at)
        .map_or((text, None), |(head, tail)| (head, Some(tail)))
}

/// Empty parts of a URI set nothing, so that environment and defaults apply.
fn put(settings: &mut Settings, keyword: &str, value: &str) -> Result<(), PostgresError> {
    if !value.is_empty() {
        settings.insert(keyword.to_owned(), decode(value)?);
    }
    Ok(())
}

fn put_hosts(settings: &mut Settings, text: &str) -> Result<(), PostgresError> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let (host, port) = host_and_port(part)?;
        hosts.push(decode(host)?);
        ports.push(port);
    }
    if hosts.iter().any(|host| !host.is_empty()) {
        settings.insert("host".into(), hosts.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        settings.insert("port".into(), ports.join(","));
    }
    Ok(())
}

fn host_and_port(part: &str) -> Result<(&str, &str), PostgresError> {
    let Some(bracketed) = part.strip_prefix('[') else {
        let (host, port) = split(part, ':');
        return Ok((host, port.unwrap_or("")));
    };
    let Some((host, tail)) = bracketed.split_once(']') else {
        return fault(format!("missing \"]\" in {part:?}"));
    };
    match tail.strip_prefix(':') {
        Some(port) => Ok((host, port)),
        None if tail.is_empty() => Ok((host, "")),
        None => fault(format!("unexpected {tail:?} after the address in {part:?}")),
    }
}

fn decode(text: &str) -> Result<String, PostgresError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        if *byte != b'%' {
            bytes.push(*byte);
            rest = tail;
            continue;
        }
        let digits = tail
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) if value != 0 => bytes.push(value),
            _ => return fault(format!("invalid percent-encoding in {text:?}")),
        }
        rest = &tail[2..];
    }
    match String::from_utf8(bytes) {
        Ok(decoded) => Ok(decoded),
        Err(_) => fault(format!("{text:?} is not UTF-8 when decoded")),
    }
}

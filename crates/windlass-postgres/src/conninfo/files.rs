//! The service file and the password file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_engine::read_stream_at_most;

use super::address::{Address, SOCKET_DIRECTORIES};
use super::settings::{Environment, IGNORED, KEYWORDS, Settings, fault};
use crate::error::{IoContext, PostgresError};

/// Largest service file; a larger file is not a service file.
const BYTES_MAX: u64 = 1 << 20;
const SYSTEM_CONFIGURATION: &str = "/etc/postgresql-common";

/// Adds what the service says and the string does not. The string or PGSERVICE names the service.
pub(super) fn apply_service(
    settings: &mut Settings,
    environment: &Environment<'_>,
) -> Result<(), PostgresError> {
    let named = settings.get("service").cloned();
    let Some(service) = named.or_else(|| (environment.variable)("PGSERVICE")) else {
        return Ok(());
    };
    for path in service_files(settings, environment) {
        if !path.exists() {
            continue;
        }
        let bytes = read_stream_at_most(&path, BYTES_MAX).doing("read service file", &path)?;
        let text = String::from_utf8_lossy(&bytes);
        if let Some(found) = service_section(&text, &service)? {
            found.into_iter().for_each(|(keyword, value)| {
                settings.entry(keyword).or_insert(value);
            });
            return Ok(());
        }
    }
    Err(PostgresError::Service { service })
}

fn service_files(settings: &Settings, environment: &Environment<'_>) -> Vec<PathBuf> {
    let named = settings.get("servicefile").cloned();
    let named = named
        .or_else(|| (environment.variable)("PGSERVICEFILE"))
        .map(PathBuf::from);
    let user = environment
        .home
        .as_ref()
        .map(|home| home.join(".pg_service.conf"));
    let system = (environment.variable)("PGSYSCONFDIR");
    let system = PathBuf::from(system.unwrap_or_else(|| SYSTEM_CONFIGURATION.into()));
    named
        .or(user)
        .into_iter()
        .chain([system.join("pg_service.conf")])
        .collect()
}

fn service_section(text: &str, service: &str) -> Result<Option<Settings>, PostgresError> {
    let mut found: Option<Settings> = None;
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            if found.is_some() {
                break;
            }
            found = (name == service).then(Settings::new);
        } else if let Some(settings) = &mut found {
            let (keyword, value) = service_line(line)?;
            // As in libpq, the first of two lines for one keyword counts.
            settings.entry(keyword).or_insert(value);
        }
    }
    Ok(found)
}

fn service_line(line: &str) -> Result<(String, String), PostgresError> {
    let Some((keyword, value)) = line.split_once('=') else {
        return fault(format!("service file: {line:?} is not keyword=value"));
    };
    let known = KEYWORDS.iter().any(|(known, _)| *known == keyword);
    if keyword == "service" || !(known || IGNORED.contains(&keyword)) {
        return fault(format!("service file: invalid keyword {keyword:?}"));
    }
    Ok((keyword.into(), value.into()))
}

/// The password file: the one that the string or PGPASSFILE names, or the usual one.
pub(super) fn password_file(settings: &Settings, environment: &Environment<'_>) -> Option<PathBuf> {
    let named = settings.get("passfile").map(PathBuf::from);
    named.or_else(|| usual(environment))
}

/// The password file if nobody names another.
pub(super) fn usual(environment: &Environment<'_>) -> Option<PathBuf> {
    environment.home.as_ref().map(|home| home.join(".pgpass"))
}

/// Where the connection string or the environment says that the password is, as a sentence. What
/// is said there wins over every other place.
pub(super) fn password_place(settings: &Settings) -> Option<String> {
    if settings.contains_key("password") {
        let place = "The password is the one of password= or PGPASSWORD: correct it there.";
        return Some(place.to_owned());
    }
    let file = settings.get("passfile")?;
    Some(format!(
        "passfile= or PGPASSFILE names {file}: correct the role's line in that file (mode 0600)."
    ))
}

/// Why a password file is not used, as a sentence. As in libpq, a file that others may read is not
/// used. A missing file is a fault only if somebody named it.
pub(super) fn skipped(path: &Path, is_named: bool) -> Option<String> {
    let why = match std::fs::metadata(path) {
        Err(_) if !is_named => return None,
        Err(error) => error.to_string(),
        Ok(metadata) if !metadata.is_file() => "it is not a file".to_owned(),
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            let mode = metadata.permissions().mode() & 0o777;
            let path = path.display();
            format!(
                "others may use it (mode {mode:04o}, and 0600 is the most). Type chmod 600 {path}"
            )
        }
        Ok(_) => std::fs::File::open(path).err()?.to_string(),
    };
    let path = path.display();
    Some(format!("The password file {path} was not used: {why}."))
}

/// The password of the first matching line of the password file.
pub(super) fn password(path: &Path, settings: &Settings, addresses: &[Address]) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (database, user) = (settings.get("dbname")?, settings.get("user")?);
    addresses.iter().find_map(|address| {
        let (host, port) = passfile_host(address);
        let wanted = [host, port.to_string(), database.clone(), user.clone()];
        text.lines().find_map(|line| passfile_line(line, &wanted))
    })
}

/// The password file calls a socket in the default directory "localhost".
fn passfile_host(address: &Address) -> (String, u16) {
    match address {
        Address::Tcp { host, port, .. } => (host.clone(), *port),
        Address::Socket { directory, port } => {
            let default = SOCKET_DIRECTORIES
                .iter()
                .any(|known| directory.as_os_str() == *known);
            let name = directory.display().to_string();
            (if default { "localhost".into() } else { name }, *port)
        }
    }
}

fn passfile_line(line: &str, wanted: &[String; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = passfile_fields(line).into_iter();
    for value in wanted {
        let (raw, field) = fields.next()?;
        if raw != "*" && field != *value {
            return None;
        }
    }
    fields.next().map(|(_, password)| password)
}

/// The five fields, raw and without their escapes (`\:` and `\\`). The fifth also ends at a colon.
fn passfile_fields(line: &str) -> Vec<(String, String)> {
    let mut fields = vec![(String::new(), String::new())];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == ':' {
            fields.push((String::new(), String::new()));
            continue;
        }
        let (raw, plain) = fields.last_mut().expect("the list starts with one field");
        raw.push(c);
        let literal = if c == '\\' { chars.next() } else { Some(c) };
        if c == '\\' {
            raw.extend(literal);
        }
        plain.extend(literal);
    }
    fields
}

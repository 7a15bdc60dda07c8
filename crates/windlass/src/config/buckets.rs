//! The configuration's tables about buckets: `[object]`, and `[object."s3://BUCKET"]` for one.
//!
//! Invariant: a secret never stands in a table, because everybody may read the configuration. The
//! file with the keys is named instead.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_engine::{parse_seconds, parse_size};
use windlass_object::{
    BucketSettings, Location, ObjectSettings, PART_BYTES_MAX, PART_BYTES_MIN, is_in_bucket,
};

use super::file::{Config, Entry, Section, mistake};
use crate::cli::Command;
use crate::exit::Failure;
use crate::nearest;

const KEYS: [&str; 9] = [
    "endpoint",
    "region",
    "path-style",
    "ca-file",
    "credentials-file",
    "profile",
    "checksums",
    "part-size",
    "deadline",
];

/// How long a server's own process waits for a bucket. A server asks again by itself, and what it
/// waits for so long should be seen in its log.
const DEADLINE_OF_SERVERS: Duration = Duration::from_secs(60);

/// What the configuration says about buckets.
pub(super) fn settings(config: &Config, command: &Command) -> Result<ObjectSettings, Failure> {
    let mut settings = ObjectSettings::default();
    for (name, section) in &config.buckets {
        let found = of_section(section)?;
        if name.is_empty() {
            settings.usual = found;
            continue;
        }
        let hint = "Write [object.\"s3://BUCKET\"], with gs:// or az:// for the other services.";
        let refused = |what: &str| mistake(&section.place, what, hint);
        if !is_in_bucket(Path::new(name)) {
            return Err(refused(&format!("{name} is no bucket")));
        }
        let location = Location::parse(Path::new(name));
        let location = location.map_err(|error| refused(&error.to_string()))?;
        if !location.key.is_empty() {
            return Err(refused(&format!(
                "{name} is more than the name of a bucket"
            )));
        }
        settings.buckets.push((location.bucket_name(), found));
    }
    if matches!(command, Command::ArchivePush(_) | Command::ArchiveGet(_)) {
        settings.usual.deadline.get_or_insert(DEADLINE_OF_SERVERS);
    }
    Ok(settings)
}

fn of_section(section: &Section) -> Result<BucketSettings, Failure> {
    let mut settings = BucketSettings::default();
    for (name, entry) in &section.entries {
        let text = one(name, entry)?;
        let wrong = |hint: &str| {
            let what = format!("{name} cannot be {text:?}");
            mistake(&entry.place, &what, hint)
        };
        match name.as_str() {
            "endpoint" => {
                let is_address = text.starts_with("https://") || text.starts_with("http://");
                if !is_address || text.contains('@') {
                    return Err(wrong(
                        "Write https://HOST or https://HOST:PORT, without keys.",
                    ));
                }
                settings.endpoint = Some(text.trim_end_matches('/').to_owned());
            }
            "region" => settings.region = Some(text.clone()),
            "profile" => settings.profile = Some(text.clone()),
            "ca-file" => settings.ca_file = Some(PathBuf::from(text)),
            "credentials-file" => settings.credentials_file = Some(PathBuf::from(text)),
            "path-style" => {
                let flag = super::parse_flag(text);
                settings.path_style = Some(flag.map_err(|_| wrong("Write true or false."))?);
            }
            "checksums" => {
                let flag = super::parse_flag(text);
                settings.checksums = Some(flag.map_err(|_| wrong("Write true or false."))?);
            }
            "part-size" => {
                let bytes = parse_size(text).ok();
                let is_right = |bytes: &u64| (PART_BYTES_MIN..=PART_BYTES_MAX).contains(bytes);
                let bytes = bytes.filter(is_right);
                let bytes = bytes.ok_or_else(|| wrong("Write a size from 5MiB to 256MiB."))?;
                settings.part_bytes = Some(bytes);
            }
            "deadline" => {
                let seconds = parse_seconds(text).ok().filter(|seconds| *seconds >= 1.0);
                let seconds = seconds.ok_or_else(|| wrong("Write a time from 1s, as in 5m."))?;
                settings.deadline = Some(Duration::from_secs_f64(seconds));
            }
            _ => {
                let what = format!("no setting of buckets is called {name}");
                let rest = "Keys stand in the environment (AWS_ACCESS_KEY_ID, ...) or in the file \
                            that credentials-file names.";
                let hint = nearest::hint(name, KEYS, rest);
                return Err(mistake(&entry.place, &what, &hint));
            }
        }
    }
    Ok(settings)
}

fn one<'a>(name: &str, entry: &'a Entry) -> Result<&'a String, Failure> {
    match entry.values.as_slice() {
        [text] if !entry.is_list => Ok(text),
        _ => Err(mistake(
            &entry.place,
            &format!("{name} takes one value"),
            "Write it without brackets.",
        )),
    }
}

//! Locations in buckets: `s3://bucket/prefix/name`. Text only: nothing here asks a server.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::ObjectError;

/// Endings of the names of stripes, after a dot. Everything else in a bucket is a place.
const STRIPE_ENDINGS: [&str; 3] = ["windlass", "stripe", "bak"];

/// A service that has buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Amazon S3, and every server that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage, where a bucket is called a container.
    Azure,
}

const SERVICES: [(Service, &str); 3] = [
    (Service::S3, "s3://"),
    (Service::Google, "gs://"),
    (Service::Azure, "az://"),
];

/// A bucket, and a key in it: of an object, or the beginning of the keys of a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The service that has the bucket.
    pub service: Service,
    /// The bucket.
    pub bucket: String,
    /// The key, without a slash at either end. Empty for the whole bucket.
    pub key: String,
}

/// Whether a word means something in a bucket.
pub fn is_in_bucket(word: &Path) -> bool {
    service(word.as_os_str()).is_some()
}

/// Whether a location in a bucket is, by its name, that of a stripe.
pub fn is_stripe_name(location: &Path) -> bool {
    let ending = location.extension().and_then(OsStr::to_str);
    is_in_bucket(location) && ending.is_some_and(|ending| STRIPE_ENDINGS.contains(&ending))
}

fn service(word: &OsStr) -> Option<(Service, &str)> {
    let find = |(service, start): &(Service, &'static str)| {
        let rest = word.as_bytes().strip_prefix(start.as_bytes())?;
        // A name that is not UTF-8 has an empty rest, which no bucket has.
        Some((*service, std::str::from_utf8(rest).unwrap_or_default()))
    };
    SERVICES.iter().find_map(find)
}

impl Location {
    /// Reads a location. A slash at its end is left out.
    pub fn parse(word: &Path) -> Result<Self, ObjectError> {
        let fault = |what| ObjectError::Location {
            text: word.to_string_lossy().into_owned(),
            what,
        };
        let (service, rest) =
            service(word.as_os_str()).ok_or_else(|| fault("begins with s3://, gs:// or az://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(fault("names a bucket after the two slashes"));
        }
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        if !bucket.chars().all(is_plain) {
            return Err(fault(
                "has a bucket of letters, digits, dots, hyphens and underscores; keys and endpoints belong into the configuration",
            ));
        }
        let is_bad = |part: &str| ["", ".", ".."].contains(&part);
        if !key.is_empty() && key.split('/').any(is_bad) {
            return Err(fault(
                "has no empty parts, and none of dots, between slashes",
            ));
        }
        if key.chars().any(char::is_control) || key.contains(['?', '#']) {
            return Err(fault(
                "has no control characters, question marks or number signs",
            ));
        }
        Ok(Self {
            service,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    /// The same, with `name` below it.
    pub fn join(&self, name: &str) -> Self {
        let key = match self.key.is_empty() {
            true => name.to_owned(),
            false => format!("{}/{name}", self.key),
        };
        Self {
            key,
            ..self.clone()
        }
    }

    /// The place that this lies in, and its name there.
    pub fn split(&self) -> (Self, &str) {
        let (place, name) = self.key.rsplit_once('/').unwrap_or(("", &self.key));
        let place = Self {
            key: place.to_owned(),
            ..self.clone()
        };
        (place, name)
    }

    /// As a path, which is how sets and lists name it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// The bucket alone, as people name it.
    pub fn bucket_name(&self) -> String {
        format!("{}{}", start(self.service), self.bucket)
    }
}

fn start(service: Service) -> &'static str {
    let found = SERVICES.iter().find(|(one, _)| *one == service);
    found.map_or("", |(_, start)| start)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket_name())?;
        match self.key.is_empty() {
            true => Ok(()),
            false => write!(f, "/{}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_service_a_bucket_and_a_key() {
        let parse = |text: &str| Location::parse(Path::new(text)).map(|one| one.to_string());
        assert_eq!(parse("s3://shop").unwrap(), "s3://shop");
        assert_eq!(parse("s3://shop/").unwrap(), "s3://shop");
        assert_eq!(parse("gs://shop/a/b/").unwrap(), "gs://shop/a/b");
        for bad in [
            "s3://",
            "s3:///a",
            "s3://shop//a",
            "s3://shop/../a",
            "s3://shop/./a",
            "s3://key:secret@shop/a",
            "s3://shop/a?versionId=1",
            "/srv/shop",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_lead_from_a_stripe_to_its_place_and_back() {
        let stripe = Path::new("s3://shop/a/x.1of1.windlass");
        assert!(is_in_bucket(stripe) && is_stripe_name(stripe));
        assert_eq!(stripe.parent(), Some(Path::new("s3://shop/a")));
        let location = Location::parse(stripe).unwrap();
        let (place, name) = location.split();
        assert_eq!(place.to_string(), "s3://shop/a");
        assert_eq!(place.join(name).path(), stripe);
        assert!(!is_stripe_name(Path::new("s3://shop/a")));
        assert!(!is_in_bucket(Path::new("s3:/shop/a")));
    }
}

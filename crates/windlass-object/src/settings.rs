//! What the configuration says about buckets. Values only: `client.rs` makes clients of them.

use std::path::PathBuf;
use std::time::Duration;

use crate::location::Location;

/// Smallest part of an upload, which all services but Azure ask for.
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;
/// Size of a part, unless the database is so large that the parts would be too many.
pub const PART_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;
/// Largest part that Windlass makes.
pub const PART_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most parts of one object.
pub const PARTS_MAX: u64 = 10_000;
/// How many parts of one stripe are on their way at once.
pub const PARTS_IN_FLIGHT: usize = 4;

/// How to reach a bucket. What is not set comes from the environment, as the tools of the service
/// have it, or is the service's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketSettings {
    /// The address of the server, if it is not that of the service.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// Whether the bucket is part of the path (`true`) or of the host's name.
    pub path_style: Option<bool>,
    /// A file with certificates, in PEM, that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// A file with the keys: lines `NAME = VALUE`, as in `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// The section of that file.
    pub profile: Option<String>,
    /// Whether each object and each part goes with a checksum of its own. Buckets with a default
    /// retention ask for that, and some servers refuse it.
    pub checksums: Option<bool>,
    /// Bytes of one part of an upload.
    pub part_bytes: Option<u64>,
    /// How long a request is tried again.
    pub deadline: Option<Duration>,
}

/// The settings of all buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSettings {
    /// For buckets without settings of their own, and for what theirs do not set.
    pub usual: BucketSettings,
    /// Settings of single buckets, by their names as in `s3://shop`.
    pub buckets: Vec<(String, BucketSettings)>,
}

impl ObjectSettings {
    /// The settings of one bucket.
    pub fn of(&self, location: &Location) -> BucketSettings {
        let name = location.bucket_name();
        let own = self.buckets.iter().find(|(one, _)| *one == name);
        let own = own.map(|(_, own)| own.clone()).unwrap_or_default();
        let usual = self.usual.clone();
        BucketSettings {
            endpoint: own.endpoint.or(usual.endpoint),
            region: own.region.or(usual.region),
            path_style: own.path_style.or(usual.path_style),
            ca_file: own.ca_file.or(usual.ca_file),
            profile: own.profile.or(usual.profile),
            credentials_file: own.credentials_file.or(usual.credentials_file),
            checksums: own.checksums.or(usual.checksums),
            part_bytes: own.part_bytes.or(usual.part_bytes),
            deadline: own.deadline.or(usual.deadline),
        }
    }
}

impl BucketSettings {
    /// How long a request is tried again.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline.unwrap_or(Duration::from_secs(300))
    }
}

/// Bytes of a part of each of so many stripes, for a database of this size. None if even the
/// largest parts would be too many.
pub fn part_bytes_for(database_bytes: u64, asked: Option<u64>) -> Option<u64> {
    // Any stripe may get nearly everything, if the other devices are slow. A tenth is kept for what
    // grows while it is read, and for indexes.
    let stripe_bytes = database_bytes.saturating_add(database_bytes / 10);
    let needed = stripe_bytes.div_ceil(PARTS_MAX).next_multiple_of(1 << 20);
    let usual = asked.unwrap_or(PART_BYTES_DEFAULT);
    match asked {
        Some(asked) => (needed <= asked).then_some(asked),
        None => (needed <= PART_BYTES_MAX).then_some(usual.max(needed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_the_database_and_are_refused_when_they_would_be_too_many() {
        let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes >> 20);
        assert_eq!(mib(part_bytes_for(0, None)), Some(8));
        assert_eq!(mib(part_bytes_for(1 << 36, None)), Some(8));
        assert_eq!(mib(part_bytes_for(1 << 40, None)), Some(116));
        assert_eq!(mib(part_bytes_for(1 << 43, None)), None);
        assert_eq!(mib(part_bytes_for(1 << 40, Some(8 << 20))), None);
        assert_eq!(mib(part_bytes_for(1 << 30, Some(5 << 20))), Some(5));
    }
}

//! The errors of buckets.

use std::io;

use windlass_object::{Fault, ObjectError};

/// What to do about an error of a bucket.
pub fn hint(error: &ObjectError) -> &'static str {
    let of_setting = "Look at the table [object] of the configuration, and at the environment.";
    match error {
        ObjectError::Location { .. } => {
            "Write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX."
        }
        ObjectError::Setting { .. } | ObjectError::SettingFile { .. } => of_setting,
        ObjectError::Taken { .. } => {
            "Windlass replaces nothing in a bucket. Name the prefix alone: then it chooses a name."
        }
        ObjectError::TooLarge { .. } => {
            "Name more devices, or allow larger parts: part-size below [object]."
        }
        ObjectError::Stays { .. } => {
            "Measure another bucket of the same service, without Object Lock, with keys that may \
             delete."
        }
        ObjectError::Left { .. } => {
            "The next backup to this place removes it. `windlass info PLACE` shows it until then."
        }
        ObjectError::Request { cause, .. } if cause.contains("certificate") => {
            "Name a file with the certificate of its authority: ca-file below [object]."
        }
        _ => match error.fault() {
            Some(Fault::Denied) => {
                "Are the keys right, and do they allow this? They come from AWS_ACCESS_KEY_ID, \
                 GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY and the like, or from \
                 the file that credentials-file names below [object]."
            }
            Some(Fault::NoBucket) => {
                "Does the bucket exist, with this name and on this server? Windlass makes no \
                 buckets. The server is endpoint below [object], or AWS_ENDPOINT_URL."
            }
            Some(Fault::Refused) => {
                "Is it the right server and region? They are endpoint and region below [object], \
                 or AWS_ENDPOINT_URL and AWS_REGION."
            }
            Some(Fault::Passing) => {
                "Can the server be reached from here? `windlass check DATABASE --to PLACE` tries \
                 it. How long Windlass tries is the deadline below [object]."
            }
            _ => "`windlass check DATABASE --to PLACE` tries the bucket.",
        },
    }
}

/// The error of a bucket that the error of a system call stands for.
pub fn of_io(error: &io::Error) -> Option<&ObjectError> {
    error.get_ref()?.downcast_ref()
}

//! What can go wrong with a bucket, with the cause that the server or the connection gives.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What became of an object that was removed, to see whether that can be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Removal {
    /// It is gone.
    #[error("objects can be removed there")]
    Gone,
    /// The server refused it, in these words.
    #[error("nothing can be removed there: {0}")]
    Refused(String),
    /// It became an old version that is locked: so does Object Lock of S3.
    #[error("what is removed there stays, as an old version that is locked")]
    Locked,
}

/// Why a bucket cannot be used as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// A word that names no place in a bucket.
    #[error("{text}: a location in a bucket {what}")]
    Location {
        /// The word.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// A setting that a client cannot be made with.
    #[error("{bucket}: {what}")]
    Setting {
        /// The bucket.
        bucket: String,
        /// What is wrong.
        what: String,
    },
    /// A file that the configuration names cannot be read.
    #[error("{bucket}: cannot read {path}: {source}")]
    SettingFile {
        /// The bucket.
        bucket: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The threads for requests cannot be started.
    #[error("cannot start the threads for requests to buckets: {0}")]
    Threads(io::Error),
    /// A request failed, and trying again did not help or would not.
    #[error("{operation} {object}: {cause}{}", tried(*tries, *elapsed))]
    Request {
        /// What was being done.
        operation: &'static str,
        /// With which object or place.
        object: String,
        /// What kind of failure it is.
        fault: Fault,
        /// What the server or the connection says.
        cause: String,
        /// How often it was tried.
        tries: u32,
        /// For how long.
        elapsed: Duration,
    },
    /// Somebody else has the name.
    #[error("{object} exists already, and it is not what this run wrote")]
    Taken {
        /// The object.
        object: String,
    },
    /// An object is not what was written.
    #[error("{object} has {found} bytes, and {expected} were written")]
    Length {
        /// The object.
        object: String,
        /// Its length.
        found: u64,
        /// The length that it should have.
        expected: u64,
    },
    /// An object reads back differently.
    #[error("{object} was written, and reads back differently")]
    ReadBack {
        /// The object.
        object: String,
    },
    /// What was written there would stay.
    #[error("{place} is not measured: {removal}")]
    Stays {
        /// The place.
        place: String,
        /// What was found.
        removal: Removal,
    },
    /// A measurement failed, and something that it wrote is still there.
    #[error("{cause}; what was written for that below {place} could not be removed: {why}")]
    Left {
        /// The place.
        place: String,
        /// Why it failed.
        cause: Box<ObjectError>,
        /// Why it is still there.
        why: String,
    },
    /// An object that is there is in no list.
    #[error("{object} was written, and no list shows it")]
    NotListed {
        /// The object.
        object: String,
    },
    /// A server gives a page of a list again, so the list would have no end.
    #[error("list {place}: the server gives the same page again and again")]
    Repeats {
        /// What was listed.
        place: String,
    },
    /// An object that should be a name object is none.
    #[error("{object}: {source}")]
    Format {
        /// The object.
        object: String,
        /// What is wrong with it.
        source: windlass_engine::media::FormatError,
    },
    /// More than a bucket takes.
    #[error(
        "a stripe in {bucket} has at most {parts_max} parts, and with parts of {part_bytes} bytes that is {stripe_bytes_max} bytes"
    )]
    TooLarge {
        /// The bucket.
        bucket: String,
        /// Most parts of one object.
        parts_max: u64,
        /// Bytes of a part.
        part_bytes: u64,
        /// Their product.
        stripe_bytes_max: u64,
    },
    /// An object stands where only notes of readers stand.
    #[error("{object} is no note of a reader of sets: nobody knows what it says")]
    Note {
        /// The object.
        object: String,
    },
    /// The run was cancelled while a request waited.
    #[error("interrupted")]
    Cancelled,
}

/// What kind of failure a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The object is not there.
    Missing,
    /// The bucket is not there.
    NoBucket,
    /// The keys are wrong, or do not allow this.
    Denied,
    /// The object exists already.
    Exists,
    /// The server refuses the request, and would refuse it again.
    Refused,
    /// The server or the connection fails now; later it may work.
    Passing,
}

fn tried(tries: u32, elapsed: Duration) -> String {
    match tries {
        0 | 1 => String::new(),
        _ => format!(" (tried {tries} times in {:.0} s)", elapsed.as_secs_f64()),
    }
}

impl ObjectError {
    /// What kind of failure it is, if a request failed or would fail.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Request { fault, .. } => Some(*fault),
            Self::Taken { .. } => Some(Fault::Exists),
            Self::Stays { .. } => Some(Fault::Denied),
            Self::Left { cause, .. } => cause.fault(),
            _ => None,
        }
    }

    /// Whether the object is not there.
    pub fn is_missing(&self) -> bool {
        self.fault() == Some(Fault::Missing)
    }
}

impl From<ObjectError> for io::Error {
    fn from(error: ObjectError) -> Self {
        let kind = match &error {
            ObjectError::Request { fault, .. } => match fault {
                Fault::Missing => io::ErrorKind::NotFound,
                Fault::Denied | Fault::Refused | Fault::NoBucket => {
                    io::ErrorKind::ConnectionRefused
                }
                Fault::Exists => io::ErrorKind::AlreadyExists,
                Fault::Passing => io::ErrorKind::HostUnreachable,
            },
            // A server that ends an object too early has lost its end.
            ObjectError::Length { .. } => io::ErrorKind::UnexpectedEof,
            ObjectError::Taken { .. } => io::ErrorKind::AlreadyExists,
            ObjectError::Format { .. } => io::ErrorKind::InvalidData,
            ObjectError::Cancelled => io::ErrorKind::Interrupted,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// The kind of a failure. What is not known to last is taken to pass.
pub(crate) fn fault_of(error: &object_store::Error) -> Fault {
    use object_store::Error as E;
    if is_of_bucket(&chain(error)) {
        return Fault::NoBucket;
    }
    match error {
        E::NotFound { .. } => Fault::Missing,
        E::AlreadyExists { .. } | E::Precondition { .. } => Fault::Exists,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Fault::Denied,
        E::Generic { .. } => fault_of_generic(error),
        _ => Fault::Refused,
    }
}

/// The kind of a failure that only its text tells.
fn fault_of_generic(error: &object_store::Error) -> Fault {
    let text = chain(error);
    match code_of_one(&text) {
        Some(
            "InternalError" | "SlowDown" | "ServiceUnavailable" | "OperationAborted" | "429"
            | "500" | "503",
        ) => Fault::Passing,
        Some("NoSuchKey") => Fault::Missing,
        Some(_) => Fault::Denied,
        None => match status(error) {
            // The server gave up on a slow request.
            Some(400) if text.contains("RequestTimeout") => Fault::Passing,
            Some(401 | 403) => Fault::Denied,
            Some(status) if status != 408 && status != 429 && (300..500).contains(&status) => {
                Fault::Refused
            }
            _ if is_lasting(&text) => Fault::Refused,
            _ => Fault::Passing,
        },
    }
}

/// Whether the text of a failure says that the bucket is not there, in the words of each service.
fn is_of_bucket(text: &str) -> bool {
    let words = [
        "NoSuchBucket",
        "The specified bucket does not exist",
        "ContainerNotFound",
    ];
    words.iter().any(|one| text.contains(one))
}

/// Whether the text of a failure is that of one that no other try can mend.
fn is_lasting(text: &str) -> bool {
    let lasting = [
        "invalid peer certificate",
        "Received redirect",
        "UnknownIssuer",
        "invalid URL",
        "No such file or directory",
    ];
    lasting.iter().any(|one| text.contains(one))
}

/// The status of the answer, which the library gives only as text.
fn status(error: &object_store::Error) -> Option<u16> {
    let text = chain(error);
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// What the server says of one object of a request for many: it has no status of its own.
fn code_of_one(text: &str) -> Option<&str> {
    let starts = [
        "DeleteObjects request failed for key ",
        "Bulk delete request failed for key ",
    ];
    let rest = starts.iter().find_map(|start| text.split_once(start))?.1;
    let (_, code) = rest.rsplit_once(" (code: ")?;
    code.split(')').next()
}

/// The texts of an error and of its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// What the server says, or else the first cause, which the other texts only wrap.
pub(crate) fn cause(error: &object_store::Error) -> String {
    let text = chain(error);
    if let Some(code) = element(&text, "Code") {
        let message = element(&text, "Message").unwrap_or_default();
        let message = message.trim().trim_end_matches('.');
        return match message.is_empty() {
            true => format!("the server says {code}"),
            false => format!("the server says {code}: {message}"),
        };
    }
    if let Some(code) = code_of_one(&text) {
        let words = text.rsplit_once(" (code: ").map_or("", |(words, _)| words);
        // The key comes first, and the caller names it.
        let message = words.split_once("for key ").map_or("", |(_, rest)| rest);
        let message = message.split_once(": ").map_or("", |(_, message)| message);
        let message = one_line(message.trim_end_matches('.'));
        return format!("the server says {code}: {message}");
    }
    let mut last: &dyn Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    let last = last.to_string();
    match last.split_once("non-2xx status code: ") {
        Some((_, status)) => {
            let status = status.trim_end_matches([':', ' ', '\n']);
            format!("the server answers {}", one_line(status))
        }
        None => one_line(&last),
    }
}

/// The content of the first XML element with this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(content, _)| content)
}

/// A text that a message can end with: one line, of a length that can be read.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(300) {
        line.truncate(end);
    }
    line
}

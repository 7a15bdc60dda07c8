//! The lock of an encrypted object: read from behind its header, and opened when it is needed.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;

use windlass_engine::{KeyFault, Keys, ReadAt};
use windlass_media::{LOG_HEADER_BYTES, LOG_LOCK_HEAD_BYTES, LogCipher, LogHeader, LogLock};

use crate::error::{FormatContext, IoContext, RepositoryError};
use crate::place::Place;
use crate::token::ContentKey;

/// Where a lock begins in an object.
const LOCK_AT: u64 = LOG_HEADER_BYTES as u64;

/// The lock of an object, and what its place knows to open it.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    lock: LogLock,
    keys: &'static dyn Keys,
    content_key: Option<ContentKey>,
    cipher: OnceLock<LogCipher>,
}

/// Whether an object has its header, and its lock if it is encrypted. What was cut off before has
/// no frame.
pub(crate) fn is_begun(bytes: &dyn ReadAt) -> io::Result<bool> {
    let mut header = [0; LOG_HEADER_BYTES];
    if !reads(bytes, 0, &mut header)? || header == [0; LOG_HEADER_BYTES] {
        return Ok(false);
    }
    if !LogHeader::decode(&header).is_ok_and(|header| header.is_encrypted) {
        return Ok(true);
    }
    let mut head = [0; LOG_LOCK_HEAD_BYTES];
    if !reads(bytes, LOCK_AT, &mut head)? {
        return Ok(false);
    }
    let Ok(length) = LogLock::length(&head) else {
        return Ok(head != [0; LOG_LOCK_HEAD_BYTES]);
    };
    let mut lock = vec![0; length];
    let is_last = bytes.length()? <= LOCK_AT + length as u64;
    Ok(reads(bytes, LOCK_AT, &mut lock)? && (!is_last || LogLock::decode(&lock).is_ok()))
}

/// Whether all of these bytes are there. They are read then.
fn reads(bytes: &dyn ReadAt, at: u64, into: &mut [u8]) -> io::Result<bool> {
    match bytes.read_exact_at(at, into) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// The lock of an encrypted object, and where it ends.
pub(crate) fn read_lock(
    place: &Place,
    bytes: &dyn ReadAt,
    path: &Path,
) -> Result<(Option<ObjectLock>, u64), RepositoryError> {
    let mut head = [0; LOG_LOCK_HEAD_BYTES];
    bytes
        .read_exact_at(LOCK_AT, &mut head)
        .doing("read", path)?;
    // The length was checked against that of the longest lock.
    let mut lock = vec![0; LogLock::length(&head).of(path)?];
    bytes
        .read_exact_at(LOCK_AT, &mut lock)
        .doing("read", path)?;
    let end = LOCK_AT + lock.len() as u64;
    let lock = ObjectLock {
        lock: LogLock::decode(&lock).of(path)?,
        keys: place.keys(),
        content_key: place.content_key().cloned(),
        cipher: OnceLock::new(),
    };
    Ok((Some(lock), end))
}

impl ObjectLock {
    /// What tells its content from other content without a key to it.
    pub(crate) fn content_key(&self) -> Option<&ContentKey> {
        self.content_key.as_ref()
    }

    /// What decrypts the object of this header and path. Fails if no key opens the lock.
    pub(crate) fn cipher(
        &self,
        (header, path): (&LogHeader, &Path),
    ) -> Result<&LogCipher, RepositoryError> {
        if let Some(cipher) = self.cipher.get() {
            return Ok(cipher);
        }
        let LogLock { object_id, lock } = &self.lock;
        let opened = self.keys.open(*object_id, lock);
        let right = opened.and_then(|key| match key.check_for(*object_id) == lock.check {
            true => Ok(key),
            false => Err(KeyFault::WrongKey),
        });
        let key = right.map_err(|fault| RepositoryError::Sealed {
            path: path.to_owned(),
            recipients: lock.recipients(),
            fault,
        })?;
        let cipher = LogCipher::new(&key, *object_id, header).of(path)?;
        Ok(self.cipher.get_or_init(|| cipher))
    }
}

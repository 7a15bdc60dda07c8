//! Keys to encrypted sets, as whoever opens a set hands them in. This crate knows no file and no
//! passphrase.

use std::sync::Arc;

use windlass_media::{DataKey, Lock, SetId};

/// Opens locks. It holds the keys of whoever reads.
pub trait Keys: std::fmt::Debug + Send + Sync {
    /// The data key in one of the envelopes of a lock.
    fn open(&self, set: SetId, lock: &Lock) -> Result<Arc<DataKey>, KeyFault>;
}

/// Why a lock does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// There is no key.
    NoKey,
    /// There are keys, and none of them opens it.
    WrongKey,
    /// A key could not be had. The words say why, and never what the key is.
    Failed(String),
}

/// No keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn open(&self, _set: SetId, _lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        Err(KeyFault::NoKey)
    }
}

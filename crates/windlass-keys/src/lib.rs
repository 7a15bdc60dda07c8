//! Who can read an encrypted set: recipients, passphrases and identities, and the envelopes that
//! hold the data key for each of them.
//!
//!   --encrypt words --> Readers --lock--> header of a set, or a file beside it
//!   --key words     --> Keyring --open--> data key
//!
//! Invariants
//! - An envelope is a file in the format of age, version 1, so that the program `age` opens it.
//! - No error, no `Debug` and no log shows a byte of a secret. Secrets are overwritten when they
//!   are dropped, and a process that has one makes no core file.
//! - A file with a secret that others may read is refused, as libpq refuses it.
//! - This crate never reads or writes a set.

mod age;
mod error;
mod keyring;
mod readers;
mod secret;
mod word;

pub use age::{Identity, Passphrase, Recipient, WORK_FACTOR, WORK_FACTOR_MAX, open_envelope};
pub use error::KeyError;
pub use keyring::Keyring;
pub use readers::Readers;
pub use word::{KeyWord, check_words};

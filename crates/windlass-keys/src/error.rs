//! What can be wrong with a key. No error says anything of a secret itself.

use std::io;
use std::path::PathBuf;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A word that names no key.
    #[error(
        "{0:?} is no key: write age:RECIPIENT, identity-file:PATH, passphrase-file:PATH, fd:N or \
         command:PROGRAM"
    )]
    Word(String),
    /// A word that starts like an identity or a passphrase: a secret must not stand there.
    #[error("a secret stands where everybody can read it: in the words of the command")]
    SecretInWords,
    /// A recipient with a mistake in it.
    #[error("{0:?} is no recipient of age: it has another form, or a mistyped letter")]
    Recipient(String),
    /// A recipient was given where something that can decrypt is needed.
    #[error("{0} is a recipient, which can only encrypt")]
    OnlyEncrypts(String),
    /// The file of a secret cannot be read.
    #[error("read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the file of a secret.
    #[error("{} may be read by others (mode {mode:04o})", path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The descriptor of a secret cannot be read.
    #[error("read descriptor {number}: {source}")]
    Descriptor {
        /// Its number.
        number: u32,
        /// Why.
        source: io::Error,
    },
    /// The command that gives a secret failed.
    #[error("the command of a key, {program}, {what}")]
    Command {
        /// Its first word.
        program: String,
        /// What happened.
        what: String,
    },
    /// There is nothing in what should hold a secret.
    #[error("{0} has no secret in it")]
    Empty(String),
    /// What should hold identities has other lines.
    #[error("{0} has no identity of age (a line that begins with AGE-SECRET-KEY-1)")]
    NoIdentity(String),
    /// The secret is too long.
    #[error("{0} is longer than any secret")]
    TooLong(String),
    /// There is nobody to encrypt to.
    #[error("nobody could read the set: no recipient and no passphrase was named")]
    Nobody,
    /// More readers than a set can have.
    #[error("a set can be encrypted to at most 64 readers")]
    TooMany,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// An envelope has another form, or its work is beyond the limit.
    #[error("an envelope {0}")]
    Envelope(&'static str),
}

impl KeyError {
    /// What can be done about it, as a full sentence.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Permissions { path, .. } => {
                format!("Run `chmod 600 {}`.", path.display())
            }
            Self::SecretInWords => {
                "Write the secret to a file with mode 0600 and name it: identity-file:PATH. Make a \
                 new key, because this one was seen."
                    .to_owned()
            }
            Self::OnlyEncrypts(_) => {
                "Name the identity that belongs to it: identity-file:PATH.".to_owned()
            }
            Self::Recipient(_) => {
                "`age-keygen -y FILE` prints the recipient of an identity.".into()
            }
            Self::NoIdentity(_) => {
                "`age-keygen -o FILE` makes one. For a passphrase, write passphrase-file:PATH."
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// Whether what was asked for is wrong, and not what is there.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Word(_)
                | Self::SecretInWords
                | Self::Recipient(_)
                | Self::OnlyEncrypts(_)
                | Self::Nobody
                | Self::TooMany
        )
    }
}

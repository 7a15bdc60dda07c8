//! The words for keys: `age:RECIPIENT`, `identity-file:PATH`, `passphrase-file:PATH`, `fd:N`,
//! `command:PROGRAM ARGUMENTS`.

use std::path::PathBuf;

use crate::age::Recipient;
use crate::error::KeyError;
use crate::secret::{self, Secret};

/// A key, as a user names it. It holds no secret, only where one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyWord {
    /// A recipient of age.
    Age(Recipient),
    /// A file with identities of age.
    IdentityFile(PathBuf),
    /// A file with a passphrase.
    PassphraseFile(PathBuf),
    /// A descriptor of this process, with either of them.
    Descriptor(u32),
    /// A command that prints either of them, as program and arguments.
    Command(Vec<String>),
}

impl KeyWord {
    /// The key that a word names.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let is_secret = |text: &str| {
            text.to_ascii_uppercase()
                .starts_with(crate::age::IDENTITY_START)
        };
        let unknown = || KeyError::Word(text.to_owned());
        let Some((kind, rest)) = text.split_once(':') else {
            return match is_secret(text) {
                true => Err(KeyError::SecretInWords),
                false if text.starts_with("age1") => Recipient::parse(text).map(Self::Age),
                false => Err(unknown()),
            };
        };
        match kind {
            _ if is_secret(rest) => Err(KeyError::SecretInWords),
            // Nobody knows whether what follows is a secret, so it is not repeated.
            "passphrase" | "identity" => Err(KeyError::SecretInWords),
            "age" => Recipient::parse(rest).map(Self::Age),
            "identity-file" if !rest.is_empty() => Ok(Self::IdentityFile(rest.into())),
            "passphrase-file" if !rest.is_empty() => Ok(Self::PassphraseFile(rest.into())),
            "fd" => rest.parse().map(Self::Descriptor).map_err(|_| unknown()),
            "command" => match shlex::split(rest) {
                Some(words) if !words.is_empty() => Ok(Self::Command(words)),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }

    /// Whether it is read only when the key is needed: a command takes time, and what a descriptor
    /// gives can be read once, perhaps by a child of this process.
    pub(crate) fn is_read_late(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Descriptor(_))
    }

    /// The secret itself.
    pub(crate) fn load(&self) -> Result<Secret, KeyError> {
        match self {
            Self::Age(recipient) => Ok(Secret::Recipients(vec![recipient.clone()])),
            Self::IdentityFile(path) => {
                Secret::identities(&secret::of_file(path)?, &path.display().to_string())
            }
            Self::PassphraseFile(path) => {
                Secret::passphrase(secret::of_file(path)?, &path.display().to_string())
            }
            Self::Descriptor(number) => {
                let bytes = secret::of_descriptor(*number)?;
                Secret::of(bytes, &format!("descriptor {number}"))
            }
            Self::Command(words) => {
                let name = words.first().cloned().unwrap_or_default();
                Secret::of(secret::of_command(words)?, &format!("the output of {name}"))
            }
        }
    }
}

/// Refuses words that name no keys, without looking at what they name.
pub fn check_words(words: &[String]) -> Result<(), KeyError> {
    words
        .iter()
        .try_for_each(|word| KeyWord::parse(word).map(drop))
}

//! What can be wrong with a model's text.

use crate::model::Model;

/// Why a text is not a model, or not what storage shall behave like.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelError {
    /// It is not a model of storage.
    #[error("storage model {text:?}: {what}")]
    Model {
        /// The text.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// It does not say what to emulate.
    #[error("{what}")]
    Emulation {
        /// What is wrong with it.
        what: String,
    },
}

impl ModelError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Model { .. } => Some(format!("Models are, for example: {}.", Model::EXAMPLES)),
            Self::Emulation { .. } => None,
        }
    }
}

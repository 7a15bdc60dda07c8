//! What to do about a plan or a probe that cannot be made.

use windlass_model::{Instance, Model};
use windlass_operations::plan::PlanError;

/// The message, and what to do about it.
pub fn words(error: &PlanError) -> (String, Option<String>) {
    let probe = "Name a directory, or a file, on the storage that you want to measure.";
    let (message, hint) = match error {
        PlanError::NoSize => (
            error.to_string(),
            "Name a database to measure, or say --used-bytes.".to_owned(),
        ),
        PlanError::UnknownInstance { name } => {
            let known: Vec<_> = Instance::names().collect();
            let known = known.join(", ");
            (
                format!("--instance {name:?} is not known"),
                format!("Known are {known}; or say the limits as keys of a model."),
            )
        }
        PlanError::NoStorage { is_source } => {
            let option = if *is_source { "--source" } else { "--target" };
            (
                format!("{option} is missing"),
                format!("Say what storage is there: {}.", Model::EXAMPLES),
            )
        }
        PlanError::NoPath { .. } => (
            error.to_string(),
            "Name a path on storage that `windlass lab probe` has measured, or a model.".to_owned(),
        ),
        PlanError::NotProbed { path } => (
            error.to_string(),
            format!("Run: windlass lab probe {}", path.display()),
        ),
        _ => (error.to_string(), probe.to_owned()),
    };
    (message, Some(hint))
}

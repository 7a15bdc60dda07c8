//! What to do about a history that cannot be read or written.

use windlass_operations::history::{CatalogError, HistoryError};

/// The message, and what to do.
pub fn words(error: &HistoryError) -> (String, Option<String>) {
    let hint = match error {
        HistoryError::NoDirectory => {
            "Set HOME, or name a directory in WINDLASS_STATE_DIR.".to_owned()
        }
        HistoryError::Catalog(error) => catalog(error).to_owned(),
        HistoryError::Unknown {
            near: Some(near), ..
        } => format!("Did you mean {near}? `windlass history` shows all databases."),
        HistoryError::Unknown { .. } => {
            "`windlass history` shows all databases. --from PLACE reads the sets of a directory. \
             Each user has a history of their own."
                .to_owned()
        }
        HistoryError::NoPlaces => "Name a directory with --from.".to_owned(),
        _ => return (error.to_string(), None),
    };
    (error.to_string(), Some(hint))
}

/// What to do about the catalog.
pub fn catalog(error: &CatalogError) -> &'static str {
    match error {
        CatalogError::Newer { .. } => {
            "Use the newer windlass, or name another directory in WINDLASS_STATE_DIR."
        }
        CatalogError::Foreign { .. } => {
            "Move the file away, or name another directory in WINDLASS_STATE_DIR."
        }
        CatalogError::Damaged { .. } => {
            "Move the file away: `windlass history --rebuild` reads the sets again."
        }
        _ => {
            "Make room and check the rights of that directory, name another one in \
             WINDLASS_STATE_DIR, or add --no-history."
        }
    }
}

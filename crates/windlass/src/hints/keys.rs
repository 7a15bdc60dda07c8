//! What to do about keys, and about what is encrypted or not.

use windlass_operations::OperationError;

/// The hint if there is one.
pub fn hint(error: &OperationError) -> Option<String> {
    let text = match error {
        OperationError::Key(error) => return error.hint(),
        OperationError::NotEncrypted { .. } => {
            "`windlass backup --encrypt WHO` makes an encrypted set."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

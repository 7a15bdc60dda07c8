//! What to do about a restore that failed, or that was refused for its target.

use std::path::PathBuf;

use windlass_operations::OperationError;

use super::operation;

/// The hint if the user who restores may not use a directory of the restore.
const OWN_DIRECTORY: &str = "Each directory of the restore must belong to the user who will start \
                             the server. Name one that does not exist, or use chown first.";

/// The message, and what to do about it: what the cause says, if it says something.
pub fn words(error: &OperationError) -> (String, Option<String>) {
    let (cause, own) = match error {
        OperationError::OfTarget(error) => (error, OWN_DIRECTORY.to_owned()),
        OperationError::CutOff {
            error,
            places,
            is_complete,
            is_over,
        } => (error, left_behind(places, *is_complete, *is_over)),
        OperationError::StagingLeft { error, staging } => {
            let staging = staging.display();
            let hint = format!(
                "The next restore to the same path removes {staging}, or remove it yourself."
            );
            (error, hint)
        }
        other => {
            let hint = "Run as the user who will own the restored cluster.";
            return (other.to_string(), Some(hint.to_owned()));
        }
    };
    let (message, hint) = operation::words(cause);
    (message, hint.or(Some(own)))
}

/// The hint after a restore that did not end.
fn left_behind(places: &[PathBuf], is_complete: bool, is_over: bool) -> String {
    let places: Vec<_> = places
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let places = places.join(" and ");
    match is_complete {
        true => format!(
            "The restored cluster in {places} is complete, but a power cut may still damage it. \
             Look at the disk first (`dmesg`). Then run `sync`. If that succeeds, you can start \
             the cluster; if not, restore to another disk."
        ),
        false if is_over => format!(
            "What is in {places} does not start. Run the same restore with --delta again: it goes \
             on from what is there."
        ),
        false => format!("What is in {places} does not start: remove it before the next try."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_only_lacks_the_last_sync_is_not_called_useless() {
        let places = ["/data", "/space"].map(PathBuf::from);
        let hint = |is_complete| left_behind(&places, is_complete, false);
        assert!(hint(false).ends_with("space does not start: remove it before the next try."));
        assert!(hint(true).contains("is complete, but a power cut"));
        assert!(!hint(true).contains("remove it"));
    }
}

//! What to do if a cluster cannot be repaired.

use windlass_operations::RepairError;

/// The hint.
pub fn hint(error: &RepairError) -> &'static str {
    match error {
        RepairError::NotACluster { .. } => {
            "Name the data directory of a stopped server. Pages of a SQLite database belong \
             together in ways that its file does not say: restore it with `windlass restore`."
        }
        RepairError::NoChecksums => {
            "Name the damaged pages with --page, as the server's messages do. `pg_amcheck` finds \
             damaged tables and indexes."
        }
        RepairError::OtherCluster { .. } => {
            "Name the place of this cluster's sets with --from, or one of its sets with --set."
        }
        RepairError::KeptInside { .. } => "Name a directory elsewhere with --keep.",
        _ => "What was not repaired yet is as it was. Run the command again.",
    }
}

//! What this user may not read.

use windlass_operations::denied::Denied;
use windlass_postgres::user_shown;

/// The message, and who may read it.
pub fn words(denied: &Denied) -> (String, String) {
    let who = match denied.owner {
        Some(0) => "root".to_owned(),
        Some(uid) => format!("{} or as root", user_shown(uid)),
        None => "its owner or as root".to_owned(),
    };
    let hint = format!("Run the command as {who}, or let this user read it.");
    (denied.to_string(), hint)
}

//! Users of the system, by their numbers, in words.

use nix::unistd::{Uid, User};

/// A user as messages show it: the name, or the number if the machine knows no name.
pub fn user_shown(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(
        || format!("user number {uid}"),
        |user| format!("user {}", user.name),
    )
}

/// The name of a user, or the number if the machine knows no name.
pub(crate) fn user_name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

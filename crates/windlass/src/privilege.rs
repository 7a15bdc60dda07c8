//! Becoming the owner of a database. Root never writes to a repository or a data directory: what
//! root leaves there, the database's own user can neither read nor remove.

use std::ffi::CString;
use std::path::Path;

use nix::unistd::{Gid, Uid, User};

use crate::exit::{Code, Failure};

/// Becomes this user, for good, when started by root; otherwise changes nothing.
pub fn become_user(uid: u32, gid: u32) -> Result<(), Failure> {
    if !Uid::effective().is_root() || uid == 0 {
        return Ok(());
    }
    drop_to(Uid::from_raw(uid), Gid::from_raw(gid)).map_err(|error| {
        let message = format!("cannot become user {uid}: {error}");
        Failure::new(
            Code::Failed,
            message,
            "Run as the database's owner instead of root.",
        )
    })
}

/// Whether this process is root still.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Does something as this user, when started by root, and is root again afterwards.
pub fn as_user<T>(
    owner: Option<(u32, u32)>,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some((uid, gid)) = owner.filter(|(uid, _)| Uid::effective().is_root() && *uid != 0) else {
        return body();
    };
    let fault = |error: nix::Error| {
        let message = format!("cannot become user {uid} for a while: {error}");
        Failure::new(
            Code::Failed,
            message,
            "Run as the database's owner instead of root.",
        )
    };
    let (root_uid, root_gid) = (Uid::effective(), Gid::effective());
    nix::unistd::setegid(Gid::from_raw(gid)).map_err(fault)?;
    nix::unistd::seteuid(Uid::from_raw(uid)).map_err(fault)?;
    let result = body();
    nix::unistd::seteuid(root_uid).map_err(fault)?;
    nix::unistd::setegid(root_gid).map_err(fault)?;
    result
}

fn drop_to(uid: Uid, gid: Gid) -> nix::Result<()> {
    let name = User::from_uid(uid)?.and_then(|user| CString::new(user.name).ok());
    match name {
        Some(name) => nix::unistd::initgroups(&name, gid)?,
        None => nix::unistd::setgroups(&[])?,
    }
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)
}

/// A directory is there after a power cut only if its parent was written out.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// User and group of a name.
pub fn user_ids(name: &str) -> Option<(u32, u32)> {
    let user = User::from_name(name).ok().flatten()?;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// Owner and group of a file or directory.
pub fn owner(path: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = path.metadata().ok()?;
    Some((metadata.uid(), metadata.gid()))
}

/// Makes a directory (its parent exists) and gives it to a user, when started by root: the user
/// itself may not be allowed to.
pub fn give_directory(path: &Path, owner: (u32, u32)) -> Result<(), Failure> {
    if !Uid::effective().is_root() || path.exists() {
        return Ok(());
    }
    make_directory(path, Some(owner))
}

/// Makes a directory that its owner alone may look into (its parent exists), durably. Root gives it
/// to the owner.
pub fn make_directory(path: &Path, owner: Option<(u32, u32)>) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let owner = owner.filter(|_| Uid::effective().is_root());
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    let given = made.and_then(|()| match owner {
        Some((uid, gid)) => std::os::unix::fs::lchown(path, Some(uid), Some(gid)),
        None => Ok(()),
    });
    let kept = given.and_then(|()| sync_parent(path));
    kept.map_err(|error| {
        let message = format!("cannot make {}: {error}", path.display());
        Failure::new(Code::Failed, message, "Its parent directory must exist.")
    })
}

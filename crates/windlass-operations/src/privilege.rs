//! Becomes the owner of a database. Root never writes to a repository or a data directory, because
//! the database's own user could neither read nor remove what root leaves there.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::{Gid, Uid, User};

use crate::caller::ProcessUse;
use crate::error::OwnerError;

pub use crate::owners::{owner, user_ids};

/// Which user root has become for good; 0 if none.
static BECAME: AtomicU32 = AtomicU32::new(0);

/// Becomes this user for good, if root started the process. Otherwise it changes nothing. It fails
/// in a process that other operations use.
pub fn become_user(process: ProcessUse, uid: u32, gid: u32) -> Result<(), OwnerError> {
    if !Uid::effective().is_root() || uid == 0 {
        return Ok(());
    }
    if process == ProcessUse::Shared {
        return Err(OwnerError::Shared { uid });
    }
    drop_to(Uid::from_raw(uid), Gid::from_raw(gid)).map_err(|source| OwnerError::Become {
        uid,
        for_good: true,
        source,
    })?;
    BECAME.store(uid, Ordering::Relaxed);
    Ok(())
}

/// A command for the owner of a database, as whoever started this process has to type it.
pub fn as_typed(command: &str) -> String {
    // Root itself types what a service manager is asked for.
    let owner = match command.starts_with("systemctl ") {
        true => 0,
        false => BECAME.load(Ordering::Relaxed),
    };
    let user = (owner > 0).then(|| User::from_uid(Uid::from_raw(owner)));
    match user.and_then(|found| found.ok().flatten()) {
        Some(user) => format!("runuser -u {} -- {command}", user.name),
        None => command.to_owned(),
    }
}

/// Whether this process is still root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Runs `body` as this user if the process is root, and becomes root again afterwards.
pub fn as_user<T, E: From<OwnerError>>(
    process: ProcessUse,
    owner: Option<(u32, u32)>,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some((uid, gid)) = owner.filter(|(uid, _)| Uid::effective().is_root() && *uid != 0) else {
        return body();
    };
    if process == ProcessUse::Shared {
        return Err(OwnerError::Shared { uid }.into());
    }
    let fault = |source: nix::Error| OwnerError::Become {
        uid,
        for_good: false,
        source,
    };
    let (root_uid, root_gid) = (Uid::effective(), Gid::effective());
    let root_groups = nix::unistd::getgroups().map_err(fault)?;
    take_groups(Uid::from_raw(uid), Gid::from_raw(gid)).map_err(fault)?;
    nix::unistd::setegid(Gid::from_raw(gid)).map_err(fault)?;
    nix::unistd::seteuid(Uid::from_raw(uid)).map_err(fault)?;
    let result = body();
    nix::unistd::seteuid(root_uid).map_err(fault)?;
    nix::unistd::setegid(root_gid).map_err(fault)?;
    nix::unistd::setgroups(&root_groups).map_err(fault)?;
    result
}

/// Takes the groups of a user, and no others.
fn take_groups(uid: Uid, gid: Gid) -> nix::Result<()> {
    let name = User::from_uid(uid)?.and_then(|user| CString::new(user.name).ok());
    match name {
        Some(name) => nix::unistd::initgroups(&name, gid),
        None => nix::unistd::setgroups(&[]),
    }
}

fn drop_to(uid: Uid, gid: Gid) -> nix::Result<()> {
    take_groups(uid, gid)?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)
}

/// A new directory survives a power cut only if its parent directory was synced.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// If this process is root, creates a directory and gives it to a user, who may not be allowed to
/// create it. The parent must exist. An empty directory of root is given as well: root made it for
/// this purpose.
pub fn give_directory(path: &Path, owner: (u32, u32)) -> Result<(), OwnerError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make_directory(path, Some(owner))
        }
        Ok(mut entries) if self::owner(path).is_some_and(|(uid, _)| uid == 0) => {
            if entries.next().is_some() {
                return Ok(());
            }
            std::os::unix::fs::chown(path, Some(owner.0), Some(owner.1)).map_err(|source| {
                OwnerError::Give {
                    path: path.to_owned(),
                    uid: owner.0,
                    source,
                }
            })
        }
        _ => Ok(()),
    }
}

/// Creates a directory that only its owner can read, durably. The parent must exist. If this
/// process is root, it gives the directory to the owner.
pub fn make_directory(path: &Path, owner: Option<(u32, u32)>) -> Result<(), OwnerError> {
    use std::os::unix::fs::DirBuilderExt;
    let owner = owner.filter(|_| Uid::effective().is_root());
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    let given = made.and_then(|()| match owner {
        Some((uid, gid)) => std::os::unix::fs::lchown(path, Some(uid), Some(gid)),
        None => Ok(()),
    });
    let kept = given.and_then(|()| sync_parent(path));
    kept.map_err(|source| OwnerError::Make {
        path: path.to_owned(),
        uid: Uid::effective().as_raw(),
        source,
    })
}

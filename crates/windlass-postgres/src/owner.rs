//! The owner of a server: the user that a process started by root becomes before it connects.

use std::os::unix::fs::MetadataExt;

use nix::unistd::{Uid, User};

use crate::conninfo::{Address, Conninfo, socket_path};

/// The usual user name, for servers whose user cannot be found out.
const USUAL_USER: &str = "postgres";

/// User and group of the server that a connection string leads to: the owner of its unix socket or,
/// for TCP, the user `postgres`. `None` if there is neither.
///
/// The server runs as the owner of its data directory, and so must this process. Read access is not
/// enough: otherwise root would own everything written into a repository, and only root could
/// repair that.
pub fn socket_owner(conninfo: &str) -> Option<(u32, u32)> {
    let conninfo = Conninfo::resolve(conninfo).ok()?;
    conninfo.addresses.iter().find_map(address_owner)
}

fn address_owner(address: &Address) -> Option<(u32, u32)> {
    let Address::Socket { directory, port } = address else {
        let user = User::from_name(USUAL_USER).ok().flatten()?;
        return Some((user.uid.as_raw(), user.gid.as_raw()));
    };
    let socket = std::fs::metadata(socket_path(directory, *port)).ok()?;
    // The socket's group may be unix_socket_group, but files have the user's own group.
    let user = User::from_uid(Uid::from_raw(socket.uid())).ok().flatten();
    Some((
        socket.uid(),
        user.map_or(socket.gid(), |user| user.gid.as_raw()),
    ))
}

/// The address of the server that a connection string leads to: host and port, or the path of the
/// socket. `None` if the string cannot be understood.
pub fn server_address(conninfo: &str) -> Option<String> {
    let conninfo = Conninfo::resolve(conninfo).ok()?;
    conninfo.addresses.first().map(Address::display)
}

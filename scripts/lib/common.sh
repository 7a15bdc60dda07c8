# shellcheck shell=bash
# Words shared by every script: where the repository is, who runs a server, how to say things.
# Never does: install anything, write outside the directories it is given, or end a process it did not start.
set -euo pipefail

# A command that fails inside "$(...)" ends the script too.
shopt -s inherit_errexit

# The caller's own servers, language and options of Windlass are nothing to a script: PGPORT would lead pgbench to
# another server, and WINDLASS_COMPRESS would change what is measured. What is meant for a script stays, but only here.
environment_of_its_own() {
    local name
    for name in $(compgen -e); do
        case $name in
            WINDLASS_BINARY | WINDLASS_SERVER_USER | WINDLASS_RANDOM_READ | WINDLASS_NOTHING_TO_DECODE)
                export -n "${name?}"
                ;;
            WINDLASS_TEST_*) ;;
            PG* | LC_* | LANG | LANGUAGE | WINDLASS_*) unset "$name" ;;
        esac
    done
    export LC_ALL=C.UTF-8
}
environment_of_its_own

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target_dir=${CARGO_TARGET_DIR:-$repo_root/target}
[[ $target_dir == /* ]] || target_dir=$repo_root/$target_dir
export repo_root target_dir

# cargo_build ARGUMENT ...: begun in the repository, because Cargo reads the .cargo/config.toml of the directory in which it is
# started: with that, SQLite has what a revert needs.
cargo_build() {
    (cd "$repo_root" && cargo build --locked --quiet "$@")
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

note() {
    printf '== %s\n' "$*" >&2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

is_root() {
    [[ $(id -u) -eq 0 ]]
}

# As root where root is to be had: a machine for tests often has sudo, a container often is root.
as_root() {
    if is_root; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo "$@"
    else
        die "needs root for: $*"
    fi
}

can_be_root() {
    is_root || { have sudo && sudo -n true 2>/dev/null; }
}

# PostgreSQL refuses to run as root, so root hands its servers to the user that Debian's package makes.
server_user() {
    if is_root; then
        echo "${WINDLASS_SERVER_USER:-postgres}"
    else
        id -un
    fi
}

as_server() {
    if is_root; then
        runuser -u "$(server_user)" -- "$@"
    else
        "$@"
    fi
}

# A directory of the server's user. Its parents are left as they are.
server_dir() {
    mkdir -p "$1"
    if is_root; then chown "$(server_user)": "$1"; fi
}

# A checkout below /root is closed to the server's user; then its servers and data live elsewhere.
open_to_server() {
    as_server test -x "$1" && as_server test -r "$1"
}

# server_place NAME: a cache directory that the server's user can reach, below target/ if possible.
server_place() {
    local inside="$target_dir/$1" outside="/var/tmp/windlass-$UID/$1"
    mkdir -p "$inside"
    if open_to_server "$inside"; then
        echo "$inside"
    else
        mkdir -p "$outside"
        echo "$outside"
    fi
}

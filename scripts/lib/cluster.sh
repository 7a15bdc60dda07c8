# shellcheck shell=bash
# Private PostgreSQL clusters: made in a given directory, reached by a socket in it, never by the network.
# Never does: start, stop or read a cluster that it did not make. Needs common.sh; PG_BINDIR names the client programs.
#
# A cluster DIR has DIR/data (the data directory), DIR/socket and DIR/log. All use the default port: the socket tells them apart.
set -euo pipefail

# cluster_create DIR [SERVER_BINDIR] [INITDB_OPTION ...]
cluster_create() {
    local dir=$1 bin=${2:-$PG_BINDIR}
    shift $(($# > 1 ? 2 : 1))
    server_dir "$dir"
    as_server mkdir -p "$dir/socket"
    as_server "$bin/initdb" --pgdata "$dir/data" --username postgres --auth trust --encoding UTF8 --locale C \
        --data-checksums --no-sync "$@" >/dev/null
}

# cluster_start DIR [SERVER_BINDIR] [SETTING=VALUE ...]
cluster_start() {
    local dir=$1 bin=${2:-$PG_BINDIR} options setting
    shift $(($# > 1 ? 2 : 1))
    server_dir "$dir/socket"
    options="-c listen_addresses='' -c unix_socket_directories='$dir/socket' -c port=5432"
    for setting in "$@"; do options+=" -c $setting"; done
    as_server "$bin/pg_ctl" start --silent --wait --timeout 300 --pgdata "$dir/data" --log "$dir/log" \
        --options "$options" >/dev/null || { tail -n 20 "$dir/log" >&2; die "the server in $dir did not start"; }
}

# cluster_stop DIR [SERVER_BINDIR] [MODE]: no error when it is not running, so that a trap may call it.
cluster_stop() {
    local dir=$1 bin=${2:-$PG_BINDIR} mode=${3:-fast}
    if [[ -e $dir/data/postmaster.pid ]]; then
        as_server "$bin/pg_ctl" stop --silent --wait --timeout 300 --mode "$mode" --pgdata "$dir/data" >/dev/null
    fi
}

cluster_uri() {
    echo "host=$1/socket user=postgres dbname=${2:-postgres}"
}

# cluster_psql DIR DATABASE [ARGUMENT ...]
cluster_psql() {
    local dir=$1 database=$2
    shift 2
    as_server "$PG_BINDIR/psql" --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 \
        --dbname "$(cluster_uri "$dir" "$database")" "$@"
}

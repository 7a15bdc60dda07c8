# shellcheck shell=bash
# bench peers: Windlass and the programs that one would take instead, in turns on the same data, cache warm.
# Never does: give a peer a worse setting than its best. Needs measure.sh and benchdata.sh.
#
# Each contender removes what its last run left (not timed), then calls timed. All of them sync what they write before
# they end; wal-rus does not after a restore, so a sync comes with it. pgBackRest runs with archive-check=n, so it does not wait for WAL
# and keeps none, and wal-rus keeps none without archive_command; Windlass's set holds its WAL.
set -euo pipefail

codec=zstd:1
bundle=n
pgbackrest=
walrus=

# The newest pgBackRest that Debian has, for the machine's own may be years old.
need_pgbackrest() {
    [[ -n $pgbackrest ]] || pgbackrest=$(install_newest_pgbackrest "$(server_place pgbackrest)")
}

need_walrus() {
    [[ -n $walrus ]] || walrus=$(install_walrus "$(server_place walrus)")
}

out() { echo "$bench_dir/out/$1"; }

fresh() {
    as_server rm -rf "$1"
    as_server mkdir -p "$1"
}

run_windlass() {
    fresh "$(out windlass)"
    timed "$windlass" backup "$uri" --to "$(out windlass)/set.windlass" --compress "$codec" --json
}

# What the last backups of a contest left on the disk, in bytes: record_stored NAME CONTENDER=PATH ...
record_stored() {
    local name=$1 pair
    shift
    for pair in "$@"; do
        printf '%s\t%s\n' "${pair%%=*}" "$(as_server du --summarize --block-size=1 --apparent-size "${pair#*=}" | cut -f 1)"
    done >"$results_dir/$name.stored"
}

run_windlass_nul() {
    timed "$windlass" backup "$uri" --to nul --compress none --json
}

# pgbackrest_with COMMAND [OPTION ...]: fills the array pgbackrest_command.
pgbackrest_with() {
    local level=(--compress-type=none)
    [[ $codec == none ]] || level=(--compress-type=zst --compress-level="${codec#*:}")
    pgbackrest_command=("$pgbackrest" "$1" --stanza=bench --repo1-path="$(out pgbackrest)" --lock-path="$(out locks)"
        --log-level-file=off --log-level-console=error --config=/dev/null)
    case $1 in
        backup) pgbackrest_command+=(--pg1-path="$serving_dir/data" --pg1-socket-path="$serving_dir/socket" --pg1-user=postgres
            --type=full --process-max="$processes" "${level[@]}" --start-fast --no-archive-check --no-expire-auto
            --repo1-retention-full=1 --repo1-bundle="$bundle") ;;
        stanza-create) pgbackrest_command+=(--pg1-path="$serving_dir/data" --pg1-socket-path="$serving_dir/socket" --pg1-user=postgres) ;;
        restore) pgbackrest_command+=(--pg1-path="$(out restored)" --process-max="$processes") ;;
    esac
}

fresh_stanza() {
    fresh "$(out pgbackrest)"
    fresh "$(out locks)"
    pgbackrest_with stanza-create
    as_server "${pgbackrest_command[@]}"
}

run_pgbackrest() {
    fresh_stanza
    pgbackrest_with backup
    timed "${pgbackrest_command[@]}"
}

# basebackup OPTION ...: to a directory, or to standard output where the options say "--pgdata=-".
basebackup() {
    fresh "$(out basebackup)"
    timed "$PG_BINDIR/pg_basebackup" --dbname "$uri" --checkpoint=fast --wal-method=fetch "$@"
}

basebackup_zstd_server() { basebackup --format=tar --pgdata "$(out basebackup)" --compress=server-zstd:level=1,workers=2; }
basebackup_zstd_client() { basebackup --format=tar --pgdata "$(out basebackup)" --compress=client-zstd:level=1,workers=2; }
basebackup_none_tar() { basebackup --format=tar --pgdata "$(out basebackup)"; }
basebackup_none_plain() { basebackup --format=plain --pgdata "$(out basebackup)"; }
basebackup_nul_blackhole() { basebackup --target=blackhole; }
# timed keeps standard output in a file; a null device is what this one is about.
basebackup_nul_stdout() {
    timed sh -c 'exec "$@" >/dev/null' sh "$PG_BINDIR/pg_basebackup" --dbname "$uri" --checkpoint=fast --wal-method=fetch \
        --format=tar --pgdata=-
}

# walrus_with COMMAND [ARGUMENT ...]: fills the array walrus_command. It has all of its settings from the environment.
walrus_with() {
    local level=(WALG_COMPRESSION_METHOD=none)
    [[ $codec == none ]] || level=(WALG_COMPRESSION_METHOD="${codec%%:*}" WALG_COMPRESSION_LEVEL="${codec#*:}")
    walrus_command=(env WALG_FILE_PREFIX="$(out walrus)" "${level[@]}" PGHOST="$serving_dir/socket" PGUSER=postgres
        PGDATABASE=postgres "$walrus" "$@")
}

# What the data directory has, read by several tasks; and what the server sends.
walrus_files() {
    fresh "$(out walrus)"
    walrus_with backup-push "$serving_dir/data"
    timed "${walrus_command[@]}"
}
walrus_stream() {
    fresh "$(out walrus)"
    walrus_with backup-push
    timed "${walrus_command[@]}"
}

# choose NAME FILE CANDIDATE ...: one run warms up, then the best of two runs each is the one that takes part. Its setting is kept in NAME.FILE.
choose() {
    local name=$1 file=$2 candidate best=
    shift 2
    "$1"
    for candidate in "$@" "$@"; do
        "$candidate"
        note "$name: ${candidate%%_*}, ${candidate#*_}: $last_seconds s"
        if [[ -z $best ]] || at_most "$last_seconds" "$best"; then
            best=$last_seconds
            chosen=$candidate
        fi
    done
    echo "${chosen#*_}" >"$results_dir/$name.$file"
}

choose_basebackup() {
    local name=$1
    shift
    choose "$name" setting "$@"
    chosen_basebackup=$chosen
}

choose_walrus() {
    choose "$1" walrus walrus_files walrus_stream
    chosen_walrus=$chosen
}

run_pg_basebackup() { "$chosen_basebackup"; }
run_walrus() { "$chosen_walrus"; }

run_windlass_restore() {
    fresh "$(out restored)"
    timed "$windlass" restore "$(out windlass)/set.windlass" --into "$(out restored)" --json
}

run_pgbackrest_restore() {
    fresh "$(out restored)"
    pgbackrest_with restore
    timed "${pgbackrest_command[@]}"
}

run_walrus_restore() {
    fresh "$(out restored)"
    walrus_with backup-fetch "$(out restored)" LATEST
    # shellcheck disable=SC2016 # The inner shell expands it.
    timed sh -c '"$@" && exec sync --file-system "$0"' "$(out restored)" "${walrus_command[@]}"
}

run_windlass_sqlite() {
    fresh "$(out windlass)"
    timed "$windlass" backup "$bench_dir/sqlite-$scale/tpch.db" --to "$(out windlass)/set.windlass" --compress none --json
}

run_windlass_sqlite_pages() { sqlite_zstd "$(out windlass)" auto; }
run_windlass_sqlite_raw() { sqlite_zstd "$(out raw)" off; }

# sqlite_zstd DIR PAGES
sqlite_zstd() {
    fresh "$1"
    timed "$windlass" backup "$bench_dir/sqlite-$scale/tpch.db" --to "$1/set.windlass" --compress zstd:1 --pages "$2" --json
}

run_sqlite3() {
    fresh "$(out sqlite)"
    timed sqlite3 "$bench_dir/sqlite-$scale/tpch.db" ".backup '$(out sqlite)/copy.db'"
}

peers_zstd() {
    need_tpch_cluster
    serve "tpch-$scale"
    codec=zstd:1 bundle=n
    choose_basebackup zstd basebackup_zstd_server basebackup_zstd_client
    choose_walrus zstd
    contest zstd run_windlass run_pgbackrest run_pg_basebackup run_walrus
    record_stored zstd windlass="$(out windlass)" pgbackrest="$(out pgbackrest)" walrus="$(out walrus)"
}

# peers_of NAME CLUSTER: another cluster with the default codec of both, and what they store.
peers_of() {
    serve "$2"
    codec=zstd:1 bundle=n
    choose_walrus "$1"
    contest "$1" run_windlass run_pgbackrest run_walrus
    record_stored "$1" windlass="$(out windlass)" pgbackrest="$(out pgbackrest)" walrus="$(out walrus)"
}

peers_pgbench() {
    need_pgbench_cluster
    peers_of pgbench "pgbench-$pgbench_scale"
}

peers_events() {
    need_events_cluster
    peers_of events events
}

peers_none() {
    need_tpch_cluster
    serve "tpch-$scale"
    codec=none bundle=n
    choose_basebackup none basebackup_none_tar basebackup_none_plain
    choose_walrus none
    contest none run_windlass run_pgbackrest run_pg_basebackup run_walrus
}

peers_nul() {
    need_tpch_cluster
    serve "tpch-$scale"
    contest nul run_windlass_nul basebackup_nul_blackhole basebackup_nul_stdout
}

peers_restore() {
    need_tpch_cluster
    serve "tpch-$scale"
    codec=zstd:1 bundle=n
    run_windlass
    run_pgbackrest
    walrus_files
    stop_serving
    contest restore run_windlass_restore run_pgbackrest_restore run_walrus_restore
}

peers_small() {
    need_small_tables
    serve "small-$small_tables"
    codec=zstd:1 bundle=y
    choose_basebackup small basebackup_zstd_server basebackup_zstd_client
    choose_walrus small
    contest small run_windlass run_pgbackrest run_pg_basebackup run_walrus
}

peers_sqlite() {
    need_tpch_sqlite
    contest sqlite run_windlass_sqlite run_sqlite3
}

# Pages of SQLite taken apart, and as they are: both of Windlass.
peers_sqlitezstd() {
    need_tpch_sqlite
    contest sqlitezstd run_windlass_sqlite_pages run_windlass_sqlite_raw
    record_stored sqlitezstd windlass_sqlite_pages="$(out windlass)" windlass_sqlite_raw="$(out raw)"
}

peer_runs=(zstd pgbench events none nul restore small sqlite sqlitezstd)

bench_peers() {
    local name runs=("${peer_runs[@]}")
    [[ -z $only || " ${peer_runs[*]} " == *" $only "* ]] || die "--only takes one of: ${peer_runs[*]}"
    [[ -z $only ]] || runs=("$only")
    need_pgbackrest
    need_walrus
    server_dir "$bench_dir/out"
    for name in "${runs[@]}"; do
        "peers_$name"
    done
    stop_serving
    as_server rm -rf "$bench_dir/out"
    write_peers_table
    print_against "${runs[@]}"
}

# shellcheck shell=bash
# bench snapshots: what the library in a PostgreSQL server and its snapshots cost pgbench, and how long it takes to make one.
# The phases take turns in each round, and only values of one round are compared: the machine may be busy in another way later.
# Never does: use a server that it did not start. Needs common.sh, cluster.sh, measure.sh; of scripts/bench windlass, bench_dir, pairs,
# seconds, pgbench_scale, results_dir.
set -euo pipefail

snapshot_cluster=
snapshot_library=
readonly first_seconds=5

snapshots_start() {
    cluster_start "$snapshot_cluster" "$PG_BINDIR" max_wal_size=4GB "shared_preload_libraries='${1:-}'"
}

# snapshot_tps SECONDS: transactions a second of a write-heavy pgbench.
snapshot_tps() {
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 8 --jobs 2 --time "$1" --host "$snapshot_cluster/socket" --username postgres \
        postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

take_snapshot() {
    as_server "$windlass" snapshot create "$(cluster_uri "$snapshot_cluster")" "$@" --method hook --json
}

drop_snapshots() {
    local name
    for name in "$@"; do as_server "$windlass" snapshot drop "$(cluster_uri "$snapshot_cluster")" "$name" --quiet; done
}

# record_creation NAME ARGUMENT ...: a line of name, seconds, and seconds in which nobody could write.
record_creation() {
    local name=$1
    shift
    take_snapshot made "$@" | jq --raw-output --arg name "$name" '[$name, .seconds, .writers_stopped_seconds] | @tsv' >>"$results_dir/creations.tsv"
    drop_snapshots made
}

record_phase() {
    local tps
    tps=$(snapshot_tps "$2")
    printf '%s\t%s\t%s\n' "$round" "$1" "$tps" >>"$results_dir/snapshots.tsv"
    note "round $round: $1 $tps transactions a second"
}

creations_under_load() {
    local load
    snapshot_tps 20 >/dev/null &
    load=$!
    sleep 2
    record_creation "checkpoint, 8 clients"
    record_creation "pause, 8 clients" --checkpoint none
    wait "$load"
}

# Tables of one page, 2,500 in a statement, until there are so many files.
readonly many_files=50000
make_many_files() {
    local first
    for ((first = 1; first <= many_files; first += 2500)); do
        as_server "$PG_BINDIR/psql" -XqAt --host "$snapshot_cluster/socket" --username postgres postgres --command "DO \$\$ BEGIN
            FOR i IN $first..$((first + 2499)) LOOP EXECUTE format('CREATE TABLE many_%s AS SELECT 1 AS i', i); END LOOP; END \$\$"
    done
    cluster_psql "$snapshot_cluster" postgres --command CHECKPOINT >/dev/null
}

# After the rounds, because no other number is about so many files.
creations_of_many_files() {
    local load
    snapshots_start "$snapshot_library"
    make_many_files
    record_creation "pause, $many_files files, idle" --checkpoint none
    snapshot_tps 30 >/dev/null &
    load=$!
    sleep 2
    for ((round = 1; round <= pairs; round++)); do
        record_creation "pause, $many_files files, 8 clients" --checkpoint none
    done
    wait "$load"
    cluster_stop "$snapshot_cluster"
}

snapshot_round() {
    local name
    snapshots_start
    snapshot_tps "$first_seconds" >/dev/null
    record_phase plain "$seconds"
    cluster_stop "$snapshot_cluster"
    snapshots_start "$snapshot_library"
    snapshot_tps "$first_seconds" >/dev/null
    record_phase loaded "$seconds"
    record_creation "checkpoint, idle"
    record_creation "pause, idle" --checkpoint none
    creations_under_load
    take_snapshot s1 >/dev/null
    record_phase "one, first seconds" "$first_seconds"
    record_phase one "$seconds"
    for name in s2 s3 s4 s5; do take_snapshot "$name" >/dev/null; done
    snapshot_tps "$first_seconds" >/dev/null
    record_phase five "$seconds"
    drop_snapshots s1 s2 s3 s4 s5
    cluster_stop "$snapshot_cluster"
}

# phase_ratio PHASE BASE: the median over the rounds.
phase_ratio() {
    awk -F '\t' -v phase="$1" -v base="$2" '$2 == phase { a[$1] = $3 } $2 == base { b[$1] = $3 }
        END { for (round in a) if (b[round] > 0) print a[round] / b[round] }' "$results_dir/snapshots.tsv" | median
}

bench_snapshots() {
    local round
    snapshot_cluster="$bench_dir/snapshots"
    if [[ -n ${WINDLASS_LIBRARY:-} ]]; then
        snapshot_library=$bench_dir/tools/libwindlass_interpose.so
        install -m 755 "$WINDLASS_LIBRARY" "$snapshot_library"
    else
        cargo build --release --locked --quiet --manifest-path "$repo_root/Cargo.toml" --package windlass-interpose
        snapshot_library=$bench_dir/tools/libwindlass_interpose.so
        install -m 755 "$target_dir/release/libwindlass_interpose.so" "$snapshot_library"
    fi
    rm -rf "$snapshot_cluster"
    : >"$results_dir/snapshots.tsv"
    : >"$results_dir/creations.tsv"
    cluster_create "$snapshot_cluster"
    snapshots_start
    as_server "$PG_BINDIR/pgbench" --initialize --quiet --scale "$pgbench_scale" --host "$snapshot_cluster/socket" --username postgres postgres 2>/dev/null
    cluster_stop "$snapshot_cluster"
    for ((round = 1; round <= pairs; round++)); do snapshot_round; done
    creations_of_many_files
    echo "ratios of transactions a second, medians of $pairs rounds:"
    echo "  library loaded, to none:                    $(phase_ratio loaded plain)"
    echo "  one snapshot, in its first $first_seconds seconds, to loaded: $(phase_ratio 'one, first seconds' loaded)"
    echo "  one snapshot after that, to loaded:         $(phase_ratio one loaded)"
    echo "  five snapshots, to one:                     $(phase_ratio five one)"
    echo "how a snapshot began, seconds to make it, seconds in which nobody could write:"
    sort "$results_dir/creations.tsv" | sed 's/^/  /'
    rm -rf "$snapshot_cluster"
}

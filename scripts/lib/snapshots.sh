# shellcheck shell=bash
# bench snapshots: what the library in a PostgreSQL server and its snapshots cost pgbench, and how long it takes to make, open and revert one.
# Only values of one round are compared. Where a few percent count, two servers run in turns of milliseconds (turns.py), so that a machine that
# becomes slower meets both alike. Where one of them writes more, and the other would wait for the same disk, whole phases take turns.
# Never does: use a server that it did not start. Needs common.sh, cluster.sh, measure.sh, snapshots_page.sh; of scripts/bench windlass, bench_dir,
# pairs, seconds, pgbench_scale, results_dir.
set -euo pipefail

snapshot_cluster=
# A copy of it. They change places in each round: one may lie better on the disk.
beside_cluster=
snapshot_library=
readonly first_seconds=5
# After so long pgbench has written most pages once, so a snapshot has most of those that will change.
readonly settling_seconds=40
# Five seconds alone say little.
readonly first_seconds_times=3
# The speed of a machine with neighbours changes within a second.
readonly slice_seconds=0.025

snapshots_start() {
    cluster_start "$snapshot_cluster" "$PG_BINDIR" max_wal_size=4GB autovacuum=off "shared_preload_libraries='${1:-}'"
}

# snapshot_tps SECONDS: transactions a second of a write-heavy pgbench.
snapshot_tps() {
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 8 --jobs 2 --time "$1" --host "$snapshot_cluster/socket" --username postgres \
        postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

# beside COMMAND ...: with the other cluster.
beside() {
    local snapshot_cluster=$beside_cluster
    "$@"
}

snapshot_sql() { cluster_psql "$snapshot_cluster" postgres --command "$1"; }

take_snapshot() {
    as_server "$windlass" snapshot create "$(cluster_uri "$snapshot_cluster")" "$@" --method hook --json
}

drop_snapshots() {
    local name
    for name in "$@"; do as_server "$windlass" snapshot drop "$(cluster_uri "$snapshot_cluster")" "$name" --quiet; done
}

# list_field NAME FIELD: of a snapshot as it is now.
list_field() {
    as_server "$windlass" snapshot list "$(cluster_uri "$snapshot_cluster")" --json |
        jq --raw-output --arg name "$1" ".snapshots[] | select(.name == \$name) | .$2"
}

# record WHAT VALUE
record() {
    printf '%s\t%s\t%s\n' "$round" "$1" "$2" >>"$results_dir/snapshots.tsv"
    note "round $round: $1: $2"
}

record_phase() { record "$1" "$(snapshot_tps "$2")"; }

# record_creation NAME ARGUMENT ...: a line of name, seconds, and seconds in which nobody could write; and a line for each step.
record_creation() {
    local name=$1 report
    shift
    report=$(take_snapshot made "$@")
    jq --raw-output --arg name "$name" '[$name, .seconds, .writers_stopped_seconds] | @tsv' <<<"$report" >>"$results_dir/creations.tsv"
    jq --raw-output --arg name "$name" '.steps | to_entries[] | [$name, .key, .value.name, .value.seconds] | @tsv' <<<"$report" >>"$results_dir/steps.tsv"
    drop_snapshots made
}

# under_load SECONDS COMMAND ...: runs it while pgbench runs for so long.
under_load() {
    local load
    snapshot_tps "$1" >/dev/null &
    load=$!
    shift
    sleep 2
    "$@"
    wait "$load"
}

creations_under_load() {
    local left
    for ((left = 0; left < pairs; left++)); do
        record_creation "checkpoint, 8 clients" --checkpoint fast
        record_creation "pause, 8 clients" --checkpoint none
    done
}

# Rows of which two fill a page, until the cluster has about 3 GB. They come last before the creations: no other number is about them.
readonly full_bytes=3000000000
fill_cluster() {
    local rows
    rows=$((2 * (full_bytes - $(snapshot_sql "SELECT sum(pg_database_size(oid)) FROM pg_database")) / 8192))
    ((rows > 0)) || return 0
    snapshot_sql "CREATE TABLE filler (i int, t text); ALTER TABLE filler ALTER t SET STORAGE PLAIN;
        INSERT INTO filler SELECT i, repeat('x', 3900) FROM generate_series(1, $rows) i" >/dev/null
    snapshot_sql CHECKPOINT >/dev/null
}

creations_of_a_full_cluster() {
    local left
    snapshots_start "$snapshot_library"
    fill_cluster
    for ((left = 0; left < pairs; left++)); do
        record_creation "checkpoint, idle" --checkpoint fast
        record_creation "pause, idle" --checkpoint none
    done
    under_load $((10 + 4 * pairs)) creations_under_load
    cluster_stop "$snapshot_cluster"
}

# Tables of one page, 2,500 in a statement, until there are so many files.
readonly few_files=1000 many_files=50000
make_many_files() {
    local first step
    for ((first = $1 + 1; first <= $2; first += 2500)); do
        step=$(($2 - first + 1 < 2500 ? $2 - first + 1 : 2500))
        cluster_psql "$snapshot_cluster" postgres --command "DO \$\$ BEGIN
            FOR i IN $first..$((first + step - 1)) LOOP EXECUTE format('CREATE TABLE many_%s AS SELECT 1 AS i', i); END LOOP; END \$\$"
    done
    snapshot_sql CHECKPOINT >/dev/null
}

pauses_of_many_files() {
    local left
    for ((left = 0; left < pairs; left++)); do
        record_creation "pause, $many_files files, 8 clients" --checkpoint none
    done
}

# After everything else, because no other number is about so many files.
creations_of_many_files() {
    snapshots_start "$snapshot_library"
    make_many_files "$few_files" "$many_files"
    record_creation "pause, $many_files files, idle" --checkpoint none
    under_load 30 pauses_of_many_files
    cluster_stop "$snapshot_cluster"
}

# write_as_before: the same updates of the same rows each time.
write_as_before() {
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 1 --transactions 20000 --random-seed 1 --host "$snapshot_cluster/socket" \
        --username postgres postgres >/dev/null 2>&1
    snapshot_sql CHECKPOINT >/dev/null
}

# What five snapshots keep of the same updates, beside what one keeps: each page once. Both begin with the same data directory: in another one
# the same updates change other pages.
compare_space() {
    local alone name
    settle_tables
    cluster_stop "$snapshot_cluster"
    as_server cp --archive "$snapshot_cluster/data" "$snapshot_cluster/data.same"
    snapshots_start "$snapshot_library"
    take_snapshot alone >/dev/null
    write_as_before
    alone=$(list_field alone grown_bytes)
    drop_snapshots alone
    cluster_stop "$snapshot_cluster"
    as_server rm -rf "$snapshot_cluster/data"
    as_server mv "$snapshot_cluster/data.same" "$snapshot_cluster/data"
    snapshots_start "$snapshot_library"
    for name in s1 s2 s3 s4 s5; do take_snapshot "$name" >/dev/null; done
    write_as_before
    record "space of five, to the oldest alone" "$(quotient "$(list_field s1 grown_bytes)" "$alone" 3)"
    drop_snapshots s1 s2 s3 s4 s5
}

# What DROP, TRUNCATE and VACUUM FULL of a large table make a snapshot keep.
drop_a_table() {
    local before
    snapshot_sql "CREATE TABLE goes AS SELECT * FROM pgbench_accounts; CREATE TABLE shrinks AS SELECT * FROM pgbench_accounts;
        CREATE TABLE moves AS SELECT * FROM pgbench_accounts" >/dev/null
    # Reading a new row marks it, and that is a change of its page.
    snapshot_sql "VACUUM FREEZE" >/dev/null
    snapshot_sql CHECKPOINT >/dev/null
    take_snapshot dropped >/dev/null
    before=$(list_field dropped grown_bytes)
    snapshot_sql "DROP TABLE goes" >/dev/null
    snapshot_sql "TRUNCATE shrinks" >/dev/null
    snapshot_sql "VACUUM FULL moves" >/dev/null
    snapshot_sql CHECKPOINT >/dev/null
    record "MB kept after DROP, TRUNCATE, VACUUM FULL" "$(awk -v b="$(list_field dropped grown_bytes)" -v a="$before" 'BEGIN { printf "%.1f", (b - a) / 1e6 }')"
    drop_snapshots dropped
    snapshot_sql "DROP TABLE shrinks; DROP TABLE moves" >/dev/null
}

# statement_seconds SQL PSQL-ARGUMENT ...: of one statement.
statement_seconds() {
    local sql=$1
    shift
    printf '%s\n' '\timing on' "$sql" | as_server "$PG_BINDIR/psql" -XqAt "$@" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | awk '{ print $1 / 1000 }'
}

# A view through the backup API: until its first answer, and a scan of it and of its source, both warm.
open_a_view() {
    local left start place own view scan='SELECT sum(abalance) FROM pgbench_accounts'
    take_snapshot viewed --checkpoint fast >/dev/null
    snapshot_tps 2 >/dev/null
    start=$(micros_now)
    place=$(as_server "$windlass" open "$(cluster_uri "$snapshot_cluster")@viewed" --keep bench-view --scratch "$bench_dir/scratch" --json | jq --raw-output '.conninfo')
    as_server "$PG_BINDIR/psql" -XqAt "$place" --command 'SELECT count(*) FROM pgbench_branches' >/dev/null
    record "seconds to the first answer" "$(awk -v us=$(($(micros_now) - start)) 'BEGIN { printf "%.2f", us / 1e6 }')"
    for ((left = 0; left < 2; left++)); do
        own=$(statement_seconds "$scan" --host "$snapshot_cluster/socket" --username postgres postgres)
        view=$(statement_seconds "$scan" "$place")
    done
    record "scan of the source, to that of the view" "$(quotient "$own" "$view" 3)"
    as_server "$windlass" close bench-view --quiet
    drop_snapshots viewed
}

# So many pages of the accounts change after the snapshot. Windlass stops the server and starts it: the time of that alone is taken off.
readonly reverted_pages=100000
revert_pages() {
    local start restart report
    take_snapshot back --checkpoint fast >/dev/null
    snapshot_sql "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 61 = 0 AND aid <= 61 * $reverted_pages" >/dev/null
    snapshot_sql CHECKPOINT >/dev/null
    start=$(micros_now)
    cluster_stop "$snapshot_cluster"
    snapshots_start "$snapshot_library"
    restart=$(($(micros_now) - start))
    report=$(as_server "$windlass" snapshot revert "$(cluster_uri "$snapshot_cluster")@back" --yes --json)
    record "pages of a revert" "$(jq '.pages_written' <<<"$report")"
    record "seconds of a revert, without those of a restart" "$(jq --argjson restart "$restart" '.seconds - $restart / 1e6' <<<"$report")"
    cluster_stop "$snapshot_cluster"
    snapshots_start "$snapshot_library"
    drop_snapshots back
}

# settle_tables: what is measured begins with tables without dead rows, and right after a checkpoint, for the first change of a page after one
# writes the whole page to the log, with or without snapshots. What was written before, pages that a snapshot kept too, is on the disk by then:
# else the disk is still at it in the first seconds.
settle_tables() {
    snapshot_sql "VACUUM pgbench_branches, pgbench_tellers, pgbench_accounts" >/dev/null
    snapshot_sql "TRUNCATE pgbench_history" >/dev/null
    snapshot_sql CHECKPOINT >/dev/null
    sync
}

# measure_first NAME: settle_tables comes before it, and before the snapshot, if there is one.
measure_first() { record_phase "$1, first seconds" "$first_seconds"; }

measure_phase() {
    settle_tables
    record_phase "$1" "$seconds"
}

phase_plain() {
    snapshots_start
    settle_tables
    measure_first plain
    measure_phase plain
    cluster_stop "$snapshot_cluster"
}

take_snapshots() {
    local name
    for name in "$@"; do take_snapshot "$name" >/dev/null; done
}

phase_first() {
    settle_tables
    take_snapshots s1
    sync
    measure_first one
    drop_snapshots s1
}

phase_durable() {
    settle_tables
    take_snapshot durable --durable >/dev/null
    sync
    measure_first durable
    measure_phase durable
    drop_snapshots durable
}

# What a phase is compared with comes before it and after it, so that a machine that becomes slower meets both.
phases_in_turns() {
    phase_plain
    snapshots_start "$snapshot_library"
    phase_first
    phase_durable
    cluster_stop "$snapshot_cluster"
    phase_plain
}

# both_tps SECONDS: of the cluster, and then of the other one. Each runs for so long, in turns with the other.
both_tps() {
    local loads=$((2 * $1 + 1))
    beside snapshot_tps "$loads" >"$results_dir/beside.tps" &
    snapshot_tps "$loads" >"$results_dir/own.tps" &
    # Until all are connected.
    sleep 0.5
    python3 "$here/lib/turns.py" $((2 * $1)) "$slice_seconds" "$snapshot_cluster" "$beside_cluster"
    wait
    cat "$results_dir/own.tps" "$results_dir/beside.tps"
}

settle_both() {
    settle_tables
    beside settle_tables
}

# record_both WHAT SECONDS: how many times the other's throughput.
record_both() { record "$1" "$(both_tps "$2" | { read -r own; read -r other; quotient "$own" "$other" 4; })"; }

measure_both() {
    settle_both
    record_both "$1" "$seconds"
}

# The first seconds of the newest of five and of an only one, with as much work right before both.
first_of_five_beside_one() {
    settle_both
    take_snapshots s5
    beside take_snapshots s1
    sync
    record_both "five beside one, first seconds" "$first_seconds"
}

five_beside_one() {
    local left
    take_snapshots s2 s3 s4
    for ((left = 1; left < first_seconds_times; left++)); do
        first_of_five_beside_one
        drop_snapshots s5
        beside drop_snapshots s1
    done
    first_of_five_beside_one
    both_tps "$settling_seconds" >/dev/null
    measure_both "five beside one"
}

phases_at_once() {
    snapshots_start
    beside snapshots_start
    measure_both "none beside none"
    cluster_stop "$snapshot_cluster"
    snapshots_start "$snapshot_library"
    measure_both "library beside none"
    take_snapshots s1
    both_tps "$settling_seconds" >/dev/null
    measure_both "one beside none"
    cluster_stop "$beside_cluster"
    beside snapshots_start "$snapshot_library"
    five_beside_one
    beside drop_snapshots s1
    cluster_stop "$beside_cluster"
    drop_snapshots s1 s2 s3 s4 s5
    cluster_stop "$snapshot_cluster"
}

exchange_clusters() {
    local other=$snapshot_cluster
    snapshot_cluster=$beside_cluster
    beside_cluster=$other
}

snapshot_round() {
    phases_in_turns
    phases_at_once
    snapshots_start "$snapshot_library"
    compare_space
    drop_a_table
    open_a_view
    revert_pages
    cluster_stop "$snapshot_cluster"
    exchange_clusters
}

all_rounds() {
    local round
    : >"$results_dir/snapshots.tsv"
    as_server cp --archive "$snapshot_cluster" "$beside_cluster"
    for ((round = 1; round <= pairs; round++)); do snapshot_round; done
    rm -rf "$beside_cluster"
}

# With --only creations, the rest of the page is of the last whole run.
bench_snapshots() {
    case $only in
        "") ;;
        creations) [[ -s $results_dir/snapshots.tsv ]] || die "the rest of the page was never measured here: leave out --only" ;;
        *) die "bench snapshots has one part of its own, which is creations; not $only" ;;
    esac
    need python3:python3
    snapshot_cluster="$bench_dir/snapshots"
    beside_cluster="$bench_dir/snapshots-beside"
    snapshot_library=$bench_dir/tools/libwindlass_interpose.so
    if [[ -z ${WINDLASS_LIBRARY:-} ]]; then
        cargo build --release --locked --quiet --manifest-path "$repo_root/Cargo.toml" --package windlass-interpose
        WINDLASS_LIBRARY=$target_dir/release/libwindlass_interpose.so
    fi
    install -m 755 "$WINDLASS_LIBRARY" "$snapshot_library"
    rm -rf "$snapshot_cluster" "$beside_cluster"
    as_server "$windlass" close bench-view --quiet >/dev/null 2>&1 || true
    server_dir "$bench_dir/scratch"
    : >"$results_dir/creations.tsv"
    : >"$results_dir/steps.tsv"
    cluster_create "$snapshot_cluster"
    snapshots_start
    as_server "$PG_BINDIR/pgbench" --initialize --quiet --scale "$pgbench_scale" --host "$snapshot_cluster/socket" --username postgres postgres 2>/dev/null
    make_many_files 0 "$few_files"
    cluster_stop "$snapshot_cluster"
    [[ $only == creations ]] || all_rounds
    creations_of_a_full_cluster
    creations_of_many_files
    build_name >"$results_dir/snapshots.build"
    write_snapshots_page
    rm -rf "$snapshot_cluster" "$bench_dir/scratch"
}

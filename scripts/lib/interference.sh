# shellcheck shell=bash
# bench interference: what a running pgbench loses to a backup of ours and to one of pgBackRest at the same rate of bytes.
# Never does: compare runs at different rates: pgBackRest has no throttle, so its own rate is measured and given to ours.
# Needs peers.sh.
set -euo pipefail

backup_loop=

# Backups one after the other until the flag is gone; each leaves its seconds in backup.seconds.
loop_backups() {
    while [[ -e $bench_dir/looping ]]; do
        "$1"
        echo "$last_seconds" >>"$bench_dir/backup.seconds"
    done
}

start_loop() {
    : >"$bench_dir/backup.seconds"
    touch "$bench_dir/looping"
    loop_backups "$1" &
    backup_loop=$!
}

stop_loop() {
    rm -f "$bench_dir/looping"
    [[ -z $backup_loop ]] || wait "$backup_loop"
    backup_loop=
}

run_windlass_throttled() {
    fresh "$(out windlass)"
    timed "$windlass" backup "$uri" --to "$(out windlass)/set.windlass" --compress zstd:1 --max-rate "${rate_mib}MiB" --json
}

# pgbench_tps [BACKUP]: transactions a second, with that backup running all the time.
pgbench_tps() {
    [[ $# -eq 0 ]] || start_loop "$1"
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 4 --jobs 2 --time "$seconds" --host "$serving_dir/socket" \
        --username postgres postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p' >"$bench_dir/tps"
    stop_loop
    cat "$bench_dir/tps"
}

# What the backups beside the last pgbench run read per second, in MiB: the cluster's bytes by the median of their times.
backup_rate_mib() {
    awk -v bytes="$(cluster_bytes "$serving_dir/data")" -v seconds="$(median <"$bench_dir/backup.seconds")" \
        'BEGIN { printf "%.0f", bytes / seconds / 1048576 }'
}

measure_pgbackrest_rate() {
    pgbench_tps run_pgbackrest >/dev/null
    rate_mib=$(backup_rate_mib)
    note "pgBackRest reads $rate_mib MiB/s beside pgbench; Windlass gets the same as its --max-rate"
}

# record_tps NAME [BACKUP]: a line of name, transactions a second, MiB a second of the backups beside it.
record_tps() {
    local tps rate=0
    tps=$(pgbench_tps "${@:2}")
    (($# < 2)) || rate=$(backup_rate_mib)
    note "interference: $1: $tps transactions a second, backups at $rate MiB/s"
    printf '%s\t%s\t%s\n' "$1" "$tps" "$rate" >>"$results_dir/interference.tsv"
}

bench_interference() {
    local round
    need_pgbackrest
    server_dir "$bench_dir/out"
    need_pgbench_cluster
    serve "pgbench-$pgbench_scale"
    codec=zstd:1 bundle=n
    # A sync before each backup would be a load of its own beside pgbench.
    settle=true
    pgbench_tps >/dev/null
    measure_pgbackrest_rate
    : >"$results_dir/interference.tsv"
    for ((round = 1; round <= pairs; round++)); do
        record_tps alone
        record_tps windlass run_windlass_throttled
        record_tps pgbackrest run_pgbackrest
    done
    stop_serving
    as_server rm -rf "$bench_dir/out"
    report_interference
}

report_interference() {
    local alone name tps
    alone=$(median_of interference alone)
    echo "| beside pgbench | transactions/s | share of alone | backups read MiB/s |"
    echo "|---|---:|---:|---:|"
    for name in alone windlass pgbackrest; do
        tps=$(median_of interference "$name")
        printf '| %s | %.0f | %s | %s |\n' "$name" "$tps" "$(quotient "$tps" "$alone")" \
            "$(median_of interference "$name" 3)"
    done
}

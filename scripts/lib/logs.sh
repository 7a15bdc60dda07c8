# shellcheck shell=bash
# bench log: what it costs to archive a server's log and to fetch it again, segment by segment, compared with pgBackRest.
# Both compress with zstd:1, and both are one process for each segment, as a server starts them. CPU time is that of all of them together.
# Never does: keep a result when a fetched segment differs from the server's. Needs cluster.sh, measure.sh and peers.sh.
set -euo pipefail

log_cluster() { echo "$bench_dir/log"; }

# A cluster with $log_segments whole segments of pgbench in pg_wal.
need_log_cluster() {
    local dir
    dir=$(log_cluster)
    cluster_stop "$dir"
    as_server rm -rf "$dir"
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" max_wal_size=64GB wal_keep_size=64GB archive_mode=on archive_command=false
    note "writing $log_segments segments of log"
    while (($(log_names | wc -l) < log_segments)); do
        as_server "$PG_BINDIR/pgbench" --quiet --initialize --scale 20 "$(cluster_uri "$dir")" >/dev/null 2>&1
        as_server "$PG_BINDIR/pgbench" --no-vacuum --client 4 --transactions 500 "$(cluster_uri "$dir")" >/dev/null 2>&1
    done
}

# The names of the segments that are full, which the server has marked as ready.
log_names() {
    as_server find "$(log_cluster)/data/pg_wal/archive_status" -name '*.ready' -printf '%f\n' | sed 's/\.ready$//' |
        grep -E '^[0-9A-F]{24}$' | sort | head -n "$log_segments"
}

# each NAME-FILE COMMAND: runs the command for each name, which is $1 in it, and measures all of them together.
each() {
    as_server sync
    as_server /usr/bin/time --quiet --format '%e %U %S' --output "$bench_dir/last.times" \
        bash -c "set -e; while read -r name; do $2; done <'$1'" >"$bench_dir/last.out" 2>"$bench_dir/last.err" ||
        { tail -n 20 "$bench_dir/last.err" >&2; die "failed: $2"; }
    tail -n 1 "$bench_dir/last.times"
}

# record WHO WHAT: one line of results, from what each printed.
record() {
    local elapsed user system
    read -r elapsed user system
    awk -v who="$1" -v what="$2" -v e="$elapsed" -v u="$user" -v s="$system" \
        'BEGIN { printf "%s\t%s\t%s\t%.2f\n", who, what, e, u + s }' | tee -a "$results_dir/log.tsv" >&2
}

same_as_served() {
    local name=$1
    as_server cmp --silent "$(out fetched)/$name" "$(log_cluster)/data/pg_wal/$name" || die "$name was not fetched as it was"
}

log_windlass() {
    local names=$1 wal
    wal=$(log_cluster)/data/pg_wal
    fresh "$(out log)"
    as_server mkdir "$(out log)/log"
    as_server mkdir "$(out log)/log"
    each "$names" "'$windlass' archive-push '$wal/'\$name --to '$(out log)' --look-ahead 1" | record windlass push
    each "$names" "'$windlass' archive-get \$name '$(out fetched)/'\$name --from '$(out log)' --system '$system'" | record windlass get
}

log_windlass_ahead() {
    local names=$1 wal
    wal=$(log_cluster)/data/pg_wal
    fresh "$(out log)"
    as_server mkdir "$(out log)/log"
    as_server mkdir "$(out log)/log"
    each "$names" "'$windlass' archive-push '$wal/'\$name --to '$(out log)'" | record windlass-ahead push
}

log_pgbackrest() {
    local names=$1 data common
    data=$(log_cluster)/data
    fresh "$(out pgbackrest)"
    fresh "$(out locks)"
    common="--stanza=bench --repo1-path='$(out pgbackrest)' --lock-path='$(out locks)' --log-level-file=off --log-level-console=error
        --config=/dev/null --pg1-path='$data'"
    common=${common//$'\n'/ }
    as_server bash -c "'$pgbackrest' stanza-create $common --pg1-socket-path='$(log_cluster)/socket' --pg1-user=postgres"
    each "$names" "'$pgbackrest' archive-push $common --compress-type=zst --compress-level=1 '$data/pg_wal/'\$name" | record pgbackrest push
    each "$names" "'$pgbackrest' archive-get $common \$name '$(out fetched)/'\$name" | record pgbackrest get
}

# median_log WHO WHAT COLUMN: of seconds (3) or of CPU seconds (4).
median_log() {
    awk -F '\t' -v who="$1" -v what="$2" -v column="$3" '$1 == who && $2 == what { print $column }' "$results_dir/log.tsv" | median
}

log_row() {
    local what=$1 asked=$2 ours theirs
    ours=$(median_log windlass "$what" 4) theirs=$(median_log pgbackrest "$what" 4)
    printf 'archive-%s: %s ms of CPU for a segment, pgBackRest %s ms: ratio %s (asked for: %s); seconds in all: %s and %s\n' "$what" \
        "$(awk -v a="$ours" -v n="$log_segments" "BEGIN { printf \"%.1f\", a * 1000 / n }")" "$(awk -v a="$theirs" -v n="$log_segments" "BEGIN { printf \"%.1f\", a * 1000 / n }")" \
        "$(quotient "$ours" "$theirs")" "$asked" "$(median_log windlass "$what" 3)" "$(median_log pgbackrest "$what" 3)"
}

bench_log() {
    local names round system name
    need_pgbackrest
    server_dir "$bench_dir/out"
    need_log_cluster
    names="$bench_dir/log.names"
    log_names >"$names"
    chmod a+r "$names"
    system=$(cluster_psql "$(log_cluster)" postgres --command 'SELECT system_identifier FROM pg_control_system()')
    : >"$results_dir/log.tsv"
    for ((round = 1; round <= pairs; round++)); do
        fresh "$(out fetched)"
        log_windlass "$names"
        while read -r name; do same_as_served "$name"; done <"$names"
        log_windlass_ahead "$names"
        fresh "$(out fetched)"
        log_pgbackrest "$names"
    done
    log_row push "at most 0.5"
    log_row get "at most 0.5"
    printf 'archive-push with --look-ahead 16: %s s of CPU in all, %s s\n' "$(median_log windlass-ahead push 4)" "$(median_log windlass-ahead push 3)"
    cluster_stop "$(log_cluster)"
    as_server rm -rf "$(log_cluster)" "$bench_dir/out"
}

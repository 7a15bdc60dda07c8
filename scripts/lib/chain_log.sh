# shellcheck shell=bash
# bench chains, part archive: a server that is behind hands over its log, and a server that recovers asks for it, segment by
# segment, as fast as each answers. Needs bench_chains.sh and logs.sh (log_cluster, need_log_cluster, log_names, same_as_served).
# Never does: leave out the processor time of a process in the background.
set -euo pipefail

# A copy of the segments with their marks: each contender hands them over as a server does, and nobody's server is in the way.
log_copy() { echo "$bench_dir/log-copy"; }

copy_log() {
    local names=$1 dir wal
    dir=$(log_copy) wal=$(log_cluster)/data/pg_wal
    as_server rm -rf "$dir"
    as_server mkdir -p "$dir/data/global" "$dir/data/pg_wal/archive_status"
    as_server cp "$(log_cluster)/data/global/pg_control" "$dir/data/global/"
    as_server cp "$(log_cluster)/data/PG_VERSION" "$dir/data/"
    as_server bash -c "while read -r name; do cp '$wal/'\$name '$dir/data/pg_wal/'; : >'$dir/data/pg_wal/archive_status/'\$name.ready; done <'$names'"
}

# hand_over WHO COMMAND: for each segment in turn, as the archiver does. The mark becomes `done` when the command has succeeded.
hand_over() {
    local status
    status="$(log_copy)/data/pg_wal/archive_status"
    whole "$1" push "while read -r name; do $2 && mv '$status/'\$name.ready '$status/'\$name.done; done"
}

# ask WHO COMMAND: for each segment in turn, as a recovery does that replays in no time.
ask() {
    whole "$1" get "while read -r name; do $2; done"
}

# whole WHO WHAT LOOP: measures it with everything in the background.
whole() {
    as_server sync
    as_server python3 "$here/lib/whole_time.py" "$bench_dir/last.times" bash -c "set -e; $3 <'$bench_dir/log.names'" \
        >"$bench_dir/last.out" 2>"$bench_dir/last.err" || { tail -n 20 "$bench_dir/last.err" >&2; die "failed: $3"; }
    printf '%s\t%s\t%s\n' "$1-$2" "$(cut -d ' ' -f 1 "$bench_dir/last.times")" "$(cut -d ' ' -f 2 "$bench_dir/last.times")" |
        tee -a "$results_dir/archive.tsv" >&2
}

archive_windlass() {
    local name=$1 push=$2 get=$3 wal
    wal=$(log_copy)/data/pg_wal
    for place in log spool; do fresh "$(out "$place")"; done
    # An empty directory may be the mount point of a disk that is not there, so it takes no log.
    as_server mkdir "$(out log)/log"
    fresh "$(out fetched)"
    copy_log "$bench_dir/log.names"
    hand_over "$name" "'$windlass' archive-push '$wal/'\$name --to '$(out log)' $push"
    ask "$name" "'$windlass' archive-get \$name '$(out fetched)/'\$name --from '$(out log)' --system '$system' $get"
    while read -r segment; do same_as_served "$segment"; done <"$bench_dir/log.names"
}

archive_pgbackrest() {
    local data common async
    data=$(log_copy)/data
    copy_log "$bench_dir/log.names"
    for place in pgbackrest locks spool fetched; do fresh "$(out "$place")"; done
    common="--stanza=bench --repo1-path=$(out pgbackrest) --lock-path=$(out locks) --log-level-file=off --log-level-console=error \
--config=/dev/null"
    # shellcheck disable=SC2086 # words
    as_server "$pgbackrest" stanza-create $common --pg1-path="$(log_cluster)/data" --pg1-socket-path="$(log_cluster)/socket" --pg1-user=postgres
    async="$common --pg1-path=$data --archive-async --spool-path=$(out spool) --process-max=$processes"
    hand_over pgbackrest "'$pgbackrest' archive-push $async --compress-type=zst --compress-level=1 '$data/pg_wal/'\$name"
    ask pgbackrest "'$pgbackrest' archive-get $async \$name '$(out fetched)/'\$name"
    while read -r segment; do same_as_served "$segment"; done <"$bench_dir/log.names"
}

archive_row() {
    local what=$1 who=$2 column=$3 goal=$4 ours theirs
    ours=$(median_of archive "$who" "$column") theirs=$(median_of archive "pgbackrest-${who##*-}" "$column")
    line "$what" "$ours" "pgBackRest, asynchronous" "$theirs" "$(quotient "$ours" "$theirs")" "$goal"
}

chains_archive() {
    local round system
    need_log_cluster
    log_names >"$bench_dir/log.names"
    chmod a+r "$bench_dir/log.names"
    system=$(cluster_psql "$(log_cluster)" postgres --command 'SELECT system_identifier FROM pg_control_system()')
    : >"$results_dir/archive.tsv"
    for ((round = 1; round <= pairs; round++)); do
        archive_windlass windlass "--spool '$(out spool)'" "--spool '$(out spool)'"
        archive_windlass plain "" ""
        archive_pgbackrest
    done
    archive_row "archive-push of $log_segments segments with --spool, processor seconds" windlass-push 3 0.50
    archive_row "the same, seconds" windlass-push 2 -
    archive_row "archive-push without --spool, processor seconds" plain-push 3 0.50
    archive_row "the same, seconds" plain-push 2 -
    archive_row "archive-get of these with --spool, seconds" windlass-get 2 0.50
    archive_row "archive-get without --spool, seconds" plain-get 2 0.50
    cluster_stop "$(log_cluster)"
    as_server rm -rf "$(log_cluster)" "$(log_copy)" "$bench_dir/out"
    server_dir "$bench_dir/out"
}

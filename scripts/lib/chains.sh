# shellcheck shell=bash
# soak chains: rounds of full, differential, incremental and log backups of a live PostgreSQL cluster whose databases are
# created, copied, renamed, moved and dropped, and whose tables are rewritten, cut off and filled again. Some backups are
# killed. Beside them stands a cold copy of the cluster, which PostgreSQL itself recovers with the log that the server archived
# with cp. At each drawn position of the log, what Windlass restores and the recovered cold copy hold the same.
# Never does: end a process that it did not start. Needs common.sh, cluster.sh, show.sh, rounds.sh, storm.sh; of scripts/soak
# windlass, work, seed, rounds, drawn, begin_work, end_work.
set -euo pipefail

# How many backups a round makes, and at how many positions it compares.
links_of_round=6
chain_backup=
chain_storm=
chain_targets=()
chain_settings=()

# Every row of every table that anybody made.
chain_content="SELECT t, md5(string_agg(r, ',' ORDER BY r)), count(*) FROM (SELECT 'pairs' AS t, pairs::text AS r FROM pairs
    UNION ALL SELECT 'refilled', refilled::text FROM refilled UNION ALL SELECT 'cut', cut::text FROM cut) AS all_rows
    GROUP BY t ORDER BY t"

make_chain_source() {
    local database space
    cluster_create "$work/source" "$storm_bin"
    for space in a b archive place; do server_dir "$work/space-$space"; done
    cluster_start "$work/source" "$storm_bin" "${chain_settings[@]}"
    for space in a b; do storm_sql postgres --command "CREATE TABLESPACE $space LOCATION '$work/space-$space'"; done
    for database in tpl kept; do
        storm_sql postgres --command "CREATE DATABASE $database"
        storm_sql "$database" --command "CREATE TABLE pairs AS SELECT i, (i % 2) * 2 - 1 AS v, md5(i::text) AS s
            FROM generate_series(1, 20000) i; CREATE INDEX ON pairs (i); CREATE TABLE refilled AS SELECT * FROM pairs
            WHERE i <= 1000; CREATE TABLE cut AS SELECT * FROM pairs"
    done
}

# The settings of the server of this version: an archive that Windlass has no part in, and summaries where there are any.
set_chain_settings() {
    chain_settings=(autovacuum=off max_wal_size=256MB wal_keep_size=4GB archive_mode=on
        "archive_command='cp %p $work/space-archive/%f'")
    if (($("$storm_bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/') >= 17)); then
        chain_settings+=(summarize_wal=on)
    fi
}

# The cluster as it is now, at rest, with its tablespaces.
take_cold_copy() {
    cluster_stop "$work/source" "$storm_bin"
    rm -rf "$work/cold"
    server_dir "$work/cold"
    as_server cp -a "$work/source/data" "$work/cold/data"
    for space in a b; do as_server cp -a "$work/space-$space" "$work/cold/space-$space"; done
    cluster_start "$work/source" "$storm_bin" "${chain_settings[@]}"
}

chain_statement() {
    local one two space
    random_below 3 && one=s$drawn
    random_below 3 && two=s$drawn
    draw a b pg_default && space=$drawn
    draw copy log drop rename keep move rewrite catalog refill change cut cut fill
    case $drawn in
        copy) storm_sql postgres --command "CREATE DATABASE $one TEMPLATE tpl STRATEGY file_copy" ;;
        log) storm_sql postgres --command "CREATE DATABASE $one TEMPLATE tpl STRATEGY wal_log" ;;
        drop) storm_sql postgres --command "DROP DATABASE $one" ;;
        rename) storm_sql postgres --command "ALTER DATABASE $one RENAME TO $two" ;;
        keep) storm_sql postgres --command "ALTER DATABASE kept SET TABLESPACE $space" ;;
        move) storm_sql postgres --command "ALTER DATABASE $one SET TABLESPACE $space" ;;
        rewrite) storm_sql kept --command "VACUUM FULL pairs" ;;
        catalog) storm_sql kept --command "VACUUM FULL pg_class" ;;
        refill) storm_sql kept --command "BEGIN; TRUNCATE refilled;
            INSERT INTO refilled SELECT * FROM pairs WHERE i <= 1000; COMMIT" ;;
        change) storm_sql tpl --command "UPDATE pairs SET s = md5(s) WHERE i % 97 = 3" ;;
        cut) storm_sql kept --command "DELETE FROM cut WHERE i > 5000" --command "VACUUM cut" ;;
        fill) storm_sql kept --command "INSERT INTO cut SELECT * FROM pairs WHERE i > 5000" ;;
    esac
}

run_chain_storm() {
    local turn done=0
    RANDOM=$1
    for ((turn = 0; turn < $2; turn++)); do
        if chain_statement >/dev/null 2>&1; then done=$((done + 1)); fi
        pause_below 200
    done
    echo "$done" >stormed
}

# chain_link TYPE: one backup under a storm, maybe killed. Afterwards a position of the log is drawn.
chain_link() {
    local status=0 type=$1 made
    random_below 6
    run_chain_storm "$RANDOM" $((2 + drawn)) &
    chain_storm=$!
    "$windlass" backup "$(cluster_uri "$work/source")" --to "$work/space-place" --type "$type" --compress lz4 --json \
        >backup.json 2>backup.err &
    chain_backup=$!
    random_below 4
    if ((drawn == 0)); then
        pause_below 1500
        kill -KILL "$chain_backup" 2>/dev/null && count killed
    fi
    wait "$chain_backup" || status=$?
    chain_backup=
    wait "$chain_storm"
    chain_storm=
    count statements "$(<stormed)"
    case $status in
        0 | 3)
            made=$(python3 -c 'import json; print(json.load(open("backup.json"))["type"])')
            count "sets_$made"
            [[ $made == "$type" ]] || count "full_instead_of_$type"
            chain_targets+=("$(storm_sql postgres --command "SELECT pg_current_wal_insert_lsn()")")
            ;;
        137) ;;
        1) grep --quiet 'in each of' backup.err || { cat backup.err >&2 && die "the backup ended with $status"; } ;;
        *) cat backup.err >&2 && die "the backup ended with $status" ;;
    esac
}

# Makes all log durable in both archives.
end_chain_log() {
    local segment status=0
    storm_sql postgres --command "CREATE TABLE IF NOT EXISTS last ()" >/dev/null
    segment=$(storm_sql postgres --command "SELECT pg_walfile_name(pg_switch_wal())")
    until [[ $(storm_sql postgres --command "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver") == t ]]; do
        sleep 0.05
    done
    "$windlass" backup "$(cluster_uri "$work/source")" --to "$work/space-place" --type log --json >log.json || status=$?
    ((status == 0)) || { cat log.json >&2 && die "the backup of the log ended with $status"; }
}

# chain_contents DIR: what every database of a running cluster holds.
chain_contents() {
    local database
    for database in $(cluster_psql "$1" postgres --command "SELECT datname FROM pg_database WHERE datallowconn
        AND datname NOT IN ('postgres', 'template1') ORDER BY datname"); do
        echo "$database"
        cluster_psql "$1" "$database" --command "$chain_content"
    done
}

until_writable() {
    until [[ $(cluster_psql "$1" postgres --command "SELECT pg_is_in_recovery()") == f ]]; do sleep 0.05; done
}

# cold_contents LSN: the cold copy, recovered by PostgreSQL itself.
cold_contents() {
    local link space
    rm -rf "$work/replayed"
    server_dir "$work/replayed"
    as_server cp -a "$work/cold/." "$work/replayed"
    for link in "$work"/replayed/data/pg_tblspc/*; do
        space=$(readlink "$link")
        as_server ln -sfn "$work/replayed/${space##*/}" "$link"
    done
    as_server touch "$work/replayed/data/recovery.signal"
    cluster_start "$work/replayed" "$storm_bin" archive_mode=off "restore_command='cp $work/space-archive/%f %p'" \
        "recovery_target_lsn='$1'" recovery_target_action=promote
    until_writable "$work/replayed"
    chain_contents "$work/replayed"
    cluster_stop "$work/replayed" "$storm_bin" immediate
}

# windlass_contents LSN: the chain, restored and recovered; its indexes are judged, too.
windlass_contents() {
    server_dir "$work/copy"
    "$windlass" restore "$work/space-place" --into "$work/copy/data" --target-lsn "$1" --quiet \
        --tablespace-map "$work/space-a=$work/copy/a" --tablespace-map "$work/space-b=$work/copy/b" >/dev/null
    cluster_start "$work/copy" "$storm_bin"
    until_writable "$work/copy"
    chain_contents "$work/copy"
    as_server "$PG_BINDIR/pg_amcheck" --all --install-missing --heapallindexed --parent-check \
        --maintenance-db "$(cluster_uri "$work/copy" postgres)" >/dev/null
    cluster_stop "$work/copy" "$storm_bin" immediate
    rm -rf "$work/copy"
}

chain_round() {
    local link target cold
    take_cold_copy
    rm -rf "$work/space-place"
    server_dir "$work/space-place"
    chain_targets=()
    for ((link = 0; link < links_of_round; link++)); do
        draw incr incr diff full
        # Without a set there is nothing to build on.
        ((${#chain_targets[@]} > 0)) || drawn=full
        chain_link "$drawn"
    done
    ((${#chain_targets[@]} > 0)) || return 0
    end_chain_log
    "$windlass" verify "$work/space-place" --quiet >/dev/null
    for target in "${chain_targets[@]}"; do
        cold=$(cold_contents "$target")
        expect "the databases at $target" "$cold" "$(windlass_contents "$target")"
        count targets
    done
}

# For a trap: whatever is still there.
stop_chains() {
    local process place
    for process in "$chain_backup" "$chain_storm"; do
        [[ -z $process ]] || { kill "$process" && wait "$process"; } 2>/dev/null
    done
    [[ -n $work ]] || return 0
    for place in copy replayed source; do
        [[ ! -d $work/$place/data || ! -d $work/space-place ]] || cluster_stop "$work/$place" "$storm_bin" immediate
    done
}

soak_chains() {
    of_versions chains chains_of_version
}

chains_of_version() {
    local round name
    note "chains: $rounds rounds, seed $seed, $("$storm_bin/postgres" --version)"
    RANDOM=$seed
    counted=()
    begin_work
    chmod 755 "$work"
    set_chain_settings
    make_chain_source
    for ((round = 1; round <= rounds; round++)); do
        note "chains: round $round of $rounds"
        chain_round
    done
    cluster_stop "$work/source" "$storm_bin" immediate
    say "chains: $rounds rounds, seed $seed, $("$storm_bin/postgres" --version)"
    for name in $(printf '%s\n' "${!counted[@]}" | sort); do say "  $name: ${counted[$name]}"; done
    end_work
}

# shellcheck shell=bash
# soak snapshots: twenty snapshots of a busy PostgreSQL cluster by the hook are made. Then some are opened, dropped and made
# anew in random order, with up to twenty at once.
# Controllers are killed while they make or drop one, and the server crashes at times. Each snapshot that is kept opens as
# what was committed when it was made, and opens the same way every time after. No statement of the source may fail, but in
# a crash.
# Never does: end a process that it did not start. Needs common.sh, cluster.sh, show.sh, rounds.sh; of scripts/soak windlass,
# work, seed, seconds, clients, tables, profile, binaries, draw, begin_work, end_work.
set -euo pipefail

readonly alive_max=20
snapshot_source=
snapshot_loads=()
snapshot_serial=0
alive_most=0
alive=()
declare -A rows_before=() rows_after=() seen_sums=()

# What a snapshot is judged by: four equal sums, and the number of transactions.
judged="SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history),
    (SELECT count(*) FROM pgbench_history)"
checked="SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS amcheck;
    SELECT bt_index_check('pgbench_accounts_pkey', true); SELECT * FROM verify_heapam('pgbench_accounts');
    SELECT * FROM verify_heapam('pgbench_history')"
snapshot_statements="VACUUM FULL pgbench_tellers; REINDEX TABLE pgbench_branches; VACUUM pgbench_accounts;
    DROP TABLE IF EXISTS extra; CREATE TABLE extra AS SELECT i FROM generate_series(1, 30000) i; TRUNCATE extra;
    DROP TABLE extra; DROP DATABASE IF EXISTS copied;
    CREATE DATABASE copied TEMPLATE template0; DROP DATABASE copied; CHECKPOINT;"

source_word() { cluster_uri "$snapshot_source"; }

committed_rows() {
    cluster_psql "$snapshot_source" postgres --command "SELECT count(*) FROM pgbench_history"
}

# Runs until it is ended: the statements of a line each are sent one after the other. A line of changes.out is one that was
# carried out, changes.err has what the others say.
keep_changing() {
    local statement
    while true; do
        while read -r -d ';' statement; do
            if cluster_psql "$snapshot_source" postgres --command "$statement" >/dev/null 2>>"$work/changes.err"; then
                echo "$statement" >>"$work/changes.out"
            fi
        done <<<"$snapshot_statements"
    done
}

start_loads() {
    rm -f "$work/load.err" "$work/changes.err"
    : >>"$work/changes.out"
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client "$clients" --time 100000 "$(source_word)" \
        >/dev/null 2>"$work/load.err" &
    snapshot_loads=("$!")
    keep_changing &
    snapshot_loads+=("$!")
}

# Before the source crashes, and after everything else that is done.
check_loads() {
    local load
    for load in "${snapshot_loads[@]}"; do
        kill -0 "$load" 2>/dev/null || die "a load of the source has ended: $(cat "$work/load.err")"
    done
    if grep --quiet --extended-regexp 'ERROR|FATAL|error:' "$work/load.err" "$work/changes.err" 2>/dev/null; then
        die "statements of the source failed: $(cat "$work/load.err" "$work/changes.err")"
    fi
}

# What they have begun is ended with them, so that none of it happens beside the next loads.
end_loads() {
    local load begun
    for load in "${snapshot_loads[@]}"; do
        kill -STOP "$load" 2>/dev/null || true
        begun=$(pgrep --parent "$load") || true
        # shellcheck disable=SC2086
        kill "$load" $begun 2>/dev/null || true
        kill -CONT "$load" 2>/dev/null || true
        wait "$load" 2>/dev/null || true
    done
    snapshot_loads=()
}

# Nobody cuts the power here (soak faults does), and after a crash a server would sync each of many thousand files.
start_source() {
    cluster_start "$snapshot_source" "$PG_BINDIR" "max_connections=$((clients + 100))" fsync=off \
        "shared_preload_libraries='$work/library/libwindlass_interpose.so'"
}

make_snapshot_source() {
    snapshot_source=$work/source
    cluster_create "$snapshot_source"
    start_source
    as_server "$PG_BINDIR/pgbench" --initialize --quiet --scale 5 "$(source_word)" 2>/dev/null
    make_tables
    start_loads
}

# Files beside those of pgbench: tables of one page, 2,500 in a transaction because of its locks.
make_tables() {
    local first last
    for ((first = 1; first <= tables; first += 2500)); do
        last=$((first + 2499 < tables ? first + 2499 : tables))
        cluster_psql "$snapshot_source" postgres --command "DO \$\$ BEGIN FOR i IN $first..$last LOOP
            EXECUTE format('CREATE TABLE many_%s AS SELECT 1 AS i', i); END LOOP; END \$\$" >/dev/null
    done
}

# on_snapshot COMMAND NAME [OPTION ...]
on_snapshot() {
    local command=$1 name=$2
    shift 2
    as_server "$windlass" snapshot "$command" "$(source_word)" "$name" --quiet "$@"
}

make_one() {
    local name=s$((++snapshot_serial)) checkpoint
    ((${#alive[@]} < alive_max)) || { drop_one && return; }
    draw fast none
    checkpoint=$drawn
    rows_before[$name]=$(committed_rows)
    on_snapshot create "$name" --method hook --checkpoint "$checkpoint"
    rows_after[$name]=$(committed_rows)
    add_one "$name"
    count made
}

# add_one NAME: it is among those that live.
add_one() {
    alive+=("$1")
    ((${#alive[@]} <= alive_most)) || alive_most=${#alive[@]}
}

# forget_one NAME: it is no longer among those that live.
forget_one() {
    local name kept=()
    for name in "${alive[@]}"; do [[ $name == "$1" ]] || kept+=("$name"); done
    alive=("${kept[@]}")
}

drop_one() {
    ((${#alive[@]} > 0)) || return 0
    draw "${alive[@]}"
    on_snapshot drop "$drawn"
    forget_one "$drawn"
    count dropped
}

# The sums agree, the transactions are those of the moment, and all is as it was when it was last opened.
open_one() {
    local name found sums rows faults
    ((${#alive[@]} > 0)) || return 0
    draw "${alive[@]}"
    name=$drawn
    found=$(as_opener "$windlass" open "$(source_word)@$name" --quiet --writable -- sh -c \
        "psql -XqAt -v ON_ERROR_STOP=1 -c \"$judged\" && psql -XqAt -v ON_ERROR_STOP=1 -c \"$checked\"")
    sums=$(head -n 1 <<<"$found")
    faults=$(tail -n +2 <<<"$found" | tr -d '\n')
    rows=${sums##*|}
    expect "$name: the sums agree" 1 "$(cut -d '|' -f 1-4 <<<"$sums" | tr '|' '\n' | sort -u | wc -l)"
    expect "$name: amcheck finds nothing" "" "$faults"
    expect "$name: ${rows_before[$name]} <= $rows <= ${rows_after[$name]} transactions" yes \
        "$( ((rows_before[$name] <= rows && rows <= rows_after[$name])) && echo yes || echo no)"
    expect "$name: it is as it was" "${seen_sums[$name]:-$sums}" "$sums"
    seen_sums[$name]=$sums
    count opened
}

# killed COMMAND ...: starts it, and kills it after some time.
killed() {
    "$@" >/dev/null 2>&1 &
    local job=$!
    pause_up_to 1500
    kill -KILL "$(windlass_of "$job" 2>/dev/null)" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
}

has_snapshot() {
    as_server "$windlass" snapshot list "$(source_word)" --json |
        jq --exit-status --arg name "$1" 'any(.snapshots[]; .name == $name and .state == "kept")' >/dev/null
}

kill_make() {
    local name=s$((++snapshot_serial))
    ((${#alive[@]} < alive_max)) || return 0
    rows_before[$name]=$(committed_rows)
    killed on_snapshot create "$name" --method hook
    rows_after[$name]=$(committed_rows)
    count "creations killed"
    if has_snapshot "$name"; then
        add_one "$name"
        count "of these, made all the same"
    fi
}

kill_drop() {
    ((${#alive[@]} > 0)) || return 0
    draw "${alive[@]}"
    local name=$drawn
    killed on_snapshot drop "$name"
    count "drops killed"
    if has_snapshot "$name"; then
        count "of these, not dropped"
    else
        forget_one "$name"
    fi
}

# The statements that are under way fail.
crash_source() {
    check_loads
    cluster_stop "$snapshot_source" "$PG_BINDIR" immediate
    end_loads
    start_source
    start_loads
    count crashes
}

# For a trap.
stop_snapshot_soak() {
    [[ ${#snapshot_loads[@]} -eq 0 ]] || end_loads
    [[ -z $snapshot_source || ! -d $snapshot_source ]] || cluster_stop "$snapshot_source" "$PG_BINDIR" immediate
}

# One line, for docs/reliability.md.
print_snapshot_counts() {
    local name line=
    while read -r name; do line+="${line:+, }${counted[$name]} $name"; done < <(printf '%s\n' "${!counted[@]}" | sort)
    say "snapshots: $seconds seconds, seed $seed, $clients clients, $tables tables, PostgreSQL ${PG_BINDIR##*postgresql/}: $line"
}

soak_snapshots() {
    local until seconds=${seconds:-600}
    note "snapshots: $seconds seconds, seed $seed"
    RANDOM=$seed
    need_fuse
    need_postgres
    need jq:jq
    begin_work
    chmod 755 "$work"
    PG_BINDIR=$(postgres_bindir)
    cargo_build --profile "$profile" --package windlass-interpose
    mkdir "$work/library"
    cp "$binaries/libwindlass_interpose.so" "$work/library/"
    server_dir "$work/tmp"
    make_snapshot_source
    while ((${#alive[@]} < alive_max)); do
        make_one
        check_loads
    done
    until=$((SECONDS + seconds))
    while ((SECONDS < until)); do
        draw make_one make_one make_one open_one open_one open_one drop_one drop_one kill_make kill_drop crash_source
        "$drawn"
        check_loads
    done
    note "snapshots: every one that is left is opened, and all are dropped"
    while ((${#alive[@]} > 0)); do
        open_one
        drop_one
        check_loads
    done
    count "transactions of pgbench" "$(committed_rows)"
    count "other statements" "$(wc -l <"$work/changes.out")"
    count "statements that failed but in a crash" 0
    expect "nothing is left" "" "$(scratch_directories)"
    stop_snapshot_soak
    snapshot_source=
    count "most alive at once" "$alive_most"
    print_snapshot_counts
    end_work
}

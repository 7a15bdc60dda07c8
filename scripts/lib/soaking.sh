# shellcheck shell=bash
# soak open: a set that is opened and mounted, written to by pgbench and by statements that make and remove files, and
# killed at random moments. The set stays as it is; what was opened is as the source was; and what a killed mount's
# overlay was told to keep is there when it is mounted again.
# Never does: end a process that it did not start. Needs common.sh, cluster.sh, show.sh; of scripts/soak windlass, work,
# seed, rounds, draw, begin_work, end_work.
set -euo pipefail

clone_mount=
clone_server=
clone_load=
opened=
set_hash=
source_sums=
committed=0

# Every sum of pgbench's is the same one in a consistent database.
sums_of_balances="SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
# What makes, moves and removes files.
reshaping="VACUUM FULL pgbench_tellers;
REINDEX TABLE pgbench_accounts;
CREATE TABLE IF NOT EXISTS extra AS SELECT i FROM generate_series(1, 50000) i;
TRUNCATE extra;
DROP TABLE extra;
CHECKPOINT;"

as_opener() {
    as_server env TMPDIR="$work/tmp" PATH="$PG_BINDIR:$PATH" "$@"
}

hash_of_set() {
    sha256sum "$work"/set/* | sha256sum
}

make_set_to_open() {
    cluster_create "$work/source"
    cluster_start "$work/source"
    as_server "$PG_BINDIR/pgbench" --initialize --quiet --scale 10 "$(cluster_uri "$work/source")" 2>/dev/null
    as_server "$PG_BINDIR/pgbench" --client 2 --transactions 500 "$(cluster_uri "$work/source")" >/dev/null 2>&1
    source_sums=$(cluster_psql "$work/source" postgres --command "$sums_of_balances")
    server_dir "$work/set"
    draw none lz4 zstd:1
    "$windlass" backup "$(cluster_uri "$work/source")" --to "$work/set" --compress "$drawn" --quiet >/dev/null
    cluster_stop "$work/source"
    set_hash=$(hash_of_set)
}

# pause_up_to MILLISECONDS: some time up to that, drawn anew.
pause_up_to() {
    local delay=$((RANDOM * $1 / 32768))
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
}

# The windlass that a shell's job is, or leads to: the job itself may be runuser.
windlass_of() {
    local process=$1 child
    while [[ $(<"/proc/$process/comm") != windlass ]]; do
        child=$(pgrep --parent "$process" | head -n 1) || true
        process=${child:-$process}
    done
    echo "$process"
}

# Waits for the end of a process that is no child of ours; one that nobody has waited for yet has ended.
gone() {
    until [[ $(ps -o stat= -p "$1") =~ ^(Z.*)?$ ]]; do sleep 0.02; done
}

scratch_directories() {
    find "$work/tmp" -maxdepth 2 -name 'windlass-open-*'
}

# A writable clone under pgbench, killed; then the set is opened again, is what its source was, and nothing is left.
open_round() {
    local process left
    as_opener "$windlass" open --writable "$work/set" -- pgbench --no-vacuum --client 2 --time 1000 postgres >/dev/null 2>&1 &
    opened=$!
    pause_up_to 4000
    process=$(windlass_of "$opened")
    kill -KILL "$process"
    wait "$opened" 2>/dev/null || true
    opened=
    # Its server has the scratch directory locked until it has ended.
    while read -r left; do flock "$left" true; done < <(scratch_directories)
    expect "the set opens as its source was" "$source_sums" \
        "$(as_opener "$windlass" open "$work/set" -- psql -XqAtc "$sums_of_balances" postgres)"
    expect "nothing is left" "" "$(scratch_directories)"
}

mount_clone() {
    as_opener "$windlass" mount --foreground "$work/set" "$work/clone/data" --overlay "$work/overlay" >mounted &
    clone_mount=$!
    # Names in a dead mount may still be found, so looking for a file would prove nothing.
    until grep --quiet ^mounted mounted; do
        kill -0 "$clone_mount" 2>/dev/null || die "the mount ended by itself"
        sleep 0.02
    done
    # Its server is known to have ended; to another one its number may seem to be in use.
    as_server rm -f "$work/clone/data/postmaster.pid" "$work/clone/socket/.s.PGSQL.5432.lock"
    cluster_start "$work/clone"
    clone_server=$(as_server head -n 1 "$work/clone/data/postmaster.pid")
}

# What was committed is there, the sums agree, and every row is in the index.
judge_clone() {
    local sums rows faults
    sums=$(cluster_psql "$work/clone" postgres --command "$sums_of_balances" | tr '|' '\n' | sort -u | wc -l)
    expect "the sums agree" 1 "$sums"
    rows=$(cluster_psql "$work/clone" postgres --command "SELECT count(*) FROM pgbench_history")
    expect "all $committed transactions are there" yes "$( ((rows >= committed)) && echo yes || echo "$rows")"
    faults=$(cluster_psql "$work/clone" postgres --command "SET client_min_messages = error;
        CREATE EXTENSION IF NOT EXISTS amcheck; SELECT bt_index_check('pgbench_accounts_pkey', true);
        SELECT * FROM verify_heapam('pgbench_accounts')" | tr -d '\n')
    expect "amcheck finds nothing" "" "$faults"
}

load_clone() {
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 2 --time 1000 "$(cluster_uri "$work/clone")" >/dev/null 2>&1 &
    clone_load=$!
    pause_up_to 2000
    cluster_psql "$work/clone" postgres <<<"$reshaping" >/dev/null 2>&1 &
    pause_up_to 3000
    committed=$(cluster_psql "$work/clone" postgres --command "SELECT count(*) FROM pgbench_history")
}

kill_clone() {
    kill -KILL "$(windlass_of "$clone_mount")"
    wait "$clone_mount" 2>/dev/null || true
    # Its files are out of reach, so it may be ending already.
    kill -QUIT "$clone_server" 2>/dev/null || true
    gone "$clone_server"
}

end_clone() {
    # pg_ctl would be asked by root, who may not look into this mount.
    kill -INT "$clone_server"
    gone "$clone_server"
    as_server fusermount3 -u "$work/clone/data"
    wait "$clone_mount" || die "the mount ended with $?"
}

# The clone goes on where it was, is judged, written to, and ends by a kill or in order.
mount_round() {
    mount_clone
    judge_clone
    load_clone
    draw kill kill kill end
    note "the mount ends by: $drawn"
    "${drawn}_clone"
    wait "$clone_load" 2>/dev/null || true
    clone_mount='' clone_server='' clone_load=''
    wait
}

# A mount whose process was killed is there until somebody takes it away.
unmount_what_is_left() {
    local at
    while read -r _ at _; do
        [[ -z $work || $at != "$work"/* ]] || as_server fusermount3 -u -z "$at"
    done </proc/mounts
}

# For a trap: whatever is still there.
stop_soaked_open() {
    local process
    [[ -z $clone_server ]] || kill -QUIT "$clone_server" 2>/dev/null
    for process in "$clone_load" "$clone_mount" "$opened"; do
        [[ -z $process ]] || { kill "$process" && wait "$process"; } 2>/dev/null
    done
    unmount_what_is_left
    [[ ! -d $work/source ]] || cluster_stop "$work/source"
}

soak_open() {
    local round
    note "open: $rounds rounds, seed $seed"
    RANDOM=$seed
    need_fuse
    need_postgres
    begin_work
    chmod 755 "$work"
    PG_BINDIR=$(postgres_bindir)
    for place in tmp clone clone/data; do server_dir "$work/$place"; done
    chmod 700 "$work/clone/data"
    server_dir "$work/overlay"
    make_set_to_open
    for ((round = 1; round <= rounds; round++)); do
        draw open mount mount
        note "open: round $round of $rounds, $drawn"
        "${drawn}_round"
        expect "the set is as it was" "$set_hash" "$(hash_of_set)"
    done
    unmount_what_is_left
    end_work
}

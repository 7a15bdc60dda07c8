# shellcheck shell=bash
# soak storm: rounds of backups of a live PostgreSQL cluster while databases and tablespaces are created, copied, renamed,
# moved and dropped, and tables rewritten and given other columns. Some backups are killed. Each set is restored elsewhere,
# started and judged. At the end the counts are printed, for docs/reliability.md.
# Never does: end a process that it did not start. Needs common.sh, cluster.sh, show.sh, rounds.sh; of scripts/soak windlass,
# work, seed, rounds, profile, draw, drawn, begin_work, end_work, judge_leavings.
set -euo pipefail

# The server of the storm: the directory of its programs.
storm_bin=
storm=
storm_backup=
kept_content=

storm_sql() {
    local database=$1
    shift
    cluster_psql "$work/source" "$database" "$@"
}

# Two databases of the same shape: `tpl` changes and is copied, `kept` is moved and never changes its content. They are so large
# that a backup reads their catalogs and takes their pages apart.
make_storm_source() {
    local space
    cluster_create "$work/source" "$storm_bin"
    for space in a b x; do server_dir "$work/space-$space"; done
    cluster_start "$work/source" "$storm_bin" autovacuum=off max_wal_size=256MB
    for space in a b; do storm_sql postgres --command "CREATE TABLESPACE $space LOCATION '$work/space-$space'"; done
    for database in tpl kept; do
        storm_sql postgres --command "CREATE DATABASE $database"
        storm_sql "$database" --command "CREATE TABLE pairs AS SELECT i, (i % 2) * 2 - 1 AS v, md5(i::text) AS s
            FROM generate_series(1, 60000) i; CREATE INDEX ON pairs (i); CREATE TABLE refilled AS SELECT * FROM pairs
            WHERE i <= 1000"
    done
    kept_content=$(storm_sql kept --command "$content_of_pairs")
}

content_of_pairs="SELECT count(*), sum(v), md5(string_agg(s, ',' ORDER BY i)) FROM pairs"

# One statement of the storm, drawn anew. Some are refused by the server, for want of what they name.
storm_statement() {
    local one two space
    random_below 4 && one=s$drawn
    random_below 4 && two=s$drawn
    draw a b pg_default && space=$drawn
    draw copy copy log drop rename keep keep move create remove rewrite catalog refill change alter
    case $drawn in
        copy) storm_sql postgres --command "CREATE DATABASE $one TEMPLATE tpl STRATEGY file_copy" ;;
        log) storm_sql postgres --command "CREATE DATABASE $one TEMPLATE tpl STRATEGY wal_log" ;;
        drop) storm_sql postgres --command "DROP DATABASE $one" ;;
        rename) storm_sql postgres --command "ALTER DATABASE $one RENAME TO $two" ;;
        keep) storm_sql postgres --command "ALTER DATABASE kept SET TABLESPACE $space" ;;
        move) storm_sql postgres --command "ALTER DATABASE $one SET TABLESPACE $space" ;;
        create)
            storm_sql postgres --command "CREATE TABLESPACE x LOCATION '$work/space-x'" \
                --command "CREATE TABLE in_x TABLESPACE x AS SELECT generate_series(1, 5000) AS i"
            ;;
        remove) storm_sql postgres --command "DROP TABLE in_x" --command "DROP TABLESPACE x" ;;
        rewrite) storm_sql kept --command "VACUUM FULL pairs" ;;
        catalog) storm_sql kept --command "VACUUM FULL pg_class" ;;
        refill) storm_sql kept --command "BEGIN; TRUNCATE refilled;
            INSERT INTO refilled SELECT * FROM pairs WHERE i <= 1000; COMMIT" ;;
        change) storm_sql tpl --command "INSERT INTO pairs SELECT i, v, 'new' FROM pairs WHERE i <= 200" ;;
        alter) storm_sql tpl --command "ALTER TABLE pairs DROP COLUMN IF EXISTS more, ADD COLUMN more bigint DEFAULT 7" \
            --command "UPDATE pairs SET more = i WHERE i % 3 = 0" ;;
    esac
}

# run_storm SEED COUNT: statements one after the other; how many the server carried out goes to the file `stormed`.
run_storm() {
    local turn done=0
    RANDOM=$1
    for ((turn = 0; turn < $2; turn++)); do
        if storm_statement >/dev/null 2>&1; then done=$((done + 1)); fi
        pause_below 300
    done
    echo "$done" >stormed
}

# Kills the backup somewhere within its first seconds; what is left must not pass for a set.
kill_in_storm() {
    pause_below 4000
    kill -KILL "$storm_backup" 2>/dev/null || true
    wait "$storm_backup" 2>/dev/null || true
    storm_backup=
    wait "$storm"
    storm=
    judge_leavings "$work/set"
    count killed
}

# The tablespaces of a set, as options of a restore that puts them elsewhere.
map_of_set() {
    python3 -c 'import json
for space in json.load(open("backup.json"))["database"]["tablespaces"]:
    print("--tablespace-map\n%s=%s" % (space["location"], space["location"].replace("space-", "moved-")))'
}

# What of the source replay could reach, by inode, length and times.
live_locations() {
    find "$work"/space-* -printf '%i %s %T@ %C@ %p\n' | sort | sha256sum
}

# Every database that the restored catalog names is there and whole, and the one that never changes is as it was.
judge_storm_copy() {
    local database
    expect "kept is as it was" "$kept_content" "$(cluster_psql "$work/copy" kept --command "$content_of_pairs")"
    for database in $(cluster_psql "$work/copy" postgres --command "SELECT datname FROM pg_database WHERE datallowconn
        AND datname NOT IN ('postgres', 'template1')"); do
        expect "$database: pairs add up" "0|1000" "$(cluster_psql "$work/copy" "$database" --command \
            "SELECT (SELECT sum(v) FROM pairs), (SELECT count(*) FROM refilled)")"
        count databases
    done
    as_server "$PG_BINDIR/pg_amcheck" --all --install-missing --heapallindexed --parent-check \
        --maintenance-db "$(cluster_uri "$work/copy" postgres)" >/dev/null
}

restore_and_judge_storm() {
    local live map
    storm_sql postgres --command CHECKPOINT
    live=$(live_locations)
    mapfile -t map < <(map_of_set)
    server_dir "$work/copy"
    "$windlass" restore "$work/set" --into "$work/copy/data" "${map[@]}" --quiet >/dev/null
    cluster_start "$work/copy" "$storm_bin"
    judge_storm_copy
    cluster_stop "$work/copy" "$storm_bin"
    expect "the source's tablespaces are as they were" "$live" "$(live_locations)"
    rm -rf "$work/copy" "$work"/moved-*
}

# storm_round: a backup under a storm that ends before it or after it; then what came of it.
storm_round() {
    local status=0 windows
    server_dir "$work/set"
    random_below 9
    run_storm "$RANDOM" $((4 + drawn)) &
    storm=$!
    draw auto auto off
    "$windlass" backup "$(cluster_uri "$work/source")" --to "$work/set/1.windlass" --max-rate 16MiB --compress lz4 \
        --pages "$drawn" --json >backup.json 2>backup.err &
    storm_backup=$!
    random_below 5
    if ((drawn == 0)); then kill_in_storm && rm -rf "$work/set" && return; fi
    wait "$storm_backup" || status=$?
    storm_backup=
    wait "$storm"
    storm=
    count statements "$(<stormed)"
    if ((status == 1)) && grep --quiet 'in each of' backup.err; then
        count refused
    elif ((status == 0 || status == 3)); then
        windows=$(python3 -c 'import json, sys
print(len(json.load(open("backup.json"))["database"]["earlier_windows"]))')
        count "windows_$((windows + 1))"
        "$windlass" verify "$work/set" --quiet >/dev/null
        restore_and_judge_storm
        count sealed
    else
        cat backup.err >&2
        die "the backup ended with $status"
    fi
    rm -rf "$work/set"
}

# For a trap: whatever is still there.
stop_storm() {
    local process
    for process in "$storm_backup" "$storm"; do
        [[ -z $process ]] || { kill "$process" && wait "$process"; } 2>/dev/null
    done
    [[ ! -d $work/copy ]] || cluster_stop "$work/copy" "$storm_bin" immediate
    [[ ! -d $work/source || ! -d $work/space-x ]] || cluster_stop "$work/source" "$storm_bin" immediate
}

# The server programs of a major version: those that the tests use, those of a package, or nothing.
storm_bindir() {
    local pair dir
    for pair in ${WINDLASS_TEST_PG_BINDIRS//:/ }; do
        [[ $pair != "$1="* ]] || { echo "${pair#*=}" && return; }
    done
    for dir in "/usr/lib/postgresql/$1/bin" "/usr/pgsql-$1/bin"; do
        [[ ! -x $dir/postgres ]] || { echo "$dir" && return; }
    done
}

# of_versions NAME FUNCTION: one version after the other; a version whose programs are not here is named and left out.
of_versions() {
    local major
    need_postgres
    PG_BINDIR=$(postgres_bindir)
    if [[ -z $majors ]]; then
        storm_bin=$PG_BINDIR
        "$2"
        return
    fi
    for major in ${majors//,/ }; do
        storm_bin=$(storm_bindir "$major")
        if [[ -z $storm_bin ]]; then
            note "$1: the programs of PostgreSQL $major are not here: it is NOT tried (WINDLASS_TEST_PG_BINDIRS names them)"
            continue
        fi
        "$2"
    done
}

soak_storm() {
    of_versions storm storm_of_version
}

storm_of_version() {
    local round name
    note "storm: $rounds rounds, seed $seed, $("$storm_bin/postgres" --version)"
    RANDOM=$seed
    counted=()
    begin_work
    chmod 755 "$work"
    make_storm_source
    for ((round = 1; round <= rounds; round++)); do
        note "storm: round $round of $rounds"
        storm_round
    done
    cluster_stop "$work/source" "$storm_bin" immediate
    say "storm: $rounds rounds, seed $seed, $("$storm_bin/postgres" --version)"
    for name in $(printf '%s\n' "${!counted[@]}" | sort); do say "  $name: ${counted[$name]}"; done
    end_work
}

# shellcheck shell=bash
# bench chains: differential and incremental backups, restores of chains, a chain at a moment, and the log, each beside the
# programs that one would take instead. Writes docs/bench-chains.md.
# Never does: give a peer a worse setting than its best. Needs cluster.sh, measure.sh, peers.sh (out, fresh), chain_log.sh and chain_thirty.sh.
#
# A round of a contest is one run of each contender, in turns. What one run left is removed before the next, not timed.
set -euo pipefail

chain_parts=(differential restore open archive receive sqlite listing thirty)
# Tuples of a page of pgbench_accounts. One row of every hundredth page changes.
rows_of_a_page=61

chain_dir() { echo "$bench_dir/chain-$pgbench_scale"; }
chain_uri() { cluster_uri "$(chain_dir)"; }
chain_sql() { cluster_psql "$(chain_dir)" postgres --command "$1"; }

# PostgreSQL 18 with its own client programs, pg_combinebackup among them.
need_chain_programs() {
    PG_BINDIR=$(install_newest_clients "$(server_place postgres)/18-clients" | sed 's/^18=//')
    need python3:python3
    need_pgbackrest
}

# A cluster of pgbench, without log of its own making.
make_chain_cluster() {
    local dir
    dir=$(chain_dir)
    cluster_stop "$dir"
    as_server rm -rf "$dir"
    cluster_create "$dir" "$PG_BINDIR"
    cluster_start "$dir" "$PG_BINDIR" autovacuum=off max_wal_size=16GB summarize_wal=on wal_keep_size=2GB
    as_server "$PG_BINDIR/pgbench" --initialize --init-steps tgvp --quiet --scale "$pgbench_scale" \
        --host "$dir/socket" --username postgres postgres >/dev/null 2>&1
    chain_sql "CHECKPOINT"
}

drop_chain_cluster() {
    cluster_stop "$(chain_dir)" "$PG_BINDIR" immediate
    as_server rm -rf "$(chain_dir)" "$bench_dir/out"
    server_dir "$bench_dir/out"
}

# One row of every hundredth page, another hundredth each time.
change_one_percent() {
    local every=$((rows_of_a_page * 100))
    chain_sql "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % $every = $(($1 * rows_of_a_page + 1))"
    chain_sql "CHECKPOINT"
}

pgbackrest_chain() {
    local dir
    dir=$(chain_dir)
    pgbackrest_command=("$pgbackrest" "$1" --stanza=bench --repo1-path="$(out pgbackrest)" --lock-path="$(out locks)"
        --log-level-file=off --log-level-console=error --config=/dev/null)
    case $1 in
        backup | stanza-create) pgbackrest_command+=(--pg1-path="$dir/data" --pg1-socket-path="$dir/socket" --pg1-user=postgres) ;;
        restore) pgbackrest_command+=(--pg1-path="$(out restored)" --process-max="$processes" --type=none) ;;
    esac
    [[ $1 != backup ]] || pgbackrest_command+=(--type="$2" --process-max="$processes" --compress-type=zst --compress-level=1
        --start-fast --no-archive-check --no-expire-auto --repo1-retention-full=9 --repo1-bundle=y --repo1-block=y)
}

chain_stanza() {
    fresh "$(out pgbackrest)"
    fresh "$(out locks)"
    pgbackrest_chain stanza-create
    as_server "${pgbackrest_command[@]}"
}

# --- what changed ---

run_windlass_full() {
    fresh "$(out full)"
    timed "$windlass" backup "$(chain_uri)" --to "$(out full)" --json
    full_read=$(json .bytes_read)
}

run_windlass_diff() {
    fresh "$(out diff)"
    timed "$windlass" backup "$(chain_uri)" --to "$(out diff)" --type diff --base "$(out base)" --strict --json
    diff_read=$(json .bytes_read)
}

run_pgbackrest_diff() {
    pgbackrest_chain backup diff
    timed "${pgbackrest_command[@]}"
}

run_basebackup_incremental() {
    fresh "$(out incremental)"
    timed "$PG_BINDIR/pg_basebackup" --dbname "$(chain_uri)" --checkpoint=fast --wal-method=fetch --pgdata "$(out incremental)" \
        --incremental "$(out basebackup)/backup_manifest"
}

chains_differential() {
    make_chain_cluster
    chain_stanza
    fresh "$(out base)"
    as_server "$windlass" backup "$(chain_uri)" --to "$(out base)" --json >/dev/null
    pgbackrest_chain backup full
    as_server "${pgbackrest_command[@]}"
    fresh "$(out basebackup)"
    as_server "$PG_BINDIR/pg_basebackup" --dbname "$(chain_uri)" --checkpoint=fast --pgdata "$(out basebackup)"
    change_one_percent 0
    contest differential run_windlass_full run_windlass_diff run_pgbackrest_diff run_basebackup_incremental
    row "differential after 1 % of the pages changed" windlass_diff "our full" windlass_full 0.10 differential
    row "the same" windlass_diff "pgBackRest, block incremental" pgbackrest_diff 0.20 differential
    row "the same" windlass_diff "pg_basebackup --incremental" basebackup_incremental - differential
    figure "bytes read for it, of those of a full" "$(quotient "$diff_read" "$full_read" 4)" 0.03
    drop_chain_cluster
}

# --- one pass ---

run_windlass_chain() {
    fresh "$(out restored)"
    timed "$windlass" restore "$(out chain)" --set latest --into "$(out restored)" --json
}

run_windlass_one() {
    fresh "$(out restored)"
    timed "$windlass" restore "$(out merged)" --into "$(out restored)" --json
}

# It writes a copy; with --link or --clone it would need the chain for ever, or another file system.
run_combinebackup() {
    as_server rm -rf "$(out restored)"
    timed "$PG_BINDIR/pg_combinebackup" "$(out inc-0)" "$(out inc-1)" "$(out inc-2)" "$(out inc-3)" --output "$(out restored)"
}

run_pgbackrest_chain() {
    fresh "$(out restored)"
    pgbackrest_chain restore
    timed "${pgbackrest_command[@]}"
}

chains_restore() {
    local number kind=full base=()
    make_chain_cluster
    chain_stanza
    fresh "$(out chain)"
    for number in 0 1 2 3; do
        ((number == 0)) || change_one_percent "$number"
        as_server "$windlass" backup "$(chain_uri)" --to "$(out chain)" --type "$kind" --json >/dev/null
        pgbackrest_chain backup "$kind"
        as_server "${pgbackrest_command[@]}"
        fresh "$(out "inc-$number")"
        as_server "$PG_BINDIR/pg_basebackup" --dbname "$(chain_uri)" --checkpoint=fast --pgdata "$(out "inc-$number")" "${base[@]}"
        base=(--incremental "$(out "inc-$number")/backup_manifest")
        kind=incr
    done
    fresh "$(out merged)"
    as_server "$windlass" merge "$(out chain)" --to "$(out merged)" --json >/dev/null
    cluster_stop "$(chain_dir)" "$PG_BINDIR" immediate
    contest chain-restore run_windlass_chain run_windlass_one run_combinebackup run_pgbackrest_chain
    row "restore of a full and 3 incrementals" windlass_chain "one full of that size" windlass_one 1.15 chain-restore
    row "the same" windlass_chain "pg_combinebackup" combinebackup 0.50 chain-restore
    row "the same" windlass_chain "pgBackRest" pgbackrest_chain - chain-restore
    drop_chain_cluster
}

# --- a chain at its end, as a server ---

run_windlass_at() {
    timed "$windlass" open "$(out chain)" --at latest --bindir "$PG_BINDIR" -- "$PG_BINDIR/psql" --no-psqlrc --quiet --tuples-only \
        --no-align --command 'SELECT count(*), max(aid) FROM (SELECT aid FROM pgbench_accounts WHERE aid = 77777) found'
    [[ $(<"$bench_dir/last.out") == '1|77777' ]] || die "a wrong answer: $(<"$bench_dir/last.out")"
}

chains_open() {
    local small=$pgbench_scale number
    for pgbench_scale in "$small" $((small * 4)); do
        make_chain_cluster
        fresh "$(out chain)"
        as_server "$windlass" backup "$(chain_uri)" --to "$(out chain)" --json >/dev/null
        for number in {1..9}; do
            change_one_percent "$number"
            as_server "$windlass" backup "$(chain_uri)" --to "$(out chain)" --type incr --strict --json >/dev/null
        done
        chain_sql "UPDATE pgbench_tellers SET tbalance = 1"
        as_server "$windlass" backup "$(chain_uri)" --to "$(out chain)" --type log --json >/dev/null
        contest "chain-open-$pgbench_scale" run_windlass_at
        figure "first answer of \`open --at\`, a chain of 10 sets of $((pgbench_scale * 15)) MB, seconds" \
            "$(median_of "chain-open-$pgbench_scale" windlass_at)" 3
        drop_chain_cluster
    done
    pgbench_scale=$small
}

# --- what receiving the log costs the server ---

pgbench_tps() {
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 2 --time "$seconds" --host "$(chain_dir)/socket" --username postgres postgres \
        2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

chains_receive() {
    local round place file="$results_dir/receive.tsv" receiver
    make_chain_cluster
    place=$(out received)
    fresh "$place"
    as_server mkdir "$place/log"
    : >"$file"
    for ((round = 1; round <= pairs * 2; round++)); do
        receiver=
        # Whoever is first changes each round.
        if (((round + round / 2) % 2 == 0)); then
            as_server "$windlass" receive "$(chain_uri)" --to "$place" >/dev/null 2>&1 &
            receiver=$!
        fi
        printf '%s\t%s\n' "${receiver:+received}" "$(pgbench_tps)" | sed 's/^\t/alone\t/' | tee -a "$file" >&2
        if [[ -n $receiver ]]; then
            kill "$receiver"
            wait "$receiver" || note "the receiver ended with $?"
        fi
    done
    figure "transactions a second while \`receive\` runs, of those without" \
        "$(quotient "$(median_of receive received)" "$(median_of receive alone)" 3)" ">= 0.98"
    drop_chain_cluster
}

# --- SQLite ---

run_windlass_sqlite_full() {
    fresh "$(out full)"
    timed "$windlass" backup "$(out source)/shop.db" --to "$(out full)" --json
}

run_windlass_sqlite_diff() {
    fresh "$(out diff)"
    timed "$windlass" backup "$(out source)/shop.db" --to "$(out diff)" --type diff --base "$(out base)" --strict --json
}

chains_sqlite() {
    local rows=$((pgbench_scale * 100000))
    fresh "$(out source)"
    fresh "$(out base)"
    as_server sqlite3 "$(out source)/shop.db" "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
        CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $rows)
            INSERT INTO account SELECT i, i * 7919 % 100003, hex(randomblob(40)) FROM n;
        PRAGMA wal_checkpoint(TRUNCATE);" >/dev/null
    as_server "$windlass" backup "$(out source)/shop.db" --to "$(out base)" --json >/dev/null
    as_server sqlite3 "$(out source)/shop.db" "UPDATE account SET balance = balance + 1 WHERE id % 4000 = 1" >/dev/null
    contest chain-sqlite run_windlass_sqlite_full run_windlass_sqlite_diff
    row "SQLite: differential after 1 % of the pages changed" windlass_sqlite_diff "our full" windlass_sqlite_full 0.25 chain-sqlite
    as_server rm -rf "$bench_dir/out"
    server_dir "$bench_dir/out"
}

# --- many sets of many databases ---

run_windlass_info() {
    timed "$windlass" info "$(out listed)"
}

# The last few are incremental sets, so that chains are drawn.
chains_listing() {
    fresh "$(out source)"
    fresh "$(out listed)"
    as_server sqlite3 "$(out source)/shop-0.db" "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'a')"
    note "making $listed_sets sets of 100 databases"
    as_server bash -c "set -e
        for n in {1..99}; do cp '$(out source)/shop-0.db' '$(out source)/shop-'\$n.db; done
        for ((n = 0; n < $listed_sets; n++)); do
            kind=full number=\$((n % 100))
            ((n < $listed_sets - 3)) || kind=incr number=\$(($listed_sets - 1 - n))
            '$windlass' backup '$(out source)/shop-'\$number.db --to '$(out listed)' --type \$kind --no-prediction --no-history --quiet
        done"
    contest chain-listing run_windlass_info
    figure "list of $listed_sets sets of 100 databases, seconds" "$(median_of chain-listing windlass_info)" 2
    as_server rm -rf "$bench_dir/out"
    server_dir "$bench_dir/out"
}

# --- the table ---

rows_file() { echo "$results_dir/chains-rows-$part"; }

# line WHAT OURS PEER ITS RATIO GOAL: one line of the table. A goal of - is none.
line() {
    local met=-
    case $6 in
        -) ;;
        '>= '*) at_most "${6#>= }" "$5" && met=yes || met=no ;;
        *) at_most "$5" "$6" && met=yes || met=no ;;
    esac
    printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$3" "$4" "$5" "$6" "$met" "$(build_name)" | tee -a "$(rows_file)" >&2
}

# row WHAT OURS PEER ITS GOAL CONTEST: medians of seconds.
row() {
    local ours theirs
    ours=$(median_of "$6" "$2") theirs=$(median_of "$6" "$4")
    line "$1" "$ours" "$3" "$theirs" "$(quotient "$ours" "$theirs")" "$5"
}

# figure WHAT VALUE GOAL: a number that stands for itself.
figure() { line "$1" - - - "$2" "$3"; }

write_chains_table() {
    local page="$repo_root/docs/bench-chains.md" one
    {
        echo "# Chains and the log compared with other tools"
        echo
        echo "\`scripts/bench chains\` wrote this page; \`--only PART\` measures one part (${chain_parts[*]}). Seconds are medians of whole processes."
        echo "The runs of a part took turns on the same data, pgbench at scale $pgbench_scale (about $((pgbench_scale * 15)) MB), with a warm cache."
        echo
        echo "| run | Windlass | compared with | its | ratio | goal | met | commit |"
        echo "|---|---:|---|---:|---:|---:|---|---|"
        for one in "${chain_parts[@]}"; do
            [[ ! -e $results_dir/chains-rows-$one ]] || cat "$results_dir/chains-rows-$one"
        done
        echo
        echo "A goal is at most this number, unless it says otherwise. Processor time is that of all processes, also of those in the background."
        echo "The chain of $thirty_sets sets has the index of a database in files of 1 GiB of which each incremental set has 1 % of the pages of 8 KiB, at random"
        echo "places, and no more than the index: its pages are one byte each. The full set has frames of 1 MiB."
        echo
        echo "Machine: $(machine_description)."
        echo
        echo "Versions: Windlass $("$windlass" --version | awk '{ print $2 }'), $("$PG_BINDIR/postgres" --version | sed 's/^[^ ]* (\([^)]*\)) /\1 /'), $("$pgbackrest" version)."
    } >"$results_dir/page.new"
    mv "$results_dir/page.new" "$page"
    cat "$page"
}

bench_chains() {
    need_chain_programs
    server_dir "$bench_dir/out"
    results_dir="$bench_dir/results/chains-$pgbench_scale"
    mkdir -p "$results_dir"
    for part in "${chain_parts[@]}"; do
        [[ -z $only || $only == "$part" ]] || continue
        : >"$(rows_file)"
        "chains_$part"
    done
    write_chains_table
}

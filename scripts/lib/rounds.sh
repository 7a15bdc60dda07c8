# shellcheck shell=bash
# soak sqlite: rounds of backups of a live SQLite database. In each round other processes write to it, and one thing more
# happens: checkpoints, VACUUM, a writer that is killed, or a database that is cut off. Each set is restored and judged.
# At the end the counts are printed, for docs/reliability.md.
# Never does: end a process that it did not start. Needs common.sh, show.sh, writers.sh; of scripts/soak windlass, seed,
# rounds, draw, drawn, begin_work, end_work.
set -euo pipefail

declare -A counted=()
disturber=
keeper=

# count NAME [HOW_MANY]
count() {
    counted[$1]=$((${counted[$1]:-0} + ${2:-1}))
}

# random_below N: in the variable drawn, 0 to N - 1.
random_below() {
    drawn=$(((RANDOM * 32768 + RANDOM) % $1))
}

# pause_below MILLISECONDS: some time below that, drawn anew.
pause_below() {
    random_below "$1"
    sleep "$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))"
}

quiet_sqlite() {
    sqlite3 -cmd '.timeout 120000' "$@" >/dev/null
}

disturb_nothing() { :; }

# Asks for more than it gets, at times: a busy checkpoint is no error.
disturb_checkpoints() {
    local turn mode
    for ((turn = 0; turn < 8; turn++)); do
        draw PASSIVE FULL RESTART TRUNCATE
        mode=$drawn
        sqlite3 -cmd '.timeout 50' shop.db "PRAGMA wal_checkpoint($mode)" >/dev/null 2>&1 || true
        pause_below 150
    done
}

disturb_vacuum() {
    pause_below 500
    quiet_sqlite shop.db "DROP TABLE IF EXISTS ballast; CREATE TABLE ballast AS SELECT randomblob(2000000) AS b"
    quiet_sqlite shop.db "DROP TABLE ballast" "VACUUM"
}

# The writer dies in the middle of whatever it does, and leaves a hot journal or a log without an end.
disturb_kill() {
    pause_below 900
    kill -KILL "$ledger_shell"
}

reap_ledger_writer() {
    kill "$ledger_writer" "$ledger_shell" 2>/dev/null || true
    wait "$ledger_writer" "$ledger_shell" 2>/dev/null || true
    ledger_writer='' ledger_shell=''
}

# back_up_round DATABASE [OPTION ...]. Exit code 3 is a warning: that a dead writer's transaction was rolled back.
back_up_round() {
    local status=0
    mkdir -p set
    "$windlass" backup "$@" --to set --compress lz4 --quiet >backup.out 2>&1 || status=$?
    case $status in
        0) count "sets sealed" ;;
        3) count "sets sealed, with a warning" ;;
        *) return "$status" ;;
    esac
}

restore_round() {
    "$windlass" restore set --into restored.db --quiet >/dev/null
    expect "the restored database is sound" ok "$(sqlite3 restored.db "PRAGMA integrity_check")"
}

# live_round MODE DISTURBANCE: one backup of shop.db while it is written to and disturbed.
live_round() {
    local mode=$1 disturbance=$2 first last
    quiet_sqlite shop.db "PRAGMA journal_mode = $mode"
    start_ledger_writer shop.db
    first=$(ledger_length shop.db)
    "disturb_$disturbance" &
    disturber=$!
    back_up_round shop.db --max-rate 8MiB/s || { cat backup.out >&2 && die "the backup ended with $?"; }
    wait "$disturber" || die "the disturbance $disturbance ended with $?"
    disturber=
    if [[ $disturbance == kill ]]; then reap_ledger_writer; else stop_ledger_writer; fi
    last=$(ledger_length shop.db)
    restore_round
    compare_ledgers shop.db restored.db "$first" "$last"
    count "exactly one committed state"
}

# Keeps a connection to victim.db open, so that its log stays.
keep_open() {
    rm -f keeper.pipe
    mkfifo keeper.pipe
    sqlite3 victim.db <keeper.pipe >keeper.out &
    keeper=$!
    exec {keeper_input}>keeper.pipe
    printf 'CREATE TABLE kept (a); INSERT INTO kept VALUES (1); SELECT a FROM kept;\n' >&"$keeper_input"
    until grep --quiet 1 keeper.out; do sleep 0.01; done
}

let_go() {
    exec {keeper_input}>&-
    wait "$keeper" 2>/dev/null || true
    keeper=
}

# cut_round MODE: a database that is cut off somewhere, before the backup or while it runs. The backup fails and leaves
# nothing; or it had read all of it before the cut, and then the set is right.
cut_round() {
    local mode=$1 status=0 bytes
    rm -f victim.db*
    quiet_sqlite shop.db ".backup victim.db"
    quiet_sqlite victim.db "PRAGMA journal_mode = $mode"
    keep_open
    bytes=$(stat --format %s victim.db)
    random_below $((bytes - 4096))
    bytes=$((4096 + drawn))
    (pause_below 1200 && truncate -s "$bytes" victim.db) &
    disturber=$!
    draw before during during
    [[ $drawn == during ]] || wait "$disturber"
    back_up_round victim.db --max-rate 8MiB/s || status=$?
    wait "$disturber"
    disturber=
    let_go
    if ((status == 0)); then
        restore_round
        count "databases cut off when all was read"
    elif ((status == 1)) && grep --quiet "is cut off at byte" backup.out && [[ -z $(find set -type f) ]]; then
        count "databases cut off, refused, nothing left"
    else
        cat backup.out >&2 && die "the backup of a database that was cut off ended with $status"
    fi
}

print_counts() {
    local name
    say "sqlite: $rounds rounds, seed $seed, SQLite $(sqlite3 :memory: "SELECT sqlite_version()")"
    for name in "${!counted[@]}"; do
        printf '| %s | %d |\n' "$name" "${counted[$name]}"
    done | sort
    printf '| transactions of the writer | %d |\n' "$(ledger_length shop.db)"
}

# For a trap: whatever is still there.
stop_rounds() {
    local process
    for process in $disturber $keeper; do
        kill "$process" 2>/dev/null && wait "$process" 2>/dev/null
    done
}

soak_sqlite() {
    local round mode disturbance
    note "sqlite: $rounds rounds, seed $seed"
    RANDOM=$seed
    begin_work
    make_ledger_database shop.db 20000
    for ((round = 1; round <= rounds; round++)); do
        draw wal wal delete truncate persist
        mode=$drawn
        draw nothing checkpoints vacuum kill cut
        disturbance=$drawn
        note "sqlite: round $round of $rounds: $mode, $disturbance"
        count "rounds: $mode, $disturbance"
        if [[ $disturbance == cut ]]; then cut_round "$mode"; else live_round "$mode" "$disturbance"; fi
        rm -rf set restored.db*
    done
    print_counts
    end_work
}
